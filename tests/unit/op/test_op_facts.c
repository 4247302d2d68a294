/* The facts in the descriptors of all ops: each op that a kernel runs states a layout for all of
 * its inputs and outputs, and facts that depend on each other agree. test_op_gradient.c compares
 * the layouts of weights with those of their gradients. */
#include "graph/ops/ops.h"
#include "kernel/ref/table.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static const char letters[] = "awepx";

static void check_letters(const kolo_op *op, const char *side, const char *layout) {
    if (!layout) fail_msg("%s: no layout of its %s; see kolo_op in graph/graph.h", op->name, side);
    if (strspn(layout, letters) != strlen(layout) || strlen(layout) > KOLO_MAX_IO) {
        fail_msg("%s: layout \"%s\" of its %s", op->name, layout, side);
    }
}

static void every_op_states_its_layouts(void **state) {
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        if (op->view) continue;
        check_letters(op, "inputs", op->layout.in);
        check_letters(op, "outputs", op->layout.out);
        if (strlen(op->layout.in) != (size_t)op->max_in) {
            fail_msg("%s: layout \"%s\" for %d inputs", op->name, op->layout.in, op->max_in);
        }
        assert_true(strlen(op->layout.out) > 0);
    }
}

/* What is shared by all samples is no activation: weights, or plain. */
static void layouts_agree_with_batching(void **state) {
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        const char *in = op->layout.in, *out = op->layout.out;
        if (!in || !out || op->samples.in == 0) continue;
        for (int k = 0; in[k]; k++) {
            bool by_sample = op->samples.in >> k & 1;
            if (in[k] == (by_sample ? 'w' : 'a')) {
                fail_msg("%s: input %d is \"%c\", but %s per sample", op->name, k, in[k],
                         by_sample ? "is" : "is not");
            }
        }
        for (int k = 0; out[k]; k++) {
            bool sum = op->samples.sums >> k & 1;
            if (out[k] == (sum ? 'a' : 'w')) {
                fail_msg("%s: output %d is \"%c\", but %s over samples", op->name, k, out[k],
                         sum ? "a sum" : "no sum");
            }
        }
    }
}

static void check_attr(const kolo_op *op, int attribute, const char *name) {
    if (attribute == 0) return;
    for (int i = 0; i < attribute; i++) assert_non_null(op->attrs[i]);
    assert_string_equal(op->attrs[attribute - 1], name);
}

static void facts_name_attributes_and_inputs(void **state) {
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        check_attr(op, op->fuse.relu, "relu");
        check_attr(op, op->average.keep, "%keep");
        assert_in_range(op->fuse.bias, 0, op->max_in - 1);
        assert_in_range(op->fuse.residual, 0, op->max_in - 1);
        assert_true(op->overwriter < KOLO_MAX_IO);
        bool runs = op->comm == KOLO_OP_LOCAL || op->comm == KOLO_OP_ENCODE;
        assert_true(runs || op->view);
        const kolo_op *again = op->recompute.op;
        if (again) assert_true(op->cheap && again->max_in == op->max_in);
    }
}

static void names_are_unique(void **state) {
    const kolo_op *op;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        for (size_t k = 0; k < i; k++) assert_string_not_equal(op->name, kolo_op_at(k)->name);
    }
}

/* Views and communication have no kernel, all other ops a reference kernel of their name. */
static void rows_have_the_kernels_that_ops_need(void **state) {
    const kolo_op *op;
    size_t kernels = 0;
    for (size_t i = 0; (op = kolo_op_at(i)); i++) {
        const kolo_kernel *reference = kolo_reference_of(op);
        char name[64];
        snprintf(name, sizeof name, "ref_%s", op->name);
        assert_int_equal(reference == NULL, op->view);
        if (!reference) continue;
        assert_ptr_equal(reference->op, op);
        assert_string_equal(reference->name, name);
        assert_ptr_equal(kolo_reference_at(kernels++), reference);
    }
    assert_true(kernels > 100);
    assert_null(kolo_reference_at(kernels));
}

TEST_MAIN(test_op_facts) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_states_its_layouts),
        cmocka_unit_test(layouts_agree_with_batching),
        cmocka_unit_test(facts_name_attributes_and_inputs),
        cmocka_unit_test(names_are_unique),
        cmocka_unit_test(rows_have_the_kernels_that_ops_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
