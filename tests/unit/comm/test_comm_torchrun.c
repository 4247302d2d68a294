/* The exchange of addresses through torchrun's store, with a store in a thread: one that works, and
 * ones that answer anything. */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/status.h"
#include "comm/join/manager.h"
#include "comm/transport/socket.h"
#include "kolo/comm.h"
#include "support/ranks.h"
#include "support/support.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS_MOST = 16, KEYS_MOST = 16, TEXT_BYTES = 600, SECONDS = 20 };
enum { CHECK = 0, SET = 1, GET = 3, ADD = 4, WAIT = 6 };

typedef struct entry {
    char key[TEXT_BYTES], value[TEXT_BYTES];
    int64_t sum;
} entry;

typedef struct fake_store {
    int listener, port, stop[2];
    pthread_t thread;
    struct pollfd polls[2 + CLIENTS_MOST]; /* listener, stop, clients */
    char waits_for[2 + CLIENTS_MOST][TEXT_BYTES];
    int n_polls, n_entries;
    entry entries[KEYS_MOST];
    /* A store that sends these bytes to each client instead, then closes unless `silent`. */
    const void *answer;
    size_t answer_bytes;
    bool silent;
} fake_store;

static bool take(int fd, void *to, size_t bytes) {
    return bytes == 0 || recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static bool give(int fd, const void *from, size_t bytes) {
    return send(fd, from, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool take_text(int fd, char text[TEXT_BYTES]) {
    uint64_t bytes;
    if (!take(fd, &bytes, sizeof bytes) || bytes >= TEXT_BYTES) return false;
    text[bytes] = '\0';
    return take(fd, text, (size_t)bytes);
}

static entry *find(fake_store *s, const char *key, bool make) {
    for (int i = 0; i < s->n_entries; i++) {
        if (strcmp(s->entries[i].key, key) == 0) return &s->entries[i];
    }
    if (!make || s->n_entries == KEYS_MOST) return NULL;
    snprintf(s->entries[s->n_entries].key, TEXT_BYTES, "%s", key);
    return &s->entries[s->n_entries++];
}

static void wake(fake_store *s) {
    for (int i = 2; i < s->n_polls; i++) {
        if (!s->waits_for[i][0] || !find(s, s->waits_for[i], false)) continue;
        s->waits_for[i][0] = '\0';
        (void)give(s->polls[i].fd, "\0", 1);
    }
}

/* Serves one request; false if it is invalid or the client has left. */
static bool serve_request(fake_store *s, int i) {
    int fd = s->polls[i].fd;
    unsigned char kind;
    char key[TEXT_BYTES];
    uint32_t magic;
    int64_t number;
    entry *e;
    if (!take(fd, &kind, 1)) return false;
    if (kind == CHECK) return take(fd, &magic, sizeof magic) && magic == 0x3C85F7CE;
    if (kind == WAIT && (!take(fd, &number, sizeof number) || number != 1)) return false;
    if (!take_text(fd, key)) return false;
    switch (kind) {
    case SET:
        e = find(s, key, true);
        if (!e || !take_text(fd, e->value)) return false;
        wake(s);
        return true;
    case ADD:
        e = find(s, key, true);
        if (!e || !take(fd, &number, sizeof number)) return false;
        e->sum += number;
        return give(fd, &e->sum, sizeof e->sum);
    case WAIT:
        snprintf(s->waits_for[i], TEXT_BYTES, "%s", key);
        wake(s);
        return true;
    case GET:
        e = find(s, key, false);
        number = e ? (int64_t)strlen(e->value) : 0;
        return e && give(fd, &number, sizeof number) && give(fd, e->value, (size_t)number);
    default:
        return false;
    }
}

static void send_answer(const fake_store *s, int fd) {
    char byte;
    if (s->answer_bytes > 0) (void)give(fd, s->answer, s->answer_bytes);
    if (!s->silent) shutdown(fd, SHUT_WR);
    while (recv(fd, &byte, 1, 0) > 0) continue;
    close(fd);
}

static void accept_client(fake_store *s) {
    int fd = accept(s->listener, NULL, NULL);
    if (fd < 0) return;
    if (s->answer || s->silent) {
        send_answer(s, fd);
    } else if (s->n_polls < 2 + CLIENTS_MOST) {
        s->waits_for[s->n_polls][0] = '\0';
        s->polls[s->n_polls++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
}

/* Ends once it is stopped and has served the last request of each client. */
static void *serve(void *arg) {
    fake_store *s = arg;
    int open = 0;
    while (poll(s->polls, (nfds_t)s->n_polls, -1) > 0 && (open > 0 || !s->polls[1].revents)) {
        for (int i = 2; i < s->n_polls; i++) {
            if (!s->polls[i].revents || serve_request(s, i)) continue;
            close(s->polls[i].fd);
            s->polls[i].fd = -1;
            open--;
        }
        int before = s->n_polls;
        if (s->polls[0].revents) accept_client(s);
        open += s->n_polls - before;
    }
    return NULL;
}

static void start(fake_store *s) {
    char address[KOLO_ADDRESS_BYTES];
    ASSERT_OK(kolo_socket_listen_tcp("127.0.0.1", 0, &s->listener));
    ASSERT_OK(kolo_socket_own_address(s->listener, address, &s->port));
    assert_int_equal(pipe(s->stop), 0);
    s->polls[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = s->stop[0], .events = POLLIN};
    s->n_polls = 2;
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(fake_store *s) {
    close(s->stop[1]);
    pthread_join(s->thread, NULL);
    close(s->stop[0]);
    close(s->listener);
}

static const char *const variables[] = {"TORCHELASTIC_USE_AGENT_STORE",
                                        "RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT"};

static void set_env(int rank, int world, int port) {
    char numbers[4][16];
    snprintf(numbers[0], sizeof numbers[0], "%d", rank);
    snprintf(numbers[1], sizeof numbers[1], "%d", world);
    snprintf(numbers[2], sizeof numbers[2], "%d", port);
    const char *const values[] = {"True",     numbers[0],  numbers[1],
                                  numbers[1], "127.0.0.1", numbers[2]};
    for (size_t i = 0; i < KOLO_COUNT(variables); i++) setenv(variables[i], values[i], 1);
    unsetenv("LOCAL_RANK");
    unsetenv("KOLO_MASTER_PORT");
    unsetenv("KOLO_SECRET_FILE");
}

static kolo_manager *open_rank(int rank, int world, int port) {
    kolo_manager *m;
    set_env(rank, world, port);
    ASSERT_OK(kolo_torchrun_open(0, &m));
    assert_int_equal(m->rank, rank);
    assert_int_equal(m->world, world);
    assert_true(m->one_host);
    for (size_t i = 0; i < KOLO_COUNT(variables); i++) unsetenv(variables[i]);
    return m;
}

static int64_t within_s(double seconds) { return kolo_now_ns() + (int64_t)(seconds * 1e9); }

typedef struct follower {
    kolo_manager *m;
    char text[KOLO_MANAGER_TEXT_BYTES];
    kolo_status status;
} follower;

static void *follow(void *arg) {
    follower *f = arg;
    f->status = f->m->ops->share(f->m, f->text, within_s(SECONDS));
    return NULL;
}

/* Two groups, one after the other: rank 1 waits for rank 0's text, rank 2 comes later. The text
 * does not stay in the store. */
static void ranks_share_a_text_through_the_store(void **state) {
    static const char *const texts[] = {"127.0.0.1;4711;secret-a", "127.0.0.1;4712;secret-b"};
    fake_store s = {.silent = false};
    start(&s);
    for (int group = 0; group < 2; group++) {
        char text[KOLO_MANAGER_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", texts[group]);
        follower one = {.m = open_rank(1, 3, s.port)}, two = {.m = open_rank(2, 3, s.port)};
        kolo_manager *zero = open_rank(0, 3, s.port);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, follow, &one), 0);
        ASSERT_OK(zero->ops->share(zero, text, within_s(SECONDS)));
        follow(&two);
        pthread_join(thread, NULL);
        assert_int_equal(one.status, KOLO_OK);
        assert_int_equal(two.status, KOLO_OK);
        assert_string_equal(one.text, texts[group]);
        assert_string_equal(two.text, texts[group]);
        zero->ops->close(zero);
        one.m->ops->close(one.m);
        two.m->ops->close(two.m);
    }
    stop(&s);
    for (int i = 0; i < s.n_entries; i++) assert_null(strstr(s.entries[i].value, "secret"));
}

static void a_rank_0_that_does_not_come_is_named(void **state) {
    fake_store s = {.silent = false};
    char text[KOLO_MANAGER_TEXT_BYTES];
    start(&s);
    kolo_manager *m = open_rank(1, 2, s.port);
    assert_int_equal(m->ops->share(m, text, within_s(1)), KOLO_ERR_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "rank 0 has not published its address"));
    m->ops->close(m);
    stop(&s);
}

/* ---- other answers ---- */

/* Joins rank 1 of two with a store that sends these bytes. */
static kolo_status share_with(const void *answer, size_t bytes, bool silent, char *text) {
    fake_store s = {.answer = answer, .answer_bytes = bytes, .silent = silent};
    start(&s);
    kolo_manager *m = open_rank(1, 2, s.port);
    kolo_status status = m->ops->share(m, text, within_s(silent ? 0.2 : SECONDS));
    m->ops->close(m);
    stop(&s);
    return status;
}

/* All answers to a rank: its count, the end of its wait, the text, the count of readers. */
typedef struct __attribute__((packed)) answers {
    int64_t joined;
    unsigned char waited;
    uint64_t bytes;
    char text[5];
    int64_t readers;
} answers;

static const answers good = {1, 0, 5, "hello", 1};

static void answers_are_checked(void **state) {
    static const struct {
        answers answers;
        const char *text;
    } cases[] = {
        {{0, 0, 5, "hello", 1},
         "does not answer as that of PyTorch 2.1 or later (an invalid count"},
        {{-1, 0, 5, "hello", 1}, "set KOLO_MASTER_PORT to a free port"},
        {{INT64_MAX, 0, 5, "hello", 1}, "an invalid count (9223372036854775807)"},
        {{1, 1, 5, "hello", 1}, "an invalid answer to 'wait' (1)"},
        {{1, 0, KOLO_MANAGER_TEXT_BYTES, "hello", 1}, "a value of 500 bytes"},
        {{1, 0, UINT64_MAX, "hello", 1}, "a value of 18446744073709551615 bytes"},
        {{1, 0, 5, "hello", 0}, "an invalid count (0)"},
    };
    char text[KOLO_MANAGER_TEXT_BYTES];
    ASSERT_OK(share_with(&good, sizeof good, false, text));
    assert_string_equal(text, "hello");
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_status status = share_with(&cases[i].answers, sizeof good, false, text);
        if (status != KOLO_ERR_FORMAT || !strstr(kolo_last_error(), cases[i].text)) {
            fail_msg("case %zu: %d: %s", i, status, kolo_last_error());
        }
    }
}

static void truncated_answers_are_errors(void **state) {
    char text[KOLO_MANAGER_TEXT_BYTES];
    for (size_t bytes = 0; bytes < sizeof good; bytes++) {
        assert_int_equal(share_with(&good, bytes, false, text), KOLO_ERR_PEER);
        assert_non_null(strstr(kolo_last_error(), "torchrun's store at 127.0.0.1:"));
    }
}

/* A store of another protocol may never answer. */
static void a_silent_store_is_reported(void **state) {
    char text[KOLO_MANAGER_TEXT_BYTES];
    assert_int_equal(share_with(NULL, 0, true, text), KOLO_ERR_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "set KOLO_MASTER_PORT to a free port"));
    assert_int_equal(share_with("HTTP", 4, true, text), KOLO_ERR_TIMEOUT);
    assert_non_null(strstr(kolo_last_error(), "KOLO_SECRET_FILE"));
}

/* ---- a group ---- */

static kolo_status join_body(kolo_comm *unused, const void *arg, void *result) {
    int port, rank = ranks_own_rank();
    memcpy(&port, arg, sizeof port);
    set_env(rank, 3, port);
    for (int group = 0; group < 2; group++) {
        kolo_comm *comm;
        float x = (float)rank;
        KOLO_TRY(kolo_comm_create(&(kolo_comm_opts){.timeout_ms = 1000 * SECONDS}, &comm));
        kolo_status status = kolo_allreduce(comm, &x, 1, KOLO_DTYPE_F32, KOLO_SUM);
        kolo_comm_destroy(comm);
        KOLO_TRY(status);
        if (x != 3) return KOLO_FAIL(KOLO_ERR_FORMAT, "the sum is %g", (double)x);
    }
    return KOLO_OK;
}

static void ranks_of_torchrun_form_groups(void **state) {
    fake_store s = {.silent = false};
    rank_outcome outcomes[3];
    start(&s);
    kolo_status status = run_rank_job(&(rank_job){.n = 3,
                                                  .transport = RANKS_SHM,
                                                  .body = join_body,
                                                  .arg = &s.port,
                                                  .arg_bytes = sizeof s.port,
                                                  .bare = true,
                                                  .no_fork = true,
                                                  .outcomes = outcomes});
    stop(&s);
    if (status != KOLO_OK) fail_msg("%s", outcomes[0].error);
}

TEST_MAIN(test_comm_torchrun) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_a_text_through_the_store),
        cmocka_unit_test(a_rank_0_that_does_not_come_is_named),
        cmocka_unit_test(answers_are_checked),
        cmocka_unit_test(truncated_answers_are_errors),
        cmocka_unit_test(a_silent_store_is_reported),
        cmocka_unit_test(ranks_of_torchrun_form_groups),
    };
    return cmocka_run_group_tests_name("comm_torchrun", tests, NULL, NULL);
}
