/* Which initializers are parameters, where a file states it. PyTorch's exporter writes the
 * signature of the exported program into the metadata of the graph, a line for each of its inputs:
 *
 *     p_head_weight: PARAMETER target='head.weight'
 *     b_pe: BUFFER target='pe' persistent=True
 *
 * Initializers that it does not name are computed from constants by the exporter; from parameters,
 * too, if some of these are no initializers any more, as small weights of recurrent layers. */
#include "onnx/import/file.h"

#include <string.h>

/* The metadata of a graph are a field that libraries of ONNX before 1.16 do not have. */
enum { METADATA = 16 };

static const char key[] = "pkg.torch.export.ExportedProgram.graph_signature";

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

static bool is_signature(const Onnx__StringStringEntryProto *entry) {
    return entry->key && entry->value && strcmp(entry->key, key) == 0;
}

/* From a field that this library of ONNX does not have. */
static kolo_status read_unknown(const ProtobufCMessageUnknownField *field, char **text) {
    size_t length = 0;
    if (field->tag != METADATA || field->wire_type != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
        return KOLO_OK;
    }
    const uint8_t *data = skip_length(field->data, field->len, &length);
    Onnx__StringStringEntryProto *entry =
        data ? onnx__string_string_entry_proto__unpack(NULL, length, data) : NULL;
    if (!entry) return KOLO_OK; /* no entry: nothing that is needed */
    const bool found = is_signature(entry);
    if (found) *text = kolo_strdup(entry->value);
    const size_t bytes = found ? strlen(entry->value) : 0;
    onnx__string_string_entry_proto__free_unpacked(entry, NULL);
    return found && !*text ? KOLO_NOMEM(bytes) : KOLO_OK;
}

static kolo_status read_known(const Onnx__GraphProto *graph, const ProtobufCFieldDescriptor *field,
                              char **text) {
    const char *at = (const char *)graph;
    size_t n = 0;
    Onnx__StringStringEntryProto *const *entries = NULL;
    memcpy(&n, at + field->quantifier_offset, sizeof n);
    memcpy((void *)&entries, at + field->offset, sizeof entries);
    for (size_t i = 0; i < n; i++) {
        if (!is_signature(entries[i])) continue;
        *text = kolo_strdup(entries[i]->value);
        return *text ? KOLO_OK : KOLO_NOMEM(strlen(entries[i]->value));
    }
    return KOLO_OK;
}

/* The signature; NULL: the file has none. */
static kolo_status find_signature(const Onnx__GraphProto *graph, char **text) {
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&onnx__graph_proto__descriptor, METADATA);
    *text = NULL;
    if (field) return read_known(graph, field, text);
    for (unsigned i = 0; i < graph->base.n_unknown_fields && !*text; i++) {
        KOLO_TRY(read_unknown(&graph->base.unknown_fields[i], text));
    }
    return KOLO_OK;
}

kolo_status onnx_read_signature(kolo_onnx *onnx) {
    static const char mark[] = ": PARAMETER target='";
    char *text;
    bool any = false, all = true;
    KOLO_TRY(find_signature(onnx->model->graph, &text));
    for (char *at = text; at && (at = strstr(at, mark));) {
        char *name = at + sizeof mark - 1, *end = name + strcspn(name, "'\n");
        at = end + (*end != '\0');
        *end = '\0';
        const int32_t k = kolo_name_index_find(&onnx->index, name);
        if (k >= 0) onnx->initializers[k].parameter = true;
        any = any || k >= 0;
        all = all && k >= 0;
    }
    onnx->states_parameters = any && all;
    kolo_free(text);
    return KOLO_OK;
}
