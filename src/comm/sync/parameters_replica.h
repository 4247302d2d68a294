#pragma once
/* The replication of the parts of servers: the next server has a second owner of each part, its
 * *follower*; the first owner *leads*.
 *
 * A leader sends its follower each request of a worker, and the loss of a worker, in the order in
 * which it takes them. The follower takes them first and acknowledges; then the leader takes them,
 * and answers the worker. What an owner does follows from the requests and their order, so a
 * follower has all that any worker has an answer to.
 *
 * If the server of the leader is lost, the follower takes over. Workers then send it the requests
 * that have no answer. It discards the pending ones, and recognizes by their numbers those that it
 * has processed (kolo_parameters_owner_lead). If the server of the follower is lost, the leader
 * continues alone. All functions but create, connect and destroy run in the service's thread. */

#include "base/compiler.h"
#include "comm/sync/parameters_owner.h"

typedef struct kolo_replicas kolo_replicas;

/* What leads and follows: an owner of parameters, or of the rows of a table. */
typedef struct kolo_replicated {
    uint32_t kinds, push; /* of requests; that of a push */
    /* Whether the owner may take a request that changes what it has: a replica needs a copy. */
    bool (*changes)(const void *owner, const kolo_service_call *call);
    void (*serve)(void *owner, kolo_service_call *call);
    void (*lost)(void *owner, int client, bool left, const char *reason);
    /* The room for a reply to a kind of request that changes it. */
    size_t (*room)(const void *owner, uint32_t kind);
    /* As kolo_parameters_owner_lead. */
    void (*lead)(void *owner);
    void (*set_reply)(void *owner, kolo_owner_reply *reply);
} kolo_replicated;

extern const kolo_replicated kolo_replicated_parameters;

typedef struct kolo_replicas_opts {
    int ranks, workers, servers; /* ranks: workers, then servers */
    int joins;                   /* workers that may join: clients behind the ranks */
    int index;                   /* of this server */
    const kolo_replicated *of;
    /* That lead and follow; borrowed. The one that follows is created with
     * kolo_replicas_reply. */
    void *leader, *follower;
    size_t push_bytes; /* of a push to the follower, at most */
    bool keeps;        /* owners keep pushes, until a step is complete */
    kolo_owner_channel channel;
} kolo_replicas_opts;

/* The server that follows the owner of a part, and the part that a server follows. */
int kolo_replicas_follower(int part, int servers);
KOLO_SHARED int kolo_replicas_followed(int server, int servers);
/* The kind of a request to the owner of a part. */
uint32_t kolo_replicas_kind(uint32_t kind, int part);

/* NOMEM. */
kolo_status kolo_replicas_create(const kolo_replicas_opts *opts, kolo_replicas **made);
/* Before the first request: `arg` is that of the channel. */
void kolo_replicas_connect(kolo_replicas *replicas, void *arg);
/* NULL is allowed. */
void kolo_replicas_destroy(kolo_replicas *replicas);
/* The calls of a service; `arg`: a kolo_replicas. */
void kolo_replicas_serve(void *arg, kolo_service_call *call);
void kolo_replicas_lost(void *arg, int client, bool left, const char *reason);
void kolo_replicas_completed(void *arg);
/* The replies of an owner that follows. */
void kolo_replicas_reply(kolo_service_call *call, kolo_status status, uint64_t clock,
                         const void *data, size_t bytes);
