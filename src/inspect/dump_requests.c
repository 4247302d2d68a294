/* Prints the requests of a plan: a line for each bucket with the algorithm, variant and chunk that
 * it got, then the schedules of the first ranks entry by entry, and the totals of the others, so
 * that the output does not grow with the square of the group. Buckets with equal schedules are
 * printed together.
 *
 * The plan is rank 0's. Its requests are the same on all ranks, so the schedule of another rank
 * follows from the same row and specification. */
#include "inspect/dump_requests.h"

#include "comm/engine/request.h"

enum { RANKS_IN_FULL = 4 };

static const char *const kind_names[] = {
#define KIND_NAME(code, name) name,
    KOLO_COLLECTIVE_LIST(KIND_NAME)
#undef KIND_NAME
};

static void print_row(kolo_request *q, kolo_text *text) {
    const kolo_schedule_spec *spec = kolo_request_spec(q);
    const kolo_algorithm_row *row = kolo_request_schedule(q)->row;
    bool allreduce = spec->kind == KOLO_COLLECTIVE_ALLREDUCE;
    size_t element = kolo_dtype_bytes(kolo_request_dtype(q));
    kolo_text_add(text, "%-10s  %-10s %12zu %12zu %-5s  %-16s  %-9s %12zu\n", kolo_request_site(q),
                  kind_names[spec->kind], spec->count * element, spec->count,
                  kolo_dtype_name(kolo_request_dtype(q)),
                  allreduce ? kolo_algorithm_name(row->algorithm) : "-",
                  kolo_variant_name(row->variant), spec->chunk * element);
}

/* Whether two requests have the same schedules. A plan's slices are all of one size. */
static bool is_equal(kolo_request *a, kolo_request *b) {
    const kolo_schedule_spec *x = kolo_request_spec(a), *y = kolo_request_spec(b);
    return kolo_request_schedule(a)->row == kolo_request_schedule(b)->row && x->count == y->count &&
           x->chunk == y->chunk && x->align == y->align && x->in_place == y->in_place;
}

/* The title and schedules of bucket i and those equal to it; nothing if an earlier one is equal. */
static kolo_status print_schedules(const kolo_plan *plan, int i, kolo_text *text) {
    kolo_request *q = kolo_plan_request(plan, i);
    for (int k = 0; k < i; k++) {
        if (is_equal(q, kolo_plan_request(plan, k))) return KOLO_OK;
    }
    kolo_text_add(text, "\n%s", kolo_request_site(q));
    for (int k = i + 1; k < kolo_plan_n_requests(plan); k++) {
        kolo_request *other = kolo_plan_request(plan, k);
        if (is_equal(q, other)) kolo_text_add(text, ", %s", kolo_request_site(other));
    }
    const kolo_algorithm_row *row = kolo_request_schedule(q)->row;
    kolo_schedule_spec spec = *kolo_request_spec(q);
    kolo_text_add(text, ": %zu elements\n", spec.count);
    for (spec.rank = 0; spec.rank < spec.size; spec.rank++) {
        kolo_schedule schedule;
        KOLO_TRY(kolo_schedule_build(row, &spec, &schedule));
        kolo_text_add(text, "rank %d of %d: ", spec.rank, spec.size);
        if (spec.rank < RANKS_IN_FULL) {
            kolo_schedule_print(&schedule, text);
        } else {
            kolo_schedule_print_totals(&schedule, text);
        }
        kolo_schedule_fini(&schedule);
    }
    return KOLO_OK;
}

kolo_status kolo_dump_requests(const kolo_plan *plan, const char *none, kolo_text *text) {
    int n = kolo_plan_n_requests(plan);
    if (n == 0) {
        kolo_text_add(text, "no collectives: %s\n", none);
        return KOLO_OK;
    }
    for (int i = 0; i < n; i++) {
        if (kolo_plan_request(plan, i)) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "the schedules of exchanges along an axis sp are not printed: give --what "
                         "plan, or another mesh");
    }
    kolo_text_add(text, "collectives of a step, %d ranks that share memory\n",
                  kolo_request_spec(kolo_plan_request(plan, 0))->size);
    kolo_text_add(text, "%-10s  %-10s %12s %12s %-5s  %-16s  %-9s %12s\n", "", "kind", "bytes",
                  "elements", "", "algorithm", "variant", "chunk bytes");
    for (int i = 0; i < n; i++) print_row(kolo_plan_request(plan, i), text);
    for (int i = 0; i < n; i++) KOLO_TRY(print_schedules(plan, i, text));
    return KOLO_OK;
}
