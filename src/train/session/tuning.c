/* Autotuning of a job. Rank 0 compiles the plan of a full batch for the measurements and discards
 * it; the other ranks wait in a broadcast. */
#include "train/session/tuning.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/isa.h"
#include "kernel/select/families.h"
#include "train/session/agree.h"
#include "train/session/stage_cuts.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_BYTES = 64 << 20 };

typedef struct tuning {
    const kolo_setup *setup;
    kolo_tuner *tuner;
    int measured;
} tuning;

/* "kolo 0.1.0-1f2e3d4c, AMD EPYC 7763, avx2, oneDNN 2.6.3". */
static void describe_machine(kolo_text *text) {
    kolo_text_add(text, "kolo %s-%08" PRIx32 ", ", kolo_version(), (uint32_t)kolo_tuner_kernels());
    kolo_processor_name(text);
    kolo_text_add(text, ", ");
    kolo_kernel_describe(text);
}

/* ---- the file ---- */

/* A file that cannot be read is ignored, unless measuring would replace one that is not a cache. */
static kolo_status read_file(const tuning *t) {
    const kolo_train_opts *o = &t->setup->opts;
    char *text = NULL;
    size_t bytes = 0;
    if (!o->tuning || !kolo_file_exists(o->tuning)) return KOLO_OK;
    kolo_status status = kolo_file_read(o->tuning, MOST_BYTES, &text, &bytes);
    if (status == KOLO_OK && bytes > 0) status = kolo_tuner_read(t->tuner, o->tuning, text);
    kolo_free(text);
    if (status == KOLO_OK || status == KOLO_ERR_NOMEM) return status;
    if (o->autotune == KOLO_AUTOTUNE_ON && !o->tuning_is_cache) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "%s; --autotune on would replace this file: choose another with --tuning, "
                         "or remove it",
                         kolo_last_error());
    }
    kolo_notify(o, KOLO_NOTICE_WARNING, "autotune: ignored: %s", kolo_last_error());
    return KOLO_OK;
}

static kolo_status write_file(const kolo_tuner *tuner, bool asked_only, const char *path) {
    kolo_text text = {0};
    kolo_tuner_write(tuner, asked_only, &text);
    kolo_status status =
        text.failed ? KOLO_NOMEM(text.length) : kolo_file_write(path, text.text, text.length);
    kolo_text_fini(&text);
    return status;
}

static kolo_status make_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return KOLO_OK;
    char *folder = kolo_format("%.*s", (int)(slash - path), path);
    if (!folder) return KOLO_NOMEM(strlen(path));
    kolo_status status = kolo_folder_make(folder);
    kolo_free(folder);
    return status;
}

static void save_file(const tuning *t, double seconds) {
    const char *path = t->setup->opts.tuning;
    if (t->measured == 0) return;
    kolo_status status = path ? make_folder_of(path) : KOLO_OK;
    if (path && status == KOLO_OK) status = write_file(t->tuner, false, path);
    kolo_notify(&t->setup->opts, KOLO_NOTICE_INFO, "autotune: %d kernels timed in %.1f s%s%s",
                t->measured, seconds,
                !path               ? ""
                : status == KOLO_OK ? ", kept in "
                                    : ", not kept: ",
                !path               ? ""
                : status == KOLO_OK ? path
                                    : kolo_last_error());
}

/* ---- measuring ---- */

static void show_measured(void *arg, int measured, const kolo_kernel *kernel,
                          const kolo_kernel_spec *spec, double seconds) {
    tuning *t = arg;
    char shape[KOLO_SHAPE_TEXT];
    t->measured = measured;
    kolo_notify(&t->setup->opts, KOLO_NOTICE_TRANSIENT, "autotune: %d kernels timed: %s %s %.2f ms",
                measured, kernel->name, kolo_shape_text(&spec->out[0].shape, shape), 1e3 * seconds);
}

/* Of a pipeline: adds up the costs of the layers of all stages. */
static kolo_status measure_stages(tuning *t) {
    kolo_session_config o = t->setup->session;
    kolo_unit_costs costs;
    o.plan.tuner = t->tuner;
    KOLO_TRY(kolo_session_unit_costs(&o, o.batch, &costs));
    kolo_unit_costs_fini(&costs);
    return KOLO_OK;
}

/* Compiles the plan of a full batch, which requests all times that it may use. */
static kolo_status measure(tuning *t) {
    const kolo_session_config *o = &t->setup->session;
    kolo_graph *graph;
    kolo_store *store;
    kolo_plan *plan = NULL;
    kolo_plan_opts plan_opts = o->plan;
    plan_opts.train = !o->evaluate_only;
    plan_opts.tuner = t->tuner;
    if (kolo_mesh_stages(&o->plan.mesh) > 1 && !o->evaluate_only) return measure_stages(t);
    KOLO_TRY(kolo_store_create(NULL, &store));
    kolo_status status = kolo_session_build(o, o->batch, &graph);
    if (status == KOLO_OK) status = kolo_plan_compile(graph, &plan_opts, store, NULL, &plan);
    kolo_plan_destroy(plan);
    kolo_store_destroy(store);
    return status;
}

static kolo_status fill(tuning *t) {
    KOLO_TRY(read_file(t));
    if (t->setup->opts.autotune != KOLO_AUTOTUNE_ON) return KOLO_OK;
    int64_t start = kolo_now_ns();
    kolo_tuner_measure(t->tuner, true, show_measured, t);
    kolo_status status = measure(t);
    kolo_tuner_measure(t->tuner, false, NULL, NULL);
    save_file(t, (double)(kolo_now_ns() - start) * 1e-9);
    return status;
}

/* ---- all ranks ---- */

/* Gives all ranks the times of rank 0. */
static kolo_status share(kolo_tuner *tuner, kolo_comm *comm) {
    if (!comm || kolo_comm_size(comm) == 1) return KOLO_OK;
    const bool root = kolo_comm_rank(comm) == 0;
    kolo_text text = {0};
    if (root) kolo_tuner_write(tuner, false, &text);
    kolo_status status = kolo_share_text(comm, KOLO_OK, &text);
    if (status == KOLO_OK && !root) status = kolo_tuner_read(tuner, "times of rank 0", text.text);
    kolo_text_fini(&text);
    return kolo_agree(comm, status);
}

kolo_status kolo_tuning_begin(kolo_setup *setup, kolo_comm *comm) {
    if (setup->opts.autotune == KOLO_AUTOTUNE_OFF || setup->opts.reference_kernels) return KOLO_OK;
    kolo_text machine = {0};
    describe_machine(&machine);
    kolo_status status = machine.failed ? KOLO_NOMEM(machine.length)
                                        : kolo_tuner_create(machine.text, &setup->tuner);
    kolo_text_fini(&machine);
    if (status == KOLO_OK && (!comm || kolo_comm_rank(comm) == 0)) {
        tuning t = {.setup = setup, .tuner = setup->tuner};
        status = fill(&t);
    }
    KOLO_TRY(kolo_agree(comm, status));
    setup->session.plan.tuner = setup->tuner;
    return share(setup->tuner, comm);
}

kolo_status kolo_tuning_record(const kolo_setup *setup, const char *folder) {
    if (!setup->tuner) return KOLO_OK;
    char *path = kolo_format("%s/tuning.txt", folder);
    if (!path) return KOLO_NOMEM(strlen(folder));
    kolo_status status = write_file(setup->tuner, true, path);
    kolo_free(path);
    return status;
}
