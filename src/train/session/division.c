#include "train/session/division.h"

#include "base/integer.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/sync/parameters_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Then of each owner its range in the row, and where its range in the tensor begins. */
enum { NAME, KIND, LAYOUT, BUCKET, ELEMENTS, CODED, OWNERS };
enum { FIRST, END, BASE, RANGE };
enum { MORE_BUCKETS = 512 /* than units, at most */ };

static size_t width_of(const kolo_division *d) { return OWNERS + RANGE * (size_t)d->owners; }

static int64_t *row_of(const kolo_division *d, int row) {
    return d->numbers + (size_t)row * width_of(d);
}

static int64_t name_of(const char *name) { return (int64_t)(kolo_hash_text(name) >> 1); }

static int64_t layout_of(const kolo_tensor *t) {
    char shape[KOLO_SHAPE_TEXT], layout[KOLO_LAYOUT_TEXT];
    (void)kolo_shape_text(&t->shape, shape);
    (void)kolo_layout_text(&t->layout, layout);
    const uint64_t of[] = {kolo_hash_text(shape), kolo_hash_text(layout)};
    return (int64_t)(kolo_hash_bytes(of, sizeof of) >> 1);
}

/* ---- rows ---- */

/* The units of the pass zero, from 1: the first bucket of each, and the buckets that it has. */
typedef struct units {
    int n;
    int *first, *buckets; /* [n + 1] */
} units;

/* The range of an owner in a row. */
static int64_t *range_in(const kolo_division *d, int row, int owner) {
    return row_of(d, row) + OWNERS + RANGE * (size_t)owner;
}

static bool is_cut(const kolo_store_entry *entry) { return entry && entry->cuts; }

/* Where piece k of n of a range begins. */
static int64_t piece_at(int64_t begin, int64_t end, int k, int n) {
    return begin + (int64_t)((double)(end - begin) * k / n);
}

/* The first bucket of an entry, by its unit; of others the last. */
static int bucket_of(const kolo_division *d, const units *u, const kolo_store_entry *entry) {
    return is_cut(entry) && entry->unit > 0 ? u->first[entry->unit] : d->buckets - 1;
}

/* Adds a row: piece k of n of what each owner has of a tensor. An entry without cuts, or none,
 * belongs to owner 0. */
static void add_piece(kolo_division *d, const char *name, kolo_row_kind kind,
                      const kolo_store_entry *entry, int64_t elements, int bucket, int k, int n) {
    const int i = d->n_rows++;
    int64_t *row = row_of(d, i);
    row[NAME] = name_of(name);
    row[KIND] = kind;
    row[LAYOUT] = entry ? layout_of(&entry->tensor) : 0;
    row[BUCKET] = bucket + k;
    row[ELEMENTS] = is_cut(entry) ? entry->cuts[d->owners] : elements;
    for (int o = 0; o < d->owners; o++) {
        int64_t *range = range_in(d, i, o);
        const int64_t begin = is_cut(entry) ? entry->cuts[o] : o > 0 ? elements : 0;
        const int64_t end = is_cut(entry) ? entry->cuts[o + 1] : elements;
        range[FIRST] = piece_at(begin, end, k, n);
        range[END] = piece_at(begin, end, k + 1, n);
        range[BASE] = begin;
    }
    d->n_metrics += kind == KOLO_ROW_METRIC;
}

static kolo_status check_dtype(const kolo_store_entry *entry) {
    if (entry->tensor.dtype == KOLO_DTYPE_F32) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "servers have f32 only, and %s is %s", entry->name,
                     kolo_dtype_name(entry->tensor.dtype));
}

static kolo_status add_sum(kolo_division *d, const units *u, const kolo_store *store,
                           const kolo_plan_sum *sum) {
    const bool metric = sum->kind == KOLO_SUM_METRIC;
    const kolo_store_entry *entry = metric ? NULL : kolo_store_find(store, sum->name);
    const int n = is_cut(entry) && entry->unit > 0 ? u->buckets[entry->unit] : 1;
    KOLO_ASSERT(metric || entry);
    if (entry) KOLO_TRY(check_dtype(entry));
    for (int k = 0; k < n; k++) {
        add_piece(d, sum->name, (kolo_row_kind)sum->kind, entry, sum->arrives,
                  bucket_of(d, u, entry), k, n);
    }
    return KOLO_OK;
}

/* The sum of the gradient of a parameter; NULL: there is none. */
static const kolo_plan_sum *gradient_of(const char *name, const kolo_plan_sum *sums, int n_sums) {
    for (int i = 0; i < n_sums; i++) {
        if (sums[i].kind == KOLO_SUM_GRADIENT && strcmp(sums[i].name, name) == 0) return &sums[i];
    }
    return NULL;
}

/* The gradients that begin in a bucket, from the last parameter to the first. */
static kolo_status add_bucket(kolo_division *d, const units *u, int bucket, const kolo_store *store,
                              const kolo_plan_sum *sums, int n_sums) {
    for (int i = kolo_store_count(store) - 1; i >= 0; i--) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        const kolo_plan_sum *sum = gradient_of(entry->name, sums, n_sums);
        if (sum && bucket_of(d, u, entry) == bucket) KOLO_TRY(add_sum(d, u, store, sum));
    }
    return KOLO_OK;
}

/* Of all owners. */
static size_t whole_bytes(const kolo_division *d, const kolo_store_entry *entry) {
    return (size_t)entry->cuts[d->owners] * sizeof(float);
}

/* The bytes of a piece, so that the pieces of parameters of `all` bytes are not too many; 0: there
 * is no room for pieces. */
static size_t piece_of(const kolo_division *d, int n_units, size_t all, size_t piece_bytes) {
    const int64_t room = KOLO_OWNER_PARTS_MOST / d->owners - n_units - 1;
    const int64_t more = kolo_min_i64(room, MORE_BUCKETS);
    if (more < 1) return 0;
    const size_t least = (all + (size_t)more - 1) / (size_t)more;
    return piece_bytes > 0 && piece_bytes < least ? least : piece_bytes;
}

/* Numbers the buckets of the units. A parameter alone in a unit has one for each `piece_bytes`, or
 * for more where there would be too many. */
static kolo_status number_units(kolo_division *d, const kolo_store *store,
                                const kolo_plan_sum *sums, int n_sums, size_t piece_bytes,
                                units *u) {
    size_t all = 0;
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (is_cut(entry) && entry->unit > u->n) u->n = entry->unit;
        if (is_cut(entry) && gradient_of(entry->name, sums, n_sums)) all += whole_bytes(d, entry);
    }
    const size_t n = (size_t)u->n + 1;
    size_t *bytes = kolo_zalloc(n * sizeof *bytes);
    u->first = kolo_zalloc(2 * n * sizeof *u->first);
    if (!bytes || !u->first) {
        kolo_free(bytes);
        return KOLO_NOMEM(n * sizeof *bytes);
    }
    u->buckets = u->first + n;
    piece_bytes = piece_of(d, u->n, all, piece_bytes);
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (!is_cut(entry) || !gradient_of(entry->name, sums, n_sums)) continue;
        u->buckets[entry->unit]++; /* its parameters */
        bytes[entry->unit] = whole_bytes(d, entry);
    }
    d->buckets = 0;
    for (int k = 1; k <= u->n; k++) {
        const bool alone = u->buckets[k] == 1 && piece_bytes > 0 && bytes[k] > piece_bytes;
        u->buckets[k] = alone ? (int)((bytes[k] - 1) / piece_bytes) + 1 : 1;
        u->first[k] = d->buckets;
        d->buckets += u->buckets[k];
    }
    d->buckets += d->buckets != 1; /* of statistics and metrics */
    kolo_free(bytes);
    return KOLO_OK;
}

/* Gradients, then what else is summed, then state. */
static kolo_status add_rows(kolo_division *d, const units *u, const kolo_store *store,
                            const kolo_plan_sum *sums, int n_sums) {
    for (int b = 0; b < d->buckets; b++) KOLO_TRY(add_bucket(d, u, b, store, sums, n_sums));
    for (int i = 0; i < n_sums; i++) {
        if (sums[i].kind != KOLO_SUM_GRADIENT) KOLO_TRY(add_sum(d, u, store, &sums[i]));
    }
    for (int i = 0; i < kolo_store_count(store); i++) {
        const kolo_store_entry *entry = kolo_store_entry_at(store, i);
        if (!kolo_name_is_optimizer(entry->name)) continue;
        KOLO_TRY(check_dtype(entry));
        add_piece(d, entry->name, KOLO_ROW_STATE, entry, entry->count, bucket_of(d, u, entry), 0,
                  1);
    }
    return KOLO_OK;
}

kolo_status kolo_division_make(int owners, const kolo_store *store, const kolo_plan_sum *sums,
                               int n_sums, size_t piece_bytes, kolo_division *division) {
    kolo_division d = {.owners = owners};
    units u = {0};
    kolo_status status = number_units(&d, store, sums, n_sums, piece_bytes, &u);
    const size_t rows = (size_t)n_sums + (size_t)kolo_store_count(store) + (size_t)d.buckets;
    const size_t bytes = (rows + 1) * width_of(&d) * sizeof *d.numbers;
    if (status == KOLO_OK) d.numbers = kolo_zalloc(bytes);
    if (status == KOLO_OK && !d.numbers) status = KOLO_NOMEM(bytes);
    if (status == KOLO_OK) status = add_rows(&d, &u, store, sums, n_sums);
    kolo_free(u.first);
    if (status != KOLO_OK) {
        kolo_division_fini(&d);
        return status;
    }
    *division = d;
    return KOLO_OK;
}

void kolo_division_compress(kolo_division *d, const kolo_compression *how,
                            const kolo_plan_sum *sums, int n_sums) {
    d->codec = how->codec;
    for (int i = 0; i < n_sums && kolo_compresses(how); i++) {
        int row = kolo_division_find(d, sums[i].name);
        const size_t bytes = (size_t)kolo_division_elements(d, row) * sizeof(float);
        const bool chosen = !how->only || kolo_name_matches(how->only, sums[i].name);
        if (sums[i].kind != KOLO_SUM_GRADIENT || bytes < how->min_bytes || !chosen) continue;
        for (; row >= 0; row = kolo_division_next(d, row)) row_of(d, row)[CODED] = 1;
    }
}

kolo_status kolo_division_broadcast(kolo_division *d, kolo_comm *comm) {
    const int last = kolo_comm_size(comm) - 1;
    int64_t sizes[] = {d->owners, d->n_rows, d->n_metrics, d->buckets};
    KOLO_TRY(kolo_broadcast(comm, sizes, KOLO_COUNT(sizes), KOLO_DTYPE_I64, last));
    d->owners = (int)sizes[0];
    d->n_rows = (int)sizes[1];
    d->n_metrics = (int)sizes[2];
    d->buckets = (int)sizes[3];
    const size_t numbers = (size_t)d->n_rows * width_of(d);
    int64_t *all = kolo_alloc((numbers + 1) * sizeof *all);
    if (!all) return KOLO_NOMEM(numbers * sizeof *all);
    if (kolo_comm_rank(comm) == last) memcpy(all, d->numbers, numbers * sizeof *all);
    kolo_free(d->numbers);
    d->numbers = all;
    return kolo_broadcast(comm, d->numbers, numbers, KOLO_DTYPE_I64, last);
}

void kolo_division_print(const kolo_division *d, kolo_text *text) {
    kolo_text_add(text, "division %d %d %d %d", d->owners, d->buckets, d->n_rows, d->n_metrics);
    for (size_t i = 0; i < (size_t)d->n_rows * width_of(d); i++) {
        kolo_text_add(text, " %" PRId64, d->numbers[i]);
    }
    kolo_text_add(text, "\n");
}

static kolo_status fail_division(void) {
    return KOLO_FAIL(KOLO_ERR_FORMAT, "no division of parameters over servers");
}

kolo_status kolo_division_read(const char **text, kolo_division *division) {
    enum { MOST = 1 << 20 };
    kolo_division d = {0};
    int used = 0;
    if (sscanf(*text, "division %d %d %d %d%n", &d.owners, &d.buckets, &d.n_rows, &d.n_metrics,
               &used) != 4 ||
        d.owners < 1 || d.owners > MOST || d.buckets != 1 || d.n_rows < 1 || d.n_rows > MOST ||
        d.n_metrics < 0 || d.n_metrics > d.n_rows) {
        return fail_division();
    }
    const char *at = *text + used;
    const size_t n = (size_t)d.n_rows * width_of(&d);
    d.numbers = kolo_alloc((n + 1) * sizeof *d.numbers);
    if (!d.numbers) return KOLO_NOMEM(n * sizeof *d.numbers);
    for (size_t i = 0; i < n; i++) {
        char *end;
        d.numbers[i] = strtoll(at, &end, 10);
        if (end == at) {
            kolo_division_fini(&d);
            return fail_division();
        }
        at = end;
    }
    if (*at != '\n') {
        kolo_division_fini(&d);
        return fail_division();
    }
    *text = at + 1;
    *division = d;
    return KOLO_OK;
}

void kolo_division_fini(kolo_division *d) {
    kolo_free(d->numbers);
    *d = (kolo_division){0};
}

kolo_row_kind kolo_division_kind(const kolo_division *d, int row) {
    return (kolo_row_kind)row_of(d, row)[KIND];
}

int kolo_division_find(const kolo_division *d, const char *name) {
    const int64_t hash = name_of(name);
    for (int i = 0; i < d->n_rows; i++) {
        if (row_of(d, i)[NAME] == hash) return i;
    }
    return -1;
}

int kolo_division_next(const kolo_division *d, int row) {
    const bool more = row + 1 < d->n_rows && row_of(d, row + 1)[NAME] == row_of(d, row)[NAME];
    return more ? row + 1 : -1;
}

int64_t kolo_division_elements(const kolo_division *d, int row) { return row_of(d, row)[ELEMENTS]; }

int kolo_division_parts(const kolo_division *d) { return d->owners * d->buckets; }

int kolo_division_totals_part(const kolo_division *d) { return (d->buckets - 1) * d->owners; }

int kolo_division_bucket(const kolo_division *d, int row) { return (int)row_of(d, row)[BUCKET]; }

void kolo_division_range(const kolo_division *d, int row, int part, int64_t *first, int64_t *end) {
    const int64_t *range = range_in(d, row, part % d->owners);
    *first = range[FIRST];
    *end = row_of(d, row)[BUCKET] == part / d->owners ? range[END] : range[FIRST];
}

bool kolo_division_fits(const kolo_division *d, int row, const kolo_store_entry *entry) {
    return layout_of(&entry->tensor) == row_of(d, row)[LAYOUT] &&
           entry->count == kolo_division_elements(d, row);
}

/* ---- vectors ---- */

static size_t range_of(const kolo_division *d, int row, int part) {
    int64_t first, end;
    kolo_division_range(d, row, part, &first, &end);
    return (size_t)(end - first);
}

static bool is_among(const kolo_division *d, int row, unsigned kinds) {
    return (kinds >> row_of(d, row)[KIND] & 1) != 0;
}

static size_t sum_of(const kolo_division *d, int part, unsigned kinds) {
    size_t n = 0;
    for (int i = 0; i < d->n_rows; i++) n += is_among(d, i, kinds) ? range_of(d, i, part) : 0;
    return n;
}

size_t kolo_division_count(const kolo_division *d, int row, int part) {
    return range_of(d, row, part);
}

/* The numbers that a range of a row takes in a push. */
static size_t packed_of(const kolo_division *d, int row, int part) {
    const size_t n = range_of(d, row, part);
    if (!row_of(d, row)[CODED] || n == 0) return n;
    return (kolo_codec_bytes(&d->codec, n) + sizeof(float) - 1) / sizeof(float);
}

/* The numbers of a push of a part. */
static size_t pushed_of(const kolo_division *d, int part) {
    size_t n = KOLO_SUMMED_HEAD;
    for (int i = 0; i < d->n_rows; i++) {
        if (is_among(d, i, KOLO_ROWS_PUSHED)) n += packed_of(d, i, part);
    }
    return n;
}

size_t kolo_division_totals(const kolo_division *d) {
    return ((size_t)kolo_division_updates(d) + 1) * (sizeof(double) / sizeof(float));
}

int kolo_division_updates(const kolo_division *d) { return 2 + d->n_metrics; }

kolo_parameters_part kolo_division_part(const kolo_division *d, int part) {
    return (kolo_parameters_part){
        .values = kolo_division_totals(d) + sum_of(d, part, KOLO_ROWS_PULLED),
        .gradient = KOLO_SUMMED_HEAD + sum_of(d, part, KOLO_ROWS_PUSHED),
        .state = sum_of(d, part, KOLO_ROWS_STATE),
        .pushed = d->codec.kind == KOLO_CODEC_NONE ? 0 : pushed_of(d, part),
    };
}

/* The range of a part in a place. */
static float *range_at(const kolo_division *d, int row, int part, bool own, float *place) {
    const int64_t *range = range_in(d, row, part % d->owners);
    return place + range[FIRST] - (own ? range[BASE] : 0);
}

void kolo_division_gather(const kolo_division *d, int part, unsigned kinds, bool own,
                          float *const *places, float *numbers) {
    for (int i = 0; i < d->n_rows; i++) {
        const size_t n = range_of(d, i, part);
        if (!is_among(d, i, kinds)) continue;
        if (n > 0 && places[i]) {
            memcpy(numbers, range_at(d, i, part, own, places[i]), n * sizeof *numbers);
        }
        numbers += n;
    }
}

void kolo_division_scatter(const kolo_division *d, int part, unsigned kinds, bool own,
                           const float *numbers, float *const *places) {
    for (int i = 0; i < d->n_rows; i++) {
        const size_t n = range_of(d, i, part);
        if (!is_among(d, i, kinds)) continue;
        if (n > 0 && places[i]) {
            memcpy(range_at(d, i, part, own, places[i]), numbers, n * sizeof *numbers);
        }
        numbers += n;
    }
}

size_t kolo_division_gather_row(const kolo_division *d, int row, int part, double factor,
                                float *place, float *numbers) {
    const size_t n = range_of(d, row, part);
    if (n == 0 || !place) return n;
    memcpy(numbers, range_at(d, row, part, false, place), n * sizeof *numbers);
    for (size_t k = 0; k < n && factor != 1; k++) numbers[k] = (float)(factor * (double)numbers[k]);
    return n;
}

size_t kolo_division_pack_row(const kolo_division *d, int row, int part, const float *numbers,
                              float *residual, float *packed) {
    const size_t n = range_of(d, row, part), to = packed_of(d, row, part);
    if (n == 0) return 0;
    if (!row_of(d, row)[CODED]) {
        memcpy(packed, numbers, n * sizeof *packed);
        return n;
    }
    packed[to - 1] = 0; /* what the code leaves of it */
    const kolo_status status =
        kolo_codec_encode(&d->codec, numbers, n, residual, packed, kolo_codec_bytes(&d->codec, n));
    KOLO_ASSERT(status == KOLO_OK); /* the codec and the size are right */
    return to;
}

kolo_status kolo_division_unpack(const kolo_division *d, int part, const float *packed,
                                 float *gradient) {
    memcpy(gradient, packed, KOLO_SUMMED_HEAD * sizeof *gradient);
    packed += KOLO_SUMMED_HEAD;
    gradient += KOLO_SUMMED_HEAD;
    for (int i = 0; i < d->n_rows; i++) {
        const size_t n = range_of(d, i, part);
        if (!is_among(d, i, KOLO_ROWS_PUSHED) || n == 0) continue;
        if (row_of(d, i)[CODED]) {
            KOLO_TRY(
                kolo_codec_decode(&d->codec, packed, kolo_codec_bytes(&d->codec, n), gradient, n));
        } else {
            memcpy(gradient, packed, n * sizeof *gradient);
        }
        packed += packed_of(d, i, part);
        gradient += n;
    }
    return KOLO_OK;
}
