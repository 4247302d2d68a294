/* Which initializers are parameters. PyTorch's exporter writes the signature of the exported
 * program into the metadata of the graph, a line for each of its inputs:
 *
 *     p_head_weight: PARAMETER target='head.weight'
 *     b_pe: BUFFER target='pe' persistent=True
 *
 * and into those of each node the call of the program that it comes from:
 *
 *     %linear : [num_users=1] = call_function[target=...linear.default](args = (%x,
 * %p_head_weight))
 *
 * Initializers that the signature does not name are computed by the exporter, from constants or
 * from parameters: a transposed weight, the joined weights of a recurrent layer. One that the call
 * of its node does not name either, while that call reads a parameter, is computed from this
 * parameter. One that the call names, %expand, comes from other calls, which the file lacks: it may
 * come from the parameters that no call reads. */
#include "base/integer.h"
#include "base/text.h"
#include "onnx/import/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Fields that libraries of ONNX before 1.16 do not have. */
enum { OF_GRAPH = 16, OF_NODE = 9 };

static const char signature_key[] = "pkg.torch.export.ExportedProgram.graph_signature";
static const char call_key[] = "pkg.torch.onnx.fx_node";

/* ---- metadata ---- */

/* The length that a field begins with, and where its bytes are; NULL: damaged. */
static const uint8_t *skip_length(const uint8_t *at, size_t bytes, size_t *length) {
    size_t n = 0;
    for (size_t i = 0; i < bytes && i < 5; i++) {
        n |= (size_t)(at[i] & 0x7f) << (7 * i);
        if (at[i] & 0x80) continue;
        *length = n;
        return n <= bytes - i - 1 ? at + i + 1 : NULL;
    }
    return NULL;
}

static bool has_key(const Onnx__StringStringEntryProto *entry, const char *key) {
    return entry->key && entry->value && strcmp(entry->key, key) == 0;
}

/* From a field that this library of ONNX does not have. */
static kolo_status read_unknown(const ProtobufCMessageUnknownField *field, unsigned tag,
                                const char *key, char **text) {
    size_t length = 0;
    if (field->tag != tag || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
        return KOLO_OK;
    }
    const uint8_t *data = skip_length(field->data, field->len, &length);
    Onnx__StringStringEntryProto *entry =
        data ? onnx__string_string_entry_proto__unpack(NULL, length, data) : NULL;
    if (!entry) return KOLO_OK; /* no entry: nothing that is needed */
    const bool found = has_key(entry, key);
    if (found) *text = kolo_strdup(entry->value);
    const size_t bytes = found ? strlen(entry->value) : 0;
    onnx__string_string_entry_proto__free_unpacked(entry, NULL);
    return found && !*text ? KOLO_NOMEM(bytes) : KOLO_OK;
}

static kolo_status read_known(const ProtobufCMessage *message,
                              const ProtobufCFieldDescriptor *field, const char *key, char **text) {
    const char *at = (const char *)message;
    size_t n = 0;
    Onnx__StringStringEntryProto *const *entries = NULL;
    memcpy(&n, at + field->quantifier_offset, sizeof n);
    memcpy((void *)&entries, at + field->offset, sizeof entries);
    for (size_t i = 0; i < n; i++) {
        if (!has_key(entries[i], key)) continue;
        *text = kolo_strdup(entries[i]->value);
        return *text ? KOLO_OK : KOLO_NOMEM(strlen(entries[i]->value));
    }
    return KOLO_OK;
}

/* The entry of a key, which the caller frees; NULL: there is none. */
static kolo_status find_metadata(const ProtobufCMessage *message, unsigned tag, const char *key,
                                 char **text) {
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(message->descriptor, tag);
    *text = NULL;
    if (field) return read_known(message, field, key, text);
    for (unsigned i = 0; i < message->n_unknown_fields && !*text; i++) {
        KOLO_TRY(read_unknown(&message->unknown_fields[i], tag, key, text));
    }
    return KOLO_OK;
}

/* ---- the signature ---- */

/* A parameter of the program. */
typedef struct stated {
    const char *name;    /* arena */
    int32_t initializer; /* of its name; -1: the file has none */
    bool read;           /* by the call of a node */
} stated;

typedef struct signature {
    stated *parameters;
    size_t n, cap;
    kolo_name_index arguments; /* the names that calls read the parameters by */
} signature;

/* A line "argument: KIND target='name'", which is cut into these. */
static kolo_status read_line(kolo_onnx *onnx, signature *s, char *line) {
    static const char mark[] = " target='";
    char *colon = strchr(line, ':'), *target = colon ? strstr(colon, mark) : NULL;
    if (!target) return KOLO_OK;
    const bool parameter = strncmp(colon, ": PARAMETER", (size_t)(target - colon)) == 0;
    char *name = target + sizeof mark - 1;
    *colon = '\0';
    name[strcspn(name, "'")] = '\0';
    const int32_t k = kolo_name_index_find(&onnx->index, name);
    if (k >= 0) onnx->initializers[k].origin = parameter ? ONNX_PARAMETER : ONNX_BUFFER;
    if (!parameter || kolo_name_index_find(&s->arguments, line) >= 0) return KOLO_OK;
    char *argument = kolo_arena_strdup(&onnx->arena, line); /* the index borrows it */
    name = kolo_arena_strdup(&onnx->arena, name);
    if (!argument || !name || !KOLO_GROW(s->parameters, s->n, s->cap) ||
        !kolo_name_index_add(&s->arguments, argument, (int32_t)s->n)) {
        return KOLO_NOMEM(sizeof *s->parameters);
    }
    s->parameters[s->n++] = (stated){.name = name, .initializer = k};
    return KOLO_OK;
}

static kolo_status read_lines(kolo_onnx *onnx, signature *s) {
    char *text;
    KOLO_TRY(find_metadata(&onnx->model->graph->base, OF_GRAPH, signature_key, &text));
    kolo_status status = KOLO_OK;
    for (char *line = text; line && status == KOLO_OK;) {
        char *end = strchr(line, '\n');
        if (end) *end = '\0';
        if (strcmp(line, "# outputs") == 0) break;
        status = read_line(onnx, s, line);
        line = end ? end + 1 : NULL;
    }
    kolo_free(text);
    return status;
}

/* ---- calls ---- */

/* The next name after a %, which is copied; false: there is none, or it is too long. */
static bool next_name(const char **at, char *name, size_t size) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *start = strchr(*at, '%');
    if (!start) return false;
    const size_t length = strspn(start + 1, letters);
    *at = start + 1 + length;
    snprintf(name, size, "%.*s", (int)kolo_min_i64((int64_t)length, (int64_t)size - 1), start + 1);
    return true;
}

enum { NAME = 512 };

static bool names(const char *call, const char *name) {
    char found[NAME];
    while (next_name(&call, found, sizeof found)) {
        if (strcmp(found, name) == 0) return true;
    }
    return false;
}

/* Whether t is the matrix w transposed. */
static bool is_transposed(const host_tensor *t, const host_tensor *w) {
    if (w->integer || w->shape.rank != 2 || t->shape.rank != 2) return false;
    const int64_t rows = w->shape.dim[0], columns = w->shape.dim[1];
    if (t->shape.dim[0] != columns || t->shape.dim[1] != rows) return false;
    for (int64_t i = 0; i < t->count; i++) {
        if (t->f[i] != w->f[i % rows * columns + i / rows]) return false;
    }
    return true;
}

/* Whether an initializer is computed from a parameter that the call reads: from one that is no
 * initializer, or from a matrix that it is the transpose of. */
static bool is_derived(const kolo_onnx *onnx, const signature *s, const char *call,
                       onnx_initializer *k) {
    char name[NAME];
    bool lacks = false;
    while (next_name(&call, name, sizeof name)) {
        const int32_t i = kolo_name_index_find(&s->arguments, name);
        if (i < 0) continue;
        const int32_t of = s->parameters[i].initializer;
        lacks = lacks || of < 0;
        if (of < 0 || !is_transposed(&k->tensor, &onnx->initializers[of].tensor)) continue;
        k->transposed = onnx->initializers[of].name;
        return true;
    }
    return lacks;
}

static void mark_read(signature *s, const char *call) {
    char name[NAME];
    while (next_name(&call, name, sizeof name)) {
        const int32_t i = kolo_name_index_find(&s->arguments, name);
        if (i >= 0) s->parameters[i].read = true;
    }
}

static bool is_op(const Onnx__NodeProto *node, const char *op) {
    return node->op_type && strcmp(node->op_type, op) == 0;
}

/* All elements are this number. */
static bool is_filled(const host_tensor *t, float number) {
    for (int64_t i = 0; i < t->count; i++) {
        if (t->f[i] != number) return false;
    }
    return t->count > 0;
}

/* Inputs that the exporter adds: the first states of recurrent layers; scales of 1 and biases of 0
 * of normalizations that have none, or apply their own afterwards, as by groups. */
static bool is_added(const Onnx__NodeProto *node, size_t input, const host_tensor *t) {
    if (is_op(node, "InstanceNormalization")) {
        return (input == 1 && is_filled(t, 1)) || (input == 2 && is_filled(t, 0));
    }
    const bool cell = is_op(node, "LSTM") || is_op(node, "GRU") || is_op(node, "RNN");
    return cell && input >= 5;
}

static bool may_train(const onnx_initializer *k) {
    return !k->tensor.integer && k->tensor.shape.rank > 0 && k->tensor.count > 0;
}

/* Finds out where an input of a node comes from. `call` may be NULL: unknown. */
static void read_input(kolo_onnx *onnx, const signature *s, const Onnx__NodeProto *node,
                       size_t input, const char *call) {
    const char *name = node->input[input] ? node->input[input] : "";
    const int32_t k = kolo_name_index_find(&onnx->index, name);
    if (k < 0 || !may_train(&onnx->initializers[k])) return;
    onnx_initializer *of = &onnx->initializers[k];
    onnx_origin origin = ONNX_CONSTANT;
    if (is_added(node, input, &of->tensor)) {
        origin = ONNX_CONSTANT;
    } else if (!call || names(call, name)) {
        origin = of->tensor.count > 1 ? ONNX_COMPUTED : ONNX_CONSTANT;
    } else if (is_derived(onnx, s, call, of)) {
        origin = ONNX_DERIVED;
    }
    /* The most that one of its nodes shows; the signature is certain. */
    if (of->origin < ONNX_PARAMETER && origin > of->origin) of->origin = origin;
}

/* ---- biases ---- */

/* The bias that a call reads and the file lacks; NULL: none. */
static stated *lacking_bias(const signature *s, const char *call) {
    static const char bias[] = "bias";
    char name[NAME];
    while (next_name(&call, name, sizeof name)) {
        const int32_t i = kolo_name_index_find(&s->arguments, name);
        if (i < 0 || s->parameters[i].initializer >= 0) continue;
        const char *of = s->parameters[i].name;
        const size_t length = strlen(of);
        if (length >= sizeof bias - 1 && strcmp(of + length - (sizeof bias - 1), bias) == 0) {
            return &s->parameters[i];
        }
    }
    return NULL;
}

/* The elements of a bias that the node may have; 0: unknown. */
static int64_t bias_size(const kolo_onnx *onnx, const Onnx__NodeProto *node) {
    const int32_t k = kolo_name_index_find(&onnx->index, node->input[1] ? node->input[1] : "");
    const kolo_shape *w = k >= 0 ? &onnx->initializers[k].tensor.shape : NULL;
    if (!w || w->rank < 2 || onnx->initializers[k].tensor.count == 0) return 0;
    if (is_op(node, "Conv")) return w->dim[0];
    bool transposed = false;
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__AttributeProto *a = node->attribute[i];
        if (a->name && strcmp(a->name, "transB") == 0) transposed = a->has_i && a->i != 0;
    }
    return is_op(node, "Gemm") && w->rank == 2 ? w->dim[transposed ? 0 : 1] : 0;
}

/* The exporter leaves out biases of zeros, which are parameters all the same. */
static kolo_status restore_bias(kolo_onnx *onnx, const signature *s, Onnx__NodeProto *node,
                                const char *call) {
    stated *of = node->n_input == 2 ? lacking_bias(s, call) : NULL;
    const int64_t n = of ? bias_size(onnx, node) : 0;
    if (n == 0) return KOLO_OK;
    const size_t bytes = (size_t)n * sizeof(float);
    float *zeros = kolo_arena_alloc(&onnx->arena, bytes);
    char *name = kolo_strdup(of->name), **inputs = kolo_alloc(3 * sizeof *inputs);
    if (!zeros || !name || !inputs ||
        !kolo_name_index_add(&onnx->index, of->name, (int32_t)onnx->n_initializers)) {
        kolo_free(name);
        kolo_free((void *)inputs);
        return KOLO_NOMEM(bytes);
    }
    memset(zeros, 0, bytes);
    of->initializer = (int32_t)onnx->n_initializers;
    onnx->initializers[onnx->n_initializers++] =
        (onnx_initializer){.name = of->name,
                           .origin = ONNX_PARAMETER,
                           .tensor = {.shape = kolo_shape_1(n), .count = n, .f = zeros}};
    inputs[0] = node->input[0];
    inputs[1] = node->input[1];
    inputs[2] = name;
    kolo_free((void *)node->input);
    node->input = inputs;
    node->n_input = 3;
    return KOLO_OK;
}

/* Nodes of a program that has a signature. */
static kolo_status read_node(kolo_onnx *onnx, signature *s, Onnx__NodeProto *node) {
    char *call;
    KOLO_TRY(find_metadata(&node->base, OF_NODE, call_key, &call));
    if (call) mark_read(s, call);
    for (size_t i = 0; i < node->n_input; i++) read_input(onnx, s, node, i, call);
    kolo_status status = call ? restore_bias(onnx, s, node, call) : KOLO_OK;
    kolo_free(call);
    return status;
}

/* ---- files without a signature ---- */

/* Whether an exporter has generated the name: "val_8", "onnx::MatMul_31", "17", "Constant_output".
 */
static bool is_generated(const char *name) {
    const char *digits = strncmp(name, "val_", 4) == 0 ? name + 4 : name;
    const bool number = *digits && digits[strspn(digits, "0123456789")] == '\0';
    return number || strstr(name, "::") || strstr(name, "Constant_") ||
           strncmp(name, "const", 5) == 0;
}

/* Whether an operator reads single numbers as constants, hardly as a weight. */
static bool scales(const Onnx__NodeProto *node) {
    static const char *const ops[] = {"Mul", "Div", "Sub", "Pow", "Max", "Min", "Where"};
    for (size_t i = 0; i < KOLO_COUNT(ops); i++) {
        if (is_op(node, ops[i])) return true;
    }
    return false;
}

static void guess_input(kolo_onnx *onnx, const Onnx__NodeProto *node, size_t input) {
    const char *name = node->input[input] ? node->input[input] : "";
    const int32_t k = kolo_name_index_find(&onnx->index, name);
    if (k < 0 || !may_train(&onnx->initializers[k])) return;
    onnx_initializer *of = &onnx->initializers[k];
    if (!is_generated(name)) {
        of->origin = ONNX_PARAMETER;
    } else if (!is_added(node, input, &of->tensor) && (of->tensor.count > 1 || !scales(node))) {
        of->origin = ONNX_COMPUTED;
    }
}

/* ---- all files ---- */

/* Whether it holds minus infinity, or numbers as large: no weight does. */
static bool is_mask(const host_tensor *t) {
    for (int64_t i = 0; i < t->count; i++) {
        if (fabsf(t->f[i]) >= ONNX_LEAST_OF_MASKS) return true;
    }
    return false;
}

/* Whether the file has all parameters, or what is computed from them by the calls of its nodes. */
static bool is_complete(const signature *s) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->parameters[i].initializer < 0 && !s->parameters[i].read) return false;
    }
    return s->n > 0;
}

/* Adds a name to a list of at most MOST; 0: it is the first. */
static void add_name(kolo_text *text, const char *name, size_t number) {
    enum { MOST = 20 };
    if (number < MOST) kolo_text_add(text, "%s%.200s", number > 0 ? "," : "", name);
    if (number == MOST) kolo_text_add(text, ",...");
}

/* The line for the user on initializers that may be parameters or not. */
static kolo_status write_notice(kolo_onnx *onnx, const signature *s) {
    kolo_text lacking = {0}, trained = {0}, text = {0};
    size_t n_lacking = 0, n_trained = 0;
    for (size_t i = 0; i < s->n; i++) {
        const stated *of = &s->parameters[i];
        if (of->initializer < 0 && !of->read) add_name(&lacking, of->name, n_lacking++);
    }
    for (size_t k = 0; k < onnx->n_initializers; k++) {
        const onnx_initializer *of = &onnx->initializers[k];
        if (of->origin == ONNX_COMPUTED) add_name(&trained, of->name, n_trained++);
    }
    if (n_lacking + n_trained > 0) kolo_text_add(&text, "%s: ", onnx->path);
    if (n_lacking > 0) {
        kolo_text_add(&text, "the exporter has replaced the parameters %s by computed values%s",
                      lacking.text, n_trained > 0 ? "; " : ", which are not trained");
    }
    if (n_trained > 0) {
        kolo_text_add(&text,
                      "initializers that the file does not name as parameters are trained; if they "
                      "are constants, freeze them: %s",
                      trained.text);
    }
    const bool failed = lacking.failed || trained.failed || text.failed;
    if (text.text && !failed) onnx->notice = kolo_strdup(text.text);
    const kolo_status status = failed || (text.text && !onnx->notice) ? KOLO_NOMEM(256) : KOLO_OK;
    kolo_text_fini(&lacking);
    kolo_text_fini(&trained);
    kolo_text_fini(&text);
    return status;
}

kolo_status onnx_find_parameters(kolo_onnx *onnx) {
    const Onnx__GraphProto *graph = onnx->model->graph;
    signature s = {0};
    kolo_status status = read_lines(onnx, &s);
    for (size_t i = 0; i < graph->n_node && status == KOLO_OK; i++) {
        Onnx__NodeProto *node = graph->node[i];
        if (s.n > 0) status = read_node(onnx, &s, node);
        for (size_t k = 0; k < node->n_input && s.n == 0; k++) guess_input(onnx, node, k);
    }
    onnx->states_parameters = s.n > 0;
    const bool complete = is_complete(&s);
    for (size_t k = 0; k < onnx->n_initializers; k++) {
        onnx_initializer *of = &onnx->initializers[k];
        if (of->origin == ONNX_COMPUTED && (complete || is_mask(&of->tensor))) {
            of->origin = ONNX_CONSTANT;
        }
    }
    if (status == KOLO_OK) status = write_notice(onnx, &s);
    kolo_name_index_fini(&s.arguments);
    kolo_free(s.parameters);
    return status;
}
