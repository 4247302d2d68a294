/* Workers of a host that sum their gradients, push once and pull once: bits, bytes between hosts,
 * and the end before the end. Each two ranks have a host of their own. */
#include "base/compiler.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/small_resnet.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdlib.h>
#include <string.h>

/* Ranks are processes of their own: their argument contains no pointers. */
typedef struct scheme {
    int workers, servers;
    bool alone; /* --no-local-aggregate */
    bool allreduce;
    bool whole; /* an optimizer that needs whole tensors: one bucket */
    kolo_algorithm algorithm;
} scheme;

static kolo_train_opts options(const scheme *s) {
    return (kolo_train_opts){
        .model = "mlp",
        .data = "synthetic:N=61,test=10,shape=1x8x8,seed=2", /* short steps at the ends of epochs */
        .optimizer.momentum = 0.9,
        .optimizer.clip = s->whole ? 1 : 0,
        .batch = 4,
        .epochs = 20,
        .steps = 9,
        .lr = 0.02,
        .bucket_bytes = 1 << 12,
        .sync = s->allreduce      ? KOLO_SYNC_ALLREDUCE
                : s->servers == 0 ? KOLO_SYNC_MESH
                                  : KOLO_SYNC_PS,
        .servers = s->servers,
        .no_local_aggregate = s->alone,
        .no_share = true,
        .algorithm = s->algorithm,
    };
}

static kolo_status train_scheme(kolo_comm *comm, const void *arg, void *result) {
    const kolo_train_opts opts = options(arg);
    return train_body(comm, &opts, result);
}

static kolo_train_result run_on_hosts(const scheme *s) {
    return train_on_hosts(s->workers + s->servers, train_scheme, s, sizeof *s);
}

/* Within a host in the order of ranks, then over the hosts: with one host that is the order of an
 * allreduce with `direct`, with two that of `hierarchical`. */
static void sums_have_an_order(void **state) {
    static const scheme schemes[] = {
        {.workers = 2, .servers = 1, .algorithm = KOLO_ALGORITHM_MESH},
        {.workers = 2, .servers = 1, .whole = true, .algorithm = KOLO_ALGORITHM_MESH},
        {.workers = 4, .servers = 0, .algorithm = KOLO_ALGORITHM_HIERARCHICAL},
        {.workers = 4, .servers = 1, .algorithm = KOLO_ALGORITHM_HIERARCHICAL},
        {.workers = 4, .servers = 2, .algorithm = KOLO_ALGORITHM_HIERARCHICAL},
    };
    for (size_t i = 0; i < TEST_FEWER(3, KOLO_COUNT(schemes)); i++) {
        scheme plain = schemes[i];
        plain.servers = 0;
        plain.allreduce = true;
        const kolo_train_result reduced = run_on_hosts(&plain);
        const kolo_train_result served = run_on_hosts(&schemes[i]);
        assert_same_run("local sums", &reduced, &served);
    }
}

/* A host's workers exchange as much as one of them did: half, with two on each. */
static void a_host_pushes_once(void **state) {
    static const struct {
        int workers, servers;
        bool whole; /* servers own all: workers of one host exchange other parts in its memory */
    } cases[] = {{2, 1, true}, {4, 2, false}, {4, 0, false}};
    for (size_t i = 0; i < TEST_FEWER(1, KOLO_COUNT(cases)); i++) {
        scheme s = {.workers = cases[i].workers,
                    .servers = cases[i].servers,
                    .alone = true,
                    .whole = cases[i].whole};
        const kolo_train_result alone = run_on_hosts(&s);
        s.alone = false;
        const kolo_train_result sums = run_on_hosts(&s);
        const double sent = (double)sums.sent_bytes / (double)alone.sent_bytes;
        const double received = (double)sums.received_bytes / (double)alone.received_bytes;
        if (alone.sent_bytes == 0 || sent > 0.53 || received > 0.53) {
            fail_msg("%d workers, %d servers: %.3f and %.3f of %llu and %llu bytes",
                     cases[i].workers, cases[i].servers, sent, received,
                     (unsigned long long)alone.sent_bytes,
                     (unsigned long long)alone.received_bytes);
        }
    }
}

/* ---- preemption ---- */

/* The request may reach a worker that does not push. */
static void a_group_ends_together(void **state) {
    static const int ranks[] = {1, 2};
    const scheme s = {.workers = 4, .servers = 1};
    kolo_train_opts opts = options(&s);
    opts.consistency = "asp,group=2";
    opts.out_dir = "ended";
    opts.steps = 20000;
    opts.epochs = 10000;
    for (size_t i = 0; i < KOLO_COUNT(ranks); i++) {
        assert_int_equal(system("rm -rf ended"), 0);
        opts.resume = NULL;
        const kolo_train_result first = train_preempted("a group", 5, &opts, ranks[i], 1)->result;
        assert_true(first.preempted);
        assert_in_range(first.steps, 1, 19999);
        opts.resume = "ended";
        opts.steps = first.steps + 5;
        const kolo_train_result rest = train_preempted("a resumed group", 5, &opts, -1, 0)->result;
        assert_int_equal(rest.steps, first.steps + 5);
        opts.steps = 20000;
    }
}

TEST_MAIN(test_local_sums) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_an_order),
        cmocka_unit_test(a_host_pushes_once),
        cmocka_unit_test(a_group_ends_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
