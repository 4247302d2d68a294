/* One-shot collectives: create a request, start it, wait, destroy it. */
#include "base/clock.h"
#include "base/status.h"
#include "comm/engine/backoff.h"
#include "comm/engine/engine.h"
#include "comm/engine/failure.h"
#include "comm/engine/lock.h"
#include "comm/engine/p2p.h"
#include "comm/engine/watch.h"

/* ---- one-time forms ---- */

kolo_status kolo_request_run(kolo_comm *comm, const kolo_request_opts *opts, int64_t timeout_ms) {
    kolo_request *request;
    KOLO_COMM_CLAIM(comm);
    kolo_status status = kolo_request_create(comm, opts, &request);
    if (status == KOLO_ERR_NOMEM) { /* of this rank alone: the others would wait for it */
        return kolo_comm_break(comm, status, "%s", kolo_last_error());
    }
    KOLO_TRY(status);
    request->number = KOLO_REQUEST_ONE_SHOT;
    status = kolo_request_start(request);
    if (status == KOLO_OK) status = kolo_request_wait(request, timeout_ms);
    if (status != KOLO_OK) status = kolo_comm_break(comm, status, "%s", kolo_last_error());
    kolo_request_destroy(request);
    return status;
}

kolo_status kolo_allreduce(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype,
                           kolo_reduce_op op) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                                 .output = data,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .op = op},
                            0);
}

kolo_status kolo_broadcast(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype, int root) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_BROADCAST,
                                                 .output = data,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .root = root},
                            0);
}

kolo_status kolo_barrier(kolo_comm *comm) {
    return kolo_request_run(comm, &(kolo_request_opts){.kind = KOLO_COLLECTIVE_BARRIER}, 0);
}

kolo_status kolo_reduce(kolo_comm *comm, const void *input, void *output, size_t count,
                        kolo_dtype dtype, kolo_reduce_op op, int root) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_REDUCE,
                                                 .input = input,
                                                 .output = output,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .op = op,
                                                 .root = root},
                            0);
}

kolo_status kolo_reduce_scatter(kolo_comm *comm, const void *input, void *output, size_t count,
                                kolo_dtype dtype, kolo_reduce_op op) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = KOLO_COLLECTIVE_REDUCE_SCATTER,
                                                 .input = input,
                                                 .output = output,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .op = op},
                            0);
}

/* The kinds that only move slices. */
static kolo_status run_slices(kolo_comm *comm, kolo_collective kind, const void *input,
                              void *output, size_t count, kolo_dtype dtype, int root) {
    return kolo_request_run(comm,
                            &(kolo_request_opts){.kind = kind,
                                                 .input = input,
                                                 .output = output,
                                                 .count = count,
                                                 .dtype = dtype,
                                                 .root = root},
                            0);
}

kolo_status kolo_allgather(kolo_comm *comm, const void *input, void *output, size_t count,
                           kolo_dtype dtype) {
    return run_slices(comm, KOLO_COLLECTIVE_ALLGATHER, input, output, count, dtype, 0);
}

kolo_status kolo_gather(kolo_comm *comm, const void *input, void *output, size_t count,
                        kolo_dtype dtype, int root) {
    return run_slices(comm, KOLO_COLLECTIVE_GATHER, input, output, count, dtype, root);
}

kolo_status kolo_scatter(kolo_comm *comm, const void *input, void *output, size_t count,
                         kolo_dtype dtype, int root) {
    return run_slices(comm, KOLO_COLLECTIVE_SCATTER, input, output, count, dtype, root);
}

kolo_status kolo_alltoall(kolo_comm *comm, const void *input, void *output, size_t count,
                          kolo_dtype dtype) {
    return run_slices(comm, KOLO_COLLECTIVE_ALLTOALL, input, output, count, dtype, 0);
}

static kolo_status run_message(kolo_comm *comm, kolo_request_opts o, int peer, int tag) {
    o.root = peer;
    o.tag = tag;
    return kolo_request_run(comm, &o, 0);
}

kolo_status kolo_send(kolo_comm *comm, const void *data, size_t count, kolo_dtype dtype, int to,
                      int tag) {
    kolo_request_opts o = {
        .kind = KOLO_COLLECTIVE_SEND, .input = data, .count = count, .dtype = dtype};
    return run_message(comm, o, to, tag);
}

kolo_status kolo_recv(kolo_comm *comm, void *data, size_t count, kolo_dtype dtype, int from,
                      int tag) {
    kolo_request_opts o = {
        .kind = KOLO_COLLECTIVE_RECV, .output = data, .count = count, .dtype = dtype};
    return run_message(comm, o, from, tag);
}

/* Starts both before it waits for one of them. */
static kolo_status run_both(kolo_request *send, kolo_request *recv) {
    KOLO_TRY(kolo_request_start(recv));
    KOLO_TRY(kolo_request_start(send));
    KOLO_TRY(kolo_request_wait(recv, 0));
    return kolo_request_wait(send, 0);
}

kolo_status kolo_sendrecv(kolo_comm *comm, const void *data, size_t count, int to, void *output,
                          size_t output_count, int from, kolo_dtype dtype, int tag) {
    kolo_request *send = NULL, *recv = NULL;
    KOLO_COMM_CLAIM(comm);
    KOLO_TRY(kolo_request_create(comm,
                                 &(kolo_request_opts){.kind = KOLO_COLLECTIVE_SEND,
                                                      .input = data,
                                                      .count = count,
                                                      .dtype = dtype,
                                                      .root = to,
                                                      .tag = tag},
                                 &send));
    kolo_status status = kolo_request_create(comm,
                                             &(kolo_request_opts){.kind = KOLO_COLLECTIVE_RECV,
                                                                  .output = output,
                                                                  .count = output_count,
                                                                  .dtype = dtype,
                                                                  .root = from,
                                                                  .tag = tag},
                                             &recv);
    if (status == KOLO_OK) {
        status = run_both(send, recv);
        if (status != KOLO_OK) status = kolo_comm_break(comm, status, "%s", kolo_last_error());
    }
    kolo_request_destroy(send);
    kolo_request_destroy(recv);
    return status;
}

/* Whether all ranks from which a message could come have left. */
static bool all_left(kolo_comm *comm, int from) {
    int n = 0, left = 0;
    for (int r = 0; r < comm->size; r++) {
        kolo_peer_state state;
        if (r == comm->rank || (from != KOLO_ANY_RANK && r != from)) continue;
        comm->transport->ops->peer_state(comm->transport, r, &state);
        left += state.condition == KOLO_PEER_LEFT ||
                (state.condition == KOLO_PEER_ALIVE && state.ended);
        n++;
    }
    if (from != KOLO_ANY_RANK) {
        kolo_transport_need(comm->transport, from, false);
    } else if (left > 0 && left < n) {
        kolo_comm_look_for_others(comm);
    }
    return left == n;
}

kolo_status kolo_probe(kolo_comm *comm, int from, int tag, bool *found, kolo_message *message) {
    KOLO_COMM_CLAIM(comm);
    KOLO_COMM_LOCK_SCOPE(comm);
    bool moved, left = false;
    if (from != KOLO_ANY_RANK && (from < 0 || from >= comm->size || from == comm->rank)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "kolo_probe: rank %d is not another rank of the group of %d",
                         from, comm->size);
    }
    KOLO_TRY(kolo_comm_check(comm));
    KOLO_TRY(kolo_p2p_open(comm));
    left = all_left(comm, from);
    KOLO_TRY(kolo_engine_progress(comm, &moved));
    kolo_status status = kolo_p2p_probe(comm, from, tag, found, message);
    if (status != KOLO_OK) return kolo_comm_break(comm, status, "%s", kolo_last_error());
    if (*found) return KOLO_OK;
    if (left)
        return KOLO_FAIL(KOLO_ERR_PEER,
                         "no message with tag %d: the ranks from which one "
                         "could come have left the group",
                         tag);
    return kolo_comm_watch_sometimes(comm, kolo_now_ns());
}
