/* An own net, data and loop: learns which points lie in a ring. kolo run -n 3 -- ./own_net */
#include <kolo/session.h>

#include <stdio.h>

enum { SIDE = 25, POINTS = SIDE * SIDE, HIDDEN = 64, CLASSES = 2 };

static kolo_status build(kolo_graph *g, int64_t n, void *arg) {
    kolo_value x = kolo_input(g, "x", KOLO_DTYPE_F32, kolo_shape_2(n, 2));
    kolo_value y = kolo_input(g, "y", KOLO_DTYPE_I32, kolo_shape_1(n));
    kolo_value w1 = kolo_param(g, "w1", kolo_shape_2(HIDDEN, 2), kolo_init_fan_in(2));
    kolo_value b1 = kolo_param(g, "b1", kolo_shape_1(HIDDEN), kolo_init_fan_in(2));
    kolo_value w2 = kolo_param(g, "w2", kolo_shape_2(CLASSES, HIDDEN), kolo_init_fan_in(HIDDEN));
    kolo_value logits = kolo_linear(g, kolo_relu(g, kolo_linear_bias(g, x, w1, b1)), w2);
    kolo_output(g, "loss", kolo_softmax_xent(g, logits, y));
    kolo_output(g, "correct", kolo_accuracy(g, logits, y));
    return arg ? KOLO_ERR_ARG : KOLO_OK;
}

static int fail(void) { return fprintf(stderr, "%s\n", kolo_last_error()), 1; }

int main(void) {
    float x[POINTS][2];
    int32_t y[POINTS];
    for (int i = 0; i < POINTS; i++) {
        float u = (float)(i % SIDE) / 12 - 1, v = (float)(i / SIDE) / 12 - 1; /* in [-1, 1] */
        x[i][0] = u, x[i][1] = v, y[i] = u * u + v * v > 0.2F && u * u + v * v < 0.8F;
    }
    kolo_field fields[] = {{.name = "x", .shape = {1, {2}}},
                           {.name = "y", .dtype = KOLO_DTYPE_I32}};
    kolo_session_opts opts = {.global_batch = POINTS, .lr = 0.5, .optimizer = {.momentum = 0.9}};
    kolo_batch batch = {.n_fields = 2, .fields = fields};
    kolo_metrics metrics;
    kolo_session *session;
    kolo_comm *comm;
    if (kolo_comm_create(NULL, &comm)) return fail();
    if (kolo_session_create(comm, &opts, build, NULL, &session)) return fail();
    if (kolo_session_share(session, POINTS, &batch.first, &batch.count)) return fail();
    batch.data[0] = x[batch.first], batch.data[1] = &y[batch.first];
    for (int k = 0; k < 500; k++)
        if (kolo_session_step(session, &batch, &metrics)) return fail();
    printf("accuracy %.4f\n", kolo_metrics_get(&metrics, "accuracy"));
    kolo_session_destroy(session);
    kolo_comm_destroy(comm);
}
