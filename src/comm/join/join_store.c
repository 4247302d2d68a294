/* Joining by the key-value store of a framework, which acts as the process manager. */
#include "base/clock.h"
#include "base/integer.h"
#include "base/status.h"
#include "comm/engine/comm_opts.h"
#include "comm/join/bootstrap.h"
#include "comm/join/join.h"
#include "kolo/embed.h"

#include <string.h>

typedef struct store_manager {
    kolo_manager base;
    kolo_share *share;
    void *arg;
} store_manager;

static kolo_status share(kolo_manager *m, char text[KOLO_MANAGER_TEXT_BYTES], int64_t deadline_ns) {
    const store_manager *s = (const store_manager *)m;
    int64_t left_ms = (deadline_ns - kolo_now_ns()) / 1000000;
    KOLO_TRY(s->share(s->arg, text, KOLO_MANAGER_TEXT_BYTES, kolo_max_i64(left_ms, 1)));
    if (memchr(text, '\0', KOLO_MANAGER_TEXT_BYTES)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "the text from rank 0 is too long");
}

static void keep_open(kolo_manager *m) {} /* the store belongs to the framework */

kolo_status kolo_comm_create_by(const kolo_comm_opts *opts, kolo_share *share_text, void *arg,
                                kolo_comm **comm) {
    static const kolo_manager_ops ops = {.name = "a store", .share = share, .close = keep_open};
    if (!opts || !share_text || !comm || opts->world < 1 || opts->rank < 0 ||
        opts->rank >= opts->world) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "kolo_comm_create_by: rank %d of a world of %d, or an "
                         "argument is NULL",
                         opts ? opts->rank : 0, opts ? opts->world : 0);
    }
    if (opts->transport == KOLO_TRANSPORT_MPI) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "transport mpi: its ranks are those of mpirun");
    }
    kolo_joining j = {
        .local_listener = -1, .tcp_listener = -1, .leader.fd = -1, .started_ns = kolo_now_ns()};
    KOLO_TRY(kolo_comm_resolve(opts, &j.opts));
    j.deadline_ns = j.started_ns + kolo_ms_to_ns(j.opts.timeout_ms);
    store_manager m = {.base = {.ops = &ops,
                                .rank = opts->rank,
                                .world = opts->world,
                                .any_port = true,
                                .one_host = opts->local_world == opts->world},
                       .share = share_text,
                       .arg = arg};
    kolo_status status =
        kolo_rank_env_from_manager(&m.base, &j.opts, j.deadline_ns, &j.env, &j.key);
    if (status == KOLO_OK) status = kolo_comm_join(&j, comm);
    return kolo_joining_log(&j, status, comm);
}
