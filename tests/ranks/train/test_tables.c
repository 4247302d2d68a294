/* Training with embedding tables whose rows are at servers: equal to an allreduce with row-sparse
 * gradients; policies of rows and of dense parameters; ids without a vocabulary; admission, a bound
 * of memory and expiry; the file of rows; what is refused. */
#include "base/compiler.h"
#include "base/file.h"
#include "data/safetensors/safetensors.h"
#include "kolo/checkpoint.h"
#include "support/fewer.h"
#include "support/folder.h"
#include "support/support.h"
#include "support/train_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char small[] =
    "tables=4,rows=50,dim=8,dense=3,bottom1=5,bottom2=0,bottom3=0,top1=7,top2=6";

/* The last step of an epoch has 5 samples: of three workers all have some. */
static kolo_train_opts options(kolo_optimizer optimizer) {
    return (kolo_train_opts){
        .model = "dlrm",
        .model_options = small,
        .data = "synthetic-clicks:N=125,test=40,seed=3",
        .optimizer = {.kind = optimizer, .eps = optimizer == KOLO_OPTIMIZER_ADAM ? 1e-3 : 0},
        .batch = 4,
        .epochs = 2,
        .lr = optimizer == KOLO_OPTIMIZER_ADAM ? 0.02 : 0.5,
        .algorithm = KOLO_ALGORITHM_DIRECT,
        .seed = 7,
    };
}

static kolo_train_opts at_servers(kolo_train_opts opts, int servers) {
    opts.sync = KOLO_SYNC_PS;
    opts.servers = servers;
    opts.sparse_embedding = false;
    opts.table = "emb.weight";
    return opts;
}

static double loss_of(const kolo_metrics *metrics) { return kolo_metrics_get(metrics, "loss"); }

static void bsp_is_a_run_with_row_sparse_gradients(void **state) {
    static const struct {
        kolo_optimizer optimizer;
        int workers, servers, replicas;
    } cases[] = {
        {KOLO_OPTIMIZER_SGD, 1, 1, 0},  {KOLO_OPTIMIZER_SGD, 3, 2, 0},
        {KOLO_OPTIMIZER_ADAM, 2, 1, 0}, {KOLO_OPTIMIZER_ADAM, 3, 0, 0},
        {KOLO_OPTIMIZER_ADAM, 2, 2, 1},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = options(cases[i].optimizer);
        opts.sparse_embedding = true;
        const kolo_train_result sparse = train_well(cases[i].workers, &opts);
        kolo_train_opts served = at_servers(opts, cases[i].servers);
        served.replicas = cases[i].replicas;
        const kolo_train_result at = train_well(cases[i].workers + cases[i].servers, &served);
        assert_true(at.first_loss == sparse.first_loss);
        assert_true(loss_of(&at.final) == loss_of(&sparse.final));
        assert_true(loss_of(&at.test) == loss_of(&sparse.test));
        assert_int_equal(at.steps, sparse.steps);
        assert_int_equal(sparse.parameters - at.parameters, 4 * 50 * 8);
        assert_int_equal(at.table.version, at.steps);
        assert_in_range(at.table.rows, 50, 200);
        assert_int_equal(at.table.created, at.table.rows);
    }
}

/* Texts end before the positions of their ids do: those have no row, at servers or not. */
static void texts_are_bags_of_rows(void **state) {
    kolo_train_opts opts = options(KOLO_OPTIMIZER_SGD);
    opts.model = "fasttext";
    opts.model_options = "rows=200,width=8,features=12";
    opts.data = "synthetic-labelled:N=125,test=40,classes=3,seed=3";
    opts.lr = 2;
    opts.epochs = 8;
    const kolo_train_result dense = train_well(3, &opts);
    opts.sparse_embedding = true;
    const kolo_train_result sparse = train_well(3, &opts);
    const kolo_train_opts served = at_servers(opts, 1);
    const kolo_train_result at = train_well(4, &served);
    assert_near("dense gradients", loss_of(&dense.final), loss_of(&sparse.final), 1e-4);
    assert_true(loss_of(&at.final) == loss_of(&sparse.final));
    assert_true(loss_of(&at.test) == loss_of(&sparse.test));
    assert_true(loss_of(&at.final) < 0.8); /* ln 3 is 1.1 */
    assert_in_range(at.table.rows, 100, 200);
}

/* Rows of synchronous workers may be updated as gradients come, and both may. */
static void rows_have_a_policy_of_their_own(void **state) {
    static const struct {
        const char *dense, *rows;
    } cases[] = {{"bsp", "asp"},
                 {"asp", "asp"},
                 {"ssp:2", "ssp:1"},
                 {"bsp:drop=1", "asp"},
                 {"asp,lease=1", "asp"}};
    kolo_train_opts plain = options(KOLO_OPTIMIZER_SGD);
    plain.lr = 0.1;
    const kolo_train_result alone = train_well(3, &plain);
    const double one = loss_of(&alone.test);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = at_servers(plain, 1);
        opts.consistency = cases[i].dense;
        opts.table_consistency = cases[i].rows;
        opts.lr = 0.03; /* most make three updates for one */
        const kolo_train_result at = train_well(4, &opts);
        assert_near(cases[i].dense, one, loss_of(&at.test), 0.2);
        assert_true(at.table.version >= (uint64_t)at.steps);
    }
}

/* A table of 10^9 ids: only those that occur have rows. */
static void ids_need_no_vocabulary(void **state) {
    kolo_train_opts opts = at_servers(options(KOLO_OPTIMIZER_ADAM), 1);
    opts.model_options = "tables=4,rows=250000000,dim=8,dense=3,bottom1=5,bottom2=0,bottom3=0,"
                         "top1=7,top2=6";
    opts.table_bytes = 1 << 20;
    const kolo_train_result at = train_well(3, &opts);
    assert_in_range(at.table.rows, 100, 125 * 4);
    assert_true(isfinite(loss_of(&at.test)));
    assert_in_range(at.table.room, 5000, 10000);
}

static void rows_are_admitted_removed_and_refused(void **state) {
    kolo_train_opts opts = at_servers(options(KOLO_OPTIMIZER_SGD), 1);
    opts.table_admit = 3;
    kolo_train_result at = train_well(3, &opts);
    assert_true(at.table.early > 0 && at.table.waiting > 0);
    opts.table_admit = 0;
    opts.table_expire = 4;
    at = train_well(3, &opts);
    assert_true(at.table.expired > 0 && at.table.created == at.table.rows + at.table.expired);
    opts.table_expire = 0;
    opts.table_bytes = 3000;
    at = train_well(3, &opts);
    assert_true(at.table.evicted > 0 && at.table.rows <= at.table.room);
    opts.table_refuse = true;
    at = train_well(3, &opts);
    assert_true(at.table.refused > 0 && at.table.evicted == 0);
}

static void the_rows_are_saved_at_the_end(void **state) {
    kolo_safetensors *file;
    kolo_train_opts opts = at_servers(options(KOLO_OPTIMIZER_ADAM), 2);
    opts.out_dir = "run";
    const kolo_train_result at = train_well(4, &opts);
    ASSERT_OK(kolo_safetensors_open("run/tables-final.safetensors", &file));
    ASSERT_OK(kolo_safetensors_check(file));
    const kolo_safetensors_entry *ids = kolo_safetensors_find(file, "emb.weight.ids");
    const kolo_safetensors_entry *rows = kolo_safetensors_find(file, "emb.weight.rows");
    assert_true(ids && rows && ids->dtype == KOLO_DTYPE_I64 && rows->dtype == KOLO_DTYPE_F32);
    assert_int_equal(ids->shape.dim[0], at.table.rows);
    assert_int_equal(rows->shape.dim[0], at.table.rows);
    assert_int_equal(rows->shape.dim[1], 8);
    bool seen[200] = {false};
    for (int64_t i = 0; i < ids->shape.dim[0]; i++) {
        int64_t id;
        memcpy(&id, (const char *)ids->data + i * 8, sizeof id);
        assert_in_range(id, 0, 199);
        assert_false(seen[id]);
        seen[id] = true;
    }
    kolo_safetensors_close(file);
}

static kolo_status verify(const char *path) {
    char *text = NULL;
    const kolo_status status = kolo_checkpoint_verify(path, &text);
    kolo_checkpoint_text_free(text);
    return status;
}

/* A run that stops and goes on, with other servers, is the run that does not, to the last bit:
 * rows, states, versions, ids that wait for their rows, and which rows are the oldest. */
static void runs_resume_with_their_rows(void **state) {
    static const struct {
        kolo_optimizer optimizer;
        int workers, servers, later;
        int64_t admit, expire, bytes;
    } cases[] = {
        {KOLO_OPTIMIZER_ADAM, 2, 1, 3, .admit = 3},
        {KOLO_OPTIMIZER_ADAM, 2, 3, 0, .admit = 2, .expire = 4},
        {KOLO_OPTIMIZER_SGD, 1, 2, 2, .bytes = 3000},
    };
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = at_servers(options(cases[i].optimizer), cases[i].servers);
        opts.table_admit = cases[i].admit;
        opts.table_expire = cases[i].expire;
        opts.table_bytes = cases[i].bytes;
        opts.steps = 22;
        const kolo_train_result whole = train_well(cases[i].workers + cases[i].servers, &opts);
        assert_int_equal(system("rm -rf rows"), 0);
        opts.out_dir = "rows";
        opts.checkpoint_steps = 7;
        opts.steps = 14;
        (void)train_well(cases[i].workers + cases[i].servers, &opts);
        ASSERT_OK(verify("rows/checkpoint-14.safetensors"));
        ASSERT_OK(kolo_checkpoint_export("rows/checkpoint-14.safetensors", "weights.safetensors",
                                         KOLO_FORMAT_NATIVE));
        ASSERT_OK(verify("weights.safetensors")); /* they are without the rows */
        if (cases[i].servers == 1) { /* a damaged file: the checkpoint before is taken */
            assert_int_equal(system("truncate -s -1 rows/checkpoint-14.tables.safetensors"), 0);
            assert_int_equal(verify("rows/checkpoint-14.safetensors"), KOLO_ERR_FORMAT);
            assert_non_null(strstr(kolo_last_error(), "checkpoint-14.tables.safetensors"));
        }
        opts.resume = "rows";
        opts.servers = cases[i].later;
        opts.steps = 22;
        const kolo_train_result resumed = train_well(cases[i].workers + opts.servers, &opts);
        assert_true(loss_of(&whole.final) == loss_of(&resumed.final));
        assert_true(loss_of(&whole.test) == loss_of(&resumed.test));
        assert_int_equal(whole.table.version, resumed.table.version);
        assert_int_equal(whole.table.rows, resumed.table.rows);
        assert_int_equal(whole.table.waiting, resumed.table.waiting);
        assert_int_equal(whole.table.restored, 0);
        assert_int_equal(resumed.table.rows, resumed.table.restored + resumed.table.created -
                                                 resumed.table.evicted - resumed.table.expired);
        assert_in_range(resumed.table.restored, 1, whole.table.created);
        assert_int_equal(whole.samples, resumed.samples);
    }
}

static void assert_equal_files(const char *a, const char *b) {
    char line[160];
    snprintf(line, sizeof line, "cmp %s %s", a, b);
    assert_int_equal(system(line), 0);
}

/* The rows of the best evaluation are those that a run has which ends there. They are kept when a
 * run goes on, unless they are damaged. */
static void the_best_rows_are_kept(void **state) {
    static const char *const rows[] = {"bsp", "asp"};
    for (size_t i = 0; i < KOLO_COUNT(rows); i++) {
        kolo_train_opts opts = at_servers(options(KOLO_OPTIMIZER_ADAM), 2);
        opts.table_consistency = rows[i];
        opts.lr = 0.1;
        opts.epochs = 6;
        opts.eval_steps = 3;
        opts.out_dir = "best";
        opts.keep_best = "loss";
        opts.checkpoint_steps = 30;
        assert_int_equal(system("rm -rf best other"), 0);
        const kolo_train_result at = train_well(3, &opts);
        assert_in_range(at.best_step, 3, at.steps - 1);
        assert_true(kolo_file_exists("best/checkpoint-best.safetensors"));
        kolo_train_opts other = opts; /* one worker: the order of pushes is the same */
        other.steps = at.best_step;
        other.out_dir = "other";
        (void)train_well(3, &other);
        assert_equal_files("best/tables-best.safetensors", "other/tables-final.safetensors");
        train_notices[0] = '\0';
        opts.notice = train_note;
        opts.resume = "best";
        assert_int_equal(system("truncate -s -1 best/tables-best.safetensors"), 0);
        (void)train_well(3, &opts);
        assert_non_null(strstr(train_notices, "tables-best.safetensors"));
    }
}

/* Evaluations, checkpoints and the end find no read in flight. */
static void rows_are_read_ahead(void **state) {
    static const struct {
        int workers, servers;
        const char *dense;
    } cases[] = {{1, 1, "bsp"}, {3, 0, "bsp"}, {2, 2, "asp"}};
    kolo_train_opts plain = options(KOLO_OPTIMIZER_SGD);
    plain.lr = 0.1;
    const kolo_train_result alone = train_well(3, &plain);
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = at_servers(plain, cases[i].servers);
        opts.consistency = cases[i].dense;
        opts.table_consistency = "asp";
        opts.table_prefetch = true;
        opts.eval_steps = 5;
        opts.out_dir = "ahead";
        opts.checkpoint_steps = 6;
        opts.epochs = 6;
        opts.lr = 0.03;
        assert_int_equal(system("rm -rf ahead"), 0);
        const kolo_train_result at = train_well(cases[i].workers + cases[i].servers, &opts);
        assert_near(cases[i].dense, loss_of(&alone.test), loss_of(&at.test), 0.2);
        assert_in_range(at.table_ahead, 1, at.steps * cases[i].workers - 1);
    }
}

/* A checkpoint of a run without bsp has all pushes before it. Old ones go with their rows. */
static void checkpoints_have_all_rows(void **state) {
    static const struct {
        const char *dense, *rows;
    } cases[] = {{"bsp", "asp"}, {"asp", "asp"}, {"asp,lease=1", "asp"}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_train_opts opts = at_servers(options(KOLO_OPTIMIZER_SGD), 2);
        opts.consistency = cases[i].dense;
        opts.table_consistency = cases[i].rows;
        opts.lr = 0.03;
        opts.out_dir = "rows";
        opts.checkpoint_steps = 4;
        opts.keep = 1;
        opts.steps = 8;
        assert_int_equal(system("rm -rf rows"), 0);
        const kolo_train_result first = train_well(4, &opts);
        assert_int_equal(first.table.version, 8 * 2);
        assert_false(kolo_file_exists("rows/checkpoint-4.tables.safetensors"));
        assert_true(kolo_file_exists("rows/checkpoint-8.tables.safetensors"));
        opts.resume = "rows";
        opts.steps = 11;
        const kolo_train_result rest = train_well(4, &opts);
        assert_int_equal(rest.table.version, 11 * 2);
        assert_true(rest.table.rows >= first.table.rows);
    }
}

static void what_tables_cannot_do_is_refused(void **state) {
    kolo_train_opts opts = at_servers(options(KOLO_OPTIMIZER_SGD), 0);
    opts.optimizer.momentum = 0.9;
    assert_job_refused(2, &opts, "by SGD without momentum or Adam");
    opts = at_servers(options(KOLO_OPTIMIZER_SGD), 0);
    opts.table = "top_l.0.weight";
    assert_job_refused(2, &opts, "no embedding looks it up");
    opts.table = "other";
    assert_job_refused(2, &opts, "no parameter matches");
    opts = at_servers(options(KOLO_OPTIMIZER_SGD), 1);
    opts.consistency = "bsp:drop=1";
    assert_job_refused(3, &opts, "give --table-consistency");
    static const char *const policies[] = {"asp,group=2",    "asp,ahead=0.5", "ssp:1,delay=2",
                                           "asp,scale=1",    "asp,dc=0.1",    "asp,lease=1",
                                           "diloco:2,lr=0.5"};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        opts = at_servers(options(KOLO_OPTIMIZER_SGD), 1);
        opts.table_consistency = policies[i];
        assert_job_refused(3, &opts, "rows have bsp, ssp:S or asp");
    }
    opts = at_servers(options(KOLO_OPTIMIZER_SGD), 0);
    opts.sync = KOLO_SYNC_ALLREDUCE;
    assert_job_refused(2, &opts, "give --sync ps");
    opts = at_servers(options(KOLO_OPTIMIZER_SGD), 0);
    opts.accumulate = 2;
    assert_job_refused(2, &opts, "pulled once");
    opts = at_servers(options(KOLO_OPTIMIZER_SGD), 0);
    opts.table_prefetch = true;
    assert_job_refused(2, &opts, "rows of bsp: a read must have the pushes of the step before");
}

TEST_MAIN(test_tables) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bsp_is_a_run_with_row_sparse_gradients),
        cmocka_unit_test(texts_are_bags_of_rows),
        cmocka_unit_test(rows_have_a_policy_of_their_own),
        cmocka_unit_test(ids_need_no_vocabulary),
        cmocka_unit_test(rows_are_admitted_removed_and_refused),
        cmocka_unit_test(the_rows_are_saved_at_the_end),
        cmocka_unit_test(runs_resume_with_their_rows),
        cmocka_unit_test(checkpoints_have_all_rows),
        cmocka_unit_test(the_best_rows_are_kept),
        cmocka_unit_test(rows_are_read_ahead),
        cmocka_unit_test(what_tables_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, test_folder_enter, test_folder_leave);
}
