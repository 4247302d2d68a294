/* Devices: names, memory, streams. What holds for all kinds is tested on each; the fake one also
 * has its queue observed from outside, and memory that the host cannot touch. */
#include "base/compiler.h"
#include "base/memory.h"
#include "device/device.h"
#include "kolo/dump.h"
#include "support/support.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const kinds[] = {"cpu", "fake", "fake:3"};

typedef struct opened {
    kolo_device *device;
    const kolo_device_stream_ops *ops;
    kolo_device_stream *stream;
} opened;

static opened open_device(const char *name) {
    opened o;
    ASSERT_OK(kolo_device_open(name, 0, &o.device));
    o.ops = &o.device->kind->stream;
    ASSERT_OK(o.ops->create(o.device, &o.stream));
    return o;
}

static void close_device(opened *o) {
    o->ops->destroy(o->stream);
    kolo_device_close(o->device);
}

static kolo_status await(const opened *o, kolo_event event) {
    o->ops->wait(o->stream, event);
    return o->ops->error(o->stream);
}

static kolo_status finish(const opened *o) { return await(o, o->ops->record(o->stream)); }

static int *alloc(const opened *o, int n) {
    void *at = o->device->kind->alloc(o->device, (size_t)n * sizeof(int));
    assert_non_null(at);
    return at;
}

static void release(const opened *o, void *at, int n) {
    o->device->kind->free(o->device, at, (size_t)n * sizeof(int));
}

/* ---- names ---- */

static void devices_have_names(void **state) {
    static const struct {
        const char *name, *text;
        int local_rank;
    } cases[] = {{NULL, "cpu:0", 0},    {"auto", "cpu:0", 3},  {"cpu", "cpu:0", 1},
                 {"cpu:0", "cpu:0", 0}, {"fake", "fake:2", 2}, {"fake:1", "fake:1", 2},
                 {"fake", "fake:1", 17}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_device *device;
        char text[KOLO_DEVICE_TEXT];
        ASSERT_OK(kolo_device_check(cases[i].name));
        ASSERT_OK(kolo_device_open(cases[i].name, cases[i].local_rank, &device));
        assert_string_equal(kolo_device_text(device, text), cases[i].text);
        assert_int_equal(kolo_device_is_apart(cases[i].name), cases[i].text[0] == 'f');
        kolo_device_close(device);
    }
    kolo_device_close(NULL);
}

static void other_names_are_refused(void **state) {
    static const char *const wrong[] = {
        "", "gpu", "cpux", "cpu:1", "fake:", "fake:16", "fake:-1", "fake:1x", "fake: 1"};
    for (size_t i = 0; i < KOLO_COUNT(wrong); i++) {
        kolo_device *device;
        assert_int_equal(kolo_device_check(wrong[i]), KOLO_ERR_ARG);
        assert_int_equal(kolo_device_open(wrong[i], 0, &device), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), "device")) fail_msg("%s", kolo_last_error());
    }
    assert_int_equal(kolo_device_check("cuda:1"), KOLO_ERR_UNSUPPORTED);
    assert_non_null(strstr(kolo_last_error(), "no kernels and no collectives for CUDA"));
}

static void hidden_devices_are_not_listed(void **state) {
    kolo_text text = {0};
    ASSERT_OK(kolo_device_describe(&text));
    assert_int_equal(strncmp(text.text, "cpu", 3), 0);
    assert_null(strstr(text.text, "fake"));
    kolo_text_fini(&text);
}

static void a_list_needs_memory(void **state) {
    kolo_status status = KOLO_ERR_NOMEM;
    char *text = NULL;
    int fails = 0;
    while (status != KOLO_OK) {
        kolo_alloc_fail_nth(++fails);
        status = kolo_dump_devices(&text);
        kolo_alloc_fail_nth(0);
        if (status != KOLO_OK) assert_int_equal(status, KOLO_ERR_NOMEM);
    }
    assert_true(fails > 2); /* the device and the text */
    assert_int_equal(strncmp(text, "cpu", 3), 0);
    kolo_dump_free(text);
}

/* ---- streams ---- */

typedef struct number {
    int add;
} number;

/* x = 3 x + add: the result shows the order. */
static void append(const void *at, const void *with) {
    unsigned *x = (unsigned *)(uintptr_t)at;
    *x = 3 * *x + (unsigned)((const number *)with)->add;
}

static void a_stream_runs_in_order(void **state) {
    enum { N = 3000 }; /* more than fit in a queue */
    static number numbers[N];
    for (size_t k = 0; k < KOLO_COUNT(kinds); k++) {
        opened o = open_device(kinds[k]);
        unsigned expected = 0, got = 1;
        int *at = alloc(&o, 1);
        const void *place = o.device->kind->kernel_address(o.device, at);
        for (int i = 0; i < N; i++) {
            numbers[i].add = i;
            expected = 3 * expected + (unsigned)i;
            o.ops->launch(o.stream, append, place, &numbers[i]);
        }
        o.ops->copy(o.stream, KOLO_COPY_TO_HOST, &got, at, sizeof got);
        ASSERT_OK(finish(&o));
        assert_int_equal(got, expected);
        release(&o, at, 1);
        close_device(&o);
    }
}

static void copies_and_fills_reach_their_side(void **state) {
    for (size_t k = 0; k < KOLO_COUNT(kinds); k++) {
        opened o = open_device(kinds[k]);
        const int given[4] = {1, 2, 3, 4};
        int got[4] = {9, 9, 9, 9}, *a = alloc(&o, 4), *b = alloc(&o, 4);
        o.ops->copy(o.stream, KOLO_COPY_TO_HOST, got, a, sizeof got); /* zeroed memory */
        ASSERT_OK(finish(&o));
        for (int i = 0; i < 4; i++) assert_int_equal(got[i], 0);
        o.ops->copy(o.stream, KOLO_COPY_TO_DEVICE, a, given, sizeof given);
        o.ops->copy(o.stream, KOLO_COPY_ON_DEVICE, b + 1, a, 3 * sizeof *a);
        o.ops->fill(o.stream, b, 0xff, sizeof *b);
        o.ops->fill(o.stream, b, 0, 0);
        o.ops->copy(o.stream, KOLO_COPY_TO_HOST, got, b, sizeof got);
        ASSERT_OK(finish(&o));
        assert_int_equal(got[0], -1);
        for (int i = 1; i < 4; i++) assert_int_equal(got[i], i);
        release(&o, a, 4);
        release(&o, b, 4);
        close_device(&o);
    }
}

static void wait_at(const void *gate, const void *unused) {
    while (!atomic_load((const atomic_bool *)gate)) poll(NULL, 0, 1);
}

static void an_event_is_what_came_before_it(void **state) {
    opened o = open_device("fake");
    atomic_bool first = false, second = false;
    o.ops->launch(o.stream, wait_at, &first, NULL);
    const kolo_event a = o.ops->record(o.stream);
    o.ops->launch(o.stream, wait_at, &second, NULL);
    const kolo_event b = o.ops->record(o.stream);
    assert_false(o.ops->query(o.stream, a)); /* the host did not wait */
    atomic_store(&first, true);
    ASSERT_OK(await(&o, a));
    assert_true(o.ops->query(o.stream, a));
    assert_false(o.ops->query(o.stream, b));
    atomic_store(&second, true);
    ASSERT_OK(await(&o, b));
    assert_true(o.ops->query(o.stream, b));
    close_device(&o);
}

static void break_down(const void *text, const void *unused) {
    (void)KOLO_FAIL(KOLO_ERR_ARG, "%s", (const char *)text);
}

static void a_failure_stays_with_its_stream(void **state) {
    opened o = open_device("fake"), other = open_device("fake");
    static const number one = {1};
    unsigned got = 7;
    int *at = alloc(&o, 1);
    const kolo_event before = o.ops->record(o.stream);
    ASSERT_OK(await(&o, before));
    o.ops->launch(o.stream, break_down, "first", NULL);
    o.ops->launch(o.stream, append, o.device->kind->kernel_address(o.device, at), &one);
    o.ops->copy(o.stream, KOLO_COPY_TO_HOST, &got, at, sizeof got);
    o.ops->launch(o.stream, break_down, "second", NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(finish(&o), KOLO_ERR_ARG);
        assert_string_equal(kolo_last_error(), "first");
    }
    assert_int_equal(got, 7); /* nothing ran after it */
    ASSERT_OK(finish(&other));
    release(&o, at, 1);
    close_device(&o);
    close_device(&other);
}

/* What is before it has run, nothing behind it. */
static void an_operation_can_be_made_to_fail(void **state) {
    static const number one = {1};
    kolo_device_fake_fail(3);
    opened o = open_device("fake");
    kolo_device_fake_fail(0);
    unsigned got[2] = {7, 7};
    int *at = alloc(&o, 1);
    o.ops->launch(o.stream, append, o.device->kind->kernel_address(o.device, at), &one);
    o.ops->copy(o.stream, KOLO_COPY_TO_HOST, &got[0], at, sizeof *got);
    ASSERT_OK(finish(&o));
    o.ops->copy(o.stream, KOLO_COPY_TO_HOST, &got[1], at, sizeof *got);
    assert_int_equal(finish(&o), KOLO_ERR_IO);
    assert_string_equal(kolo_last_error(), "a copy of 4 bytes has failed");
    assert_int_equal(got[0], 1);
    assert_int_equal(got[1], 7);
    release(&o, at, 1);
    close_device(&o);
}

/* A copy of page-locked memory does not wait for what is before it. */
static void copies_of_pinned_memory_do_not_block(void **state) {
    opened o = open_device("fake");
    const kolo_device_kind *kind = o.device->kind;
    atomic_bool open = false;
    int given[4] = {1, 2, 3, 4}, got[4] = {0}, *at = alloc(&o, 4);
    assert_true(kind->pin(o.device, given, sizeof given));
    assert_true(kind->pin(o.device, got, sizeof got));
    o.ops->launch(o.stream, wait_at, &open, NULL);
    o.ops->copy(o.stream, KOLO_COPY_TO_DEVICE, at, given, sizeof given);
    o.ops->copy(o.stream, KOLO_COPY_TO_HOST, got, at, sizeof got);
    const kolo_event copied = o.ops->record(o.stream);
    assert_false(o.ops->query(o.stream, copied));
    atomic_store(&open, true);
    ASSERT_OK(await(&o, copied));
    assert_memory_equal(got, given, sizeof got);
    kind->unpin(o.device, given, sizeof given);
    kind->unpin(o.device, got, sizeof got);
    release(&o, at, 4);
    close_device(&o);
}

/* ---- memory ---- */

static void memory_has_an_end(void **state) {
    enum { PAGE = 4096 };
    kolo_device_fake_pin(3 * PAGE);
    opened o = open_device("fake");
    kolo_device_fake_pin(0);
    const kolo_device_kind *kind = o.device->kind;
    assert_int_equal(kind->memory(o.device).total, 3 * PAGE);
    void *a = kind->alloc(o.device, PAGE + 1), *b = kind->alloc(o.device, PAGE);
    assert_true(a && b);
    assert_int_equal(kind->memory(o.device).free, 0);
    assert_null(kind->alloc(o.device, 1));
    kind->free(o.device, b, PAGE);
    assert_int_equal(kind->memory(o.device).free, PAGE);
    kind->free(o.device, a, PAGE + 1);
    assert_null(kind->alloc(o.device, 4 * PAGE));
    assert_null(kind->alloc(o.device, SIZE_MAX));
    close_device(&o);
}

typedef void body(const opened *o, int *at);

static void read_it(const opened *o, int *at) { (void)*(volatile int *)at; }
static void write_it(const opened *o, int *at) { *(volatile int *)at = 1; }

static void take_host_memory(const opened *o, int *at) {
    int own = 0;
    o->ops->copy(o->stream, KOLO_COPY_ON_DEVICE, at, &own, sizeof own);
}

static void bind_host_memory(const opened *o, int *at) {
    int own = 0;
    (void)o->device->kind->kernel_address(o->device, &own);
}

/* Whether the body ends the process that it runs in. */
static bool ends(const opened *o, int *at, body *run) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(2);                 /* of what a sanitizer prints */
        (void)signal(SIGSEGV, SIG_DFL); /* cmocka would go on with the next test */
        (void)signal(SIGABRT, SIG_DFL);
        run(o, at);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void nothing(const opened *o, int *at) {}

static void the_host_cannot_touch_a_device(void **state) {
    opened o = open_device("fake"), host = open_device("cpu");
    int *at = alloc(&o, 1), *own = alloc(&host, 1);
    assert_false(ends(&o, at, nothing));
    assert_true(ends(&o, at, read_it));
    assert_true(ends(&o, at, write_it));
    assert_true(ends(&o, at, take_host_memory));
    assert_true(ends(&o, at, bind_host_memory));
    assert_false(ends(&host, own, read_it));
    release(&o, at, 1);
    release(&host, own, 1);
    close_device(&o);
    close_device(&host);
}

TEST_MAIN(test_device) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_names),
        cmocka_unit_test(other_names_are_refused),
        cmocka_unit_test(hidden_devices_are_not_listed),
        cmocka_unit_test(a_list_needs_memory),
        cmocka_unit_test(a_stream_runs_in_order),
        cmocka_unit_test(copies_and_fills_reach_their_side),
        cmocka_unit_test(an_event_is_what_came_before_it),
        cmocka_unit_test(a_failure_stays_with_its_stream),
        cmocka_unit_test(an_operation_can_be_made_to_fail),
        cmocka_unit_test(copies_of_pinned_memory_do_not_block),
        cmocka_unit_test(memory_has_an_end),
        cmocka_unit_test(the_host_cannot_touch_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
