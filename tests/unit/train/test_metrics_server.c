/* The metrics server: answers, bad requests, silent connections, addresses. */
#include "base/compiler.h"
#include "support/support.h"
#include "train/record/metrics_server.h"
#include "train/session/metrics.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifdef KOLO_HAS_METRICS_SERVER

static int dial(int port) {
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Sends a request and reads the answer until the server closes. */
static void ask(int port, const char *request, char *answer, size_t size) {
    int fd = dial(port);
    size_t n = 0;
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    (void)shutdown(fd, SHUT_WR);
    for (ssize_t got = 1; got > 0 && n + 1 < size; n += got > 0 ? (size_t)got : 0) {
        got = recv(fd, answer + n, size - 1 - n, 0);
    }
    answer[n] = '\0';
    close(fd);
}

#define GET "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

static kolo_train_progress some_progress(const kolo_step_time *rows) {
    kolo_train_progress p = {.epoch = 2, .step = 7, .lr = 0.5, .train = kolo_metrics_none()};
    p.train.value[KOLO_METRIC_LOSS] = 2.5;
    p.times = (kolo_time_report){.steps = 3,
                                 .mean = {.ms = {[KOLO_TIME_FORWARD] = 4}},
                                 .slowest = 1,
                                 .ranks = 2,
                                 .by_rank = rows};
    return p;
}

static void numbers_are_served(void **state) {
    const kolo_step_time rows[] = {{.ms = {[KOLO_TIME_IDLE] = 0.25}}, {{0}}};
    kolo_train_progress p = some_progress(rows);
    kolo_metrics_server *s;
    char answer[8192];
    ASSERT_OK(kolo_metrics_server_create(NULL, -1, &s));
    const int port = kolo_metrics_server_port(s);
    ask(port, GET, answer, sizeof answer); /* nothing yet */
    assert_non_null(strstr(answer, "200 OK"));
    kolo_metrics_server_report(s, &p);
    ask(port, GET, answer, sizeof answer);
    static const char *const lines[] = {
        "text/plain; version=0.0.4",
        "# TYPE kolo_train_loss gauge\nkolo_train_loss 2.5\n",
        "kolo_ms_per_step_forward 4\n",
        "# TYPE kolo_workers_idle_ms gauge\nkolo_workers_idle_ms{rank=\"0\"} 0.25\n",
        "0.25\nkolo_workers_idle_ms{rank=\"1\"} 0\n",
        "kolo_workers_slowest_rank 1\n",
    };
    for (size_t i = 0; i < KOLO_COUNT(lines); i++) assert_non_null(strstr(answer, lines[i]));
    p = (kolo_train_progress){.step = 9, .epoch_end = true, .train = p.train};
    kolo_metrics_server_report(s, &p);
    ask(port, GET, answer, sizeof answer);
    assert_non_null(strstr(answer, "kolo_progress_step 9\n"));
    assert_non_null(strstr(answer, "kolo_epoch_loss 2.5\n")); /* beside what came before: */
    assert_non_null(strstr(answer, "kolo_train_loss 2.5\n"));
    kolo_metrics_server_destroy(s);
}

static void bad_requests_are_refused(void **state) {
    static char head[20000];
    for (size_t i = 0; i + 1 < sizeof head; i++) head[i] = i < 5 ? "GET /"[i] : 'x';
    static const struct {
        const char *request, *answer; /* "": any, or none */
    } cases[] = {
        {"GET / HTTP/1.0\r\n\r\n", "404"},
        {"GET /metrics/../x HTTP/1.0\r\n\r\n", "404"},
        {"POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", "405"},
        {"DELETE /metrics HTTP/1.0\r\n\r\n", "405"},
        {"\r\n\r\n\r\n", ""},
        {"nonsense", ""},
        {"GET /metrics HTTP/9.9\r\n\r\n", ""},
        {"GET /metrics HTTP/1.1\r\nContent-Length: -5\r\n\r\n", ""},
        {head, ""},
    };
    kolo_metrics_server *s;
    char answer[8192];
    ASSERT_OK(kolo_metrics_server_create("127.0.0.1", -1, &s));
    const int port = kolo_metrics_server_port(s);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ask(port, cases[i].request, answer, sizeof answer);
        assert_non_null(strstr(answer, cases[i].answer));
        assert_true(*cases[i].answer || !strstr(answer, "kolo_"));
    }
    ask(port, GET, answer, sizeof answer); /* it still serves */
    assert_non_null(strstr(answer, "200 OK"));
    kolo_metrics_server_destroy(s);
}

/* Connections that send nothing hold up neither reports nor the end. */
static void silent_connections_hold_up_nothing(void **state) {
    const kolo_step_time rows[2] = {{{0}}, {{0}}};
    const kolo_train_progress p = some_progress(rows);
    kolo_metrics_server *s;
    int fds[24];
    ASSERT_OK(kolo_metrics_server_create(NULL, -1, &s));
    for (size_t i = 0; i < KOLO_COUNT(fds); i++) fds[i] = dial(kolo_metrics_server_port(s));
    for (int i = 0; i < 100; i++) kolo_metrics_server_report(s, &p);
    kolo_metrics_server_destroy(s);
    for (size_t i = 0; i < KOLO_COUNT(fds); i++) close(fds[i]);
}

static void addresses_that_cannot_be_used_are_named(void **state) {
    kolo_metrics_server *s, *other;
    assert_int_equal(kolo_metrics_server_create("everywhere", 9100, &s), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "everywhere"));
    assert_int_equal(kolo_metrics_server_create("192.0.2.1", -1, &s), KOLO_ERR_IO); /* elsewhere */
    ASSERT_OK(kolo_metrics_server_create(NULL, -1, &s));
    assert_int_equal(kolo_metrics_server_create(NULL, kolo_metrics_server_port(s), &other),
                     KOLO_ERR_IO);
    assert_non_null(strstr(kolo_last_error(), "choose another address or port"));
    kolo_metrics_server_destroy(s);
}

static int notified_port;
static char last_answer[8192];

static void find_port(void *arg, const char *line, kolo_notice_kind kind) {
    const char *at = strstr(line, "metrics at http://127.0.0.1:");
    if (at) notified_port = atoi(strrchr(at, ':') + 1);
}

/* While the training thread is here, the server answers. */
static void ask_again(void *arg, const kolo_train_progress *p) {
    ask(notified_port, GET, last_answer, sizeof last_answer);
}

static void a_run_serves_its_numbers(void **state) {
    const kolo_train_opts opts = {.model = "mlp",
                                  .data = "synthetic:N=64,test=8",
                                  .steps = 4,
                                  .batch = 16,
                                  .log_every = 2,
                                  .metrics_port = -1,
                                  .notice = find_port};
    kolo_train_result result;
    ASSERT_OK(kolo_train(NULL, &opts, ask_again, NULL, &result));
    assert_non_null(strstr(last_answer, "kolo_progress_step 4\n"));
    assert_non_null(strstr(last_answer, "kolo_train_loss "));
    assert_non_null(strstr(last_answer, "kolo_test_accuracy "));
    assert_non_null(strstr(last_answer, "kolo_ms_per_step_update "));
}

TEST_MAIN(test_metrics_server) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_serves_its_numbers),
        cmocka_unit_test(numbers_are_served),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(silent_connections_hold_up_nothing),
        cmocka_unit_test(addresses_that_cannot_be_used_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void a_build_without_refuses(void **state) {
    kolo_metrics_server *s;
    assert_int_equal(kolo_metrics_server_create(NULL, -1, &s), KOLO_ERR_UNSUPPORTED);
}

TEST_MAIN(test_metrics_server) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_build_without_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
