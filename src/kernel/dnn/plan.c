/* Plans of oneDNN primitives: building, binding, running (see dnn.h).
 *
 * Creating a CPU engine takes microseconds, so each plan has its own. oneDNN caches compiled code
 * itself, by the primitive's parameters. One thread at a time creates descriptors: oneDNN keeps a
 * block size of the convolution that is being described in a variable of the process (until 3.0),
 * and adds to a table of reorders (until 2.6), without a lock. Ranks may be threads of one process.
 */
#include "base/integer.h"
#include "base/task.h"
#include "kernel/dnn/dnn.h"

#include <omp.h>
#include <string.h>

static kolo_lock describing = KOLO_LOCK_INIT; /* of the thread that creates descriptors */

/* ---- building ---- */

kolo_status kolo_dnn_plan_init(kolo_dnn_plan *plan, int threads) {
    *plan = (kolo_dnn_plan){.threads = threads};
    dnnl_status_t status = dnnl_engine_create(&plan->engine, dnnl_cpu, 0);
    if (status != dnnl_success) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "oneDNN cannot create a CPU engine (%d)",
                         (int)status);
    }
    return KOLO_OK;
}

void kolo_dnn_plan_fini(kolo_dnn_plan *plan) {
    for (int i = 0; i < plan->n_steps; i++) {
        if (plan->steps[i].primitive) dnnl_primitive_destroy(plan->steps[i].primitive);
        if (plan->steps[i].desc) dnnl_primitive_desc_destroy(plan->steps[i].desc);
    }
    if (plan->stream) dnnl_stream_destroy(plan->stream);
    if (plan->engine) dnnl_engine_destroy(plan->engine);
    *plan = (kolo_dnn_plan){0};
}

void kolo_dnn_plan_keep_best(kolo_dnn_plan *best, kolo_dnn_plan *other) {
    if (other->n_steps > 0 && (best->n_steps == 0 || other->seconds < best->seconds)) {
        kolo_dnn_plan swap = *best;
        *best = *other;
        *other = swap;
    }
    kolo_dnn_plan_fini(other);
}

/* The attributes of every primitive: user scratchpad, and `relu` as a post-op. oneDNN's ReLU turns
 * NaN into 0, unlike all other kernels; its post-ops that keep NaN (PReLU) are not supported by its
 * fast implementations. */
static dnnl_primitive_attr_t make_attr(bool relu) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    if (dnnl_primitive_attr_create(&attr) != dnnl_success) return NULL;
    bool ok =
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
    if (relu) {
        ok = ok && dnnl_post_ops_create(&ops) == dnnl_success &&
             dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0) == dnnl_success &&
             dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success;
        if (ops) dnnl_post_ops_destroy(ops);
    }
    if (ok) return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

const char *kolo_dnn_impl(const_dnnl_primitive_desc_t desc) {
    const char *name = "";
    dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    return name;
}

double kolo_dnn_gain(const char *impl, kolo_dtype dtype) {
    return dtype != KOLO_DTYPE_BF16 ? 1 : strstr(impl, "amx") ? 8 : 2;
}

/* Frees a descriptor of a reference implementation. */
static dnnl_primitive_desc_t refuse_reference(dnnl_primitive_desc_t desc) {
    if (desc && strncmp(kolo_dnn_impl(desc), "ref", 3) == 0) {
        dnnl_primitive_desc_destroy(desc);
        return NULL;
    }
    return desc;
}

dnnl_primitive_desc_t kolo_dnn_create(kolo_dnn_plan *plan, const void *op_desc, bool relu,
                                      const_dnnl_primitive_desc_t hint) {
    dnnl_primitive_attr_t attr = make_attr(relu);
    dnnl_primitive_desc_t desc = NULL;
    if (!attr) return NULL;
    if (dnnl_primitive_desc_create(&desc, op_desc, attr, plan->engine, hint) != dnnl_success) {
        desc = NULL;
    }
    dnnl_primitive_attr_destroy(attr);
    return refuse_reference(desc);
}

kolo_dnn_place kolo_dnn_scratch(kolo_dnn_plan *plan, size_t bytes) {
    kolo_dnn_place place = {KOLO_DNN_SCRATCH, 0, plan->scratch_bytes};
    plan->scratch_bytes += kolo_round_up(bytes, 64);
    return place;
}

kolo_dnn_step *kolo_dnn_add(kolo_dnn_plan *plan, dnnl_primitive_desc_t desc) {
    KOLO_ASSERT(plan->n_steps < KOLO_DNN_STEPS);
    kolo_dnn_step *step = &plan->steps[plan->n_steps++];
    *step = (kolo_dnn_step){.desc = desc};
    const dnnl_memory_desc_t *pad =
        desc ? dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0) : NULL;
    size_t bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
    if (bytes > 0) kolo_dnn_arg_at(step, DNNL_ARG_SCRATCHPAD, pad, kolo_dnn_scratch(plan, bytes));
    return step;
}

void kolo_dnn_add_copy(kolo_dnn_plan *plan, kolo_dnn_place from, kolo_dnn_place to, size_t bytes,
                       size_t zeros) {
    kolo_dnn_step *step = kolo_dnn_add(plan, NULL);
    step->from = from;
    step->to = to;
    step->bytes = bytes;
    step->zeros = zeros;
}

bool kolo_dnn_add_reorder(kolo_dnn_plan *plan, const kolo_tensor *from, kolo_dnn_place from_place,
                          const kolo_tensor *to, kolo_dnn_place to_place, int64_t groups) {
    dnnl_memory_desc_t source, target;
    dnnl_primitive_desc_t desc = NULL;
    if (!kolo_dnn_desc(from, groups, &source) || !kolo_dnn_desc(to, groups, &target)) return false;
    dnnl_primitive_attr_t attr = make_attr(false);
    if (!attr) return false;
    if (dnnl_reorder_primitive_desc_create(&desc, &source, plan->engine, &target, plan->engine,
                                           attr) != dnnl_success) {
        desc = NULL;
    }
    dnnl_primitive_attr_destroy(attr);
    desc = refuse_reference(desc);
    if (!desc) return false;
    kolo_dnn_step *step = kolo_dnn_add(plan, desc);
    kolo_dnn_arg_at(step, DNNL_ARG_FROM, &source, from_place);
    kolo_dnn_arg_at(step, DNNL_ARG_TO, &target, to_place);
    double bytes = (double)kolo_tensor_bytes(from) + (double)kolo_tensor_bytes(to);
    /* Without native bf16 code it converts element by element, through function calls. */
    bool slow = from->dtype == KOLO_DTYPE_BF16 && strcmp(kolo_dnn_impl(desc), "simple:any") == 0;
    plan->seconds += kolo_kernel_seconds(0, bytes, slow ? 0.003 : 1);
    return true;
}

bool kolo_dnn_narrow(kolo_dnn_plan *plan, kolo_tensor *x, kolo_dnn_place *place, kolo_dtype dtype) {
    if (x->dtype != KOLO_DTYPE_F32 || dtype != KOLO_DTYPE_BF16) return true;
    kolo_tensor narrowed = *x;
    narrowed.dtype = dtype;
    kolo_dnn_place to = kolo_dnn_scratch(plan, kolo_tensor_bytes(&narrowed));
    if (!kolo_dnn_add_reorder(plan, x, *place, &narrowed, to, 1)) return false;
    *x = narrowed;
    *place = to;
    return true;
}

void kolo_dnn_arg_at(kolo_dnn_step *step, int arg, const dnnl_memory_desc_t *desc,
                     kolo_dnn_place place) {
    KOLO_ASSERT(step->n_args < KOLO_DNN_ARGS);
    step->args[step->n_args++] = (kolo_dnn_arg){arg, *desc, place};
}

/* ---- kernel functions ---- */

/* Builds the plan of a spec with the spec's thread count. */
static kolo_status build_plan(const kolo_kernel_spec *spec, kolo_dnn_builder build,
                              kolo_dnn_plan *plan) {
    int threads = omp_get_max_threads();
    omp_set_num_threads(spec->threads);
    kolo_lock_take(&describing);
    kolo_status status = build(spec, plan);
    kolo_lock_release(&describing);
    omp_set_num_threads(threads);
    return status;
}

double kolo_dnn_fit(kolo_kernel_spec *spec, kolo_dnn_builder build) {
    kolo_dnn_plan plan = {0};
    if (build_plan(spec, build, &plan) != KOLO_OK) return -1;
    double seconds = plan.n_steps > 0 ? plan.seconds : -1;
    if (seconds >= 0 && spec->n_in > 1 && kolo_layout_is_open(&spec->in[1])) {
        spec->in[1].layout = plan.weights.layout;
    }
    kolo_dnn_plan_fini(&plan);
    return seconds;
}

kolo_status kolo_dnn_prepare(const kolo_kernel_spec *spec, kolo_dnn_builder build, void **state,
                             size_t *scratch_bytes) {
    kolo_dnn_plan *plan = kolo_zalloc(sizeof *plan);
    if (!plan) return KOLO_NOMEM(sizeof *plan);
    kolo_status status = build_plan(spec, build, plan);
    if (status == KOLO_OK && plan->n_steps == 0) {
        status = KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "oneDNN has no optimized %s for these shapes",
                           spec->op->name);
    }
    if (status == KOLO_OK &&
        dnnl_stream_create(&plan->stream, plan->engine, dnnl_stream_in_order) != dnnl_success) {
        status = KOLO_FAIL(KOLO_ERR_NOMEM, "oneDNN cannot create a stream");
    }
    int threads = omp_get_max_threads();
    omp_set_num_threads(spec->threads);
    for (int i = 0; status == KOLO_OK && i < plan->n_steps; i++) {
        kolo_dnn_step *step = &plan->steps[i];
        if (step->desc && dnnl_primitive_create(&step->primitive, step->desc) != dnnl_success) {
            step->primitive = NULL;
            status = KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "oneDNN cannot create %s (%s)", spec->op->name,
                               kolo_dnn_impl(step->desc));
        }
    }
    omp_set_num_threads(threads);
    if (status != KOLO_OK) {
        kolo_dnn_release(plan);
        return status;
    }
    *state = plan;
    *scratch_bytes = plan->scratch_bytes;
    return KOLO_OK;
}

void kolo_dnn_release(void *state) {
    if (!state) return;
    kolo_dnn_plan_fini(state);
    kolo_free(state);
}

/* The implementation of the main primitive; reorders around it are not reported. */
const char *kolo_dnn_implementation(const void *state) {
    const kolo_dnn_plan *plan = state;
    const char *name = "";
    for (int i = 0; i < plan->n_steps; i++) {
        dnnl_primitive_kind_t kind = dnnl_undefined_primitive;
        if (!plan->steps[i].desc) continue;
        dnnl_primitive_desc_query(plan->steps[i].desc, dnnl_query_primitive_kind, 0, &kind);
        if (!*name || kind != dnnl_reorder) name = kolo_dnn_impl(plan->steps[i].desc);
    }
    return name;
}

/* The memory objects of a bound plan. */
typedef struct dnn_bound {
    dnnl_exec_arg_t args[KOLO_DNN_STEPS][KOLO_DNN_ARGS];
} dnn_bound;

static char *address(const kolo_call *call, kolo_dnn_place place) {
    void *base = place.side == KOLO_DNN_IN    ? call->in[place.index]
                 : place.side == KOLO_DNN_OUT ? call->out[place.index]
                                              : call->scratch;
    return (char *)base + place.offset;
}

kolo_status kolo_dnn_bind(kolo_call *call) {
    const kolo_dnn_plan *plan = call->state;
    dnn_bound *bound = kolo_zalloc(sizeof *bound);
    if (!bound) return KOLO_NOMEM(sizeof *bound);
    for (int i = 0; i < plan->n_steps; i++) {
        const kolo_dnn_step *step = &plan->steps[i];
        for (int j = 0; j < step->n_args; j++) {
            dnnl_exec_arg_t *arg = &bound->args[i][j];
            arg->arg = step->args[j].arg;
            if (dnnl_memory_create(&arg->memory, &step->args[j].desc, plan->engine,
                                   address(call, step->args[j].place)) != dnnl_success) {
                arg->memory = NULL;
                kolo_dnn_unbind(bound);
                return KOLO_FAIL(KOLO_ERR_NOMEM, "oneDNN cannot create a memory object");
            }
        }
    }
    call->bound = bound;
    return KOLO_OK;
}

void kolo_dnn_unbind(void *bound_) {
    dnn_bound *bound = bound_;
    if (!bound) return;
    for (int i = 0; i < KOLO_DNN_STEPS; i++) {
        for (int j = 0; j < KOLO_DNN_ARGS; j++) {
            if (bound->args[i][j].memory) dnnl_memory_destroy(bound->args[i][j].memory);
        }
    }
    kolo_free(bound);
}

void kolo_dnn_run(const kolo_call *call) {
    const kolo_dnn_plan *plan = call->state;
    const dnn_bound *bound = call->bound;
    omp_set_num_threads(plan->threads);
    for (int i = 0; i < plan->n_steps; i++) {
        const kolo_dnn_step *step = &plan->steps[i];
        if (step->primitive) {
            KOLO_ASSERT(dnnl_primitive_execute(step->primitive, plan->stream, step->n_args,
                                               bound->args[i]) == dnnl_success);
        } else {
            char *to = address(call, step->to);
            memcpy(to, address(call, step->from), step->bytes);
            memset(to + step->bytes, 0, step->zeros);
        }
    }
    KOLO_ASSERT(dnnl_stream_wait(plan->stream) == dnnl_success);
}
