/* Rows of tables in files: of the end and of the best evaluation, values alone; and of checkpoints,
 * everything that a run goes on from. */
#include "base/memory.h"
#include "base/text.h"
#include "data/safetensors/safetensors.h"
#include "train/session/tables_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef kolo_served_table table;

/* ---- values alone ---- */

/* The rows of a table. */
typedef struct saved {
    size_t n, room;
    int64_t *ids; /* [n] */
    float *rows;  /* [n][width] */
} saved;

static kolo_status read_owner(const table *t, int owner, kolo_table_rows *page, size_t most,
                              saved *to) {
    const size_t width = (size_t)t->width, wide = (size_t)t->updater.spec.n_out * width;
    bool more = true;
    while (more) {
        KOLO_TRY(kolo_table_save_rows(t->rows_at, owner, most, &more, page));
        for (size_t i = 0; i < page->n && to->n < to->room; i++, to->n++) {
            to->ids[to->n] = (int64_t)page->ids[i];
            memcpy(to->rows + to->n * width, page->values + i * wide, width * sizeof *to->rows);
        }
    }
    return KOLO_OK;
}

static kolo_status read_pages(const table *t, int owners, saved *to) {
    const size_t most = t->batch;
    const size_t bytes = most * (size_t)(t->updater.spec.n_out * t->width) * sizeof(float);
    kolo_table_rows page = {.ids = kolo_alloc(most * sizeof(uint64_t)),
                            .ages = kolo_alloc(most * sizeof(uint64_t)),
                            .values = kolo_alloc(bytes)};
    kolo_status status = page.ids && page.ages && page.values ? KOLO_OK : KOLO_NOMEM(bytes);
    for (int o = 0; o < owners && status == KOLO_OK; o++) {
        status = read_owner(t, o, &page, most, to);
    }
    kolo_free(page.ids);
    kolo_free(page.ages);
    kolo_free(page.values);
    return status;
}

static kolo_status read_table(const table *t, int owners, saved *to) {
    kolo_table_stats stats;
    KOLO_TRY(kolo_table_save_begin(t->rows_at, &stats));
    to->room = (size_t)stats.rows;
    to->ids = kolo_alloc((to->room + 1) * sizeof *to->ids);
    to->rows = kolo_alloc((to->room + 1) * (size_t)t->width * sizeof *to->rows);
    const kolo_status status = to->ids && to->rows
                                   ? read_pages(t, owners, to)
                                   : KOLO_NOMEM(to->room * (size_t)t->width * sizeof *to->rows);
    kolo_table_save_end(t->rows_at);
    return status;
}

static kolo_status add_tensor(kolo_safetensors_writer *writer, const char *name, const char *what,
                              kolo_dtype dtype, const kolo_shape *shape, const void *data) {
    char *full = kolo_format("%s.%s", name, what);
    if (!full) return KOLO_NOMEM(strlen(name));
    const kolo_status status = kolo_safetensors_add(writer, full, dtype, shape, data);
    kolo_free(full);
    return status;
}

static kolo_status set_number(kolo_safetensors_writer *writer, const char *name, const char *what,
                              uint64_t number) {
    char *key = kolo_format("%s%s", name, what), *text = kolo_format("%" PRIu64, number);
    const kolo_status status =
        key && text ? kolo_safetensors_set(writer, key, text) : KOLO_NOMEM(strlen(name));
    kolo_free(key);
    kolo_free(text);
    return status;
}

static kolo_status write_tables(const kolo_tables *d, const saved *all,
                                kolo_safetensors_writer *writer) {
    for (int i = 0; i < d->n; i++) {
        const table *t = &d->tables[i];
        const kolo_shape ids = kolo_shape_1((int64_t)all[i].n);
        const kolo_shape rows = kolo_shape_2((int64_t)all[i].n, t->width);
        KOLO_TRY(add_tensor(writer, t->name, "ids", KOLO_DTYPE_I64, &ids, all[i].ids));
        KOLO_TRY(add_tensor(writer, t->name, "rows", KOLO_DTYPE_F32, &rows, all[i].rows));
    }
    return kolo_safetensors_finish(writer);
}

kolo_status kolo_tables_save(kolo_tables *d, const char *path, int64_t steps) {
    saved all[KOLO_TABLES_MOST] = {{0}};
    kolo_safetensors_writer *writer = NULL;
    kolo_status status = kolo_safetensors_create(path, &writer);
    for (int i = 0; i < d->n && status == KOLO_OK; i++) {
        status = read_table(&d->tables[i], d->owners, &all[i]);
    }
    if (status == KOLO_OK) status = set_number(writer, "steps", "", (uint64_t)steps);
    if (status == KOLO_OK) status = write_tables(d, all, writer);
    kolo_safetensors_destroy(writer);
    for (int i = 0; i < d->n; i++) {
        kolo_free(all[i].ids);
        kolo_free(all[i].rows);
    }
    return status;
}

/* ---- the file of a checkpoint ----
 *
 * Of each table NAME.ids and NAME.ages, i64 [n], NAME.pushes, i32 [n], and NAME.rows, f32
 * [n, (1 + states) C], as in kolo_table_rows; and in the metadata its version. Ids that wait for
 * their rows have pushes. Rank 0 has a block of rows at a time, and asks for a part of it, so that
 * owners are not busy with that for long. */

enum { BLOCK = KOLO_SAFETENSORS_BLOCK, PAGE = BLOCK / 4, TENSORS = 4 };
static const char *const tensor_names[TENSORS] = {"ids", "ages", "pushes", "rows"};

struct kolo_tables_copy {
    kolo_tables *of;
    kolo_safetensors_writer *writer;
    uint64_t counts[KOLO_TABLES_MOST]; /* rows, and ids that wait for theirs */
};

/* Rows on their way to the file. */
typedef struct block {
    const table *t;
    kolo_safetensors_writer *writer;
    int first; /* tensor of the file */
    size_t wide;
    size_t count, done; /* rows in all; in the file */
    kolo_table_rows rows;
} block;

static size_t wide_of(const table *t) { return (size_t)t->updater.spec.n_out * (size_t)t->width; }

static kolo_status allocate_rows(size_t n, size_t wide, kolo_table_rows *rows) {
    *rows = (kolo_table_rows){.ids = kolo_alloc(n * sizeof *rows->ids),
                              .ages = kolo_alloc(n * sizeof *rows->ages),
                              .values = kolo_zalloc(n * wide * sizeof *rows->values),
                              .pushes = kolo_alloc(n * sizeof *rows->pushes)};
    if (rows->ids && rows->ages && rows->values && rows->pushes) return KOLO_OK;
    return KOLO_NOMEM(n * wide * sizeof *rows->values);
}

static void free_rows(kolo_table_rows *rows) {
    kolo_free(rows->ids);
    kolo_free(rows->ages);
    kolo_free(rows->values);
    kolo_free(rows->pushes);
}

static kolo_status declare(const table *t, int64_t n, kolo_safetensors_writer *writer) {
    static const kolo_dtype dtypes[TENSORS] = {KOLO_DTYPE_I64, KOLO_DTYPE_I64, KOLO_DTYPE_I32,
                                               KOLO_DTYPE_F32};
    const kolo_shape one = kolo_shape_1(n), rows = kolo_shape_2(n, (int64_t)wide_of(t));
    for (int i = 0; i < TENSORS; i++) {
        char *full = kolo_format("%s.%s", t->name, tensor_names[i]);
        if (!full) return KOLO_NOMEM(strlen(t->name));
        const kolo_status status =
            kolo_safetensors_declare(writer, full, dtypes[i], i == TENSORS - 1 ? &rows : &one);
        kolo_free(full);
        KOLO_TRY(status);
    }
    return KOLO_OK;
}

/* Writes the rows of the block. */
static kolo_status put_block(block *b) {
    const kolo_table_rows *r = &b->rows;
    const int64_t first = (int64_t)b->done, n = (int64_t)r->n, wide = (int64_t)b->wide;
    KOLO_TRY(kolo_safetensors_put(b->writer, b->first, first, n, r->ids));
    KOLO_TRY(kolo_safetensors_put(b->writer, b->first + 1, first, n, r->ages));
    KOLO_TRY(kolo_safetensors_put(b->writer, b->first + 2, first, n, r->pushes));
    KOLO_TRY(kolo_safetensors_put(b->writer, b->first + 3, first * wide, n * wide, r->values));
    b->done += r->n;
    b->rows.n = 0;
    return KOLO_OK;
}

static kolo_status fail_changed(const table *t) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "the rows of %s that are saved are not those of one moment",
                     t->name);
}

/* Adds the rows of an owner, and writes each block that is full. */
static kolo_status copy_owner(block *b, int owner) {
    bool more = true;
    while (more) {
        const kolo_table_rows *r = &b->rows;
        const size_t room = BLOCK - r->n, part = room < PAGE ? room : PAGE;
        const size_t most = part < b->t->batch ? part : b->t->batch;
        kolo_table_rows page = {.ids = r->ids + r->n,
                                .ages = r->ages + r->n,
                                .values = r->values + r->n * b->wide,
                                .pushes = r->pushes + r->n};
        KOLO_TRY(kolo_table_save_rows(b->t->rows_at, owner, most, &more, &page));
        b->rows.n += page.n;
        if (b->done + b->rows.n > b->count) return fail_changed(b->t);
        if (b->rows.n == BLOCK) KOLO_TRY(put_block(b));
    }
    return KOLO_OK;
}

static kolo_status copy_table(const table *t, int owners, size_t count, int first,
                              kolo_safetensors_writer *writer) {
    block b = {.t = t, .writer = writer, .first = first, .wide = wide_of(t), .count = count};
    kolo_status status = allocate_rows(BLOCK, b.wide, &b.rows);
    for (int o = 0; o < owners && status == KOLO_OK; o++) status = copy_owner(&b, o);
    if (status == KOLO_OK && b.done + b.rows.n != count) status = fail_changed(t);
    if (status == KOLO_OK && b.rows.n > 0) status = put_block(&b);
    free_rows(&b.rows);
    return status;
}

/* FORMAT: an owner has taken a push since another one has marked its rows. */
static kolo_status mark_table(const table *t, kolo_table_stats *marked) {
    kolo_table_stats now;
    KOLO_TRY(kolo_table_save_begin(t->rows_at, marked));
    KOLO_TRY(kolo_table_stats_get(t->rows_at, &now));
    const bool same = now.version == marked->version && now.gradients == marked->gradients;
    return same ? KOLO_OK : fail_changed(t);
}

/* The last push of a worker that has just died may still come: then the rows are marked again. */
static kolo_status mark_again(const table *t, kolo_table_stats *marked) {
    enum { TRIES = 3 };
    kolo_status status = KOLO_ERR_FORMAT;
    for (int k = 0; k < TRIES && status == KOLO_ERR_FORMAT; k++) status = mark_table(t, marked);
    return status;
}

static kolo_status mark_all(kolo_tables_copy *c, int64_t steps) {
    KOLO_TRY(set_number(c->writer, "steps", "", (uint64_t)steps));
    for (int i = 0; i < c->of->n; i++) {
        const table *t = &c->of->tables[i];
        kolo_table_stats stats;
        KOLO_TRY(mark_again(t, &stats));
        c->counts[i] = stats.rows + stats.waiting;
        KOLO_TRY(set_number(c->writer, t->name, ".version", stats.version));
        KOLO_TRY(declare(t, (int64_t)c->counts[i], c->writer));
    }
    return KOLO_OK;
}

static void end_saves(const kolo_tables_copy *c) {
    for (int i = 0; i < c->of->n; i++) kolo_table_save_end(c->of->tables[i].rows_at);
}

/* After an error: owners keep nothing for what is not going to be read. Pushes may wait for that,
 * also those of this rank, which would not come to kolo_tables_copy_destroy. */
static kolo_status give_up(const kolo_tables_copy *c, kolo_status status) {
    char *error = kolo_strdup(kolo_last_error());
    end_saves(c);
    status = KOLO_FAIL(status, "%s", error ? error : "out of memory");
    kolo_free(error);
    return status;
}

kolo_status kolo_tables_copy_begin(kolo_tables *d, const char *path, int64_t steps,
                                   kolo_tables_copy **copy) {
    kolo_tables_copy *c = kolo_zalloc(sizeof *c);
    if (!c) return KOLO_NOMEM(sizeof *c);
    c->of = d;
    kolo_status status = kolo_safetensors_create(path, &c->writer);
    if (status == KOLO_OK) status = mark_all(c, steps);
    if (status != KOLO_OK) {
        status = give_up(c, status);
        kolo_tables_copy_destroy(c);
        return status;
    }
    *copy = c;
    return KOLO_OK;
}

static kolo_status write_all(const kolo_tables_copy *c) {
    kolo_safetensors_place place = {0};
    KOLO_TRY(kolo_safetensors_begin(c->writer, &place));
    kolo_free(place.temporary);
    for (int i = 0; i < c->of->n; i++) {
        KOLO_TRY(copy_table(&c->of->tables[i], c->of->owners, (size_t)c->counts[i], i * TENSORS,
                            c->writer));
    }
    return KOLO_OK;
}

kolo_status kolo_tables_copy_write(kolo_tables_copy *c) {
    const kolo_status status = write_all(c);
    return status == KOLO_OK ? status : give_up(c, status);
}

kolo_status kolo_tables_copy_finish(kolo_tables_copy *c) {
    return kolo_safetensors_finish(c->writer);
}

void kolo_tables_copy_destroy(kolo_tables_copy *c) {
    if (!c) return;
    end_saves(c);
    kolo_safetensors_destroy(c->writer);
    kolo_free(c);
}

/* ---- what a run goes on from ---- */

/* The tensors of a table, and its version. */
typedef struct source {
    const char *data[TENSORS];
    size_t n;
    uint64_t version;
} source;

static bool read_number(const kolo_safetensors *file, const char *key, uint64_t *number) {
    const char *text = kolo_safetensors_metadata(file, key);
    char *end = NULL;
    if (!text || *text < '0' || *text > '9') return false;
    *number = strtoull(text, &end, 10);
    return *end == '\0';
}

kolo_status kolo_tables_check(const char *path, int64_t steps) {
    kolo_safetensors *file;
    uint64_t made = 0;
    KOLO_TRY(kolo_safetensors_open(path, &file));
    kolo_status status = kolo_safetensors_check(file);
    if (status == KOLO_OK && (!read_number(file, "steps", &made) || made != (uint64_t)steps)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "%s: its rows are not of step %" PRId64, path, steps);
    }
    kolo_safetensors_close(file);
    return status;
}

static kolo_status find_tensors(const kolo_safetensors *file, const char *path, const table *t,
                                source *from) {
    static const size_t sizes[TENSORS] = {8, 8, 4, 4};
    char *key = kolo_format("%s.version", t->name);
    bool right = key && read_number(file, key, &from->version);
    kolo_free(key);
    for (int i = 0; i < TENSORS && right; i++) {
        char *full = kolo_format("%s.%s", t->name, tensor_names[i]);
        const kolo_safetensors_entry *e = full ? kolo_safetensors_find(file, full) : NULL;
        const size_t each = (i == TENSORS - 1 ? wide_of(t) : 1) * sizes[i];
        kolo_free(full);
        right = e && e->shape.rank >= 1 && e->bytes == (size_t)e->shape.dim[0] * each;
        if (!right) break;
        if (i == 0) from->n = (size_t)e->shape.dim[0];
        right = (size_t)e->shape.dim[0] == from->n;
        from->data[i] = e->data;
    }
    if (right) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: no rows of %s with %" PRId64 " numbers and their state",
                     path, t->name, t->width);
}

/* A row by its age. */
typedef struct aged {
    uint64_t age;
    size_t at;
} aged;

static int oldest_first(const void *a, const void *b) {
    const aged *x = a, *y = b;
    if (x->age != y->age) return x->age < y->age ? 1 : -1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Sends n rows to their owners. */
static kolo_status send_page(const table *t, const source *from, const aged *order, size_t n,
                             kolo_table_rows *page) {
    const size_t row = wide_of(t) * sizeof *page->values;
    page->n = n;
    page->version = from->version;
    for (size_t i = 0; i < n; i++) {
        const size_t at = order[i].at;
        page->ages[i] = order[i].age;
        memcpy(&page->ids[i], from->data[0] + at * sizeof *page->ids, sizeof *page->ids);
        memcpy(&page->pushes[i], from->data[2] + at * sizeof *page->pushes, sizeof *page->pushes);
        memcpy(page->values + i * wide_of(t), from->data[3] + at * row, row);
    }
    return kolo_table_load_rows(t->rows_at, page);
}

/* Rows go to their owners from the oldest on, whichever owner they were saved by. */
static kolo_status send_rows(const table *t, const source *from, aged *order) {
    kolo_table_rows page;
    for (size_t i = 0; i < from->n; i++) {
        memcpy(&order[i].age, from->data[1] + i * sizeof order[i].age, sizeof order[i].age);
        order[i].at = i;
    }
    if (from->n > 0) qsort(order, from->n, sizeof *order, oldest_first);
    const size_t most = t->batch < BLOCK ? t->batch : BLOCK;
    kolo_status status = allocate_rows(most, wide_of(t), &page);
    size_t begin = 0;
    do { /* also without rows: owners get the version */
        const size_t left = from->n - begin, n = left < most ? left : most;
        if (status == KOLO_OK) status = send_page(t, from, order + begin, n, &page);
        begin += n;
    } while (begin < from->n && status == KOLO_OK);
    free_rows(&page);
    return status;
}

static kolo_status restore_table(const kolo_safetensors *file, const char *path, const table *t) {
    source from = {.n = 0};
    KOLO_TRY(find_tensors(file, path, t, &from));
    aged *order = kolo_alloc((from.n + 1) * sizeof *order);
    if (!order) return KOLO_NOMEM(from.n * sizeof *order);
    const kolo_status status = send_rows(t, &from, order);
    kolo_free(order);
    return status;
}

kolo_status kolo_tables_read(kolo_tables *d, const char *path) {
    kolo_safetensors *file;
    KOLO_TRY(kolo_safetensors_open(path, &file));
    kolo_status status = KOLO_OK;
    for (int i = 0; i < d->n && status == KOLO_OK; i++) {
        status = restore_table(file, path, &d->tables[i]);
    }
    kolo_safetensors_close(file);
    return status;
}
