#pragma once
/* The parts of the layout pass. layout.c describes the method. */

#include "pass/pass.h"

#include <string.h>

enum { N_FAMILIES = 4, N_INPUT_FAMILIES = 2 };

typedef enum component_kind {
    PLAIN,      /* nothing to choose */
    ACTIVATION, /* one of the families */
    INPUT,      /* one of the first two families */
    WEIGHT,     /* open until a kernel chooses, or fixed by the caller */
} component_kind;

typedef struct component {
    component_kind kind;
    bool is_param, is_input, is_weight, is_activation, is_plain, fixed;
    bool chosen;        /* WEIGHT: by a kernel, in the current assignment */
    kolo_layout layout; /* in the current assignment */
} component;

/* The best kernel of a node for one combination of layouts. */
typedef struct memo {
    struct memo *next;
    kolo_kernel_spec asked;
    kolo_layout weights; /* chosen for the input that holds weights */
    int detour;          /* a family, or NO_DETOUR */
    double seconds;      /* negative: no kernel */
} memo;

enum { NO_DETOUR = -1 };

/* A value in the layout of a detour. */
typedef struct copy {
    struct copy *next;
    kolo_value value;
    kolo_layout layout;
} copy;

typedef struct layouter {
    kolo_graph *g;
    kolo_kernel_set kernels;
    struct kolo_tuner *tuner;
    struct kolo_selections *selections;
    int threads;
    kolo_layout families[N_FAMILIES];
    int32_t *root;          /* by value */
    component *components;  /* by root value */
    int32_t *twin;          /* by node: the first node with the same work */
    memo **memos;           /* by twin */
    kolo_layout *reordered; /* by node: layout that its weights need first; rank 0: none */
    int *detour;            /* by node */
    copy **copies;          /* by value, while reorders are placed */
    kolo_arena arena;
} layouter;

/* ---- components ---- */

static inline int32_t root_of(layouter *l, int32_t v) {
    while (l->root[v] != v) v = l->root[v] = l->root[l->root[v]];
    return v;
}

static inline component *component_of(layouter *l, kolo_value v) {
    return &l->components[root_of(l, v.id)];
}

static inline const kolo_tensor *tensor_of(const layouter *l, kolo_value v) {
    return &kolo_info(l->g, v)->tensor;
}

/* Value k of a node, its outputs after its inputs. */
static inline kolo_value value_at(const kolo_node *n, int k) {
    return k < n->n_in ? n->in[k] : n->out[k - n->n_in];
}
/* The input of an op that holds weights; -1: none. */
static inline int weights_input(const kolo_op *op) {
    const char *weights = op->layout.in ? strchr(op->layout.in, 'w') : NULL;
    return weights ? (int)(weights - op->layout.in) : -1;
}

/* Whether value k of a node takes part in its detours. */
static inline bool is_image(layouter *l, const kolo_node *n, int k) {
    component_kind kind = component_of(l, value_at(n, k))->kind;
    return (kind == ACTIVATION || kind == INPUT) && tensor_of(l, value_at(n, k))->shape.rank == 4;
}

/* Groups the values into components; `fixed` as in kolo_pass_layout. */
kolo_status kolo_layout_find_components(layouter *l, kolo_fixed_layout fixed, void *arg);

/* ---- whole models ---- */

/* Fixes the layouts of the values of a whole model that this graph has. */
void kolo_layout_take_whole(layouter *l, const kolo_whole_layouts *whole);
/* UNSUPPORTED: a node computes what none of the whole model does. */
kolo_status kolo_layout_check_whole(const kolo_graph *g, const kolo_whole_layouts *whole);

/* ---- search ---- */

/* Chooses the layout of every component and the detours of the nodes. */
kolo_status kolo_layout_search(layouter *l);
/* Before and after the search: prepares it, and chooses what each node needs under the layouts that
 * the components have. False: a node has no kernel for them, see kolo_last_error. */
void kolo_layout_begin(layouter *l);
bool kolo_layout_place_nodes(layouter *l);

/* ---- groups of ranks ---- */

/* Chooses the layout of every value, as the rank that decides for the group has it, and the detours
 * of this rank's nodes. Collective. */
kolo_status kolo_layout_decide(layouter *l, const kolo_decider *decider);

/* ---- reorders ---- */

/* Before the search: adds a reorder at every place where a layout may have to change. */
kolo_status kolo_layout_add_borders(kolo_graph *g);
/* After the search: writes the layouts into the values, adds the reorders that weights and detours
 * need, and removes those that change nothing. */
kolo_status kolo_layout_apply(layouter *l);
