/* The graph as text: leaves, then one line per node, then the outputs. `kolo dump` prints it and
 * golden tests compare it, so the format is stable. */
#include "graph/graph.h"

#include <inttypes.h>
#include <string.h>

static void print_handle(const kolo_graph *g, kolo_value v, kolo_text *text) {
    const char *name = kolo_info(g, v)->name;
    kolo_text_add(text, "%%%" PRId32 "%s%s", v.id, name ? " " : "", name ? name : "");
}

static void print_tensor(const kolo_tensor *t, kolo_text *text) {
    char shape[KOLO_SHAPE_TEXT], layout[KOLO_LAYOUT_TEXT];
    kolo_text_add(text, " %s %s", kolo_dtype_name(t->dtype), kolo_shape_text(&t->shape, shape));
    if (t->shape.rank > 1) kolo_text_add(text, " %s", kolo_layout_text(&t->layout, layout));
}

static void print_value(const kolo_graph *g, kolo_value v, kolo_text *text) {
    const kolo_value_info *info = kolo_info(g, v);
    print_handle(g, v, text);
    print_tensor(&info->tensor, text);
    char placements[KOLO_PLACEMENT_TEXT];
    if (strcmp(kolo_placements_text(&g->mesh, &info->placements, placements), "invariant") != 0) {
        kolo_text_add(text, " %s", placements);
    }
    if (kolo_value_ok(info->next_of)) {
        kolo_text_add(text, " next of %%%" PRId32, info->next_of.id);
    }
}

void kolo_node_print(const kolo_graph *g, const kolo_node *n, kolo_text *text) {
    for (int i = 0; i < n->n_out; i++) {
        if (i) kolo_text_add(text, ", ");
        print_value(g, n->out[i], text);
    }
    kolo_text_add(text, " = %s(", n->op->name);
    for (int i = 0; i < n->n_in; i++) {
        if (i) kolo_text_add(text, ", ");
        print_handle(g, n->in[i], text);
    }
    kolo_text_add(text, ")");
    for (int i = 0; n->op->attrs && n->op->attrs[i]; i++) {
        const char *name = n->op->attrs[i];
        if (name[0] == '%') {
            if (n->attr[i].f != 0) kolo_text_add(text, " %s=%g", name + 1, n->attr[i].f);
        } else if (n->attr[i].i != 0) {
            kolo_text_add(text, " %s=%" PRId64, name, n->attr[i].i);
        }
    }
    if (n->recomputed) kolo_text_add(text, " recomputed");
    if (n->late) kolo_text_add(text, " late");
}

void kolo_graph_print(const kolo_graph *g, kolo_text *text) {
    static const char *const kinds[] = {
        [KOLO_VALUE_INPUT] = "input",
        [KOLO_VALUE_SCALAR] = "scalar",
        [KOLO_VALUE_PARAM] = "param",
        [KOLO_VALUE_STATE] = "state",
    };
    for (int32_t i = 0; i < g->n_values; i++) {
        if (g->values[i].kind == KOLO_VALUE_TEMP) continue;
        kolo_text_add(text, "%s ", kinds[g->values[i].kind]);
        print_value(g, (kolo_value){.id = i}, text);
        kolo_text_add(text, "\n");
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        kolo_node_print(g, g->nodes[i], text);
        kolo_text_add(text, "\n");
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        kolo_text_add(text, "output %s = ", g->outputs[i].name);
        print_handle(g, g->outputs[i].value, text);
        kolo_text_add(text, "\n");
    }
}
