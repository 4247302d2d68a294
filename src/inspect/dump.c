/* `kolo dump`: builds what would run and prints it instead of running it. */
#include "kolo/dump.h"

#include "comm/schedule/algorithms.h"
#include "kolo/train.h"
#include "plan/plan.h"
#include "train/tuning.h"

#include <inttypes.h>

static kolo_status build(const kolo_dump_opts *o, kolo_graph **graph) {
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(o->model, &model));
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(NULL, &g));
    kolo_model_opts opts = {o->batch, o->sample, o->classes, o->model_options};
    kolo_status status = model->build(g, &opts);
    if (status == KOLO_OK) status = kolo_graph_check(g);
    if (status != KOLO_OK) {
        kolo_graph_destroy(g);
        return status;
    }
    *graph = g;
    return KOLO_OK;
}

static kolo_plan_opts plan_opts(const kolo_dump_opts *o, kolo_tuner *tuner) {
    return (kolo_plan_opts){
        .train = !o->evaluate,
        .optimizer = o->optimizer,
        .sparse_embedding = o->sparse_embedding,
        .recompute = o->recompute,
        .precision = o->precision,
        .micro_batches = o->accumulate,
        .bucket_bytes = (size_t)o->bucket_bytes,
        .kernels = kolo_kernel_set_of(o->reference_kernels, o->no_winograd),
        .tuner = tuner,
        .threads = o->threads,
    };
}

static kolo_status dump_graph(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_text *text) {
    kolo_graph *g;
    KOLO_TRY(build(o, &g));
    kolo_status status = KOLO_OK;
    if (o->what == KOLO_DUMP_PASSES) {
        kolo_plan_opts plan = plan_opts(o, tuner);
        kolo_pipeline_opts passes = kolo_plan_passes(&plan);
        status = kolo_pipeline_run(g, &passes);
    }
    if (status == KOLO_OK) kolo_graph_print(g, text);
    kolo_graph_destroy(g);
    if (status == KOLO_OK && o->what == KOLO_DUMP_GRAPH && o->sparse_embedding && o->notice) {
        o->notice(
            o->notice_arg,
            "dump: sparse embeddings are made by the passes: --what passes or plan shows them, "
            "the graph is as the model makes it",
            KOLO_NOTICE_INFO);
    }
    return status;
}

/* A plan as one rank of a group has it: with POST and WAIT, on a group of this process alone. */
static kolo_status dump_plan(const kolo_dump_opts *o, kolo_tuner *tuner, kolo_text *text) {
    kolo_graph *g;
    kolo_store *store = NULL;
    kolo_comm *comm = NULL;
    kolo_plan *plan = NULL;
    kolo_status status = KOLO_OK;
    KOLO_TRY_GOTO(kolo_store_create(&store), done);
    KOLO_TRY_GOTO(kolo_comm_create_threads(1, NULL, &comm), done);
    KOLO_TRY_GOTO(build(o, &g), done);
    kolo_plan_opts opts = plan_opts(o, tuner);
    KOLO_TRY_GOTO(kolo_plan_compile(g, &opts, store, comm, &plan), done);
    kolo_plan_print(plan, text);
done:
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    kolo_comm_destroy(comm);
    return status;
}

/* Elements of all parameters whose gradients an allreduce sums. Tables with row-sparse gradients
 * are none of them, and are named. */
static kolo_status count_parameters(const kolo_dump_opts *o, kolo_text *text, size_t *count) {
    kolo_graph *g;
    KOLO_TRY(build(o, &g));
    kolo_status status = KOLO_OK;
    if (o->sparse_embedding) status = kolo_pass_sparse(g, &(kolo_sparse_opts){.ranks = o->ranks});
    *count = 0;
    for (int32_t v = 0; status == KOLO_OK && v < g->n_values; v++) {
        const kolo_value_info *p = &g->values[v];
        if (p->kind != KOLO_VALUE_PARAM) continue;
        if (p->rows == 0) {
            *count += (size_t)kolo_shape_count(&p->tensor.shape);
        } else {
            kolo_text_add(text,
                          "%s: not summed; up to %" PRId64 " of its %" PRId64
                          " rows of each rank are gathered\n",
                          p->name, p->rows, p->tensor.shape.dim[0]);
        }
    }
    kolo_graph_destroy(g);
    return status;
}

static kolo_status dump_schedule(const kolo_dump_opts *o, kolo_text *text) {
    enum { CHUNK = 1 << 16 };
    kolo_algorithm algorithm =
        o->algorithm == KOLO_ALGORITHM_AUTO ? KOLO_ALGORITHM_DIRECT : o->algorithm;
    bool direct = algorithm == KOLO_ALGORITHM_DIRECT;
    const kolo_algorithm_row *row = kolo_algorithm_find(
        KOLO_COLLECTIVE_ALLREDUCE, algorithm, direct ? KOLO_VARIANT_WINDOW : KOLO_VARIANT_MESSAGES);
    KOLO_ASSERT(row);
    kolo_schedule_spec spec = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                               .size = o->ranks,
                               .in_place = true,
                               .chunk = CHUNK,
                               .align = 16};
    KOLO_TRY(count_parameters(o, text, &spec.count));
    for (spec.rank = 0; spec.rank < spec.size; spec.rank++) {
        kolo_schedule schedule = {0};
        KOLO_TRY(kolo_schedule_build(row, &spec, &schedule));
        kolo_text_add(text, "%s, rank %d of %d, %zu elements\n", row->name, spec.rank, spec.size,
                      spec.count);
        kolo_schedule_print(&schedule, text);
        kolo_schedule_fini(&schedule);
    }
    return KOLO_OK;
}

static kolo_status resolve(const kolo_dump_opts *in, kolo_dump_opts *out) {
    *out = *in;
    if (!out->model) return KOLO_FAIL(KOLO_ERR_ARG, "which model? give its name, such as lenet");
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(out->model, &model));
    kolo_shape sample;
    int64_t classes;
    KOLO_TRY(kolo_model_sample(model, out->model_options, &sample, &classes));
    if (out->sample.rank == 0) out->sample = sample;
    if (!out->classes) out->classes = classes;
    if (!out->batch) out->batch = 64;
    if (!out->bucket_bytes) out->bucket_bytes = 1 << 20;
    if (!out->threads) out->threads = 1;
    if (!out->ranks) out->ranks = 2;
    if (out->batch < 0 || out->classes < 0 || out->bucket_bytes < 0 || out->threads < 0 ||
        out->ranks < 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "batch, classes, bucket-bytes, threads and ranks must be above 0");
    }
    return KOLO_OK;
}

static kolo_status dump_what(const kolo_dump_opts *o, kolo_text *text) {
    kolo_setup setup = {.opts = {.tuning = o->tuning,
                                 .autotune = o->cached ? KOLO_AUTOTUNE_CACHED : KOLO_AUTOTUNE_OFF,
                                 .reference_kernels = o->reference_kernels,
                                 .notice = o->notice,
                                 .notice_arg = o->notice_arg}};
    if (o->what == KOLO_DUMP_SCHEDULE) return dump_schedule(o, text);
    KOLO_TRY(kolo_tuning_begin(&setup, NULL));
    kolo_status status = o->what == KOLO_DUMP_PLAN ? dump_plan(o, setup.tuner, text)
                                                   : dump_graph(o, setup.tuner, text);
    kolo_setup_close(&setup);
    return status;
}

kolo_status kolo_dump_kernels(char **out) {
    kolo_text text = {0};
    kolo_kernel_describe(&text);
    if (text.failed) {
        kolo_status status = KOLO_NOMEM(text.length);
        kolo_text_fini(&text);
        return status;
    }
    *out = text.text;
    return KOLO_OK;
}

bool kolo_dump_has_bf16(void) { return kolo_kernel_has_bf16(); }

kolo_status kolo_dump(const kolo_dump_opts *given, char **out) {
    kolo_dump_opts o;
    KOLO_TRY(resolve(given, &o));
    kolo_text text = {0};
    kolo_status status = dump_what(&o, &text);
    if (status == KOLO_OK && text.failed) status = KOLO_NOMEM(text.length);
    if (status != KOLO_OK) {
        kolo_text_fini(&text);
        return status;
    }
    *out = text.text;
    return KOLO_OK;
}

void kolo_dump_free(char *text) { kolo_free(text); }
