/* Names of tensors: a hash table, and the message that announces new names.
 *
 * A message is a sequence of entries: length of the name (2 bytes), type and operation (1 byte
 * each), number of elements (8 bytes), name. All ranks read the messages of all ranks in rank
 * order, so they assign the same ids and detect the same differences. */
#include "comm/sync/named_names.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 12, SLOTS_MIN = 64, MESSAGE_MAX = 1 << 28 };

/* ---- the table ---- */

static size_t slot_of(const kolo_name_table *t, uint64_t hash) { return hash & (t->n_slots - 1); }

int kolo_names_find(const kolo_name_table *t, const char *name, size_t length) {
    if (t->n_slots == 0) return -1;
    uint64_t hash = kolo_hash_bytes(name, length);
    for (size_t s = slot_of(t, hash); t->slots[s]; s = (s + 1) & (t->n_slots - 1)) {
        const kolo_named_tensor *tensor = &t->tensors[t->slots[s] - 1];
        if (tensor->hash == hash && strlen(tensor->name) == length &&
            memcmp(tensor->name, name, length) == 0) {
            return t->slots[s] - 1;
        }
    }
    return -1;
}

static void enter(kolo_name_table *t, int handle) {
    size_t s = slot_of(t, t->tensors[handle].hash);
    while (t->slots[s]) s = (s + 1) & (t->n_slots - 1);
    t->slots[s] = handle + 1;
}

/* Keeps at least half of the slots empty. */
static kolo_status make_slots(kolo_name_table *t) {
    if (2 * (t->n + 1) <= t->n_slots) return KOLO_OK;
    size_t n_slots = t->n_slots ? 2 * t->n_slots : SLOTS_MIN;
    int *slots = kolo_zalloc(n_slots * sizeof *slots);
    if (!slots) return KOLO_NOMEM(n_slots * sizeof *slots);
    kolo_free(t->slots);
    t->slots = slots;
    t->n_slots = n_slots;
    for (size_t i = 0; i < t->n; i++) enter(t, (int)i);
    return KOLO_OK;
}

kolo_status kolo_names_add(kolo_name_table *t, const char *name, size_t length,
                           const kolo_signature *signature, int *handle) {
    KOLO_TRY(make_slots(t));
    if (!KOLO_GROW(t->tensors, t->n, t->capacity)) return KOLO_NOMEM(sizeof *t->tensors);
    char *copy = kolo_format("%.*s", (int)length, name);
    if (!copy) return KOLO_NOMEM(length);
    t->tensors[t->n] = (kolo_named_tensor){.name = copy,
                                           .hash = kolo_hash_bytes(name, length),
                                           .signature = *signature,
                                           .first_rank = -1,
                                           .id = -1};
    enter(t, (int)t->n);
    *handle = (int)t->n++;
    return KOLO_OK;
}

void kolo_names_fini(kolo_name_table *t) {
    for (size_t i = 0; i < t->n; i++) kolo_free(t->tensors[i].name);
    kolo_free(t->tensors);
    kolo_free(t->slots);
    kolo_free(t->by_id);
    *t = (kolo_name_table){0};
}

/* ---- signatures ---- */

void kolo_signature_text(const kolo_signature *s, char *text, size_t bytes) {
    snprintf(text, bytes, "%zu x %s, %s", s->count, kolo_dtype_name(s->dtype),
             kolo_reduce_op_name(s->op));
}

kolo_status kolo_names_check(const kolo_named_tensor *tensor, const kolo_signature *signature,
                             int rank) {
    const kolo_signature *known = &tensor->signature;
    if (known->count == signature->count && known->dtype == signature->dtype &&
        known->op == signature->op) {
        return KOLO_OK;
    }
    char before[64], now[64], who[24] = "known as";
    kolo_signature_text(known, before, sizeof before);
    kolo_signature_text(signature, now, sizeof now);
    if (tensor->first_rank >= 0) snprintf(who, sizeof who, "rank %d posted", tensor->first_rank);
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "tensor '%.100s': %s (%s), rank %d posts (%s); a name must have one type, "
                     "size and operation on all ranks",
                     tensor->name, who, before, rank, now);
}

/* ---- messages ---- */

kolo_status kolo_names_write(const kolo_name_table *t, char **bytes, size_t *length) {
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->tensors[i].id < 0) n += HEAD_BYTES + strlen(t->tensors[i].name);
    }
    if (n > MESSAGE_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%zu bytes of new tensor names: the maximum is %d", n,
                         MESSAGE_MAX);
    }
    char *at = kolo_alloc(n ? n : 1);
    if (!at) return KOLO_NOMEM(n);
    *bytes = at;
    *length = n;
    for (size_t i = 0; i < t->n; i++) {
        const kolo_named_tensor *tensor = &t->tensors[i];
        if (tensor->id >= 0) continue;
        uint16_t name_bytes = (uint16_t)strlen(tensor->name);
        uint64_t count = tensor->signature.count;
        memcpy(at, &name_bytes, 2);
        at[2] = (char)tensor->signature.dtype;
        at[3] = (char)tensor->signature.op;
        memcpy(at + 4, &count, sizeof count);
        memcpy(at + HEAD_BYTES, tensor->name, name_bytes);
        at += HEAD_BYTES + name_bytes;
    }
    return KOLO_OK;
}

/* Assigns the next id to a name. */
static kolo_status assign_id(kolo_name_table *t, int handle, int rank) {
    if (!KOLO_GROW(t->by_id, t->n_ids, t->ids_capacity)) return KOLO_NOMEM(sizeof *t->by_id);
    t->tensors[handle].id = (int)t->n_ids;
    t->tensors[handle].first_rank = rank;
    t->by_id[t->n_ids++] = handle;
    return KOLO_OK;
}

static kolo_status read_name(kolo_name_table *t, int rank, const char *name, size_t length,
                             const kolo_signature *signature) {
    int handle = kolo_names_find(t, name, length);
    if (handle >= 0 && t->tensors[handle].id >= 0) {
        return kolo_names_check(&t->tensors[handle], signature, rank);
    }
    if (handle < 0) {
        KOLO_TRY(kolo_names_add(t, name, length, signature, &handle));
        return assign_id(t, handle, rank);
    }
    /* Posted here too, perhaps with another signature: then this rank's own message, which all
     * ranks read, differs from that of the first rank. */
    t->tensors[handle].signature = *signature;
    return assign_id(t, handle, rank);
}

static kolo_status malformed(int rank, const char *what) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sent an invalid list of names: %s", rank, what);
}

kolo_status kolo_names_read(kolo_name_table *t, int rank, const char *bytes, size_t length) {
    while (length > 0) {
        if (length < HEAD_BYTES) return malformed(rank, "a truncated entry");
        uint16_t name_bytes;
        uint64_t count;
        memcpy(&name_bytes, bytes, 2);
        memcpy(&count, bytes + 4, sizeof count);
        unsigned dtype = (unsigned char)bytes[2], op = (unsigned char)bytes[3];
        if (dtype >= KOLO_DTYPE_COUNT || op >= KOLO_REDUCE_OP_COUNT) {
            return malformed(rank, "an unknown type or operation");
        }
        if (count > (uint64_t)INT64_MAX / kolo_dtype_bytes((kolo_dtype)dtype)) {
            return malformed(rank, "an invalid size");
        }
        const char *name = bytes + HEAD_BYTES;
        if (name_bytes == 0 || name_bytes >= KOLO_NAME_BYTES || name_bytes > length - HEAD_BYTES ||
            memchr(name, '\0', name_bytes)) {
            return malformed(rank, "an invalid name");
        }
        kolo_signature signature = {
            .count = (size_t)count, .dtype = (kolo_dtype)dtype, .op = (kolo_reduce_op)op};
        KOLO_TRY(read_name(t, rank, name, name_bytes, &signature));
        bytes = name + name_bytes;
        length -= HEAD_BYTES + (size_t)name_bytes;
    }
    return KOLO_OK;
}
