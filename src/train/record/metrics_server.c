/* Metrics over HTTP, by libmicrohttpd, whose thread answers. scalars.c lists the numbers. The
 * caller leaves each new text in `fresh`, from where the thread takes it (atomic, acquire and
 * release).
 *
 * The library is loaded on demand: it brings a TLS library along, which no other process needs. */
#include "train/record/metrics_server.h"

#include "base/status.h"

#ifndef KOLO_HAS_METRICS_SERVER

kolo_status kolo_metrics_server_create(const char *address, int port,
                                       kolo_metrics_server **server) {
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "this build serves no metrics: install libmicrohttpd-dev, and build again");
}
int kolo_metrics_server_port(const kolo_metrics_server *server) { return 0; }
void kolo_metrics_server_report(kolo_metrics_server *server, const kolo_train_progress *progress) {}
void kolo_metrics_server_destroy(kolo_metrics_server *server) {}

#else

#include "base/compiler.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/transport/socket.h"
#include "train/record/scalars.h"

#include <dlfcn.h>
#include <microhttpd.h>
#include <stdatomic.h>
#include <string.h>

enum { MOST_CONNECTIONS = 16, IDLE_SECONDS = 10, CONNECTION_BYTES = 8192 };

typedef struct scalar {
    const char *group, *name; /* static storage */
    int rank;
    double value;
} scalar;

/* Functions of the library: MHD_start_daemon and so on. */
typedef struct calls {
    __typeof__(&MHD_start_daemon) start_daemon;
    __typeof__(&MHD_stop_daemon) stop_daemon;
    __typeof__(&MHD_create_response_from_buffer) create_response_from_buffer;
    __typeof__(&MHD_add_response_header) add_response_header;
    __typeof__(&MHD_queue_response) queue_response;
    __typeof__(&MHD_destroy_response) destroy_response;
} calls;

struct kolo_metrics_server {
    calls mhd;
    struct MHD_Daemon *daemon;
    int port;
    _Atomic(char *) fresh; /* the next text; NULL: none since `text` */
    char *text;            /* what is served; the thread's */
    scalar *scalars;       /* by group, name and rank, as they came */
    size_t n, capacity;
};

/* ---- the server's thread ---- */

static enum MHD_Result answer(const kolo_metrics_server *s, struct MHD_Connection *connection,
                              unsigned code, const char *text) {
    struct MHD_Response *response =
        s->mhd.create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    (void)s->mhd.add_response_header(response, "Content-Type", "text/plain; version=0.0.4");
    enum MHD_Result result = s->mhd.queue_response(connection, code, response);
    s->mhd.destroy_response(response);
    return result;
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state) {
    kolo_metrics_server *s = arg;
    static int seen; /* its address marks a request whose head has been read */
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        return answer(s, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET /metrics\n");
    }
    if (strcmp(url, "/metrics") != 0) {
        return answer(s, connection, MHD_HTTP_NOT_FOUND, "see /metrics\n");
    }
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    *upload_bytes = 0; /* a body is ignored */
    char *fresh = atomic_exchange_explicit(&s->fresh, NULL, memory_order_acquire);
    if (fresh) {
        kolo_free(s->text);
        s->text = fresh;
    }
    return answer(s, connection, MHD_HTTP_OK, s->text ? s->text : "");
}

/* ---- creation ---- */

static kolo_status load(calls *mhd) {
    struct {
        const char *name;
        void *call;
    } wanted[] = {
        {"MHD_start_daemon", &mhd->start_daemon},
        {"MHD_stop_daemon", &mhd->stop_daemon},
        {"MHD_create_response_from_buffer", &mhd->create_response_from_buffer},
        {"MHD_add_response_header", &mhd->add_response_header},
        {"MHD_queue_response", &mhd->queue_response},
        {"MHD_destroy_response", &mhd->destroy_response},
    };
    void *library = dlopen("libmicrohttpd.so.12", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (size_t i = 0; i < KOLO_COUNT(wanted); i++) {
        void *call = library ? dlsym(library, wanted[i].name) : NULL;
        if (!call) {
            return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                             "no metrics can be served: %s: install libmicrohttpd12", dlerror());
        }
        memcpy(wanted[i].call, &call, sizeof call);
    }
    return KOLO_OK;
}

static kolo_status start(kolo_metrics_server *s, const char *address, int port) {
    char own[KOLO_ADDRESS_BYTES];
    int fd;
    KOLO_TRY(load(&s->mhd));
    KOLO_TRY(kolo_socket_listen_only(address, port, &fd));
    kolo_status status = kolo_socket_own_address(fd, own, &s->port);
    if (status == KOLO_OK) {
        s->daemon = s->mhd.start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, s,
                                        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                        (unsigned)MOST_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                                        (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                        (size_t)CONNECTION_BYTES, MHD_OPTION_END);
        if (s->daemon) return KOLO_OK; /* which closes the socket */
        status = KOLO_FAIL(KOLO_ERR_IO, "the thread that serves metrics cannot be started");
    }
    kolo_socket_close(fd);
    return status;
}

kolo_status kolo_metrics_server_create(const char *address, int port,
                                       kolo_metrics_server **server) {
    kolo_metrics_server *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    kolo_status status = start(s, address ? address : "127.0.0.1", port > 0 ? port : 0);
    if (status != KOLO_OK) {
        kolo_metrics_server_destroy(s);
        return status;
    }
    *server = s;
    return KOLO_OK;
}

int kolo_metrics_server_port(const kolo_metrics_server *s) { return s->port; }

void kolo_metrics_server_destroy(kolo_metrics_server *s) {
    if (!s) return;
    if (s->daemon) s->mhd.stop_daemon(s->daemon);
    kolo_free(atomic_load_explicit(&s->fresh, memory_order_relaxed));
    kolo_free(s->text);
    kolo_free(s->scalars);
    kolo_free(s);
}

/* ---- reports ---- */

static void keep(void *arg, const char *group, const char *name, int rank, double value) {
    kolo_metrics_server *s = arg;
    const scalar fresh = {group, name, rank, value};
    size_t at = s->n;
    for (size_t i = 0; i < s->n; i++) {
        const scalar *old = &s->scalars[i];
        if (strcmp(old->group, group) != 0 || strcmp(old->name, name) != 0) continue;
        at = i + 1; /* those of one name stay together */
        if (old->rank == rank) {
            s->scalars[i].value = value;
            return;
        }
    }
    if (!KOLO_GROW(s->scalars, s->n, s->capacity)) return;
    memmove(&s->scalars[at + 1], &s->scalars[at], (s->n - at) * sizeof *s->scalars);
    s->scalars[at] = fresh;
    s->n++;
}

/* "kolo_workers_idle_ms{rank="1"} 0.25" */
static void print(const kolo_metrics_server *s, kolo_text *text) {
    for (size_t i = 0; i < s->n; i++) {
        const scalar *x = &s->scalars[i];
        const bool first =
            i == 0 || strcmp(x->name, x[-1].name) != 0 || strcmp(x->group, x[-1].group) != 0;
        if (first) kolo_text_add(text, "# TYPE kolo_%s_%s gauge\n", x->group, x->name);
        kolo_text_add(text, "kolo_%s_%s", x->group, x->name);
        if (x->rank >= 0) kolo_text_add(text, "{rank=\"%d\"}", x->rank);
        kolo_text_add(text, x->value != x->value ? " NaN\n" : " %.9g\n", x->value);
    }
}

void kolo_metrics_server_report(kolo_metrics_server *s, const kolo_train_progress *progress) {
    kolo_text text = {0};
    kolo_scalars_of(progress, keep, s);
    print(s, &text);
    char *copy = text.failed ? NULL : kolo_strdup(text.text);
    if (copy) kolo_free(atomic_exchange_explicit(&s->fresh, copy, memory_order_acq_rel));
    kolo_text_fini(&text);
}

#endif
