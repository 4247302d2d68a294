/* Runs that processes join: rank 0 writes what they need to the file `join` in the folder of the
 * run, and a process that has joined makes steps on leases like another worker, but in no
 * collectives: it meets the others at the owners of the parameters.
 *
 * The file has lines:
 *
 *     kolo-join 1
 *     workers 2 asks 1 saved 0 ledger 1700000000123456789
 *
 * and what the session adds (kolo_session_describe_join). It has no secret. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/job/job.h"
#include "train/session/tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const size_t most_bytes = 64 << 20;

static kolo_status write_file(kolo_job *j) {
    kolo_text text = {0};
    kolo_text_add(&text, "kolo-join 1\nworkers %d asks %d saved %" PRId64 " ledger %" PRId64 "\n",
                  j->size, j->preemption.asks, j->saved, j->state.ledger);
    kolo_session_describe_join(j->session, &text);
    j->join_file = kolo_format("%s/join", j->setup.opts.out_dir);
    kolo_status status = text.failed || !j->join_file
                             ? KOLO_NOMEM(text.length)
                             : kolo_file_write(j->join_file, text.text, text.length);
    kolo_text_fini(&text);
    return status;
}

kolo_status kolo_job_invite(kolo_job *j) {
    if (j->setup.opts.joins == 0 || j->rank != 0) return KOLO_OK;
    return write_file(j);
}

/* ---- the process that joins ---- */

static kolo_status read_file(kolo_job *j, const char *folder, char **text, const char **rest) {
    size_t bytes;
    int asks = 0, used = 0;
    char *path = kolo_format("%s/join", folder);
    if (!path) return KOLO_NOMEM(strlen(folder));
    kolo_status status = kolo_file_read(path, most_bytes, text, &bytes);
    if (status == KOLO_OK &&
        (sscanf(*text, "kolo-join 1\nworkers %d asks %d saved %" SCNd64 " ledger %" SCNd64 "\n%n",
                &j->size, &asks, &j->joined_saved, &j->joined_ledger, &used) != 4 ||
         used == 0 || j->size < 1)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "%s is not what a run with --joins writes", path);
    }
    kolo_free(path);
    j->preemption.asks = asks != 0;
    *rest = *text + used;
    return status;
}

/* What belongs to rank 0, or to the start of the run. */
static kolo_train_opts options_of(const kolo_train_opts *opts) {
    kolo_train_opts o = *opts;
    o.resume = o.init = o.tensorboard = o.trace = NULL;
    o.metrics_port = 0;
    o.resume_if_any = o.init_partial = false;
    return o;
}

static kolo_status join(kolo_job *j, const char *rest) {
    KOLO_TRY(kolo_job_open(j));
    KOLO_TRY(kolo_tuning_begin(&j->setup, NULL));
    KOLO_TRY(kolo_job_create_session(j));
    const kolo_session_servers servers = {.servers = j->setup.opts.servers,
                                          .joins = j->setup.opts.joins,
                                          .secret = j->setup.opts.join_secret};
    return kolo_session_join(j->session, rest, &servers, &j->rank);
}

kolo_status kolo_job_join(kolo_job *j, const kolo_train_opts *opts) {
    const kolo_train_opts o = options_of(opts);
    const char *rest;
    char *text = NULL;
    j->joined = true;
    j->comm = j->world = NULL;
    j->rank = 1; /* any but 0, until it has its number */
    kolo_status status = read_file(j, opts->join, &text, &rest);
    if (status == KOLO_OK) status = kolo_setup_open(&o, j->size, &j->setup);
    if (status == KOLO_OK) status = join(j, rest);
    kolo_free(text);
    return status;
}

kolo_status kolo_job_enter(kolo_job *j) {
    int64_t end;
    if (!j->joined) return KOLO_OK;
    KOLO_TRY(kolo_session_enter(j->session, &end));
    j->state.steps = end / j->size - 1; /* so that it meets the others at that end next */
    j->saved = j->joined_saved;
    kolo_session_seek(j->session, j->state.steps);
    return KOLO_OK;
}
