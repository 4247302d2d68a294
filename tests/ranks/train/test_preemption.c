/* Runs of each strategy that are preempted, by a request to one rank: all ranks end after the same
 * step with a checkpoint, and the run goes on from there, to the bits of one that was not preempted
 * wherever the strategy repeats. */
#include "base/compiler.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <stdlib.h>
#include <string.h>

/* Rows: how a run of `ranks`, with servers, is divided. */
typedef struct strategy {
    const char *what;
    int ranks, servers;
    kolo_sync sync;
    int zero;
    const char *mesh, *consistency, *compress, *table;
    int64_t accumulate, reproducible;
    int period;  /* steps of a round, after which samples are counted; 0: after each */
    bool varies; /* updates depend on the time, or a resumed run begins a round */
} strategy;

static const strategy strategies[] = {
    {"one", .ranks = 1},
    {"allreduce", .ranks = 3},
    {"zero 1", 2, .zero = 1},
    {"zero 3", 2, .zero = 3},
    {"tp", 2, .mesh = "tp=2"},
    {"pp", 2, .mesh = "pp=2", .accumulate = 2},
    {"shards", 3, .reproducible = 6},
    {"lag", 2, .consistency = "lag:1"},
    {"local", 2, .consistency = "local:4", .period = 4},
    {"diloco", 2, .consistency = "diloco:4", .period = 4},
    {"int8", 2, .compress = "int8"},
    {"ps", 3, 1, .sync = KOLO_SYNC_PS},
    {"mesh", 2, 0, .sync = KOLO_SYNC_MESH},
    {"ps rows", 3, 1, KOLO_SYNC_PS, .table = "emb.weight"},
    {"ps diloco", 3, 1, KOLO_SYNC_PS, .consistency = "diloco:4", .period = 4, .varies = true},
    {"drop", 3, 1, KOLO_SYNC_PS, .consistency = "bsp:drop=1", .varies = true},
    {"ssp", 2, 0, KOLO_SYNC_MESH, .consistency = "ssp:2", .varies = true},
    {"asp", 4, 2, KOLO_SYNC_PS, .consistency = "asp", .varies = true},
    {"leases", 3, 1, KOLO_SYNC_PS, .consistency = "asp,lease=1", .varies = true},
    {"asp rows", 3, 1, KOLO_SYNC_PS, .consistency = "asp", .table = "emb.weight", .varies = true},
    {"auto", 3, 1, KOLO_SYNC_PS, .consistency = "auto", .varies = true},
};

static kolo_train_opts options(const strategy *s) {
    kolo_train_opts o = {
        .model = "mlp",
        .model_options = "hidden=16",
        .data = "synthetic:N=240,test=12,shape=1x4x4,seed=2",
        .global_batch = 12,
        .optimizer = {.kind = KOLO_OPTIMIZER_ADAM},
        .lr = 1e-3,
        .algorithm = KOLO_ALGORITHM_DIRECT,
        .sync = s->sync,
        .servers = s->servers,
        .zero = s->zero,
        .mesh = s->mesh,
        .consistency = s->consistency,
        .compress = s->compress,
        .compress_min_bytes = 16,
        .table = s->table,
        .accumulate = s->accumulate,
        .reproducible = s->reproducible,
    };
    if (!s->table) return o;
    o.model = "fasttext";
    o.model_options = "rows=200,width=8,features=12";
    o.data = "synthetic-labelled:N=240,test=12,classes=3,seed=3";
    return o;
}

/* Rank 0 is asked for the third time after a few steps, and so is the last worker in other rows. */
static void preempted_runs_go_on(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(strategies); i++) {
        const strategy *s = &strategies[i];
        const int more = s->varies ? 5 : 14;
        kolo_train_opts opts = options(s);
        if (TEST_FEWER(i % 3 == 1, false)) continue;
        assert_int_equal(system("rm -rf run"), 0);
        opts.out_dir = "run";
        opts.steps = 100000;
        const int asked = i % 2 ? s->ranks - s->servers - 1 : 0;
        const kolo_train_result first = train_preempted(s->what, s->ranks, &opts, asked, 2)->result;
        if (!first.preempted) fail_msg("%s: %d steps", s->what, (int)first.steps);
        opts.resume = "run";
        opts.steps = first.steps + more;
        if (s->period > 0) opts.steps += s->period - opts.steps % s->period;
        const kolo_train_result rest = train_preempted(s->what, s->ranks, &opts, -1, 0)->result;
        assert_int_equal(rest.steps, opts.steps);
        if (s->period == 0 && rest.samples != rest.steps * 12) {
            fail_msg("%s: %d samples of %d steps", s->what, (int)rest.samples, (int)rest.steps);
        }
        if (s->varies) continue;
        opts.resume = opts.out_dir = NULL;
        const kolo_train_result whole = train_well(s->ranks, &opts);
        assert_same_run(s->what, &whole, &rest);
    }
}

TEST_MAIN(test_preemption) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(preempted_runs_go_on)};
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
