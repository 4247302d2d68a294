/* What data sets of click logs have in common. */
#include "data/readers/clicks.h"

#include "base/status.h"

kolo_status kolo_clicks_describe(const kolo_reader *reader, kolo_dataset *d) {
    const kolo_dataset_opts *o = &d->opts;
    if (o->numbers < 1 || o->categories < 1 || o->rows < 1) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "data set %s has numbers and categories: choose a model of click logs, "
                         "such as dlrm, or set numbers, categories and rows",
                         reader->name);
    }
    if (o->rows > INT32_MAX / o->categories) {
        return KOLO_FAIL(KOLO_ERR_ARG, "data set %s: %lld tables of %lld rows are too many",
                         reader->name, (long long)o->categories, (long long)o->rows);
    }
    kolo_dataset_set_fields(&d->info, KOLO_DTYPE_F32, kolo_shape_1(o->numbers), kolo_shape_0());
    d->info.fields[KOLO_FIELD_Y].dtype = KOLO_DTYPE_F32;
    d->info.fields[KOLO_FIELD_IDS] =
        (kolo_field){.name = "ids", .dtype = KOLO_DTYPE_I32, .shape = kolo_shape_1(o->categories)};
    d->info.n_fields = 3;
    d->info.classes = 1;
    return KOLO_OK;
}
