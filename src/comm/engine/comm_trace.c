/* Writes "Trace Event Format" JSON: a begin and an end event per start of a request, so that
 * requests in flight at one time are drawn side by side. Events are buffered, and written when the
 * buffer is full, when the communicator breaks and when it is destroyed; the format allows a file
 * that ends early. */
#define _GNU_SOURCE
#include "comm/engine/comm_trace.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/engine/family.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER_BYTES = 64 << 10 };

struct kolo_comm_trace {
    int fd; /* -1: no file */
    int rank;
    int64_t offset_ns; /* of the wall clock, which hosts share, to kolo_now_ns */
    uint64_t n_begun;
    kolo_text text;
    kolo_comm_hook *hook; /* NULL: none */
    void *arg;
};

static int64_t wall_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

kolo_status kolo_comm_trace_open(int rank, int size, kolo_comm_trace **trace) {
    const char *prefix = getenv("KOLO_TRACE");
    *trace = NULL;
    if (!prefix || !*prefix) return KOLO_OK;
    kolo_comm_trace *t = kolo_zalloc(sizeof *t);
    char *path = kolo_format("%s.rank%d.json", prefix, rank);
    kolo_status status = t && path ? KOLO_OK : KOLO_NOMEM(sizeof *t);
    if (status == KOLO_OK) {
        *t = (kolo_comm_trace){.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666),
                               .rank = rank,
                               .offset_ns = wall_ns() - kolo_now_ns()};
        if (t->fd < 0) status = kolo_file_fail("create", path, errno);
    }
    kolo_free(path);
    if (status != KOLO_OK) {
        kolo_free(t);
        return status;
    }
    kolo_text_add(&t->text,
                  "[\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": "
                  "{\"name\": \"rank %d of %d\"}},\n",
                  rank, rank, size);
    *trace = t;
    return KOLO_OK;
}

kolo_status kolo_comm_trace_set_hook(kolo_comm_trace **trace, int rank, kolo_comm_hook *hook,
                                     void *arg) {
    kolo_comm_trace *t = *trace;
    if (!t && hook) {
        t = kolo_zalloc(sizeof *t);
        if (!t) return KOLO_NOMEM(sizeof *t);
        *t = (kolo_comm_trace){.fd = -1, .rank = rank};
        *trace = t;
    }
    if (!t) return KOLO_OK;
    t->hook = hook;
    t->arg = arg;
    return KOLO_OK;
}

void kolo_comm_trace_flush(kolo_comm_trace *t) {
    if (t->fd < 0) return;
    if (!kolo_write_all(t->fd, t->text.text, t->text.length)) {
        kolo_log_line(KOLO_LOG_WARN, t->rank, "KOLO_TRACE: cannot write: %s",
                      kolo_errno_text(errno));
    }
    t->text.length = 0;
}

void kolo_comm_trace_close(kolo_comm_trace *t) {
    if (!t) return;
    if (t->fd < 0) {
        kolo_free(t);
        return;
    }
    kolo_text_add(&t->text,
                  "{\"ph\": \"M\", \"name\": \"process_labels\", \"pid\": %d, \"args\": "
                  "{\"labels\": \"%llu requests\"}}\n]\n",
                  t->rank, (unsigned long long)t->n_begun);
    kolo_comm_trace_flush(t);
    close(t->fd);
    kolo_text_fini(&t->text);
    kolo_free(t);
}

/* The start of an event, up to its arguments. */
static void add_event(kolo_comm_trace *t, const kolo_request *q, char phase) {
    int64_t ns = kolo_now_ns() + t->offset_ns;
    kolo_text_add(&t->text,
                  "{\"ph\": \"%c\", \"cat\": \"%s\", \"id\": %llu, \"pid\": %d, \"tid\": 0, "
                  "\"ts\": %lld.%03d, \"name\": ",
                  phase, kolo_collective_is_message(q->kind) ? "message" : "collective",
                  (unsigned long long)q->trace_id, t->rank, (long long)(ns / 1000),
                  (int)(ns % 1000));
    kolo_text_add_quoted(&t->text, q->title);
}

static const char *algorithm_of(const kolo_request *q) {
    return q->schedule && q->schedule->row ? q->schedule->row->name : "";
}

static void call_hook(const kolo_comm_trace *t, const kolo_request *q, bool ends) {
    const bool message = kolo_collective_is_message(q->kind);
    const kolo_comm_event event = {
        .id = q->trace_id,
        .ns = kolo_now_ns(),
        .ends = ends,
        .failed = ends && (q->comm->broken != KOLO_OK || q->state != REQUEST_IDLE),
        .kind = q->kind,
        .peer = message ? q->root : -1,
        .bytes = q->count * q->element_bytes,
        .name = q->site,
        .title = q->title,
        .algorithm = ends ? algorithm_of(q) : ""};
    _Atomic uintptr_t *calling = &kolo_comm_whole(q->comm)->progressing;
    uintptr_t before = atomic_load_explicit(calling, memory_order_relaxed);
    atomic_store_explicit(calling, (uintptr_t)pthread_self(), memory_order_relaxed);
    t->hook(t->arg, &event);
    atomic_store_explicit(calling, before, memory_order_relaxed);
}

void kolo_comm_trace_begin(kolo_comm_trace *t, kolo_request *q) {
    q->trace_id = ++t->n_begun;
    if (t->hook) call_hook(t, q, false);
    if (t->fd < 0) return;
    add_event(t, q, 'b');
    kolo_text_add(&t->text, ", \"args\": {\"bytes\": %zu}},\n", q->count * q->element_bytes);
    if (t->text.length > BUFFER_BYTES) kolo_comm_trace_flush(t);
}

void kolo_comm_trace_end(kolo_comm_trace *t, const kolo_request *q) {
    if (t->hook) call_hook(t, q, true);
    if (t->fd < 0) return;
    add_event(t, q, 'e');
    if (algorithm_of(q)[0]) {
        kolo_text_add(&t->text, ", \"args\": {\"algorithm\": \"%s\"}", algorithm_of(q));
    }
    kolo_text_add(&t->text, "},\n");
    if (t->text.length > BUFFER_BYTES) kolo_comm_trace_flush(t);
}
