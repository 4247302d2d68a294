/* Runs: whether the files of the folder fit on its disk. Rows of tables are not counted: how many
 * there will be is not known. */
#include "base/file.h"
#include "base/number.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/job/job.h"

#include <inttypes.h>

/* What the rest of the run writes. */
typedef struct files {
    double checkpoint, weights; /* bytes of one */
    int64_t at_a_time;          /* resumable checkpoints; 0: none is written */
    double together;            /* bytes, beside what is there already */
} files;

/* Of checkpoints by time one is certain. */
static int64_t count_saves(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    const int64_t every = o->checkpoint_steps + o->checkpoint_epochs * j->setup.epoch_steps;
    if (j->state.steps >= j->end) return 0;
    if (every > 0) return j->end / every - j->state.steps / every + (j->end % every != 0);
    if (o->checkpoint_seconds <= 0) return 0;
    return o->keep > 0 ? o->keep + 1 : 1;
}

/* A new checkpoint is complete before the oldest is removed. */
static kolo_status count_files(const kolo_job *j, files *f) {
    const kolo_train_opts *o = &j->setup.opts;
    const kolo_store *store = kolo_session_store(j->session);
    int64_t there = 0, more = count_saves(j);
    KOLO_TRY(kolo_checkpoint_folder_count(o->out_dir, &there));
    *f = (files){.checkpoint = (double)kolo_checkpoint_bytes(store, true),
                 .weights = (double)kolo_checkpoint_bytes(store, false),
                 .at_a_time = more > 0 ? there + more : 0};
    if (more > 0 && o->keep > 0 && f->at_a_time > o->keep + 1) {
        f->at_a_time = o->keep + 1;
        more = f->at_a_time > there ? f->at_a_time - there : 1;
    }
    f->together = (double)more * f->checkpoint + (o->keep_best ? 2 : 1) * f->weights;
    return KOLO_OK;
}

static void warn(const kolo_job *j, const files *f, double space) {
    char one[32], all[32], left[32];
    kolo_notify(&j->setup.opts, KOLO_NOTICE_WARNING,
                "%s: up to %s more are written, with %" PRId64
                " checkpoints of %s at a time, and %s are free: free some space, keep fewer "
                "(--keep), or choose another folder (--out)",
                j->setup.opts.out_dir, kolo_bytes_text(f->together, all), f->at_a_time,
                kolo_bytes_text(f->checkpoint, one), kolo_bytes_text(space, left));
}

kolo_status kolo_job_check_space(const kolo_job *j) {
    const kolo_train_opts *o = &j->setup.opts;
    uint64_t bytes, remains = 0;
    files f;
    if (!j->files || !kolo_file_space(o->out_dir, &bytes)) return KOLO_OK;
    KOLO_TRY(count_files(j, &f));
    KOLO_TRY(kolo_checkpoint_folder_remains(o->out_dir, &remains)); /* go before the first step */
    const double space = (double)bytes + (double)remains;
    const bool saves = f.at_a_time > 0 && o->save_error != KOLO_SAVE_ERROR_CONTINUE;
    const double least = saves ? f.checkpoint : f.weights;
    if (least > space) {
        char one[32], left[32];
        return KOLO_FAIL(KOLO_ERR_IO,
                         "%s: a checkpoint takes %s, and %s are free: free some space, or choose "
                         "another folder (--out)",
                         o->out_dir, kolo_bytes_text(least, one), kolo_bytes_text(space, left));
    }
    if (f.together > space && j->rank == 0) warn(j, &f, space);
    return KOLO_OK;
}
