/* Connectionist temporal classification and its gradient (Graves et al., "Connectionist temporal
 * classification", ICML 2006). The op includes the softmax. Labels have no gradient; the gradient
 * computes the forward variables again, so that nothing is kept. */
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/ref/ref.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const attrs[] = {"blank", NULL};

/* Logits [N,T,C], labels [N,S], and lengths [N] as input `lengths`, if it is there. */
static kolo_status check(const kolo_shape_query *q, int lengths) {
    const kolo_shape *logits = &q->in[0].shape;
    KOLO_TRY(kolo_rule_rank(q, 0, 3, "N,T,C"));
    KOLO_TRY(kolo_rule_rank(q, 1, 2, "N,S"));
    bool same = q->in[1].shape.dim[0] == logits->dim[0];
    if (q->n_in > lengths) {
        KOLO_TRY(kolo_rule_rank(q, lengths, 1, "N"));
        same &= q->in[lengths].shape.dim[0] == logits->dim[0];
    }
    if (!same) return KOLO_RULE_FAIL(q, "all inputs need the same number of samples");
    int64_t blank = q->attr[KOLO_CTC_BLANK].i;
    if (blank >= 0 && blank < logits->dim[2]) return KOLO_OK;
    return KOLO_RULE_FAIL(q, "the blank is %" PRId64 "; it must be one of the classes", blank);
}

static kolo_status ctc_loss_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fii"));
    KOLO_TRY(check(q, 2));
    return kolo_rule_out(q, 0, q->in[0].dtype, kolo_shape_0());
}

static kolo_status ctc_loss_bwd_shape(kolo_shape_query *q) {
    KOLO_TRY(kolo_rule_types(q, "fifi"));
    KOLO_TRY(check(q, 3));
    KOLO_TRY(kolo_rule_rank(q, 2, 0, "a scalar"));
    return kolo_rule_out(q, 0, q->in[0].dtype, q->in[0].shape);
}

static void ctc_loss_grad(kolo_graph *g, const kolo_node *n, const kolo_value *d_out,
                          const bool *wants, kolo_value *d_in) {
    const bool lengths = n->n_in > 2;
    const kolo_value in[] = {n->in[0], n->in[1], d_out[0], lengths ? n->in[2] : KOLO_NONE};
    if (wants[0]) d_in[0] = kolo_graph_add1(g, &kolo_op_ctc_loss_bwd, in, lengths ? 4 : 3, n->attr);
}

/* An exponential for each class and three for each label and blank of a time step. */
static kolo_cost ctc_cost(const kolo_shape_query *q) {
    const double classes = (double)q->in[0].shape.dim[2], labels = (double)q->in[1].shape.dim[1];
    const double steps = (double)kolo_shape_count(&q->in[0].shape) / classes;
    return (kolo_cost){20 * steps * (classes + 3 * (2 * labels + 1)), kolo_query_bytes(q)};
}

const kolo_op kolo_op_ctc_loss = {
    .name = "ctc_loss",
    .index = "nTC,nS,n->",
    .min_in = 2,
    .max_in = 3,
    .layout = {.in = "ppp", .out = "p"},
    .attrs = attrs,
    .shape = ctc_loss_shape,
    .grad = ctc_loss_grad,
    .cost = ctc_cost,
};
const kolo_op kolo_op_ctc_loss_bwd = {
    .name = "ctc_loss_bwd",
    .index = "nTC,nS,,n->nTC",
    .linear = 0x4u,
    .min_in = 3,
    .max_in = 4,
    .layout = {.in = "pppp", .out = "p"},
    .attrs = attrs,
    .shape = ctc_loss_bwd_shape,
    .cost = ctc_cost,
};

kolo_value kolo_ctc_loss(kolo_graph *g, kolo_value logits, kolo_value labels,
                         const kolo_ctc_opts *opts) {
    const kolo_ctc_opts o = opts ? *opts : (kolo_ctc_opts){0};
    const kolo_attr attr[KOLO_MAX_ATTRS] = {[KOLO_CTC_BLANK].i = o.blank};
    const kolo_value in[] = {logits, labels, o.lengths};
    return kolo_graph_add1(g, &kolo_op_ctc_loss, in, o.use_lengths ? 3 : 2, attr);
}

/* ---- reference ---- */

/* Connectionist temporal classification by the forward-backward algorithm, in logarithms (Graves et
 * al., 2006, section 4). A path goes through 2 L + 1 states: the L labels with a blank before,
 * between and after them. */

/* One sample. */
typedef struct sample {
    const double *logits; /* [T,C] */
    const int32_t *labels;
    int64_t steps, classes, blank, states;
    double *lse;   /* [steps]: log of the sum of e^logits */
    double *alpha; /* [steps,states]: log of the probability of all beginnings that end there */
    double *beta;  /* [2,states]: of all ends after it, of a step and the next one */
} sample;

static int64_t states_at_most(const kolo_kernel_spec *spec) {
    return 2 * spec->in[1].shape.dim[1] + 1;
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    const int64_t steps = spec->in[0].shape.dim[1], states = states_at_most(spec);
    KOLO_TRY(kolo_ref_prepare(spec, state, scratch_bytes));
    *scratch_bytes += sizeof(double) * (size_t)(steps + (steps + 2) * states);
    return KOLO_OK;
}

/* Sample n; input `lengths` has its number of time steps, if it is there. */
static sample sample_of(const kolo_call *call, int64_t n, int lengths) {
    const kolo_kernel_spec *spec = call->spec;
    const int64_t *dim = spec->in[0].shape.dim, most = spec->in[1].shape.dim[1];
    sample s = {
        .logits = (const double *)call->in[0] + n * dim[1] * dim[2],
        .labels = (const int32_t *)call->in[1] + n * most,
        .steps = dim[1],
        .classes = dim[2],
        .blank = spec->attr[KOLO_CTC_BLANK].i,
        .lse = kolo_ref_scratch(call),
    };
    s.alpha = s.lse + dim[1];
    s.beta = s.alpha + dim[1] * states_at_most(spec);
    if (spec->n_in > lengths) {
        const int64_t length = ((const int32_t *)call->in[lengths])[n];
        s.steps = length < 0 ? 0 : length < dim[1] ? length : dim[1];
    }
    int64_t count = 0;
    while (count < most && s.labels[count] >= 0 && s.labels[count] < s.classes &&
           s.labels[count] != s.blank) {
        count++;
    }
    s.states = 2 * count + 1;
    return s;
}

/* log(e^a + e^b) */
static double log_add(double a, double b) {
    const double max = a > b ? a : b;
    return max == -INFINITY ? max : max + log1p(exp((a > b ? b : a) - max));
}

/* The class of a state. */
static int64_t class_of(const sample *s, int64_t state) {
    return state % 2 ? s->labels[state / 2] : s->blank;
}

static double log_probability(const sample *s, int64_t t, int64_t c) {
    return s->logits[t * s->classes + c] - s->lse[t];
}

/* Whether a path may go to this state from two before it: from a label to another one. */
static bool may_skip(const sample *s, int64_t state) {
    return state >= 2 && state % 2 && class_of(s, state) != class_of(s, state - 2);
}

/* Fills lse and alpha; returns the log of the probability of the labels. */
static double forward(const sample *s) {
    for (int64_t t = 0; t < s->steps; t++) {
        double max = -INFINITY, sum = 0;
        const double *x = s->logits + t * s->classes;
        for (int64_t c = 0; c < s->classes; c++) max = fmax(max, x[c]);
        for (int64_t c = 0; c < s->classes; c++) sum += exp(x[c] - max);
        s->lse[t] = max + log(sum);
        double *to = s->alpha + t * s->states;
        const double *from = to - s->states;
        for (int64_t k = 0; k < s->states; k++) {
            double before = t == 0 ? (k < 2 ? 0 : -INFINITY) : from[k];
            if (t > 0 && k > 0) before = log_add(before, from[k - 1]);
            if (t > 0 && may_skip(s, k)) before = log_add(before, from[k - 2]);
            to[k] = before + log_probability(s, t, class_of(s, k));
        }
    }
    if (s->steps == 0) return s->states == 1 ? 0 : -INFINITY;
    const double *last = s->alpha + (s->steps - 1) * s->states + s->states - 1;
    return s->states == 1 ? *last : log_add(last[0], last[-1]);
}

/* Adds the probability of each class at step t, given the labels, to p[C] with the factor. */
static void add_posterior(const sample *s, int64_t t, const double *beta, double log_all,
                          double factor, double *p) {
    const double *alpha = s->alpha + t * s->states;
    for (int64_t k = 0; k < s->states; k++) {
        p[class_of(s, k)] += factor * exp(alpha[k] + beta[k] - log_all);
    }
}

/* dlogits = (probabilities - those given the labels) dloss, at each step. */
static void backward(const sample *s, double log_all, double dloss, double *dlogits) {
    for (int64_t t = s->steps - 1; t >= 0; t--) {
        double *beta = s->beta + t % 2 * s->states;
        const double *next = s->beta + (t + 1) % 2 * s->states;
        for (int64_t k = 0; k < s->states; k++) {
            double after = t == s->steps - 1 && k >= s->states - 2 ? 0 : -INFINITY;
            for (int64_t to = k; t < s->steps - 1 && to < s->states && to <= k + 2; to++) {
                if (to == k + 2 && !may_skip(s, to)) continue;
                after = log_add(after, next[to] + log_probability(s, t + 1, class_of(s, to)));
            }
            beta[k] = after;
        }
        double *d = dlogits + t * s->classes;
        for (int64_t c = 0; c < s->classes; c++) d[c] = exp(log_probability(s, t, c)) * dloss;
        add_posterior(s, t, beta, log_all, -dloss, d);
    }
}

static void ctc_loss(const kolo_call *call) {
    double *loss = call->out[0];
    *loss = 0;
    for (int64_t n = 0; n < call->spec->in[0].shape.dim[0]; n++) {
        const sample s = sample_of(call, n, 2);
        const double log_all = forward(&s);
        if (log_all != -INFINITY) *loss -= log_all;
    }
}

static void ctc_loss_bwd(const kolo_call *call) {
    const int64_t *dim = call->spec->in[0].shape.dim;
    const double dloss = *(const double *)call->in[2];
    memset(call->out[0], 0, sizeof(double) * (size_t)kolo_shape_count(&call->spec->in[0].shape));
    for (int64_t n = 0; n < dim[0]; n++) {
        const sample s = sample_of(call, n, 3);
        const double log_all = forward(&s);
        if (log_all == -INFINITY) continue;
        backward(&s, log_all, dloss, (double *)call->out[0] + n * dim[1] * dim[2]);
    }
}

static void run_ctc_loss(const kolo_call *call) { kolo_ref_run(call, ctc_loss); }
static void run_ctc_loss_bwd(const kolo_call *call) { kolo_ref_run(call, ctc_loss_bwd); }

#define CTC(kernel_name, kernel_op, kernel_run)                                            \
    {                                                                                      \
        .name = (kernel_name), .op = (kernel_op), .fit = kolo_ref_fit, .prepare = prepare, \
        .run = (kernel_run), .release = kolo_ref_release                                   \
    }

const kolo_kernel kolo_ops_ctc[] = {
    CTC("ref_ctc_loss", &kolo_op_ctc_loss, run_ctc_loss),
    CTC("ref_ctc_loss_bwd", &kolo_op_ctc_loss_bwd, run_ctc_loss_bwd),
    {0},
};
