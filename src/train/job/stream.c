/* Runs whose data are a stream. Rank 0 reads the samples of all ranks, ahead of training, and
 * broadcasts those of a step before it; each rank takes its share, so that samples and numbers are
 * those of other data in the same order, for any number of ranks.
 *
 * While no samples arrive, rank 0 reports so once a second: the other ranks do not time out, a
 * checkpoint that is being written is completed, and the run ends if any rank requests it. A run
 * ends with the stream, or after its last step. The last samples, fewer than a step takes, make a
 * smaller step; with logical shards, or layers that are divided, which are compiled for certain
 * sizes, they are left out.
 *
 * A checkpoint stores the place behind the samples that were used: a resumed run reads a file from
 * there, and a pipe from wherever it is. */
#include "base/memory.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "train/job/job.h"
#include "train/session/agree.h"

#include <inttypes.h>

enum { WAIT_MS = 1000 };

struct kolo_job_stream {
    kolo_batch all;              /* of the step; on rank 0 its loader's, else of `data` */
    void *data[KOLO_MAX_FIELDS]; /* not on rank 0, of global_batch samples; borrowed by `all` */
    int64_t *indices;            /* [global_batch] */
    int64_t used;                /* samples of the steps so far */
};

static kolo_status allocate(const kolo_job *j, struct kolo_job_stream *s) {
    const kolo_dataset_info *info = kolo_dataset_describe(j->setup.train);
    const size_t n = (size_t)j->setup.global_batch;
    s->indices = kolo_alloc(n * sizeof *s->indices);
    if (!s->indices) return KOLO_NOMEM(n * sizeof *s->indices);
    for (int f = 0; f < info->n_fields && j->rank > 0; f++) {
        const size_t bytes = n * kolo_field_bytes(&info->fields[f]);
        s->data[f] = kolo_alloc(bytes);
        if (!s->data[f]) return KOLO_NOMEM(bytes);
    }
    return KOLO_OK;
}

/* Informs the user that a pipe does not repeat what the run has used. */
static void notify_pipe(const kolo_job *j) {
    if (j->stream->used == 0 || !kolo_feed_is_pipe(j->setup.train->stream->path)) return;
    kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO,
                "the data are a pipe: what it gives first is used as sample %" PRId64
                ", after those of the run so far",
                j->stream->used);
}

kolo_status kolo_job_open_stream(kolo_job *j, const kolo_loader_opts *opts) {
    kolo_loader_opts all = *opts;
    struct kolo_job_stream *s = j->stream = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->used = j->state.run.sums.samples;
    all.from = j->state.place;
    KOLO_TRY(allocate(j, s));
    if (j->rank > 0) return KOLO_OK;
    notify_pipe(j);
    all.streams = true;
    all.rank = 0;
    all.world = 1;
    all.timeout_ms = WAIT_MS;
    return kolo_loader_create(&all, &j->loader);
}

void kolo_job_close_stream(kolo_job *j) {
    struct kolo_job_stream *s = j->stream;
    if (!s) return;
    for (int f = 0; f < KOLO_MAX_FIELDS; f++) kolo_free(s->data[f]);
    kolo_free(s->indices);
    kolo_free(s);
    j->stream = NULL;
}

/* ---- rank 0 ---- */

/* Whether a step can have fewer samples than a full one. */
static bool takes_rest(const kolo_job *j) {
    return j->setup.opts.reproducible == 0 && !kolo_mesh_divides_layers(&j->setup.mesh);
}

static kolo_stream_state read_next(const kolo_job *j, struct kolo_job_stream *s) {
    const kolo_status status = kolo_loader_next(j->loader, &s->all);
    if (status == KOLO_ERR_TIMEOUT) return KOLO_STREAM_WAITS;
    if (status != KOLO_OK) return KOLO_STREAM_FAILED;
    const int64_t count = s->all.global_count;
    return count == j->setup.global_batch || (count > 0 && takes_rest(j)) ? KOLO_STREAM_SAMPLES_CAME
                                                                          : KOLO_STREAM_ENDED;
}

/* A run without a step has no result; of others the user is informed how far the data went. */
static kolo_status check_end(const kolo_job *j) {
    if (j->state.steps == 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT,
                         "%s ended before the first step, which takes %" PRId64 " samples",
                         kolo_dataset_describe(j->setup.train)->place,
                         takes_rest(j) ? 1 : j->setup.global_batch);
    }
    kolo_notify(&j->setup.opts, KOLO_NOTICE_INFO,
                "the data have ended: %" PRId64 " samples in %" PRId64 " of %" PRId64 " steps",
                j->stream->used, j->state.steps, j->setup.total_steps);
    return KOLO_OK;
}

/* ---- all ranks ---- */

static kolo_status receive(kolo_job *j, struct kolo_job_stream *s, int64_t count) {
    const kolo_dataset_info *info = kolo_dataset_describe(j->setup.train);
    if (j->rank > 0) {
        s->all = (kolo_batch){.count = count,
                              .global_count = count,
                              .step = j->state.steps,
                              .n_fields = info->n_fields,
                              .fields = info->fields};
        for (int f = 0; f < info->n_fields; f++) s->all.data[f] = s->data[f];
    }
    for (int f = 0; f < info->n_fields && j->comm; f++) {
        void *data = (void *)(uintptr_t)s->all.data[f]; /* rank 0 only sends */
        KOLO_TRY(kolo_broadcast(j->comm, data, (size_t)count * kolo_field_bytes(&info->fields[f]),
                                KOLO_DTYPE_U8, 0));
    }
    for (int64_t i = 0; i < count; i++) s->indices[i] = s->used + i;
    s->all.indices = s->indices;
    return KOLO_OK;
}

static void take_share(kolo_job *j, struct kolo_job_stream *s) {
    const kolo_sampler_opts order = {.samples = s->all.count,
                                     .global_batch = j->setup.global_batch};
    const int shards = (int)j->setup.opts.reproducible;
    int first, end;
    kolo_session_shards(j->session, kolo_session_data_rank(j->session), &first, &end);
    const kolo_share share = shards > 0
                                 ? kolo_sampler_shards(&order, 0, shards, first, end)
                                 : kolo_sampler_share(&order, 0, kolo_session_data_rank(j->session),
                                                      kolo_session_data_ranks(j->session));
    j->dealt = kolo_batch_part(&s->all, share.first, share.count);
    if (j->rank > 0) j->dealt.damaged = 0;
    s->used += s->all.count;
    if (j->rank == 0) j->state.place = kolo_loader_place(j->loader);
}

/* While no samples come: whether any rank is to end the run. */
static kolo_status ask_all(const kolo_job *j, kolo_stream_state *state) {
    int32_t asked = j->preempted && j->preempted(j->preempted_arg);
    if (!j->preemption.asks) return KOLO_OK;
    if (j->comm) KOLO_TRY(kolo_allreduce(j->comm, &asked, 1, KOLO_DTYPE_I32, KOLO_MAX));
    if (asked) *state = KOLO_STREAM_PREEMPTED;
    return KOLO_OK;
}

kolo_status kolo_job_deal_stream(kolo_job *j, kolo_stream_state *state) {
    struct kolo_job_stream *s = j->stream;
    int64_t head[2] = {0};
    if (j->rank == 0) {
        head[0] = read_next(j, s);
        head[1] = s->all.global_count;
    }
    if (j->comm) KOLO_TRY(kolo_broadcast(j->comm, head, 2, KOLO_DTYPE_I64, 0));
    *state = (kolo_stream_state)head[0];
    if (*state == KOLO_STREAM_FAILED) { /* the loader returns the error again */
        return kolo_agree(j->comm, j->rank == 0 ? kolo_loader_next(j->loader, &s->all) : KOLO_OK);
    }
    if (*state == KOLO_STREAM_ENDED) {
        if (j->rank == 0) j->damaged += s->all.damaged;
        return kolo_agree(j->comm, j->rank == 0 ? check_end(j) : KOLO_OK);
    }
    if (*state == KOLO_STREAM_WAITS) return ask_all(j, state);
    KOLO_TRY(receive(j, s, head[1]));
    take_share(j, s);
    return KOLO_OK;
}
