#pragma once
/* How the owners of a run with parameter servers divide what workers exchange with them.
 *
 * A row is a tensor: of a gradient and its parameter, of a running statistic, of a metric, or of
 * optimizer state; or a piece of a large gradient and its parameter. Owners have ranges of its
 * memory, as the pass zero cuts it; statistics and metrics belong to owner 0. An owner makes the
 * rows, and all ranks get them. Gradients are in the order in which the backward pass completes
 * most of them, and workers push them.
 *
 * There are buckets of rows: one, or one for each unit of the pass zero, more for a unit of one
 * large parameter, and a last one of statistics and metrics. Part p is what owner p modulo the
 * owners has of bucket p divided by them. With one bucket parts are owners.
 *
 * The vectors of kolo/parameters.h follow from the rows. A part of
 *
 *     a gradient    what was summed over (KOLO_SUMMED_*), then its ranges of gradients, statistics
 *                   and metrics
 *     a push        the same; with a codec, codes in place of the gradients that are compressed
 *     the values    totals of the run, in f64: samples, labels, the sum of each metric, and
 *                   updates; then its ranges of parameters and statistics
 *     the state     its ranges of optimizer state */

#include "comm/sync/summed.h"
#include "kolo/codec.h"
#include "kolo/comm.h"
#include "kolo/parameters.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "plan/sums.h"

typedef enum kolo_row_kind {
    KOLO_ROW_GRADIENT, /* as kolo_sum_kind */
    KOLO_ROW_STATISTIC,
    KOLO_ROW_METRIC,
    KOLO_ROW_STATE,
} kolo_row_kind;

enum {
    KOLO_ROWS_PUSHED = 1 << KOLO_ROW_GRADIENT | 1 << KOLO_ROW_STATISTIC | 1 << KOLO_ROW_METRIC,
    KOLO_ROWS_PULLED = 1 << KOLO_ROW_GRADIENT | 1 << KOLO_ROW_STATISTIC,
    KOLO_ROWS_STATE = 1 << KOLO_ROW_STATE,
};

/* What precedes a part of a gradient: samples and labels, see kolo_summed_set. */
enum { KOLO_SUMMED_SAMPLES, KOLO_SUMMED_LABELS = 2, KOLO_SUMMED_HEAD = 4 };
_Static_assert(KOLO_SUMMED_HEAD == 2 * KOLO_SUMMED_FLOATS, "samples and labels");

typedef struct kolo_division {
    int owners, buckets, n_rows, n_metrics;
    int64_t *numbers; /* of row i: name, kind, layout, bucket, elements, whether it is pushed as a
                         code, and ranges of owners */
    kolo_codec codec; /* of these; the same on all ranks by their options */
} kolo_division;

/* The rows of owner `index` of `owners`, whose plan has these sums. A parameter of more than
 * `piece_bytes` that is a unit by itself has a row and a bucket for each piece; 0: one.
 * UNSUPPORTED: not in f32; NOMEM. */
kolo_status kolo_division_make(int owners, const kolo_store *store, const kolo_plan_sum *sums,
                               int n_sums, size_t piece_bytes, kolo_division *division);
/* The gradients that are compressed are pushed as codes. */
void kolo_division_compress(kolo_division *division, const kolo_compression *how,
                            const kolo_plan_sum *sums, int n_sums);
/* Sends the rows of the last rank to all. Collective; PEER, TIMEOUT, NOMEM. */
kolo_status kolo_division_broadcast(kolo_division *division, kolo_comm *comm);
/* Appends the rows as a line of numbers; reads it at *text, which is moved behind it. FORMAT:
 * another line; NOMEM. */
void kolo_division_print(const kolo_division *division, kolo_text *text);
kolo_status kolo_division_read(const char **text, kolo_division *division);
void kolo_division_fini(kolo_division *division);

kolo_row_kind kolo_division_kind(const kolo_division *division, int row);
/* The row of a name, or its first piece; -1: there is none. Optimizer state and all else have
 * different names. */
int kolo_division_find(const kolo_division *division, const char *name);
/* The next piece of the tensor of a row; -1: there is none. */
int kolo_division_next(const kolo_division *division, int row);
/* Elements of the tensor of a row. */
int64_t kolo_division_elements(const kolo_division *division, int row);
int kolo_division_parts(const kolo_division *division);
/* The part with the statistics and metrics, whose totals have these. */
int kolo_division_totals_part(const kolo_division *division);
int kolo_division_bucket(const kolo_division *division, int row);
/* The elements of a row that a part has: [*first, *end). */
void kolo_division_range(const kolo_division *division, int row, int part, int64_t *first,
                         int64_t *end);
/* Whether an entry of a store has the layout and the size that the owners have. */
bool kolo_division_fits(const kolo_division *division, int row, const kolo_store_entry *entry);

/* The numbers of a part. */
kolo_parameters_part kolo_division_part(const kolo_division *division, int part);
/* Numbers of f32 that precede the tensors in the values. */
size_t kolo_division_totals(const kolo_division *division);
/* Of the totals, the place of the updates. */
int kolo_division_updates(const kolo_division *division);

/* Copies the ranges that a part has of the rows of some kinds between the numbers of the part in a
 * vector and places, by row: where the whole tensor is or, if `own`, the owner's range. NULL: that
 * row is left out. */
void kolo_division_gather(const kolo_division *division, int part, unsigned kinds, bool own,
                          float *const *places, float *numbers);
void kolo_division_scatter(const kolo_division *division, int part, unsigned kinds, bool own,
                           const float *numbers, float *const *places);

/* Copies the range that a part has of one row, times `factor`, from where the whole tensor is.
 * Returns its elements. */
size_t kolo_division_gather_row(const kolo_division *division, int row, int part, double factor,
                                float *place, float *numbers);

/* The same of what a part is pushed as: packs the range that a part has of a row, whose elements
 * are `numbers`, and returns the numbers of the push that it takes. `residual`: error feedback of
 * these elements; NULL: none. */
size_t kolo_division_pack_row(const kolo_division *division, int row, int part,
                              const float *numbers, float *residual, float *packed);
/* The gradient of a part from its push. FORMAT: a code is none. */
kolo_status kolo_division_unpack(const kolo_division *division, int part, const float *packed,
                                 float *gradient);
/* Elements of a row that a part has. */
size_t kolo_division_count(const kolo_division *division, int row, int part);
