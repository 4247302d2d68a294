/* Opening a trained model. Checkpoints of Kolo state their model, samples and classes, which the
 * data must have. With the model in the options, the file may also be of another program: the
 * samples are then those of the data, and tensors have the names of its convention. */
#include "train/inference/trained.h"

#include "base/range.h"
#include "train/checkpoint/weights.h"
#include "train/session/agree.h"
#include "train/session/tuning.h"

#include <inttypes.h>
#include <stdio.h>

static kolo_status check_fit(const kolo_checkpoint *c, const kolo_dataset_info *data) {
    const kolo_shape *sample = &data->fields[KOLO_FIELD_X].shape;
    char want[KOLO_SHAPE_TEXT], have[KOLO_SHAPE_TEXT];
    if (kolo_shape_equal(&c->info.sample, sample) && c->info.classes == data->classes) {
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s takes samples %s in %" PRId64 " classes, and %s has samples %s in %d: "
                     "choose the data that it was trained on",
                     c->path, kolo_shape_text(&c->info.sample, want), c->info.classes, data->name,
                     kolo_shape_text(sample, have), data->classes);
}

static kolo_status resolve(const kolo_eval_opts *given, kolo_eval_opts *opts) {
    kolo_eval_opts o = given ? *given : (kolo_eval_opts){0};
    if (o.batch == 0) o.batch = 64;
    if (o.threads == 0) o.threads = 1;
    if (!o.checkpoint || !o.data) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no %s: give one", o.checkpoint ? "data" : "checkpoint");
    }
    if (o.batch < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "batch %" PRId64 ": choose at least 1", o.batch);
    }
    KOLO_TRY(kolo_device_check(o.device));
    KOLO_TRY(kolo_check_count("loader_threads", o.loader_threads, KOLO_LOADER_NO_THREAD,
                              KOLO_LOADER_MAX_THREADS));
    if (o.threads < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d threads: choose at least 1", o.threads);
    }
    *opts = o;
    return KOLO_OK;
}

/* The model and its options, of the file or of the caller. */
static kolo_status choose_model(kolo_trained *t, const char **name, const char **options,
                                const kolo_model **model) {
    if (t->opts.model) {
        *name = t->opts.model;
        *options = t->opts.model_options ? t->opts.model_options : "";
        return kolo_model_find(*name, model);
    }
    KOLO_TRY(kolo_checkpoint_open(t->opts.checkpoint, &t->checkpoint));
    *name = t->checkpoint.info.model;
    *options = t->checkpoint.info.model_options;
    return kolo_checkpoint_model(&t->checkpoint, model);
}

/* Everything that needs no other rank. */
static kolo_status open_alone(const kolo_eval_opts *opts, kolo_trained *t) {
    const kolo_model *model;
    const char *name, *options;
    kolo_dataset_opts windows = {0};
    KOLO_TRY(resolve(opts, &t->opts));
    const kolo_eval_opts *o = &t->opts;
    KOLO_TRY(choose_model(t, &name, &options, &model));
    KOLO_TRY(kolo_model_window(model, options, &windows));
    KOLO_TRY(kolo_dataset_open_for(o->data, o->split_train ? KOLO_SPLIT_TRAIN : KOLO_SPLIT_TEST,
                                   &windows, &t->dataset));
    const kolo_dataset_info *data = kolo_dataset_describe(t->dataset);
    if (!o->model) KOLO_TRY(check_fit(&t->checkpoint, data));
    snprintf(t->name, sizeof t->name, "%s%s%s", name, *options ? ":" : "", options);
    t->setup = (kolo_setup){
        .opts = {.autotune = o->autotune,
                 .tuning = o->tuning,
                 .tuning_is_cache = o->tuning_is_cache,
                 .notice = o->notice,
                 .notice_arg = o->notice_arg},
        .session = {.model = name,
                    .found = model,
                    .model_options = options,
                    .sample = data->fields[KOLO_FIELD_X].shape,
                    .label = data->fields[KOLO_FIELD_Y].shape,
                    .numeric = data->fields[KOLO_FIELD_Y].dtype == KOLO_DTYPE_F32,
                    .classes = data->classes,
                    .batch = o->batch,
                    .device = o->device,
                    .loader_threads = o->loader_threads,
                    .evaluate_only = true,
                    .plan = {.threads = o->threads}},
    };
    return KOLO_OK;
}

static kolo_status load(kolo_trained *t) {
    const char *path = t->opts.checkpoint;
    kolo_status status = kolo_session_create_for(&t->setup.session, NULL, &t->session);
    if (status == KOLO_OK) status = kolo_session_check_dataset(t->session, t->dataset);
    if (status != KOLO_OK) return kolo_fail_in(status, "%s", path);
    kolo_store *store = kolo_session_store(t->session);
    status = t->opts.model ? kolo_weights_load(path, t->opts.model, store, NULL)
                           : kolo_checkpoint_load(&t->checkpoint, store);
    return status == KOLO_OK ? kolo_session_share_values(t->session) : status;
}

kolo_status kolo_trained_open(const kolo_eval_opts *opts, kolo_comm *comm, kolo_trained *t) {
    *t = (kolo_trained){0};
    KOLO_TRY(kolo_agree(comm, open_alone(opts, t)));
    KOLO_TRY(kolo_tuning_begin(&t->setup, comm));
    return kolo_agree(comm, load(t));
}

void kolo_trained_close(kolo_trained *t) {
    kolo_session_destroy(t->session);
    kolo_setup_close(&t->setup);
    kolo_dataset_close(t->dataset);
    kolo_checkpoint_close(&t->checkpoint);
}
