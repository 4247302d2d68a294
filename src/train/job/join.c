/* Runs that processes join: rank 0 writes what they need to the file `join` in the folder of the
 * run, and a process that has joined makes steps on leases as other workers do, but takes part in
 * no collectives: it communicates through the owners of the parameters.
 *
 * The file has lines:
 *
 *     kolo-join 1
 *     workers 2 joins 1 asks 1 saved 0 ledger 1700000000123456789 options 1400
 *
 * then that many bytes of options, which those of a process that joins must equal, and the lines of
 * the session (kolo_session_describe_join). The file contains no secret. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/job/job.h"
#include "train/session/tuning.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const size_t most_bytes = 64 << 20;
static const int64_t timeout_ms_default = 300000; /* as of communicators */

/* What a run has written. */
typedef struct invitation {
    char *text;
    const char *options, *rest; /* parts of `text` */
    size_t options_bytes;
    int joins;
} invitation;

static kolo_status read_file(kolo_job *j, const char *folder, invitation *in) {
    size_t bytes;
    int asks = 0, used = 0;
    char *path = kolo_format("%s/join", folder);
    if (!path) return KOLO_NOMEM(strlen(folder));
    kolo_status status = kolo_file_read(path, most_bytes, &in->text, &bytes);
    if (status == KOLO_OK &&
        (sscanf(in->text,
                "kolo-join 1\nworkers %d joins %d asks %d saved %" SCNd64 " ledger %" SCNd64
                " options %zu\n%n",
                &j->size, &in->joins, &asks, &j->joined_saved, &j->joined_ledger,
                &in->options_bytes, &used) != 6 ||
         used == 0 || j->size < 1 || in->options_bytes > bytes - (size_t)used)) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "%s is not what a run with --joins writes", path);
    }
    kolo_free(path);
    if (status != KOLO_OK) return status;
    j->preemption.asks = asks != 0;
    in->options = in->text + used;
    in->rest = in->options + in->options_bytes;
    return KOLO_OK;
}

/* With other options its leases would be other samples, or it would meet the workers elsewhere. */
static kolo_status compare_options(const kolo_job *j, const invitation *in) {
    kolo_text own = {0};
    kolo_status status = kolo_job_describe_joining(j, &own);
    if (status == KOLO_OK && in->joins != j->setup.opts.joins) {
        status =
            KOLO_FAIL(KOLO_ERR_ARG, "--joins %d, and %d in the run: give the --config of the run",
                      j->setup.opts.joins, in->joins);
    }
    const char *a = own.text, *b = in->options;
    while (status == KOLO_OK && *a && b < in->rest) {
        const size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0) {
            status =
                KOLO_FAIL(KOLO_ERR_ARG,
                          "this process has \"%.*s\", and the run that it joins \"%.*s\": give "
                          "the --config of the run, and no other options",
                          (int)n, a, (int)m, b);
        }
        a += n + (a[n] != '\0');
        b += m + (b[m] != '\0');
    }
    if (status == KOLO_OK && own.length != in->options_bytes) {
        status = KOLO_FAIL(KOLO_ERR_ARG, "this process and the run that it joins have different "
                                         "options: give the --config of the run");
    }
    kolo_text_fini(&own);
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
    const kolo_train_opts *o = &j->setup.opts;
    const kolo_session_servers servers = {
        .servers = o->servers,
        .replicas = o->replicas,
        .joins = o->joins,
        .secret = o->join_secret,
        .timeout_ms = o->join_timeout_ms > 0 ? o->join_timeout_ms : timeout_ms_default,
    };
    return kolo_session_join(j->session, rest, &servers, &j->rank);
}

kolo_status kolo_job_join(kolo_job *j, const kolo_train_opts *opts) {
    const kolo_train_opts o = options_of(opts);
    invitation in = {0};
    j->joined = true;
    j->comm = j->world = NULL;
    j->rank = 1; /* any but 0, until it has its number */
    kolo_status status = read_file(j, opts->join, &in);
    if (status == KOLO_OK) status = kolo_setup_open(&o, j->size, &j->setup);
    if (status == KOLO_OK) status = compare_options(j, &in);
    if (status == KOLO_OK) status = join(j, in.rest);
    kolo_free(in.text);
    return status;
}

kolo_status kolo_job_enter(kolo_job *j) {
    int64_t end;
    if (!j->joined) return KOLO_OK;
    KOLO_TRY(kolo_session_enter(j->session, &end));
    /* It meets the others at that end next, and passes the steps before, as they do: so it takes
     * part in agreements on the end of the run. */
    j->state.steps = kolo_job_barrier_before(j, end / j->size);
    j->saved = j->joined_saved;
    kolo_session_seek(j->session, j->state.steps);
    return KOLO_OK;
}
