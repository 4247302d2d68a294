/* Chains of elementwise ops (chain.h): their attributes, and the rules of the op. */
#include "graph/ops/chain.h"

#include "base/compiler.h"
#include "base/integer.h"
#include "graph/ops/ops.h"
#include "graph/ops/rules.h"
#include "kernel/chain.h"
#include "kernel/ref/ref.h"

#include <string.h>

#define ADDRESS(name) &kolo_op_##name,
static const kolo_op *const link_ops[] = {
    KOLO_UNARY_LIST(KOLO_UNARY_OP, ADDRESS) KOLO_BINARY_LIST(KOLO_BINARY_OP, ADDRESS) ADDRESS(relu)
        ADDRESS(relu_bwd) ADDRESS(gelu) ADDRESS(gelu_bwd) ADDRESS(add) ADDRESS(mul) ADDRESS(scale)
            ADDRESS(convert)};

/* The number of an op among these; -1: it is none. */
static int number_of(const kolo_op *op) {
    for (size_t i = 0; i < KOLO_COUNT(link_ops); i++) {
        if (link_ops[i] == op) return (int)i;
    }
    return -1;
}

bool kolo_op_is_link(const kolo_op *op) { return number_of(op) >= 0; }

/* ---- attributes: a word for each link, then the numbers that links refer to ---- */

/* Fields of a word, by their bits from the lowest on. */
enum {
    OP_BITS = 12,    /* 1 + number in link_ops; 0: no link */
    COUNT_BITS = 2,  /* inputs */
    INPUT_BITS = 4,  /* of each input */
    OUT_BITS = 4,    /* 1 + output */
    DTYPE_BITS = 4,  /* of the result */
    NUMBER_BITS = 3, /* of each attribute: 1 + the number; 0: zero */
};

static void put(uint64_t *word, int *at, int bits, int field) {
    KOLO_ASSERT(field >= 0 && field < 1 << bits);
    *word |= (uint64_t)field << *at;
    *at += bits;
}

static int get(uint64_t word, int *at, int bits) {
    const int field = (int)(word >> *at & ((UINT64_C(1) << bits) - 1));
    *at += bits;
    return field;
}

/* 1 + the place of a number, which is added if it is new; 0: it is zero; -1: there is no room. */
static int place_of(kolo_attr *numbers, kolo_attr number) {
    if (number.i == 0) return 0;
    for (int i = 0; i < KOLO_CHAIN_NUMBERS; i++) {
        if (numbers[i].i == 0) numbers[i] = number;
        if (numbers[i].i == number.i) return i + 1;
    }
    return -1;
}

bool kolo_chain_write(const kolo_chain *chain, kolo_attr *attr) {
    kolo_attr *numbers = attr + KOLO_CHAIN_LINKS;
    memset(attr, 0, KOLO_MAX_ATTRS * sizeof *attr);
    for (int l = 0; l < chain->n; l++) {
        const kolo_chain_link *link = &chain->link[l];
        uint64_t word = 0;
        int at = 0;
        put(&word, &at, OP_BITS, number_of(link->op) + 1);
        put(&word, &at, COUNT_BITS, link->n_in);
        for (int k = 0; k < KOLO_LINK_INPUTS; k++) {
            put(&word, &at, INPUT_BITS, k < link->n_in ? link->in[k] : 0);
        }
        put(&word, &at, OUT_BITS, link->out + 1);
        put(&word, &at, DTYPE_BITS, (int)link->dtype);
        for (int k = 0; k < KOLO_LINK_ATTRS; k++) {
            const int place = place_of(numbers, link->attr[k]);
            if (place < 0) return false;
            put(&word, &at, NUMBER_BITS, place);
        }
        attr[l].i = (int64_t)word;
    }
    return true;
}

kolo_chain kolo_chain_read(const kolo_attr *attr) {
    kolo_chain chain = {0};
    while (chain.n < KOLO_CHAIN_LINKS && attr[chain.n].i != 0) {
        kolo_chain_link *link = &chain.link[chain.n];
        const uint64_t word = (uint64_t)attr[chain.n++].i;
        int at = 0;
        link->op = link_ops[get(word, &at, OP_BITS) - 1];
        link->n_in = get(word, &at, COUNT_BITS);
        for (int k = 0; k < KOLO_LINK_INPUTS; k++) link->in[k] = get(word, &at, INPUT_BITS);
        link->out = get(word, &at, OUT_BITS) - 1;
        link->dtype = (kolo_dtype)get(word, &at, DTYPE_BITS);
        for (int k = 0; k < KOLO_LINK_ATTRS; k++) {
            const int place = get(word, &at, NUMBER_BITS);
            if (place > 0) link->attr[k] = attr[KOLO_CHAIN_LINKS + place - 1];
        }
    }
    return chain;
}

/* ---- the op ---- */

static kolo_status chain_shape(kolo_shape_query *q) {
    const kolo_chain chain = kolo_chain_read(q->attr);
    int n_out = 0;
    if (chain.n == 0) return KOLO_RULE_FAIL(q, "a chain needs links");
    KOLO_TRY(kolo_rule_types(q, "ffffffff"));
    for (int i = 1; i < q->n_in; i++) KOLO_TRY(kolo_rule_same(q, 0, i));
    for (int l = 0; l < chain.n; l++) {
        const kolo_chain_link *link = &chain.link[l];
        for (int k = 0; k < link->n_in; k++) {
            const int in = link->in[k];
            if (in >= (in < KOLO_MAX_IO ? q->n_in : KOLO_MAX_IO + l)) {
                return KOLO_RULE_FAIL(q, "link %d reads what is not there", l + 1);
            }
        }
        if (link->out < 0) continue;
        KOLO_TRY(kolo_rule_out(q, link->out, link->dtype, q->in[0].shape));
        n_out++;
    }
    q->n_out = n_out;
    return KOLO_OK;
}

/* The operations of the links, and the bytes of what the chain itself reads and writes. */
static kolo_cost chain_cost(const kolo_shape_query *q) {
    const kolo_chain chain = kolo_chain_read(q->attr);
    kolo_cost cost = {0, kolo_query_bytes(q)};
    kolo_tensor made[KOLO_CHAIN_LINKS];
    for (int l = 0; l < chain.n; l++) {
        const kolo_chain_link *link = &chain.link[l];
        kolo_attr attr[KOLO_MAX_ATTRS] = {{0}};
        kolo_tensor in[KOLO_LINK_INPUTS];
        memcpy(attr, link->attr, sizeof link->attr);
        for (int k = 0; k < link->n_in; k++) {
            in[k] =
                link->in[k] < KOLO_MAX_IO ? q->in[link->in[k]] : made[link->in[k] - KOLO_MAX_IO];
        }
        made[l] = q->in[0];
        made[l].dtype = link->dtype;
        const kolo_shape_query of_link = {attr, link->n_in, in, 1, &made[l], link->op};
        if (link->op->cost) cost.flops += link->op->cost(&of_link).flops;
    }
    return cost;
}

static void print_attrs(const char *const *names, const kolo_attr *numbers, kolo_text *text) {
    for (int k = 0; names && k < KOLO_LINK_ATTRS && names[k]; k++) {
        if (numbers[k].i == 0) continue;
        if (names[k][0] == '%') {
            kolo_text_add(text, " %s=%g", names[k] + 1, numbers[k].f);
        } else {
            kolo_text_add(text, " %s=%d", names[k], (int)numbers[k].i);
        }
    }
}

void kolo_chain_print(const kolo_attr *attr, kolo_text *text) {
    const kolo_chain chain = kolo_chain_read(attr);
    for (int l = 0; l < chain.n; l++) {
        const kolo_chain_link *link = &chain.link[l];
        kolo_text_add(text, "%s%s(", l ? ", " : "[", link->op->name);
        for (int k = 0; k < link->n_in; k++) {
            if (k) kolo_text_add(text, ",");
            if (link->in[k] < KOLO_MAX_IO) {
                kolo_text_add(text, "%c", 'a' + link->in[k]);
            } else {
                kolo_text_add(text, "%d", link->in[k] - KOLO_MAX_IO + 1);
            }
        }
        print_attrs(link->op->attrs, link->attr, text);
        kolo_text_add(text, ")");
    }
    kolo_text_add(text, "]");
}

const kolo_op kolo_op_chain = {
    .name = "chain",
    .index = "*,*,*,*,*,*,*,*->*,*,*,*,*,*,*,*",
    .min_in = 1,
    .max_in = KOLO_MAX_IO,
    .layout = {.in = "eeeeeeee", .out = "eeeeeeee"},
    .shape = chain_shape,
    .cost = chain_cost,
    .overwrite = 0xffu, /* by the last link, when the others have read their piece */
    .bf16 = 0xffu,
    .bf16_joins = true,
};

/* ---- reference ---- */

/* Chains of elementwise ops: each link on the whole tensors, one after the other. */

typedef struct chain_state {
    kolo_chain chain;
    kolo_link_run link[KOLO_CHAIN_LINKS];
    size_t result_bytes; /* of all results that only links read */
} chain_state;

static void release(void *state) {
    chain_state *s = state;
    for (int l = 0; s && l < s->chain.n; l++) kolo_link_release(&s->link[l]);
    kolo_free(s);
}

/* Bytes of the result of a link, in whole cache lines. */
static size_t bytes_of(const kolo_link_run *link) {
    return kolo_round_up(kolo_tensor_bytes(&link->spec.out[0]), 64);
}

static kolo_status prepare(const kolo_kernel_spec *spec, void **state, size_t *scratch_bytes) {
    chain_state *s = kolo_zalloc(sizeof *s);
    size_t most = 0;
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->chain = kolo_chain_read(spec->attr);
    for (int l = 0; l < s->chain.n; l++) {
        kolo_link_run *run = &s->link[l];
        kolo_link_spec(spec, &s->chain, l, &spec->in[0].shape, run);
        const kolo_kernel *kernel;
        kolo_status status = spec->select(KOLO_KERNELS_REF, NULL, &run->spec, &kernel, NULL);
        if (status == KOLO_OK) status = kolo_link_prepare(kernel, run);
        if (status != KOLO_OK) {
            release(s);
            return status;
        }
        if (s->chain.link[l].out < 0) s->result_bytes += bytes_of(run);
        if (run->scratch_bytes > most) most = run->scratch_bytes;
    }
    *scratch_bytes = s->result_bytes + most;
    *state = s;
    return KOLO_OK;
}

static void run(const kolo_call *call) {
    chain_state *s = call->state;
    void *results[KOLO_CHAIN_LINKS];
    char *place = call->scratch;
    for (int l = 0; l < s->chain.n; l++) {
        const kolo_chain_link *link = &s->chain.link[l];
        kolo_call inner = {.spec = &s->link[l].spec,
                           .state = s->link[l].state,
                           .scratch = (char *)call->scratch + s->result_bytes};
        results[l] = link->out < 0 ? place : call->out[link->out];
        if (link->out < 0) place += bytes_of(&s->link[l]);
        for (int k = 0; k < link->n_in; k++) {
            const int in = link->in[k];
            inner.in[k] = in < KOLO_MAX_IO ? call->in[in] : results[in - KOLO_MAX_IO];
        }
        inner.out[0] = results[l];
        s->link[l].kernel->run(&inner);
    }
}

const kolo_kernel kolo_ops_chain[] = {
    {
        .name = "ref_chain",
        .op = &kolo_op_chain,
        .fit = kolo_ref_fit,
        .prepare = prepare,
        .run = run,
        .release = release,
    },
    {0},
};
