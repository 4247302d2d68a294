/* A service of a group: connects all ranks to the ranks that serve.
 *
 * Each server opens listeners, and the ranks exchange their addresses by an allgather. The server's
 * thread then accepts its clients, first those that share its memory, over a local socket, then the
 * others over TCP. Every rank connects in the same order, first to the servers whose memory it
 * shares: so no rank waits for a rank that waits for another one. Both sides prove that they hold
 * the service's key, which is derived from the job's secret and a seed that rank 0 draws for each
 * service. At the end the ranks agree on success. */
#include "kolo/service.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/engine/comm.h"
#include "comm/engine/failure.h"
#include "comm/engine/family.h"
#include "comm/engine/forked.h"
#include "comm/join/rank_env.h"
#include "comm/service/client.h"
#include "comm/service/server.h"
#include "comm/service/waits.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CREDITS_DEFAULT = 64,
    CREDITS_MAX = 1 << 16,
    CLIENT_BYTES_DEFAULT = 256 << 20,
    CLIENT_BYTES_LEAST = 4096,
    HEARTBEAT_MS_DEFAULT = 10000,
    JOIN_TIMEOUT_MS_DEFAULT = 30000,
    JOINS_MAX = 1 << 16,
};

struct kolo_service {
    kolo_service_link link; /* first */
    kolo_comm *comm;        /* the whole group; NULL: this process has joined */
    kolo_client *client;
    kolo_server *server;     /* NULL: this rank does not serve */
    char *address;           /* for those who join; NULL: none may */
    kolo_activity *activity; /* of this rank: the group's, or of a process that has joined */
    kolo_activity own;
    int n_servers;
    int servers[]; /* [size]: their ranks */
};

/* What a rank sends to the others. */
typedef struct place {
    int32_t status, serves;
    int32_t port, unused;
    unsigned char seed[KOLO_NONCE_BYTES]; /* of rank 0 */
    char name[KOLO_SOCKET_NAME_BYTES];    /* of its local socket */
} place;

typedef struct setup {
    kolo_comm *comm;
    kolo_service_opts opts; /* resolved */
    place *places;          /* [size] */
    bool *local, *mapped;   /* [size]: see kolo_server_place */
    int listeners[2];       /* local, TCP; -1: none */
    kolo_key key;
    int64_t deadline_ns;
} setup;

static kolo_status resolve(int64_t timeout_ms, const kolo_service_opts *opts,
                           kolo_service_opts *o) {
    *o = opts ? *opts : (kolo_service_opts){0};
    if (o->credits == 0) o->credits = CREDITS_DEFAULT;
    if (o->client_bytes == 0) o->client_bytes = CLIENT_BYTES_DEFAULT;
    if (o->timeout_ms == 0) o->timeout_ms = timeout_ms;
    if (o->heartbeat_ms == 0) o->heartbeat_ms = HEARTBEAT_MS_DEFAULT;
    if (o->credits < 1 || o->credits > CREDITS_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a service with %d credits: must be 1 to %d", o->credits,
                         CREDITS_MAX);
    }
    if (o->client_bytes < CLIENT_BYTES_LEAST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a service with client_bytes %zu: at least %d are required",
                         o->client_bytes, CLIENT_BYTES_LEAST);
    }
    if (o->joins < 0 || o->joins > JOINS_MAX) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a service that %d processes may join: must be 0 to %d",
                         o->joins, JOINS_MAX);
    }
    if (o->timeout_ms < 0 || o->heartbeat_ms < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "a service with a negative timeout_ms or heartbeat_ms");
    }
    return KOLO_OK;
}

/* ---- who is where ---- */

static const char *address_of(const kolo_comm *comm, int rank) {
    int whole = kolo_comm_whole_rank(comm, rank);
    while (comm->parent) comm = comm->parent;
    return comm->addresses ? comm->addresses[whole] : "";
}

static kolo_status find_places(setup *s) {
    size_t n = (size_t)s->comm->size;
    s->places = kolo_zalloc(n * sizeof *s->places);
    s->local = kolo_zalloc(n);
    s->mapped = kolo_zalloc(n);
    if (!s->places || !s->local || !s->mapped) return KOLO_NOMEM(n * sizeof *s->places);
    for (int r = 0; r < s->comm->size; r++) {
        s->mapped[r] = kolo_comm_maps(s->comm, r);
        s->local[r] = s->mapped[r] || r == s->comm->rank;
    }
    return KOLO_OK;
}

/* Opens the listeners of a server. */
static kolo_status open_listeners(setup *s, place *own) {
    unsigned char random[KOLO_NONCE_BYTES];
    kolo_nonce_draw(random);
    size_t n = (size_t)snprintf(own->name, sizeof own->name, "kolo-");
    for (size_t i = 0; i < 16; i++) {
        n += (size_t)snprintf(own->name + n, sizeof own->name - n, "%02x", random[i]);
    }
    KOLO_TRY(kolo_socket_listen_local(own->name, &s->listeners[0]));
    bool all_local = true;
    for (int r = 0; r < s->comm->size; r++) all_local = all_local && s->local[r];
    if (all_local) return KOLO_OK;
    const char *address = address_of(s->comm, s->comm->rank);
    if (strchr(address, ',')) address = strchr(address, ':') ? "::" : "0.0.0.0"; /* a list */
    char found[KOLO_ADDRESS_BYTES];
    int port;
    KOLO_TRY(kolo_socket_listen_tcp(address, 0, &s->listeners[1]));
    KOLO_TRY(kolo_socket_own_address(s->listeners[1], found, &port));
    own->port = port;
    return KOLO_OK;
}

/* The key of a service, from that of the job's services and the seed of rank 0. */
static void make_key(const kolo_key *job, const unsigned char *seed, kolo_key *key) {
    kolo_nonces nonces = {0};
    memcpy(nonces.server, seed, sizeof nonces.server);
    kolo_proof_make(job, "kolo service key", &nonces, "", 0, key->bytes);
}

/* Exchanges the places of all ranks and makes the key. */
static kolo_status exchange(setup *s, kolo_status status, const place *own) {
    kolo_comm *comm = s->comm;
    s->places[comm->rank] = *own;
    s->places[comm->rank].status = (int32_t)status;
    KOLO_TRY(kolo_allgather(comm, NULL, s->places, sizeof *s->places, KOLO_DTYPE_U8));
    int n_servers = 0;
    for (int r = 0; r < comm->size; r++) {
        place *p = &s->places[r];
        p->name[sizeof p->name - 1] = '\0';
        n_servers += p->serves != 0;
        if (p->status != KOLO_OK && r != comm->rank) {
            return KOLO_FAIL((kolo_status)p->status, "%s cannot create the service: see its error",
                             KOLO_RANK(comm, r));
        }
    }
    if (n_servers == 0) return KOLO_FAIL(KOLO_ERR_ARG, "a service in which no rank serves");
    kolo_key secret;
    while (comm->parent) comm = comm->parent;
    memcpy(secret.bytes, comm->service_key, sizeof secret.bytes);
    make_key(&secret, s->places[0].seed, &s->key);
    kolo_key_clear(&secret);
    return KOLO_OK;
}

/* ---- connections ---- */

static kolo_status handshake(const setup *s, int fd, kolo_protection protection,
                             kolo_seal_keys *keys) {
    const kolo_hello hello = {.rank = s->comm->rank, .world = s->comm->size};
    kolo_nonces nonces;
    KOLO_TRY(kolo_handshake_connect(fd, &s->key, &hello, s->deadline_ns, &nonces));
    KOLO_TRY(
        kolo_handshake_recv(fd, &s->key, "kolo service", &nonces, NULL, 0, NULL, s->deadline_ns));
    return kolo_handshake_keys(fd, &s->key, &nonces, false, protection, s->deadline_ns, keys);
}

static kolo_status connect_to(const setup *s, int server, kolo_client *client) {
    const place *p = &s->places[server];
    kolo_protection protection = KOLO_PROTECT_NOTHING;
    kolo_seal_keys keys;
    int fd;
    if (s->local[server]) {
        KOLO_TRY(kolo_socket_connect_local(p->name, s->deadline_ns, &fd));
    } else {
        const char *address = address_of(s->comm, server);
        KOLO_TRY(kolo_socket_connect_tcp(address, p->port, s->deadline_ns, &fd));
        kolo_socket_tune(fd, s->opts.heartbeat_ms);
        kolo_socket_keep_alive(fd, s->opts.heartbeat_ms);
        protection = kolo_comm_whole(s->comm)->protection;
    }
    kolo_status status = handshake(s, fd, protection, &keys);
    if (status != KOLO_OK) {
        close(fd);
        return status;
    }
    status =
        kolo_client_attach(client, server, fd, s->mapped[server], kolo_seal_keys_or_none(&keys));
    kolo_seal_keys_clear(&keys);
    return status;
}

static kolo_status connect_all(const setup *s, kolo_client *client, bool local) {
    for (int r = 0; r < s->comm->size; r++) {
        if (!s->places[r].serves || s->local[r] != local) continue;
        kolo_status status = connect_to(s, r, client);
        if (status != KOLO_OK) {
            return kolo_fail_in(status, "connecting to the service of %s", KOLO_RANK(s->comm, r));
        }
    }
    return KOLO_OK;
}

/* Starts the server and connects to all servers. */
static kolo_status connect_service(setup *s, kolo_service *service) {
    kolo_comm *comm = s->comm;
    for (int r = 0; r < comm->size; r++) {
        if (s->places[r].serves) service->servers[service->n_servers++] = r;
    }
    if (s->opts.serve) {
        kolo_server_place where = {.transport = comm->transport,
                                   .local = s->local,
                                   .mapped = s->mapped,
                                   .size = comm->size};
        KOLO_TRY(kolo_server_create(&s->opts, &where, &service->server));
        int listeners[2] = {s->listeners[0], s->listeners[1]};
        s->listeners[0] = s->listeners[1] = -1; /* the server's */
        KOLO_TRY(kolo_server_start(service->server, listeners[0], listeners[1], &s->key,
                                   kolo_comm_whole(comm)->protection, s->deadline_ns));
    }
    service->activity = &kolo_comm_whole(comm)->activity;
    KOLO_TRY(kolo_client_create(comm->transport, comm->size, s->opts.timeout_ms, service->activity,
                                &service->client));
    if (service->server && s->opts.completed) {
        kolo_client_set_completed(service->client, kolo_server_wake, service->server);
    }
    KOLO_TRY(connect_all(s, service->client, true));
    return connect_all(s, service->client, false);
}

/* All ranks agree on the result. */
static kolo_status agree(kolo_comm *comm, kolo_status status) {
    char text[KOLO_REPORT_BYTES] = "";
    int32_t worst = (int32_t)status;
    if (status != KOLO_OK) snprintf(text, sizeof text, "%s", kolo_last_error());
    KOLO_TRY(kolo_allreduce(comm, &worst, 1, KOLO_DTYPE_I32, KOLO_MAX));
    if (status != KOLO_OK) return KOLO_FAIL(status, "%s", text);
    if (worst == KOLO_OK) return KOLO_OK;
    return KOLO_FAIL((kolo_status)worst, "another rank cannot create the service: see its error");
}

static void setup_fini(setup *s) {
    for (int i = 0; i < 2; i++) {
        if (s->listeners[i] >= 0) close(s->listeners[i]);
    }
    kolo_key_clear(&s->key);
    kolo_free(s->places);
    kolo_free(s->local);
    kolo_free(s->mapped);
}

static void abandon(kolo_service_link *link) {
    kolo_service *service = (kolo_service *)link;
    kolo_client_abandon(service->client);
    if (service->server) kolo_server_abandon(service->server);
}

/* ---- those who join ---- */

/* Lines: ranks, the seed of the key, and the protection of connections over TCP; of each server its
 * rank, port, local socket and address, which are 0, - and - of one that is lost. */
static kolo_status print_address(const setup *s, kolo_service *service) {
    kolo_text text = {0};
    if (s->opts.joins == 0) return KOLO_OK;
    kolo_text_add(&text, "kolo-service %d ", s->comm->size);
    for (int i = 0; i < KOLO_NONCE_BYTES; i++) {
        kolo_text_add(&text, "%02x", (unsigned)s->places[0].seed[i]);
    }
    kolo_text_add(&text, " %d\n", (int)kolo_comm_whole(s->comm)->protection);
    for (int r = 0; r < s->comm->size; r++) {
        const place *p = &s->places[r];
        const char *address = address_of(s->comm, r);
        if (!p->serves) continue;
        kolo_text_add(&text, "%d %d %s %s\n", r, (int)p->port, p->name, *address ? address : "-");
    }
    if (text.failed) {
        kolo_text_fini(&text);
        return KOLO_NOMEM(text.length);
    }
    service->address = text.text;
    return KOLO_OK;
}

typedef struct joining {
    kolo_key key;
    kolo_protection protection;
    int ranks, number; /* number: -1 until the first server has given it */
    int64_t deadline_ns, heartbeat_ms;
} joining;

/* A server on this host is at its local socket. */
static kolo_status join_server(joining *j, const place *p, const char *address, int *out,
                               kolo_seal_keys *keys) {
    int fd;
    kolo_status status = kolo_socket_connect_local(p->name, j->deadline_ns, &fd);
    const bool local = status == KOLO_OK;
    if (!local && p->port > 0)
        status = kolo_socket_connect_tcp(address, p->port, j->deadline_ns, &fd);
    KOLO_TRY(status);
    if (!local) kolo_socket_tune(fd, j->heartbeat_ms);
    if (!local) kolo_socket_keep_alive(fd, j->heartbeat_ms);
    const kolo_hello hello = {.rank = j->number, .world = j->ranks};
    kolo_nonces nonces;
    int32_t number = -1;
    status = kolo_handshake_connect(fd, &j->key, &hello, j->deadline_ns, &nonces);
    if (status == KOLO_OK) {
        status = kolo_handshake_recv(fd, &j->key, "kolo service join", &nonces, &number,
                                     sizeof number, NULL, j->deadline_ns);
    }
    status = kolo_handshake_explain(fd, status);
    if (status == KOLO_OK && (number < j->ranks || (j->number >= 0 && number != j->number))) {
        status = KOLO_FAIL(KOLO_ERR_FORMAT, "it gives another number: %d", (int)number);
    }
    if (status == KOLO_OK) {
        status =
            kolo_handshake_keys(fd, &j->key, &nonces, false,
                                local ? KOLO_PROTECT_NOTHING : j->protection, j->deadline_ns, keys);
    }
    if (status != KOLO_OK) {
        close(fd);
        return status;
    }
    j->number = number;
    *out = fd;
    return KOLO_OK;
}

static kolo_status fail_address(void) {
    return KOLO_FAIL(KOLO_ERR_ARG, "no address of a service that can be joined");
}

/* Returns the length of the line of a server; 0: it is none. */
static int parse_line(const char *line, int ranks, int *rank, place *p,
                      char address[KOLO_ADDRESS_BYTES]) {
    int port, used = 0;
    *p = (place){0};
    if (sscanf(line, "%d %d %39s %63s\n%n", rank, &port, p->name, address, &used) != 4) return 0;
    p->port = port;
    return *rank >= 0 && *rank < ranks && port >= 0 && port <= 65535 ? used : 0;
}

static bool is_lost(const place *p) { return p->port == 0 && strcmp(p->name, "-") == 0; }

/* Each server has one line, in the order of their ranks, and one is there. */
static kolo_status check_lines(const char *lines, int ranks) {
    place p;
    char address[KOLO_ADDRESS_BYTES];
    int before = -1, rank;
    bool any = false;
    while (*lines) {
        const int used = parse_line(lines, ranks, &rank, &p, address);
        if (used == 0 || rank <= before) return fail_address();
        before = rank;
        lines += used;
        any = any || !is_lost(&p);
    }
    return any ? KOLO_OK : fail_address();
}

/* Connects to the server of a line, which becomes the next one. */
static kolo_status join_line(joining *j, const char **line, kolo_service *service) {
    place p;
    char address[KOLO_ADDRESS_BYTES];
    kolo_seal_keys keys;
    int rank, fd;
    *line += parse_line(*line, j->ranks, &rank, &p, address);
    service->servers[service->n_servers++] = rank;
    if (is_lost(&p)) {
        kolo_client_attach_lost(service->client, rank);
        return KOLO_OK;
    }
    kolo_status status = join_server(j, &p, address, &fd, &keys);
    if (status != KOLO_OK) return kolo_fail_in(status, "joining the service of rank %d", rank);
    status = kolo_client_attach(service->client, rank, fd, false, kolo_seal_keys_or_none(&keys));
    kolo_seal_keys_clear(&keys);
    return status;
}

static kolo_status read_head(const char **address, joining *j, unsigned char *seed) {
    char hex[2 * KOLO_NONCE_BYTES + 1];
    int used = 0, protection;
    const bool right = *address && sscanf(*address, "kolo-service %d %64s %d\n%n", &j->ranks, hex,
                                          &protection, &used) == 3;
    if (!right || used == 0 || j->ranks < 2 || j->ranks > KOLO_WORLD_MAX ||
        strlen(hex) != 2 * KOLO_NONCE_BYTES || protection < KOLO_PROTECT_NOTHING ||
        protection > KOLO_PROTECT_SECRET) {
        return fail_address();
    }
    j->protection = (kolo_protection)protection;
    for (size_t i = 0; i < KOLO_NONCE_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) return fail_address();
        seed[i] = (unsigned char)byte;
    }
    *address += used;
    return KOLO_OK;
}

/* The key of the service, from the job's secret. */
static kolo_status read_secret(joining *j, const char *secret_file, const unsigned char *seed) {
    static const kolo_nonces none;
    kolo_key secret, job;
    if (!secret_file || !*secret_file) {
        return KOLO_FAIL(KOLO_ERR_ARG, "joining needs the job's secret: set KOLO_SECRET_FILE to "
                                       "its file");
    }
    KOLO_TRY(kolo_key_read(secret_file, j->deadline_ns, &secret));
    kolo_proof_make(&secret, "kolo service", &none, "", 0, job.bytes);
    make_key(&job, seed, &j->key);
    kolo_key_clear(&secret);
    kolo_key_clear(&job);
    return KOLO_OK;
}

kolo_status kolo_service_join(const char *address, const char *secret_file,
                              const kolo_service_opts *opts, kolo_service **service, int *number) {
    kolo_service_opts o;
    joining j = {.number = -1};
    unsigned char seed[KOLO_NONCE_BYTES];
    KOLO_TRY(resolve(JOIN_TIMEOUT_MS_DEFAULT, opts, &o));
    KOLO_TRY(read_head(&address, &j, seed));
    KOLO_TRY(check_lines(address, j.ranks));
    j.deadline_ns = kolo_now_ns() + kolo_ms_to_ns(o.timeout_ms);
    j.heartbeat_ms = o.heartbeat_ms;
    KOLO_TRY(read_secret(&j, secret_file, seed));
    const size_t bytes = sizeof(kolo_service) + (size_t)j.ranks * sizeof(int);
    kolo_service *made = kolo_zalloc(bytes);
    kolo_status status =
        made ? kolo_client_create(NULL, j.ranks, o.timeout_ms, &made->own, &made->client)
             : KOLO_NOMEM(bytes);
    if (made) made->activity = &made->own;
    while (status == KOLO_OK && *address) status = join_line(&j, &address, made);
    kolo_key_clear(&j.key);
    if (status != KOLO_OK) {
        kolo_service_destroy(made);
        return status;
    }
    *service = made;
    *number = j.number;
    return KOLO_OK;
}

/* A line of a lost server is longer than what takes its place. */
static char *put_line(char *to, const char *line, size_t bytes, bool lost) {
    char instead[32];
    if (lost) {
        bytes = (size_t)snprintf(instead, sizeof instead, "%ld 0 - -\n", strtol(line, NULL, 10));
        line = instead;
    }
    memmove(to, line, bytes);
    return to + bytes;
}

const char *kolo_service_address(const kolo_service *service) {
    char *to = service->address ? strchr(service->address, '\n') : NULL;
    if (!to) return NULL;
    const char *from = ++to;
    while (*from) {
        const size_t bytes = strcspn(from, "\n") + 1;
        const int rank = (int)strtol(from, NULL, 10);
        to = put_line(to, from, bytes, kolo_client_is_lost(service->client, rank));
        from += bytes;
    }
    *to = '\0';
    return service->address;
}

/* Everything up to the agreement, in which ranks with an error take part too. */
static kolo_status build(setup *s, kolo_status status, kolo_service *service) {
    place own = {.serves = s->opts.serve != NULL};
    kolo_key unused;
    if (status == KOLO_OK) status = kolo_key_draw(own.seed, sizeof own.seed, &unused);
    if (status == KOLO_OK && own.serves) status = open_listeners(s, &own);
    KOLO_TRY(exchange(s, status, &own));
    KOLO_TRY(status);
    status = print_address(s, service);
    return agree(s->comm, status == KOLO_OK ? connect_service(s, service) : status);
}

kolo_status kolo_service_create(kolo_comm *comm, const kolo_service_opts *opts,
                                kolo_service **service) {
    setup s = {.comm = comm, .listeners = {-1, -1}};
    kolo_status status = find_places(&s);
    if (status != KOLO_OK) { /* it cannot take part in the exchange */
        setup_fini(&s);
        return kolo_comm_break(comm, status, "%s", kolo_last_error());
    }
    status = resolve(comm->timeout_ns / 1000000, opts, &s.opts);
    s.deadline_ns = kolo_now_ns() + kolo_ms_to_ns(s.opts.timeout_ms);
    size_t bytes = sizeof(kolo_service) + (size_t)comm->size * sizeof(int);
    kolo_service *made = kolo_zalloc(bytes);
    if (status == KOLO_OK && !made) status = KOLO_NOMEM(bytes);
    status = build(&s, status, made);
    setup_fini(&s);
    if (status != KOLO_OK) {
        if (made) kolo_client_destroy(made->client);
        if (made) kolo_server_destroy(made->server);
        if (made) kolo_free(made->address);
        kolo_free(made);
        return status;
    }
    made->comm = kolo_comm_whole(comm);
    made->link.abandon = abandon;
    kolo_fork_add_service(made->comm, &made->link);
    *service = made;
    return KOLO_OK;
}

void kolo_service_destroy(kolo_service *service) {
    if (!service || (service->comm && service->comm->inherited)) return;
    char error[512]; /* the caller may be reporting it; peers that are gone cause others here */
    snprintf(error, sizeof error, "%s", kolo_last_error());
    if (service->comm) kolo_fork_remove_service(service->comm, &service->link);
    if (service->server) kolo_server_stop(service->server); /* it may start requests */
    kolo_client_destroy(service->client);
    kolo_server_destroy(service->server);
    kolo_free(service->address);
    kolo_free(service);
    if (*error) (void)KOLO_FAIL(KOLO_ERR_PEER, "%s", error);
}

void kolo_service_abandon(kolo_service *service, const char *error) {
    if (!service) return;
    kolo_client_set_error(service->client, error);
    if (service->server) kolo_server_set_error(service->server, error);
}

int kolo_service_server_count(const kolo_service *service) { return service->n_servers; }
int kolo_service_server_rank(const kolo_service *service, int i) { return service->servers[i]; }

bool kolo_service_maps(const kolo_service *service, int server) {
    return kolo_client_maps(service->client, server);
}

void kolo_service_traffic(kolo_service *service, uint64_t *sent, uint64_t *received) {
    *sent = *received = 0;
    kolo_client_traffic(service->client, sent, received);
    if (service->server) kolo_server_traffic(service->server, sent, received);
}

static kolo_status check(const kolo_service *service) {
    if (!service->comm || !service->comm->inherited) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "the service belongs to the parent process: a forked child "
                                   "cannot use it");
}

kolo_status kolo_service_start(kolo_service *service, kolo_service_request *request) {
    KOLO_TRY(check(service));
    return kolo_client_start(service->client, request, false);
}

kolo_status kolo_service_wait(kolo_service *service, kolo_service_request *request,
                              int64_t timeout_ms) {
    KOLO_TRY(check(service));
    return kolo_client_wait(service->client, request, timeout_ms);
}

kolo_status kolo_service_await(kolo_service *service, kolo_service_request *request,
                               int64_t timeout_ms) {
    KOLO_TRY(check(service));
    return kolo_client_await(service->client, request, timeout_ms);
}

void kolo_service_report_progress(kolo_service *service) {
    kolo_client_report_progress(service->client);
}

bool kolo_service_has_progress(kolo_service *service, int server, int64_t timeout_ms) {
    return kolo_client_has_progress(service->client, server, timeout_ms);
}

void kolo_service_hold(kolo_service *service) { kolo_client_hold(service->client); }
void kolo_service_release(kolo_service *service) { kolo_client_release(service->client); }
void kolo_service_release_sent(kolo_service *service) { kolo_client_release_sent(service->client); }

void kolo_service_begin_wait(kolo_service *service) { kolo_activity_begin_wait(service->activity); }
void kolo_service_end_wait(kolo_service *service) { kolo_activity_end_wait(service->activity); }

void kolo_service_note_progress(kolo_service *service) { kolo_activity_note(service->activity); }

bool kolo_service_test(kolo_service *service, const kolo_service_request *request) {
    return kolo_client_test(service->client, request);
}

bool kolo_service_is_lost(kolo_service *service, int server) {
    return kolo_client_is_lost(service->client, server);
}

kolo_status kolo_service_run(kolo_service *service, kolo_service_request *request,
                             int64_t timeout_ms) {
    KOLO_TRY(check(service));
    KOLO_TRY(kolo_client_start(service->client, request, true));
    return kolo_client_wait(service->client, request, timeout_ms);
}
