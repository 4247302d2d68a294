/* What a program shows on request: settings from the environment, log, trace, bytes per peer. */
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/comm_opts.h"
#include "kolo/embed.h"
#include "support/ranks.h"
#include "support/support.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 5000 };

/* ---- settings ---- */

static void options_come_from_the_environment(void **state) {
    kolo_comm_opts o;
    setenv("KOLO_TIMEOUT", "2.5", 1);
    setenv("KOLO_HEARTBEAT", "0.25", 1);
    setenv("KOLO_ALGORITHM", "ring", 1);
    ASSERT_OK(kolo_comm_resolve(NULL, &o));
    assert_int_equal(o.timeout_ms, 2500);
    assert_int_equal(o.heartbeat_ms, 250);
    assert_int_equal(o.algorithm, KOLO_ALGORITHM_RING);
    kolo_comm_opts own = {.timeout_ms = 7, .heartbeat_ms = 700, .algorithm = KOLO_ALGORITHM_TREE};
    ASSERT_OK(kolo_comm_resolve(&own, &o));
    assert_int_equal(o.timeout_ms, 7);
    assert_int_equal(o.heartbeat_ms, 700);
    assert_int_equal(o.algorithm, KOLO_ALGORITHM_TREE);
    static const char *const wrong[][3] = {
        {"KOLO_TIMEOUT", "soon", "KOLO_TIMEOUT is 'soon': must be a number of seconds"},
        {"KOLO_TIMEOUT", "-1", "KOLO_TIMEOUT is '-1'"},
        {"KOLO_TIMEOUT", "nan", "KOLO_TIMEOUT is 'nan'"},
        {"KOLO_HEARTBEAT", "1s", "KOLO_HEARTBEAT is '1s'"},
        {"KOLO_HEARTBEAT", "0.01", "heartbeat_ms 10: the minimum is 100"},
        {"KOLO_ALGORITHM", "rink", "KOLO_ALGORITHM: "},
    };
    for (size_t i = 0; i < KOLO_COUNT(wrong); i++) {
        char *before = kolo_format("%s", getenv(wrong[i][0]));
        setenv(wrong[i][0], wrong[i][1], 1);
        assert_int_equal(kolo_comm_resolve(NULL, &o), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), wrong[i][2])) fail_msg("%s", kolo_last_error());
        setenv(wrong[i][0], before, 1);
        kolo_free(before);
    }
    unsetenv("KOLO_TIMEOUT");
    unsetenv("KOLO_HEARTBEAT");
    unsetenv("KOLO_ALGORITHM");
    ASSERT_OK(kolo_comm_resolve(NULL, &o));
    assert_int_equal(o.timeout_ms, 300000);
    assert_int_equal(o.algorithm, KOLO_ALGORITHM_AUTO);
}

/* ---- log and trace ---- */

/* An allreduce, two in flight at a time, a message from rank 0 to 1 and a sub-group's barrier. */
static kolo_status work(kolo_comm *comm, float *data) {
    kolo_comm *sub;
    kolo_request *a, *b;
    kolo_part parts[2] = {{.data = data, .count = COUNT}, {.data = data + COUNT, .count = COUNT}};
    KOLO_TRY(kolo_allreduce_create(comm, &parts[0], 1, KOLO_DTYPE_F32, KOLO_SUM,
                                   KOLO_ALGORITHM_RING, "first \"quoted\"", &a));
    KOLO_TRY(kolo_allreduce_create(comm, &parts[1], 1, KOLO_DTYPE_F32, KOLO_SUM,
                                   KOLO_ALGORITHM_RING, "second", &b));
    KOLO_TRY(kolo_request_start(a));
    KOLO_TRY(kolo_request_start(b));
    KOLO_TRY(kolo_request_wait(b, 0));
    KOLO_TRY(kolo_request_wait(a, 0));
    if (kolo_comm_rank(comm) == 0) KOLO_TRY(kolo_send(comm, data, 10, KOLO_DTYPE_F32, 1, 0));
    if (kolo_comm_rank(comm) == 1) KOLO_TRY(kolo_recv(comm, data, 10, KOLO_DTYPE_F32, 0, 0));
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &sub));
    return kolo_barrier(sub);
}

typedef struct where {
    char log[200], trace[200];
} where;

static kolo_status traced_body(kolo_comm *unused, const void *arg, void *result) {
    static float data[2 * COUNT];
    const where *w = arg;
    kolo_comm *comm;
    setenv("KOLO_LOG", w->log, 1);
    setenv("KOLO_TRACE", w->trace, 1);
    KOLO_TRY(kolo_comm_create(NULL, &comm));
    kolo_status status = work(comm, data);
    kolo_comm_destroy(comm);
    return status;
}

static void run_traced(const char *log) {
    where w;
    char folder[150];
    assert_non_null(getcwd(folder, sizeof folder));
    snprintf(w.log, sizeof w.log, "%s:%s/inside.log", log, folder);
    snprintf(w.trace, sizeof w.trace, "%s/inside", folder);
    (void)remove("inside.log");
    kolo_status status = run_rank_job(&(rank_job){.n = RANKS,
                                                  .transport = RANKS_SHM,
                                                  .body = traced_body,
                                                  .arg = &w,
                                                  .arg_bytes = sizeof w,
                                                  .bare = true});
    if (status != KOLO_OK) fail_msg("%s", kolo_last_error());
}

static char *read_text(const char *path) {
    char *text;
    size_t bytes;
    ASSERT_OK(kolo_file_read(path, 1 << 20, &text, &bytes));
    return text;
}

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)); text++) n++;
    return n;
}

static kolo_status closed_store(void *arg, char *text, size_t bytes, int64_t timeout_ms) {
    return kolo_error_set(KOLO_ERR_IO, "the store is closed");
}

/* A group that has no need of the store, and a rank that cannot do without. */
static kolo_status by_store_body(kolo_comm *unused, const void *arg, void *result) {
    kolo_comm_opts alone = {.world = 1}, second = {.rank = 1, .world = 2};
    kolo_comm *comm;
    setenv("KOLO_LOG", arg, 1);
    KOLO_TRY(kolo_comm_create_by(&alone, closed_store, NULL, &comm));
    kolo_comm_destroy(comm);
    bool refused = kolo_comm_create_by(&second, closed_store, NULL, &comm) == KOLO_ERR_IO;
    return refused ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "joined without the store");
}

static void joining_by_a_store_is_logged_too(void **state) {
    char log[] = "info:store.log", *text;
    (void)remove("store.log");
    rank_job job = {.n = 1,
                    .transport = RANKS_SHM,
                    .body = by_store_body,
                    .arg = log,
                    .arg_bytes = sizeof log,
                    .bare = true};
    ASSERT_OK(run_rank_job(&job));
    text = read_text("store.log");
    assert_int_equal(count_of(text, " rank 0 info: joined 1 ranks on 1 host in "), 1);
    assert_int_equal(count_of(text, " warn: not joined: the store is closed"), 1);
    kolo_free(text);
}

static void a_log_shows_joining_and_leaving(void **state) {
    run_traced("info");
    char *text = read_text("inside.log");
    assert_int_equal(count_of(text, " info: joined 3 ranks on 1 host in "), RANKS);
    assert_int_equal(count_of(text, ": transport shm, algorithm auto, timeout 300.0 s, "), RANKS);
    assert_int_equal(count_of(text, " info: left after "), RANKS);
    assert_int_equal(count_of(text, " rank 2 info: sub-group 0 left after 1 collectives: "), 1);
    assert_int_equal(count_of(text, "debug"), 0);
    kolo_free(text);
    run_traced("debug");
    text = read_text("inside.log");
    assert_int_equal(count_of(text, " rank 1 debug: has reached rank 0 at 127.0.0.1:"), 1);
    assert_int_equal(count_of(text, " rank 0 debug: connected to rank 2 by shared memory"), 1);
    assert_int_equal(count_of(text, " debug: created allreduce 'second' (5000 x f32, "), RANKS);
    assert_int_equal(count_of(text, " rank 1 debug: rank 0: sent "), 1);
    kolo_free(text);
}

/* Each rank has a file of pairs of events; the time of a pair does not decrease. */
static void a_trace_has_begin_and_end_of_each_request(void **state) {
    run_traced("warn");
    for (int r = 0; r < RANKS; r++) {
        char path[40], *text;
        snprintf(path, sizeof path, "inside.rank%d.json", r);
        text = read_text(path);
        int begun = count_of(text, "{\"ph\": \"b\"");
        assert_int_equal(begun, count_of(text, "{\"ph\": \"e\""));
        assert_int_equal(begun, r < 2 ? 6 : 5); /* a split is two allgathers */
        assert_int_equal(count_of(text, "\"cat\": \"message\""), r < 2 ? 2 : 0);
        assert_int_equal(count_of(text, "allreduce 'first \\\"quoted\\\"'"), 2);
        assert_int_equal(count_of(text, "\"bytes\": 20000"), 2);
        assert_int_equal(count_of(text, "\"algorithm\": \"ring\""), 2);
        assert_int_equal(count_of(text, "in sub-group 0"), 2);
        assert_non_null(strstr(text, "\"labels\": \""));
        kolo_free(text);
    }
}

/* ---- a hook ---- */

enum { EVENTS_MOST = 64 };

typedef struct events {
    int n;
    struct one_event {
        kolo_comm_event event; /* its texts are copied */
        char name[32], title[96], algorithm[32];
    } of[EVENTS_MOST];
} events;

static void keep_event(void *arg, const kolo_comm_event *event) {
    events *seen = arg;
    struct one_event *e = &seen->of[seen->n++ % EVENTS_MOST];
    e->event = *event;
    snprintf(e->name, sizeof e->name, "%s", event->name);
    snprintf(e->title, sizeof e->title, "%s", event->title);
    snprintf(e->algorithm, sizeof e->algorithm, "%s", event->algorithm);
}

/* The end of the event at `i`, after it; NULL: none. */
static const struct one_event *end_of(const events *seen, int i) {
    for (int k = i + 1; k < seen->n; k++) {
        if (seen->of[k].event.id == seen->of[i].event.id) return &seen->of[k];
    }
    return NULL;
}

static kolo_status check_pairs(const events *seen) {
    int begun = 0;
    for (int i = 0; i < seen->n; i++) {
        const kolo_comm_event *e = &seen->of[i].event;
        if (e->ends) continue;
        const struct one_event *end = end_of(seen, i);
        bool pair = end && end->event.ends && !end->event.failed && end->event.ns >= e->ns &&
                    end->event.kind == e->kind && end->event.bytes == e->bytes &&
                    strcmp(end->title, seen->of[i].title) == 0;
        if (!pair) return KOLO_FAIL(KOLO_ERR_FORMAT, "%s has no end", seen->of[i].title);
        begun++;
    }
    return begun * 2 == seen->n ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "%d begun", begun);
}

static kolo_status check_first(const struct one_event *e, const struct one_event *end) {
    bool right = end && e->event.id == 1 && e->event.bytes == COUNT * sizeof(float) &&
                 e->event.kind == KOLO_COLLECTIVE_ALLREDUCE && e->event.peer == -1 &&
                 strcmp(e->name, "first \"quoted\"") == 0 && e->algorithm[0] == '\0' &&
                 strcmp(end->algorithm, "ring") == 0 && strstr(e->title, "5000 x f32, sum, ring");
    return right ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "first: %s", e->title);
}

/* Of each rank, side by side in memory that all share. */
typedef struct flag {
    _Alignas(64) _Atomic int done;
} flag;

/* Without communication: waits until all ranks have come here. */
static void await_all(flag *own, int rank) {
    atomic_store(&own->done, 1);
    for (int r = 0; r < RANKS; r++) {
        while (!atomic_load(&own[r - rank].done)) sched_yield();
    }
}

/* The work of the trace, then a hook that is removed, and an allreduce that fails. */
static kolo_status hook_body(kolo_comm *comm, const void *arg, void *result) {
    static float data[RANKS][2 * COUNT];
    static events of[RANKS];
    int rank = kolo_comm_rank(comm);
    events *seen = &of[rank];
    kolo_comm *sub;
    *seen = (events){.n = 0};
    KOLO_TRY(kolo_comm_set_hook(comm, keep_event, seen));
    KOLO_TRY(work(comm, data[rank]));
    KOLO_TRY(check_pairs(seen));
    KOLO_TRY(check_first(&seen->of[0], end_of(seen, 0)));
    if (seen->n != (rank < 2 ? 12 : 10)) return KOLO_FAIL(KOLO_ERR_FORMAT, "%d events", seen->n);
    if (rank < 2 && (seen->of[4].event.peer != 1 - rank || seen->of[4].event.bytes != 40)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a message with rank %d", seen->of[4].event.peer);
    }
    KOLO_TRY(kolo_comm_set_hook(comm, NULL, NULL));
    KOLO_TRY(kolo_comm_split(comm, 0, 0, &sub));
    if (seen->n != (rank < 2 ? 12 : 10)) return KOLO_FAIL(KOLO_ERR_FORMAT, "not removed");
    if (kolo_comm_set_hook(sub, keep_event, seen) != KOLO_ERR_ARG) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a hook of a sub-group");
    }
    KOLO_TRY(kolo_comm_set_hook(comm, keep_event, seen));
    seen->n = 0;
    await_all(result, rank);          /* the failure breaks what other ranks are in */
    size_t count = rank == 0 ? 7 : 8; /* ranks disagree */
    kolo_status status = kolo_allreduce(sub, data[rank], count, KOLO_DTYPE_F32, KOLO_SUM);
    bool started = seen->n == 2 && seen->of[1].event.failed; /* or broken before */
    if (status == KOLO_OK || (seen->n > 0 && !started)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a failure: %d events", seen->n);
    }
    return KOLO_OK;
}

static void a_hook_is_called_at_begin_and_end(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_TCP};
    for (size_t i = 0; i < KOLO_COUNT(transports); i++) {
        flag flags[RANKS];
        const rank_job job = {.n = RANKS,
                              .transport = transports[i],
                              .body = hook_body,
                              .results = flags,
                              .result_bytes = sizeof flags[0]};
        ASSERT_OK(run_rank_job(&job));
    }
}

/* A hook that uses the communicator would be called for that, too. */
typedef struct calling_hook {
    kolo_comm *comm;
    kolo_status statuses[4]; /* of its calls */
    int n;
} calling_hook;

static void call_back(void *arg, const kolo_comm_event *event) {
    calling_hook *h = arg;
    if (h->n == (int)KOLO_COUNT(h->statuses)) return;
    int at = h->n++;
    h->statuses[at] = kolo_barrier(h->comm);
}

static void a_hook_must_not_use_its_communicator(void **state) {
    calling_hook h = {0};
    ASSERT_OK(kolo_comm_create_threads(1, NULL, &h.comm));
    ASSERT_OK(kolo_comm_set_hook(h.comm, call_back, &h));
    ASSERT_OK(kolo_barrier(h.comm));
    assert_int_equal(h.n, 2); /* at the begin and at the end */
    for (int i = 0; i < h.n; i++) assert_int_equal(h.statuses[i], KOLO_ERR_ARG);
    ASSERT_OK(kolo_comm_set_hook(h.comm, NULL, NULL));
    ASSERT_OK(kolo_barrier(h.comm));
    kolo_comm_destroy(h.comm);
}

static kolo_status invalid_log_body(kolo_comm *unused, const void *arg, void *result) {
    kolo_comm *comm;
    setenv("KOLO_LOG", (const char *)arg, 1);
    return kolo_comm_create(NULL, &comm);
}

static void an_invalid_log_is_refused(void **state) {
    static const struct {
        const char *value;
        kolo_status status;
        const char *text;
    } cases[] = {
        {"loud", KOLO_ERR_ARG, "KOLO_LOG is 'loud': must be warn, info or debug"},
        {"info:/nonexistent/file", KOLO_ERR_IO, "KOLO_LOG: cannot open /nonexistent/file: "},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        rank_outcome outcome;
        kolo_status status = run_rank_job(&(rank_job){.n = 1,
                                                      .transport = RANKS_SHM,
                                                      .body = invalid_log_body,
                                                      .arg = cases[i].value,
                                                      .arg_bytes = strlen(cases[i].value) + 1,
                                                      .bare = true,
                                                      .outcomes = &outcome});
        assert_int_equal(status, cases[i].status);
        if (!strstr(outcome.error, cases[i].text)) fail_msg("%s", outcome.error);
    }
}

/* ---- bytes per peer ---- */

/* A ring sends 2 (n - 1) / n of the vector to the next rank; a message goes to its rank only. What
 * a request has moved counts after it is destroyed, too. */
static kolo_status traffic_body(kolo_comm *comm, const void *arg, void *result) {
    int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    float x[192] = {0}; /* slices of 64 elements */
    kolo_peer_traffic next, previous, none;
    kolo_part part = {.data = x, .count = 192};
    kolo_request *q;
    KOLO_TRY(kolo_allreduce_create(comm, &part, 1, KOLO_DTYPE_F32, KOLO_SUM, KOLO_ALGORITHM_RING,
                                   NULL, &q));
    KOLO_TRY(kolo_request_start(q));
    KOLO_TRY(kolo_request_wait(q, 0));
    uint64_t message = 0;
    if (rank == 0) KOLO_TRY(kolo_send(comm, x, 7, KOLO_DTYPE_F32, 1, 0));
    if (rank == 1) KOLO_TRY(kolo_recv(comm, x, 7, KOLO_DTYPE_F32, 0, 0));
    if (rank == 0) message = 28;
    KOLO_TRY(kolo_comm_peer_traffic(comm, (rank + 1) % n, &previous));
    kolo_request_destroy(q);
    KOLO_TRY(kolo_comm_peer_traffic(comm, (rank + 1) % n, &next));
    if (memcmp(&next, &previous, sizeof next) != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "the traffic of a destroyed request is another");
    }
    KOLO_TRY(kolo_comm_peer_traffic(comm, (rank + n - 1) % n, &previous));
    KOLO_TRY(kolo_comm_peer_traffic(comm, rank, &none));
    uint64_t around = sizeof x / RANKS * 2 * (RANKS - 1), received = rank == 1 ? 28 : 0;
    if (next.sent_bytes != around + message || next.received_bytes != 0 ||
        previous.received_bytes != around + received || previous.sent_bytes != 0 ||
        next.sends < 4 || none.sends + none.receives != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "sent %llu in %llu, received %llu",
                         (unsigned long long)next.sent_bytes, (unsigned long long)next.sends,
                         (unsigned long long)previous.received_bytes);
    }
    kolo_status status = kolo_comm_peer_traffic(comm, n, &none);
    return status == KOLO_ERR_ARG ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d exists", n);
}

static void bytes_are_counted_by_peer(void **state) {
    static const rank_transport transports[] = {RANKS_THREAD, RANKS_SHM, RANKS_TCP};
    for (size_t i = 0; i < KOLO_COUNT(transports); i++) {
        ASSERT_OK(run_ranks(RANKS, transports[i], traffic_body, NULL, 0));
    }
}

TEST_MAIN(test_comm_inside) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_come_from_the_environment),
        cmocka_unit_test(a_log_shows_joining_and_leaving),
        cmocka_unit_test(joining_by_a_store_is_logged_too),
        cmocka_unit_test(a_trace_has_begin_and_end_of_each_request),
        cmocka_unit_test(a_hook_is_called_at_begin_and_end),
        cmocka_unit_test(a_hook_must_not_use_its_communicator),
        cmocka_unit_test(an_invalid_log_is_refused),
        cmocka_unit_test(bytes_are_counted_by_peer),
    };
    return cmocka_run_group_tests_name("comm_inside", tests, NULL, NULL);
}
