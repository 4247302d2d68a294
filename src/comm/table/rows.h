#pragma once
/* The rows that an owner of a table has, within a bound of memory. See kolo/table.h for admission,
 * eviction and expiry.
 *
 * Values and states are arrays by slot, so that an update is one of the rows of a matrix: its
 * gradient is row-sparse, with the slots of the rows in place of ids. All memory is mapped at
 * the creation and touched as rows are created. */

#include "kolo/table.h"

typedef struct kolo_rows kolo_rows;

/* `opts` is resolved, and borrowed. `most`: ids of an update. `secret`: see kolo_id_map_create.
 * ARG: no row fits; NOMEM. */
kolo_status kolo_rows_create(const kolo_table_opts *opts, size_t most, uint64_t secret,
                             kolo_rows **rows);
void kolo_rows_destroy(kolo_rows *rows);
/* The memory that up to n rows touch; `saved`: also while they are saved. */
size_t kolo_rows_needs(const kolo_table_opts *opts, uint64_t n, bool saved);
/* Of virtual time; else that of the machine. */
void kolo_rows_set_clock(kolo_rows *rows, int64_t (*now_ns)(void));
/* Reads the values of the rows of n ids, also of those that have none. */
void kolo_rows_read(const kolo_rows *rows, const uint64_t *ids, size_t n, float *values);
/* Whether an update by n gradients has room for what is to be saved of the rows that it changes. It
 * has once all are saved. */
bool kolo_rows_has_room(const kolo_rows *rows, size_t n);
/* An update by the gradients [n][width] of ids [n], each of which occurs once. `about` has the
 * worker, the workers and the clock. */
void kolo_rows_update(kolo_rows *rows, const uint64_t *ids, const float *gradients, size_t n,
                      const kolo_table_update *about);
/* Adds what there is to the sums. */
void kolo_rows_add_stats(const kolo_rows *rows, kolo_table_stats *stats);
/* Floats of a row that is saved. */
size_t kolo_rows_saved_width(const kolo_table_opts *opts);
/* From now on what there is now is to be saved, whatever changes; instead of what was to be saved
 * before. */
void kolo_rows_mark(kolo_rows *rows);
/* Copies the next rows that are to be saved, up to `most`, and then with `to->pushes` the ids that
 * wait for theirs. False: these were all. */
bool kolo_rows_save(kolo_rows *rows, size_t most, kolo_table_rows *to);
/* Nothing is to be saved any more. */
void kolo_rows_forget(kolo_rows *rows);
/* Sets rows while none are to be saved. */
void kolo_rows_load(kolo_rows *rows, const kolo_table_rows *from);
