#pragma once
/* A service: requests from any rank of a group to any rank that serves, at any time.
 *
 * Collectives need all ranks, in one order. A service needs neither: a client pushes data to a
 * server, pulls data from it, or both in one request, whenever it wants to, and the ranks that are
 * not concerned take no part. It is the base of parameter servers and of asynchronous training.
 *
 *     static void serve(void *arg, kolo_service_call *call) {        // at a server, in its thread
 *         add(arg, call->key, call->input, call->input_bytes);
 *         kolo_service_reply(call, KOLO_OK, 0, NULL, 0);
 *     }
 *     ...
 *     kolo_service_request push = {.server = 0, .key = 7, .input = gradient, .input_bytes = n};
 *     KOLO_TRY(kolo_service_run(service, &push, 0));                 // at a client
 *
 * Every rank of the group is a client of every server, including its own. A service has connections
 * of its own, so it works while collectives are in flight and after its communicator has failed.
 * The loss of a client or server concerns only the two sides of a connection: the server gets an
 * event, and at the client all requests to that server fail.
 *
 * Data. Inside a host a server reads the input of a request in place, and writes its reply in
 * place, if the memory is registered (kolo_comm_alloc; between threads: any memory). Where a server
 * has `exposed` memory, clients on its host copy replies out of it themselves, beside each other.
 * Other data is sent over the connection.
 *
 * Limits. A server holds at most `credits` requests and `client_bytes` bytes of each client. Then
 * it stops reading from that client, without blocking others. Invalid messages end the connection.
 *
 * Threads. On a rank that serves, one thread calls `serve`, `lost` and `completed`. Another makes
 * progress on the requests that this rank has started, while no caller waits for one. Requests may
 * be started and waited for by any threads. kolo_comm_alloc must not run at the same time as
 * kolo_service_start in another thread. */

#include "kolo/comm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kolo_service kolo_service;

/* A request as its server sees it: valid until the reply. */
typedef struct kolo_service_call {
    int client; /* rank */
    uint32_t kind;
    uint64_t key, clock; /* as given by the client, of any meaning */
    const void *input;   /* 64-byte aligned, unless it is the client's memory; NULL: none */
    size_t input_bytes;
    void *output; /* the client's memory, which the reply may be written to; NULL: elsewhere */
    size_t output_bytes; /* room for the reply */
    bool copied; /* set before the reply: its data may change afterwards, so that the server copies
                    it, also out of `exposed` memory */
} kolo_service_call;

/* Options of kolo_service_create. A zero field takes its default. */
typedef struct kolo_service_opts {
    /* Called for each request. It replies at once, or keeps the call and replies in a later call of
     * `serve` or `lost`. Requests of one client arrive in the order of their start. NULL: this rank
     * serves no client. */
    void (*serve)(void *arg, kolo_service_call *call);
    /* Called once when a client has ended: `left` if it destroyed its service, in order or after an
     * error (kolo_service_abandon), otherwise its process ended, its host does not answer, or it
     * sent an invalid message; `reason` states which. Its calls that have no reply yet still need
     * one, which only frees the call. May be NULL. */
    void (*lost)(void *arg, int client, bool left, const char *reason);
    /* Called after requests that this rank has started are complete, so that `serve` may start some
     * without waiting for them. May be NULL. */
    void (*completed)(void *arg);
    /* Called before the thread waits for requests, to do what is due; returns the milliseconds
     * until it is to be called again, at the latest; -1: there is no such time. May be NULL. */
    int (*due)(void *arg);
    void *arg;
    int credits;         /* requests of a client without reply; default 64 */
    size_t client_bytes; /* data held for a client, and the largest input or reply that is not in
                            mapped memory; default 256 MiB */
    /* Registered memory of this rank: a client on this host copies a reply whose data is in it from
     * there, instead of the server's thread. After such a reply the data must not change before the
     * server gets a request that this client has started after it had the reply; where it may, set
     * `copied` of the call. Borrowed. NULL: none. */
    const void *exposed;
    size_t exposed_bytes;
    int joins;            /* processes that may join as clients later, also those that have ended by
                             then; the same on all servers */
    int64_t timeout_ms;   /* deadline of creation and of each wait; default the communicator's */
    int64_t heartbeat_ms; /* a host that does not answer this long is lost; default 10000 */
} kolo_service_opts;

/* Creates the service of a group and connects all ranks to all servers. A collective call: every
 * rank makes it, with the options of its own choice. Blocks. Destroy the service before `comm`.
 * ARG: invalid options, or no rank serves, on all ranks; IO: no connection; PEER; TIMEOUT; NOMEM;
 * the errors of an allgather. If one rank fails, all fail. */
KOLO_API kolo_status kolo_service_create(kolo_comm *comm, const kolo_service_opts *opts,
                                         kolo_service **service);
/* Leaves the service. Requests in flight fail here, and at the other side with PEER: wait for them
 * first, and let all clients finish (a barrier) before a server leaves. NULL is allowed. Blocks
 * until `serve`, `lost` and `completed` have returned; must not be called by them. */
KOLO_API void kolo_service_destroy(kolo_service *service);
/* After an error of this rank: kolo_service_destroy then sends its text to the others, which get it
 * as `reason` and as the error of their requests to this rank. NULL is allowed as the service. */
KOLO_API void kolo_service_abandon(kolo_service *service, const char *error);

/* What a process needs to join, besides the job's secret: a text for kolo_service_join, valid until
 * the next call or until the service is destroyed. Servers that this rank has found lost are lost
 * to those who join by it. NULL: this rank has no `joins`. */
KOLO_API const char *kolo_service_address(const kolo_service *service);
/* Joins a service as a client that is no rank of its group. Its number is above all ranks, the same
 * at all servers; a number is given once. Requests and their rules are those of other clients; its
 * memory is not mapped. `secret_file`: that of the job, as in kolo_comm_opts. Of `opts`, timeout_ms
 * and heartbeat_ms count. Blocks. ARG: no address, or as many have joined as may, those that
 * have ended included; PEER: a server does not answer, or the secret is another one; TIMEOUT;
 * NOMEM. */
KOLO_API kolo_status kolo_service_join(const char *address, const char *secret_file,
                                       const kolo_service_opts *opts, kolo_service **service,
                                       int *number);

/* Number of servers. */
KOLO_API int kolo_service_server_count(const kolo_service *service);
/* Rank of server `i`, in ascending order. */
KOLO_API int kolo_service_server_rank(const kolo_service *service, int i);

/* Whether a server reads registered memory of this rank in place, and writes there. */
KOLO_API bool kolo_service_maps(const kolo_service *service, int server);

/* The bytes that this rank, as a client and as a server, has exchanged with other hosts so far. */
KOLO_API void kolo_service_traffic(kolo_service *service, uint64_t *sent, uint64_t *received);

/* Completes a call. With status OK sends a clock and up to call->output_bytes bytes of `data`,
 * which may be call->output itself; otherwise sends this thread's last error. Does not block: what
 * the connection does not take is copied, but see `exposed` of kolo_service_opts. Only in `serve`
 * and `lost`, once per call. */
KOLO_API void kolo_service_reply(kolo_service_call *call, kolo_status status, uint64_t clock,
                                 const void *data, size_t bytes);

/* A request as its client describes it; the caller's memory, from start to completion. */
typedef struct kolo_service_request {
    int server;       /* rank */
    const char *name; /* in errors, with the clock; borrowed; NULL: they have kind and key */
    uint32_t kind;
    uint64_t key, clock;
    const void *input; /* borrowed until completion, as is `output` */
    size_t input_bytes;
    void *output;
    size_t output_bytes;
    /* The reply; valid after a wait that returned OK. */
    uint64_t reply_clock;
    size_t reply_bytes;
    struct { /* internal */
        struct kolo_service_request *next;
        uint64_t serial;
        uint64_t input_handle, output_handle;
        int state;
        kolo_status status;
        char error[448];
    } internal;
} kolo_service_request;

/* Starts a request. Does not block; the library makes progress. ARG: the rank does not serve, or
 * the request is in flight; PEER: the server is lost. */
KOLO_API kolo_status kolo_service_start(kolo_service *service, kolo_service_request *request);
/* Blocks until a started request is complete, and returns its error: one that the server replied,
 * prefixed by its rank; PEER: the server is lost; TIMEOUT: no reply within timeout_ms (0: the
 * service's): then the connection to this server is closed, and until it notices, the server may
 * still access the request's data. A request that is not in flight: its latest result. */
KOLO_API kolo_status kolo_service_wait(kolo_service *service, kolo_service_request *request,
                                       int64_t timeout_ms);
/* As kolo_service_wait, for a reply that depends on other clients: the wait goes on after
 * timeout_ms while any client of this server makes progress, which those that report progress do
 * unless they wait for a service themselves. TIMEOUT: none has within timeout_ms; the error names
 * the client, of those that report, which has sent nothing to the server for at least as long. */
KOLO_API kolo_status kolo_service_await(kolo_service *service, kolo_service_request *request,
                                        int64_t timeout_ms);
/* From now on this rank reports progress: it states to all servers, each second or four times in
 * the service's timeout, that it makes progress, unless it waits for a service of its group. A
 * thread of the library does so, whatever this rank computes; a process that is stopped does not.
 */
KOLO_API void kolo_service_report_progress(kolo_service *service);
/* Whether a started request is complete. Does not block. */
KOLO_API bool kolo_service_test(kolo_service *service, const kolo_service_request *request);
/* Whether the connection to a server is lost, or the server has left. */
KOLO_API bool kolo_service_is_lost(kolo_service *service, int server);
/* Starts a request and waits for it. */
KOLO_API kolo_status kolo_service_run(kolo_service *service, kolo_service_request *request,
                                      int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
