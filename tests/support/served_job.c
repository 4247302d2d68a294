#include "support/served_job.h"

#include "support/small_resnet.h"
#include "support/support.h"

static const char small[] = "synthetic:N=61,test=10,shape=1x8x8,seed=2";

kolo_train_opts served_opts(kolo_sync sync, int servers) {
    return (kolo_train_opts){
        .model = small_resnet(),
        .model_options = "width=4",
        .data = small,
        .optimizer.momentum = 0.9,
        .batch = 4,
        .epochs = 20,
        .steps = 9,
        .lr = 0.02,
        .sync = sync,
        .servers = servers,
        .algorithm = KOLO_ALGORITHM_DIRECT,
    };
}

void assert_same_served(const char *what, const kolo_train_result *plain,
                        const kolo_train_result *served) {
    assert_same_run(what, plain, served);
    assert_int_equal(plain->workers, served->workers);
    assert_true(plain->samples == served->samples);
}
