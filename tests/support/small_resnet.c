#include "support/small_resnet.h"

#include "base/status.h"
#include "models/layers.h"
#include "models/options.h"
#include "models/resnet.h"

#include <stdlib.h>

static kolo_status build(kolo_graph *g, const kolo_model_opts *opts) {
    resnet net = {.name = "resnet8", .width = 16, .blocks = {1, 1, 1}, .small = true};
    const kolo_model_option table[] = {{"width", 2, 64, &net.width, net.width}};
    kolo_value x;
    KOLO_TRY(kolo_model_options_parse(net.name, opts->options, table, 1));
    KOLO_TRY(model_images(g, net.name, opts, &x));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(opts->batch));
    const resnet_body body = resnet_add(g, &net, x, opts->sample.dim[0]);
    kolo_value h = kolo_flatten(g, kolo_global_avg_pool2d(g, body.last));
    model_classify(g, model_linear(g, "fc", h, body.last_channels, opts->classes), y);
    return kolo_graph_check(g);
}

const char *small_resnet(void) {
    static const kolo_model model = {.name = "resnet8",
                                     .summary = "residual network of 8 layers",
                                     .options_help = "width=16",
                                     .sample = {3, {3, 32, 32}},
                                     .classes = 10,
                                     .build = build};
    static bool registered;
    if (!registered && kolo_model_register(&model) != KOLO_OK) abort();
    registered = true;
    return model.name;
}
