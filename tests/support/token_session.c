/* Sessions of token models and models of click logs. */
#include "support/token_session.h"

#include "base/integer.h"

kolo_status token_session_open(kolo_comm *comm, const char *data, const kolo_dataset_opts *windows,
                               int64_t steps, const kolo_session_config *opts, token_session *t) {
    *t = (token_session){0};
    KOLO_TRY(kolo_dataset_open_for(data, KOLO_SPLIT_TRAIN, windows, &t->set));
    KOLO_TRY(kolo_dataset_open_for(data, KOLO_SPLIT_TEST, windows, &t->test));
    kolo_loader_opts loader_opts = {
        .dataset = t->set,
        .global_batch = opts->batch * kolo_comm_size(comm) * kolo_max_i64(1, opts->accumulate),
        .rank = kolo_comm_rank(comm),
        .world = kolo_comm_size(comm),
        .end = steps,
    };
    KOLO_TRY(kolo_loader_create(&loader_opts, &t->loader));
    const kolo_dataset_info *info = kolo_dataset_describe(t->set);
    kolo_session_config filled = *opts;
    filled.sample = info->fields[KOLO_FIELD_X].shape;
    filled.label = info->fields[KOLO_FIELD_Y].shape;
    filled.numeric = info->fields[KOLO_FIELD_Y].dtype == KOLO_DTYPE_F32;
    filled.classes = info->classes;
    return kolo_session_create_for(&filled, comm, &t->session);
}

void token_session_close(token_session *t) {
    kolo_session_destroy(t->session);
    kolo_loader_destroy(t->loader);
    kolo_dataset_close(t->set);
    kolo_dataset_close(t->test);
}
