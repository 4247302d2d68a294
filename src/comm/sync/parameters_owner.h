#pragma once
/* The owner of a part of the parameters: what it does with the requests of workers, whatever brings
 * them. Calls and replies are those of kolo/service.h; a test may make both.
 *
 * What the owner may not answer yet it keeps: with bsp the pushes of a step until it is complete,
 * which are then added where they lie, in the workers' memory if that is mapped; with any bound the
 * reads of workers that are too far ahead. An update releases them. One thread does it all, so a
 * read never sees half an update, and needs no version to be pinned. With plain bsp workers may
 * copy the values themselves (`exposed` of kolo/service.h): an update needs a push of each worker,
 * which the worker starts after its read. A worker that has finished gets copies. */

#include "kolo/parameters.h"
#include "kolo/service.h"

enum { KOLO_PUSH_PARTS_MOST = 24 }; /* of a push to an owner, before its rest */

typedef enum kolo_stop_request {
    KOLO_STOP_LEARNS, /* where all stop */
    KOLO_STOP_ASKS,
    KOLO_STOP_FORGETS, /* that any rank has asked, and the points of all workers */
} kolo_stop_request;
typedef enum kolo_barrier_flag {
    KOLO_BARRIER_STOPS = 1, /* a rank has requested the end of the run */
    KOLO_BARRIER_ANY = 2,   /* a worker had something to report */
} kolo_barrier_flag;

/* The largest point or lease that a client may name. */
#define KOLO_OWNER_POINT_MOST (UINT64_C(1) << 48)

typedef enum kolo_owner_request {
    KOLO_OWNER_PULL, /* the key: see KOLO_OWNER_IDLE; the clock of the reply: its staleness and,
                        where bounds adapt, KOLO_CHOICE_SHIFT bits above it the choice */
    KOLO_OWNER_PUSH, /* the key: the choice that its worker has found last */
    KOLO_OWNER_FINISH,
    KOLO_OWNER_STATE,   /* the key: as of a pull */
    KOLO_OWNER_BARRIER, /* the key: twice the number of those before, and 1 if the worker has
                           something to report (replicas get 32 bits of it); the input: nothing, or
                           what the worker adds to the sum; the clock of the reply:
                           kolo_barrier_flag */
    KOLO_OWNER_LEASE,   /* the key: those before; the clock of the request is the end; that of the
                           reply the number and 1. The reply is the clock with which the worker goes
                           on */
    KOLO_OWNER_IDLE,    /* this worker has no lease: clocks do not wait for it until its next pull
                           with key 1 */
    KOLO_OWNER_PART,    /* of the next push, in order; the key: numbers that came before */
    KOLO_OWNER_STOP,  /* of any rank; the key: kolo_stop_request; the clock: the point before which
                         it calls again, 0: it passes none; that of the reply: where all stop */
    KOLO_OWNER_PAUSE, /* of a worker; the clock as of STOP; the key: 0, or 1 and the latest point
                         that was replied to it, if it asks for a later one; the clock of the reply:
                         the latest point where all pause, 0: none */
    KOLO_OWNER_JOIN,  /* of a worker that joins: the clock of the reply is 0 while workers wait for
                         each other; at the first owner otherwise the end of leases, at others 1 */
    KOLO_OWNER_SUMMANDS,  /* of another owner: its part of a sum; the key: its number, from 0 */
    KOLO_OWNER_SUM,       /* of the latest barrier that has one */
    KOLO_OWNER_ASSIGN,    /* the values and the state from now on */
    KOLO_OWNER_CONFIGURE, /* settings of the program */
    KOLO_OWNER_KINDS
} kolo_owner_request;

/* A choice of a bound: its number, from 0, and its level (adapt.h). The first owner makes it, and
 * each takes it with the first push that has it, so that all take the same ones, followers too. */
enum { KOLO_CHOICE_SHIFT = 32, KOLO_CHOICE_LEVEL_BITS = 4 };
int kolo_choice_level(uint32_t choice);

/* A part of a vector, in numbers. */
typedef struct kolo_owned_span {
    size_t first, count;
} kolo_owned_span;

/* What an owner has, as parts of the vectors of all owners. */
typedef struct kolo_owned {
    kolo_owned_span values, gradient, state;
    kolo_owned_span pushed; /* of what workers push; without `unpack` the gradient */
} kolo_owned;

typedef struct kolo_parameters_owner kolo_parameters_owner;

/* As kolo_service_reply. */
typedef void kolo_owner_reply(kolo_service_call *call, kolo_status status, uint64_t clock,
                              const void *data, size_t bytes);

/* What a service does for an owner that makes requests; a test has another one. */
typedef struct kolo_owner_channel {
    kolo_status (*start)(void *arg, kolo_service_request *request);
    bool (*test)(void *arg, const kolo_service_request *request);
    kolo_status (*wait)(void *arg, kolo_service_request *request);
    kolo_owner_reply *reply;
} kolo_owner_channel;

/* `opts` is borrowed. The values are undefined; see kolo_parameters_owner_load. NOMEM. */
kolo_status kolo_parameters_owner_create(const kolo_parameters_opts *opts, const kolo_owned *has,
                                         int workers, kolo_owner_reply *reply,
                                         kolo_parameters_owner **made);
void kolo_parameters_owner_destroy(kolo_parameters_owner *owner);
/* Before the first request: lets a worker send its pushes in parts, for which the owner has memory
 * from then on. NOMEM. */
kolo_status kolo_parameters_owner_stage(kolo_parameters_owner *owner, int worker);
/* The room for a reply to a kind of request; whether an owner takes the kind of a request, whose
 * room is right. */
size_t kolo_parameters_owner_room(const kolo_parameters_owner *owner, uint32_t kind);
bool kolo_parameters_owner_fits(const kolo_parameters_owner *owner, const kolo_service_call *call);
/* The calls so far were copies of requests to another owner, which is lost: forgets those that it
 * keeps. From now on workers send again what has no answer; what this owner has taken of that it
 * answers, and does not take it again. */
void kolo_parameters_owner_lead(kolo_parameters_owner *owner);
void kolo_parameters_owner_set_reply(kolo_parameters_owner *owner, kolo_owner_reply *reply);
/* Of virtual time; else that of the machine. */
void kolo_parameters_owner_set_clock(kolo_parameters_owner *owner, int64_t (*now_ns)(void));
/* The memory of the values. */
size_t kolo_parameters_owner_bytes(const kolo_parameters_owner *owner);
/* With `exchange`, before the first request: the owners are the ranks from `first` on, and this one
 * is number `index` of them. NOMEM. */
kolo_status kolo_parameters_owner_exchange(kolo_parameters_owner *owner, int index, int owners,
                                           int first, const kolo_owner_channel *channel);
/* Before the first request of another owner: `arg` is that of the channel. */
void kolo_parameters_owner_connect(kolo_parameters_owner *owner, void *arg);
/* Before the load: values are in this memory of the caller from then on. The state is not, since
 * each request for it writes it. */
void kolo_parameters_owner_place(kolo_parameters_owner *owner, void *memory);
/* Before the first request, of owners whose requests one thread makes: their sums share this memory
 * of the caller, which has room for the largest gradient. */
void kolo_parameters_owner_share_sum(kolo_parameters_owner *owner, float *sum);
/* Sets values and state from the initial values of all owners. */
void kolo_parameters_owner_load(kolo_parameters_owner *owner, const float *all);
/* The calls of a service; `arg`: a kolo_parameters_owner. */
void kolo_parameters_owner_serve(void *arg, kolo_service_call *call);
void kolo_parameters_owner_lost(void *arg, int client, bool left, const char *reason);
/* Ends a step whose grace is over: `due` of kolo_service_opts. */
int kolo_parameters_owner_due(void *arg);
/* Blocks until no worker is present, up to `timeout_ms`: whether that is so. Any thread. */
bool kolo_parameters_owner_ended(kolo_parameters_owner *owner, int64_t timeout_ms);
/* Blocks until no worker is present. PEER: a worker that the job needs was lost. Any thread. */
kolo_status kolo_parameters_owner_wait(kolo_parameters_owner *owner);
/* Any thread. */
void kolo_parameters_owner_stats(kolo_parameters_owner *owner, kolo_parameters_stats *stats);
/* The bin of a staleness. */
int kolo_staleness_bin(uint64_t stale);
