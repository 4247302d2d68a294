/* Saving: the parts of each tensor that this rank writes. Of what is sharded (--zero) in row-major
 * order that is its range, without a copy; of what all ranks have, an equal part. Tensors of other
 * layouts are reordered one at a time, sharded ones are gathered before. Ranges and parts are whole
 * blocks, so that the file has the same bytes whatever the number of ranks.
 *
 * Rank 0 creates the file and finishes it after all have written; a rank that fails ends the save
 * on all ranks, and the old file is kept.
 *
 * A saver copies the parts first, and a thread of its own writes the copies, so that training goes
 * on meanwhile. Collectives stay in the thread that trains: it creates the file, and collects the
 * hashes once all ranks have written their parts. */
#include "base/file.h"
#include "base/task.h"
#include "base/text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/session/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

_Static_assert(KOLO_SQUARE_BLOCK % KOLO_SAFETENSORS_BLOCK == 0, "shards are whole blocks");

enum { SAMPLE_TEXT = 24 * KOLO_MAX_RANK };

typedef struct saving {
    const kolo_store *store; /* NULL: no tensors */
    const kolo_checkpoint_info *info;
    kolo_comm *comm; /* of the ranks that write; NULL: only this process */
    int rank, ranks;
    bool training; /* with optimizer state */
    kolo_safetensors_writer *writer;
    kolo_safetensors_place place;
    kolo_checkpoint_saver *saver; /* takes copies of the parts, to be written later; or NULL */
} saving;

/* A copy of elements of a tensor. */
typedef struct piece {
    int number; /* of the tensor in the file */
    int64_t first, count;
    size_t at, bytes;   /* in the saver's buffer */
    bool reorders;      /* it is the whole tensor in the layout of the store */
    kolo_tensor tensor; /* with `reorders` */
} piece;

/* What is under way. */
typedef enum stage { IDLE, WRITING, FINISHING } stage;

struct kolo_checkpoint_saver {
    saving s;
    stage stage;
    char *folder;
    int64_t step, keep;
    char *buffer; /* kept from one save to the next */
    size_t used, capacity;
    piece *pieces;
    size_t n_pieces, cap_pieces;
    kolo_tables_copy *rows; /* of tables, completed before the checkpoint; or NULL */
    kolo_task *task;        /* of the stage; NULL: this rank has none */
};

/* Entry i if it is saved, else NULL. */
static const kolo_store_entry *saved(const saving *s, int i) {
    const kolo_store_entry *entry = kolo_store_entry_at(s->store, i);
    return s->training || kolo_store_entry_is_model(entry) ? entry : NULL;
}

/* ---- metadata ---- */

/* "1x28x28"; "" without dimensions. */
static const char *sample_text(const kolo_shape *shape, char text[SAMPLE_TEXT]) {
    int length = 0;
    text[0] = '\0';
    for (int i = 0; i < shape->rank; i++) {
        length += snprintf(text + length, (size_t)(SAMPLE_TEXT - length), "%s%" PRId64,
                           i ? "x" : "", shape->dim[i]);
    }
    return text;
}

static kolo_status set_number(kolo_safetensors_writer *writer, const char *key, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return kolo_safetensors_set(writer, key, text);
}

/* Text of the user, such as a path, which may have other bytes than UTF-8. */
static kolo_status set_text(kolo_safetensors_writer *writer, const char *key, const char *text) {
    kolo_text valid = {0};
    kolo_text_add_utf8(&valid, text);
    const kolo_status status =
        valid.failed ? KOLO_NOMEM(valid.length) : kolo_safetensors_set(writer, key, valid.text);
    kolo_text_fini(&valid);
    return status;
}

/* The mesh, and which ranks of it hold each tensor that not all of them hold. */
static kolo_status add_holders(const saving *s) {
    kolo_text text = {0};
    for (int i = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = saved(s, i);
        if (entry && entry->holders) kolo_text_add(&text, "%s %s\n", entry->name, entry->holders);
    }
    kolo_status status = KOLO_OK;
    if (text.text) {
        status = kolo_safetensors_set(s->writer, "mesh", kolo_store_mesh(s->store));
        if (status == KOLO_OK) status = kolo_safetensors_set(s->writer, "holders", text.text);
    }
    kolo_text_fini(&text);
    return status;
}

static kolo_status add_metadata(kolo_safetensors_writer *writer, const kolo_checkpoint_info *info) {
    char sample[SAMPLE_TEXT];
    KOLO_TRY(kolo_safetensors_set(writer, "format", "pt"));
    KOLO_TRY(kolo_safetensors_set(writer, "kolo", kolo_version()));
    KOLO_TRY(set_text(writer, "model", info->model));
    KOLO_TRY(set_text(writer, "model_options", info->model_options ? info->model_options : ""));
    KOLO_TRY(kolo_safetensors_set(writer, "sample", sample_text(&info->sample, sample)));
    KOLO_TRY(set_number(writer, "classes", (uint64_t)info->classes));
    if (info->data) KOLO_TRY(set_text(writer, "data", info->data));
    KOLO_TRY(set_number(writer, "epochs", (uint64_t)info->epochs));
    KOLO_TRY(set_number(writer, "steps", (uint64_t)info->steps));
    KOLO_TRY(set_number(writer, "seed", info->seed));
    if (info->best) KOLO_TRY(kolo_safetensors_set(writer, "best", info->best));
    if (info->table) KOLO_TRY(kolo_safetensors_set(writer, "table", info->table));
    if (!info->options) return KOLO_OK;
    KOLO_TRY(set_number(writer, "training", kolo_checkpoint_training_version));
    KOLO_TRY(set_number(writer, "order", (uint64_t)info->order));
    KOLO_TRY(kolo_safetensors_set(writer, "options", info->options));
    if (info->compressed) {
        KOLO_TRY(kolo_safetensors_set(writer, "compressed", info->compressed));
    }
    return kolo_safetensors_set(writer, "progress", info->progress);
}

/* ---- the file, created by rank 0 and joined by the others ---- */

static kolo_status declare_all(saving *s) {
    for (int i = 0; s->store && i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = saved(s, i);
        if (!entry) continue;
        KOLO_TRY(
            kolo_safetensors_declare(s->writer, entry->name, entry->tensor.dtype, &entry->canon));
    }
    return KOLO_OK;
}

static kolo_status create(saving *s, const char *path) {
    KOLO_TRY(kolo_safetensors_create(path, &s->writer));
    if (s->info) KOLO_TRY(add_metadata(s->writer, s->info));
    if (s->store) KOLO_TRY(add_holders(s));
    KOLO_TRY(declare_all(s));
    if (s->saver && s->ranks == 1) return KOLO_OK; /* the thread does, as it waits for the disk */
    return kolo_safetensors_begin(s->writer, &s->place);
}

static kolo_status join(saving *s) {
    kolo_status status = kolo_safetensors_join(&s->place, &s->writer);
    if (status == KOLO_ERR_IO && !kolo_file_exists(s->place.temporary)) {
        return KOLO_FAIL(
            status,
            "%s, which rank 0 created, is not on rank %d: where state is divided over the "
            "workers (--zero, --mesh) all of them write checkpoints: choose a folder that they "
            "share",
            s->place.temporary, s->rank);
    }
    return status == KOLO_OK ? declare_all(s) : status;
}

/* Sends all ranks the place of the file. Collective. */
static kolo_status share_place(saving *s) {
    uint64_t numbers[] = {s->place.mark, s->place.data_at,
                          s->rank == 0 ? strlen(s->place.temporary) + 1 : 0};
    KOLO_TRY(kolo_broadcast(s->comm, numbers, sizeof numbers, KOLO_DTYPE_U8, 0));
    if (s->rank > 0) {
        s->place = (kolo_safetensors_place){numbers[0], numbers[1], kolo_zalloc(numbers[2])};
    }
    KOLO_TRY(kolo_agree(s->comm, s->place.temporary ? KOLO_OK : KOLO_NOMEM(numbers[2])));
    return kolo_broadcast(s->comm, s->place.temporary, numbers[2], KOLO_DTYPE_U8, 0);
}

static kolo_status open_file(saving *s, const char *path) {
    KOLO_TRY(kolo_agree(s->comm, s->rank == 0 ? create(s, path) : KOLO_OK));
    if (s->ranks == 1) return KOLO_OK;
    KOLO_TRY(share_place(s));
    return kolo_agree(s->comm, s->rank > 0 ? join(s) : KOLO_OK);
}

static void close_file(saving *s) {
    kolo_safetensors_destroy(s->writer);
    kolo_free(s->place.temporary);
    s->writer = NULL;
    s->place.temporary = NULL;
}

static saving start(kolo_comm *comm, const kolo_store *store, const kolo_checkpoint_info *info) {
    return (saving){
        .store = store,
        .info = info,
        .training = info && info->options,
        .comm = comm,
        .rank = comm ? kolo_comm_rank(comm) : 0,
        .ranks = comm ? kolo_comm_size(comm) : 1,
    };
}

/* ---- tensors ---- */

/* Where the part of rank r begins in n elements that all have. */
static int64_t part_at(const saving *s, int64_t n, int r) {
    const int64_t blocks = (n + KOLO_SAFETENSORS_BLOCK - 1) / KOLO_SAFETENSORS_BLOCK;
    const int64_t at = blocks * r / s->ranks * KOLO_SAFETENSORS_BLOCK;
    return at < n ? at : n;
}

/* Appends a piece of this many bytes to those of the saver. */
static kolo_status keep_piece(kolo_checkpoint_saver *r, piece p, const void *data) {
    if (!KOLO_GROW(r->pieces, r->n_pieces, r->cap_pieces)) return KOLO_NOMEM(sizeof p);
    KOLO_ASSERT(p.bytes <= r->capacity - r->used);
    p.at = r->used;
    memcpy(r->buffer + p.at, data, p.bytes);
    r->pieces[r->n_pieces++] = p;
    r->used += p.bytes;
    return KOLO_OK;
}

/* Elements of tensor i, in row-major order. */
static kolo_status put(saving *s, int i, const kolo_store_entry *entry, int64_t first,
                       int64_t count, const char *data) {
    if (!s->saver) return kolo_safetensors_put(s->writer, i, first, count, data);
    const size_t bytes = (size_t)count * kolo_dtype_bytes(entry->tensor.dtype);
    if (bytes == 0) return KOLO_OK;
    return keep_piece(s->saver,
                      (piece){.number = i, .first = first, .count = count, .bytes = bytes}, data);
}

/* Writes this rank's part of tensor i from the whole in row-major order. */
static kolo_status put_part(saving *s, int i, const kolo_store_entry *entry, const char *whole) {
    const int64_t n = kolo_shape_count(&entry->canon);
    const int64_t first = part_at(s, n, s->rank), end = part_at(s, n, s->rank + 1);
    const size_t skip = (size_t)first * kolo_dtype_bytes(entry->tensor.dtype);
    return put(s, i, entry, first, end - first, whole + skip);
}

/* The same of a tensor that is gathered or reordered before; `failed`: takes part only. */
static kolo_status put_copy(saving *s, int i, const kolo_store_entry *entry, bool failed) {
    size_t bytes = (size_t)kolo_shape_count(&entry->canon) * kolo_dtype_bytes(entry->tensor.dtype);
    void *copy = kolo_alloc(bytes);
    kolo_status status = copy ? KOLO_OK : KOLO_NOMEM(bytes);
    if (kolo_store_entry_is_sharded(entry)) status = kolo_agree(s->comm, status);
    if (status == KOLO_OK) status = kolo_store_read(s->store, entry, copy);
    if (status == KOLO_OK && !failed) status = put_part(s, i, entry, copy);
    kolo_free(copy);
    return status;
}

/* Whether the ranges of all ranks are whole blocks in the order of files. */
static bool is_in_blocks(const saving *s, const kolo_store_entry *entry) {
    const int64_t n = kolo_shape_count(&entry->canon);
    bool in_blocks = !entry->mesh && !entry->staged && kolo_layout_is_plain(&entry->tensor.layout);
    for (int r = 0; in_blocks && r < s->ranks && entry->cuts; r++) {
        in_blocks = entry->cuts[r] % KOLO_SAFETENSORS_BLOCK == 0 || entry->cuts[r] == n;
    }
    return in_blocks;
}

/* Whether a saver copies the tensor as it is in the store. */
static bool is_copied_whole(const saving *s, const kolo_store_entry *entry) {
    return s->ranks == 1 && !kolo_store_entry_is_sharded(entry) &&
           !kolo_layout_is_plain(&entry->tensor.layout);
}

/* What a saver copies of a tensor. */
static size_t copied_bytes(const saving *s, const kolo_store_entry *entry) {
    const int64_t n = kolo_shape_count(&entry->canon);
    int64_t count = part_at(s, n, s->rank + 1) - part_at(s, n, s->rank);
    if (is_copied_whole(s, entry)) return kolo_tensor_bytes(&entry->tensor);
    if (entry->cuts && is_in_blocks(s, entry)) count = entry->count;
    return (size_t)count * kolo_dtype_bytes(entry->tensor.dtype);
}

static size_t copied_bytes_of_all(const saving *s) {
    size_t bytes = 0;
    for (int i = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = saved(s, i);
        if (entry) bytes += copied_bytes(s, entry);
    }
    return bytes;
}

static kolo_status put_tensor(saving *s, int i, const kolo_store_entry *entry, bool failed) {
    const char *data = kolo_store_data(s->store, entry);
    if (s->saver && !failed && is_copied_whole(s, entry)) {
        const piece raw = {.number = i,
                           .count = kolo_shape_count(&entry->canon),
                           .bytes = kolo_tensor_bytes(&entry->tensor),
                           .reorders = true,
                           .tensor = entry->tensor};
        return keep_piece(s->saver, raw, data);
    }
    if (!is_in_blocks(s, entry)) {
        return failed && !kolo_store_entry_is_sharded(entry) ? KOLO_OK
                                                             : put_copy(s, i, entry, failed);
    }
    if (failed) return KOLO_OK;
    if (!entry->cuts) return put_part(s, i, entry, data);
    return put(s, i, entry, entry->first, entry->count, data);
}

/* Writes what is this rank's. One that fails still takes part in gathering. */
static kolo_status put_all(saving *s) {
    kolo_status status = KOLO_OK;
    for (int i = 0, number = 0; i < kolo_store_count(s->store); i++) {
        const kolo_store_entry *entry = saved(s, i);
        if (!entry) continue;
        kolo_status put = put_tensor(s, number++, entry, status != KOLO_OK);
        if (put == KOLO_OK && status == KOLO_OK) put = kolo_store_check(s->store);
        if (status == KOLO_OK) status = put;
    }
    if (status == KOLO_OK && s->rank > 0 && !s->saver) status = kolo_safetensors_sync(s->writer);
    return status;
}

/* Gives rank 0 the hashes of all blocks; 0 stands for those of other ranks. */
static kolo_status collect_hashes(saving *s) {
    uint64_t *hashes = NULL;
    size_t count = 0;
    KOLO_TRY(kolo_agree(s->comm, kolo_safetensors_hashes_of(s->writer, &hashes, &count)));
    if (s->ranks == 1 || count == 0) return KOLO_OK;
    return kolo_reduce(s->comm, NULL, hashes, count, KOLO_DTYPE_I64, KOLO_OR, 0);
}

static kolo_status write_file(saving *s, const char *path) {
    KOLO_TRY(open_file(s, path));
    KOLO_TRY(kolo_agree(s->comm, put_all(s)));
    KOLO_TRY(collect_hashes(s));
    return s->rank == 0 ? kolo_safetensors_finish(s->writer) : KOLO_OK;
}

kolo_status kolo_checkpoint_save(const char *path, const kolo_store *store,
                                 const kolo_checkpoint_info *info) {
    saving s = start(kolo_store_shard_comm(store), store, info);
    kolo_status status = write_file(&s, path);
    close_file(&s);
    return status;
}

uint64_t kolo_checkpoint_bytes(const kolo_store *store, bool training) {
    const saving s = {.store = store, .training = training};
    uint64_t bytes = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = saved(&s, i);
        if (!entry) continue;
        bytes += (uint64_t)kolo_shape_count(&entry->canon) * kolo_dtype_bytes(entry->tensor.dtype);
    }
    return bytes;
}

kolo_status kolo_checkpoint_try_folder(const char *path, kolo_comm *comm) {
    saving s = start(comm, NULL, NULL);
    kolo_status status = open_file(&s, path);
    close_file(&s);
    return status;
}

/* ---- in the background ---- */

kolo_status kolo_checkpoint_saver_create(kolo_checkpoint_saver **saver) {
    kolo_checkpoint_saver *r = kolo_zalloc(sizeof *r);
    if (!r) return KOLO_NOMEM(sizeof *r);
    *saver = r;
    return KOLO_OK;
}

static size_t plain_bytes(const piece *p) {
    const kolo_tensor plain = kolo_tensor_plain(p->tensor.dtype, p->tensor.shape);
    return kolo_tensor_bytes(&plain);
}

/* `room`: memory for a tensor in row-major order. */
static kolo_status write_piece(kolo_checkpoint_saver *r, const piece *p, void *room) {
    const char *data = r->buffer + p->at;
    kolo_safetensors_writer *writer = r->s.writer;
    if (!p->reorders) return kolo_safetensors_put(writer, p->number, p->first, p->count, data);
    const kolo_tensor plain = kolo_tensor_plain(p->tensor.dtype, p->tensor.shape);
    kolo_tensor_reorder(&plain, room, &p->tensor, data);
    return kolo_safetensors_put(writer, p->number, 0, p->count, room);
}

/* One block of memory for all tensors: fresh ones of the system take longer than the copies. */
static kolo_status put_pieces(kolo_checkpoint_saver *r) {
    size_t bytes = 0;
    for (size_t i = 0; i < r->n_pieces; i++) {
        const size_t needed = r->pieces[i].reorders ? plain_bytes(&r->pieces[i]) : 0;
        if (needed > bytes) bytes = needed;
    }
    void *room = kolo_alloc(bytes);
    kolo_status status = room ? KOLO_OK : KOLO_NOMEM(bytes);
    for (size_t i = 0; i < r->n_pieces && status == KOLO_OK; i++) {
        status = write_piece(r, &r->pieces[i], room);
    }
    kolo_free(room);
    return status;
}

/* Rank 0, once all parts are in the file. */
static kolo_status finish(void *saver) {
    kolo_checkpoint_saver *r = saver;
    if (r->rows) KOLO_TRY(kolo_tables_copy_finish(r->rows));
    KOLO_TRY(kolo_safetensors_finish(r->s.writer));
    return kolo_checkpoint_folder_commit(r->folder, r->step, r->keep);
}

/* A server that is lost has what it marked no more. Where the run goes on without it, it goes on
 * without this checkpoint: that is no loss of a rank. */
static kolo_status write_rows(const kolo_checkpoint_saver *r) {
    const kolo_status status = kolo_tables_copy_write(r->rows);
    return status == KOLO_ERR_PEER ? KOLO_FAIL(KOLO_ERR_FORMAT, "%s", kolo_last_error()) : status;
}

static kolo_status write_pieces(void *saver) {
    kolo_checkpoint_saver *r = saver;
    if (r->rows) KOLO_TRY(write_rows(r));
    if (r->s.ranks == 1) KOLO_TRY(kolo_safetensors_begin(r->s.writer, &r->s.place));
    KOLO_TRY(put_pieces(r));
    if (r->s.ranks == 1) return finish(r);
    return r->s.rank > 0 ? kolo_safetensors_sync(r->s.writer) : KOLO_OK;
}

static kolo_status start_task(kolo_checkpoint_saver *r, stage next) {
    r->stage = next;
    return kolo_task_start(next == WRITING ? write_pieces : finish, r, "writes checkpoints",
                           &r->task);
}

/* Waits for the end of the task; its status. */
static kolo_status join_task(kolo_checkpoint_saver *r) {
    kolo_task *task = r->task;
    r->task = NULL;
    return kolo_task_join(task);
}

/* Waits for the thread, closes the file and keeps the buffer. */
static void leave(kolo_checkpoint_saver *r) {
    kolo_task_destroy(r->task);
    r->task = NULL;
    close_file(&r->s);
    kolo_tables_copy_destroy(r->rows);
    r->rows = NULL;
    kolo_free(r->folder);
    r->folder = NULL;
    r->n_pieces = r->used = 0;
    r->stage = IDLE;
}

/* Room for the copies; in the first save. */
static kolo_status reserve(kolo_checkpoint_saver *r) {
    const size_t bytes = copied_bytes_of_all(&r->s);
    if (bytes <= r->capacity) return KOLO_OK;
    kolo_free(r->buffer);
    r->buffer = kolo_alloc(bytes);
    r->capacity = r->buffer ? bytes : 0;
    return r->buffer ? KOLO_OK : KOLO_NOMEM(bytes);
}

/* Copies everything and starts the thread. */
static kolo_status begin(kolo_checkpoint_saver *r, const char *path) {
    saving *s = &r->s;
    KOLO_TRY(kolo_agree(s->comm, reserve(r)));
    KOLO_TRY(open_file(s, path));
    KOLO_TRY(kolo_agree(s->comm, put_all(s)));
    return kolo_agree(s->comm, start_task(r, WRITING));
}

kolo_status kolo_checkpoint_saver_start(kolo_checkpoint_saver *r, const char *folder, int64_t step,
                                        int64_t keep, const kolo_store *store,
                                        const kolo_checkpoint_info *info, kolo_tables_copy *rows) {
    leave(r);
    r->s = start(kolo_store_shard_comm(store), store, info);
    r->s.saver = r;
    r->rows = rows;
    r->step = step;
    r->keep = keep;
    char *path = NULL;
    if (r->s.rank == 0) {
        r->folder = kolo_strdup(folder);
        path = kolo_checkpoint_folder_path(folder, step);
    }
    const bool missing = r->s.rank == 0 && (!path || !r->folder);
    kolo_status status = kolo_agree(r->s.comm, missing ? KOLO_NOMEM(strlen(folder)) : KOLO_OK);
    if (status == KOLO_OK) status = begin(r, path);
    kolo_free(path);
    if (status != KOLO_OK) leave(r);
    r->s.store = NULL; /* the thread uses neither */
    r->s.info = NULL;
    return status;
}

void kolo_checkpoint_saver_leave(kolo_checkpoint_saver *r) {
    if (r) leave(r);
}

bool kolo_checkpoint_saver_is_busy(const kolo_checkpoint_saver *r) {
    return r->task && !kolo_task_has_ended(r->task);
}

/* The stage behind the one that has ended; IDLE after the last. */
static kolo_status advance(kolo_checkpoint_saver *r) {
    KOLO_TRY(kolo_agree(r->s.comm, join_task(r)));
    if (r->s.ranks == 1 || r->stage == FINISHING) {
        r->stage = IDLE;
        return KOLO_OK;
    }
    KOLO_TRY(collect_hashes(&r->s));
    r->stage = FINISHING;
    return kolo_agree(r->s.comm, r->s.rank == 0 ? start_task(r, FINISHING) : KOLO_OK);
}

kolo_status kolo_checkpoint_saver_advance(kolo_checkpoint_saver *r, bool *done) {
    kolo_status status = r->stage == IDLE ? KOLO_OK : advance(r);
    *done = status == KOLO_OK && r->stage == IDLE;
    if (status != KOLO_OK || *done) leave(r);
    return status;
}

size_t kolo_checkpoint_saver_needs(const kolo_store *store) {
    saving s = start(kolo_store_shard_comm(store), store, NULL);
    s.training = true;
    return copied_bytes_of_all(&s);
}

size_t kolo_checkpoint_saver_bytes(const kolo_checkpoint_saver *r) { return r ? r->capacity : 0; }

void kolo_checkpoint_saver_destroy(kolo_checkpoint_saver *r) {
    if (!r) return;
    leave(r);
    kolo_free(r->buffer);
    kolo_free(r->pieces);
    kolo_free(r);
}
