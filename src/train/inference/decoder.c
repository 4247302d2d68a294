/* Reading a text token by token. Plans have fixed shapes, so there is one for single tokens and one
 * for each other number of tokens that is read at once: of the beginning of a text, which needs no
 * caches, or of a later part. */
#include "train/inference/decoder.h"

#include "base/memory.h"
#include "pass/cache.h"

#include <string.h>

typedef struct part {
    int64_t n;
    bool first; /* from position 0 on, n above 1 */
    kolo_plan *plan;
} part;

struct kolo_decoder {
    kolo_session_config config;
    kolo_store *store;
    part *parts;
    size_t n_parts, cap_parts;
};

static kolo_status check(const kolo_session_config *config) {
    kolo_graph *g;
    KOLO_TRY(kolo_session_build(config, 1, &g));
    kolo_status status = kolo_pass_inference(g);
    if (status == KOLO_OK) status = kolo_cache_check(g);
    kolo_graph_destroy(g);
    if (status != KOLO_ERR_UNSUPPORTED) return status;
    char *why = kolo_strdup(kolo_last_error());
    status = KOLO_FAIL(KOLO_ERR_ARG, "%s keeps no keys and values: %s: give --whole-window",
                       config->model, why ? why : "");
    kolo_free(why);
    return status;
}

/* The model of n tokens. */
static kolo_status build(const kolo_decoder *d, int64_t n, bool first, kolo_graph **graph) {
    kolo_session_config of = d->config;
    of.sample = of.label = kolo_shape_1(n);
    KOLO_TRY(kolo_session_build(&of, 1, graph));
    const kolo_cache_opts opts = {.rows = d->config.sample.dim[0], .first = first};
    const kolo_status status = kolo_pass_cache(*graph, &opts);
    if (status != KOLO_OK) kolo_graph_destroy(*graph);
    return status;
}

static kolo_status add_part(kolo_decoder *d, int64_t n, bool first, part **made) {
    kolo_graph *graph;
    if (!KOLO_GROW(d->parts, d->n_parts, d->cap_parts)) return KOLO_NOMEM(sizeof *d->parts);
    part *p = &d->parts[d->n_parts];
    *p = (part){.n = n, .first = first};
    KOLO_TRY(build(d, n, first, &graph));
    KOLO_TRY(kolo_plan_compile(graph, &d->config.plan, d->store, NULL, &p->plan));
    d->n_parts++;
    *made = p;
    return KOLO_OK;
}

static kolo_status find_part(kolo_decoder *d, int64_t n, bool first, part **found) {
    for (size_t i = 0; i < d->n_parts; i++) {
        *found = &d->parts[i];
        if ((*found)->n == n && (*found)->first == first) return KOLO_OK;
    }
    return add_part(d, n, first, found);
}

kolo_status kolo_decoder_create(const kolo_session_config *config, kolo_decoder **decoder) {
    part *unused;
    KOLO_TRY(check(config));
    kolo_decoder *d = kolo_zalloc(sizeof *d);
    if (!d) return KOLO_NOMEM(sizeof *d);
    d->config = *config;
    kolo_status status = kolo_store_create(NULL, &d->store);
    if (status == KOLO_OK) {
        kolo_store_set_alone(d->store);
        status = find_part(d, 1, false, &unused);
    }
    if (status != KOLO_OK) {
        kolo_decoder_destroy(d);
        return status;
    }
    *decoder = d;
    return KOLO_OK;
}

void kolo_decoder_destroy(kolo_decoder *d) {
    if (!d) return;
    for (size_t i = 0; i < d->n_parts; i++) kolo_plan_destroy(d->parts[i].plan);
    kolo_free(d->parts);
    kolo_store_destroy(d->store);
    kolo_free(d);
}

kolo_store *kolo_decoder_store(const kolo_decoder *d) { return d->store; }

kolo_status kolo_decoder_read(kolo_decoder *d, const int32_t *tokens, int64_t n, int64_t first,
                              const void **logits) {
    part *p;
    kolo_tensor tensor;
    KOLO_ASSERT(n > 0 && first >= 0 && first + n <= d->config.sample.dim[0]);
    KOLO_TRY(find_part(d, n, first == 0 && n > 1, &p));
    KOLO_TRY(kolo_plan_prepare(p->plan));
    memcpy(kolo_plan_input(p->plan, "x", NULL), tokens, (size_t)n * sizeof *tokens);
    int32_t *positions = kolo_plan_input(p->plan, KOLO_CACHE_POSITIONS, NULL);
    for (int64_t i = 0; i < n; i++) positions[i] = (int32_t)(first + i);
    KOLO_TRY(kolo_plan_run(p->plan));
    const char *all = kolo_plan_output(p->plan, "logits", &tensor);
    *logits = all + kolo_tensor_bytes(&tensor) / (size_t)n * (size_t)(n - 1);
    return KOLO_OK;
}
