/* The steps of a worker: pushes, in parts or buckets, and pulls. */
#include "base/status.h"
#include "comm/service/waits.h"
#include "comm/sync/adapt.h"
#include "comm/sync/parameters_internal.h"

#include <stdio.h>
#include <string.h>

/* Numbers of a piece of a push, at least. */
enum { PART_LEAST = 1 << 14 };

/* Starts a push to the owner of part i, or a read of what it has. */
static kolo_status start_part(kolo_parameters *p, int i, uint32_t kind, uint64_t clock,
                              float *output) {
    const kolo_owned *has = &p->owned[i];
    const kolo_owned_span *part = kind == KOLO_OWNER_PULL  ? &has->values
                                  : kind == KOLO_OWNER_SUM ? &has->gradient
                                                           : &has->state;
    kolo_service_request *q = kind == KOLO_OWNER_PUSH ? &p->pushes[i] : &p->pulls[i];
    *q = kolo_parameters_request(p, i, kind);
    q->clock = clock;
    q->key = kind == KOLO_OWNER_PUSH ? p->choice : p->goes_on;
    if (kind == KOLO_OWNER_PUSH) {
        kolo_parameters_add_gradient(p, i, q);
    } else {
        q->output = output + part->first;
        q->output_bytes = part->count * sizeof(float);
    }
    return kolo_parameters_start(p, i, q);
}

/* Starts the pushes of the first `end` parts that are not in flight, with the clock before them. */
static kolo_status start_pushes(kolo_parameters *p, int end, uint64_t clock) {
    for (; p->n_pushed < end; p->n_pushed++) {
        KOLO_TRY(start_part(p, p->n_pushed, KOLO_OWNER_PUSH, clock, NULL));
    }
    return KOLO_OK;
}

static kolo_status start_pulls(kolo_parameters *p, int end, uint64_t clock, float *values) {
    for (; p->n_pulled < end; p->n_pulled++) {
        KOLO_TRY(start_part(p, p->n_pulled, KOLO_OWNER_PULL, clock, values));
    }
    return KOLO_OK;
}

/* The parts of this many buckets. */
static int parts_of(const kolo_parameters *p, int buckets) {
    return (buckets < kolo_parameters_buckets(p) ? buckets : kolo_parameters_buckets(p)) *
           p->n_servers;
}

/* Reads all parts; with buckets pushes the rest of the gradient, a few buckets ahead of the reads.
 */
static kolo_status read_buckets(kolo_parameters *p, float *values) {
    for (int r = 0; r < kolo_parameters_buckets(p); r++) {
        const int ahead = parts_of(p, r + KOLO_BUCKETS_AHEAD);
        if (p->pushing) KOLO_TRY(start_pushes(p, ahead, p->clock - 1));
        KOLO_TRY(start_pulls(p, ahead, p->clock, values));
        KOLO_TRY(kolo_parameters_wait_for(p, p->pulls, parts_of(p, r), parts_of(p, r + 1)));
    }
    return KOLO_OK;
}

/* The largest clock that the owners have replied. */
static uint64_t largest_reply(const kolo_parameters *p, const kolo_service_request *requests) {
    uint64_t largest = 0;
    for (int i = 0; i < p->n_parts; i++) {
        const uint64_t clock = requests[i].reply_clock & UINT32_MAX; /* without a choice */
        if (clock > largest) largest = clock;
    }
    return largest;
}

static kolo_status end_push(kolo_parameters *p) {
    if (!p->pushing) return KOLO_OK;
    kolo_status status = kolo_parameters_wait_for(p, p->pushes, 0, p->n_pushed);
    char text[KOLO_REPORT_BYTES] = "";
    if (status != KOLO_OK) snprintf(text, sizeof text, "%s", kolo_last_error());
    p->pushing = false;
    p->n_pushed = 0;
    for (int i = 0; i < p->n_parts; i++) { /* an owner refuses a push after an error of a part */
        const kolo_status part = kolo_parameters_end_parts(p, i);
        if (part == KOLO_OK) continue;
        status = part;
        snprintf(text, sizeof text, "%s", kolo_last_error());
    }
    if (status != KOLO_OK) return KOLO_FAIL(status, "%s", text);
    p->delays[kolo_staleness_bin(largest_reply(p, p->pushes))]++;
    return KOLO_OK;
}

/* After a read was refused: an owner that has refused a push refuses the read behind it, too. Then
 * returns the error of the push. */
static kolo_status find_cause(kolo_parameters *p, kolo_status status) {
    for (int i = 0; i < p->n_pushed && status == KOLO_ERR_ARG; i++) {
        if (!kolo_service_test(p->service, &p->pushes[i])) continue;
        const kolo_status pushed = kolo_service_wait(p->service, &p->pushes[i], 0);
        if (pushed != KOLO_OK) return pushed;
    }
    return status;
}

static kolo_status pull(kolo_parameters *p, float *values) {
    const kolo_status status = read_buckets(p, values);
    const int started = p->n_pulled;
    p->n_pulled = 0;
    p->reads_into = NULL;
    if (status != KOLO_OK) {
        return find_cause(p, kolo_parameters_fail_after(p, p->pulls, started, status));
    }
    p->goes_on = false;
    const uint32_t choice = (uint32_t)(p->pulls[0].reply_clock >> KOLO_CHOICE_SHIFT);
    if (choice > p->choice) p->choice = choice; /* a replica may be behind */
    p->reads[kolo_staleness_bin(largest_reply(p, p->pulls))]++;
    return end_push(p);
}

kolo_status kolo_parameters_pull(kolo_parameters *p, float *values) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    kolo_service_hold(p->service);
    const kolo_status status = pull(p, values);
    kolo_service_release(p->service);
    return status;
}

int kolo_parameters_staleness(const kolo_parameters *p) {
    return p->opts.adapts ? kolo_adapt_staleness(kolo_choice_level(p->choice)) : p->opts.staleness;
}

/* Reads what all owners have of one kind. */
static kolo_status read_all(kolo_parameters *p, uint32_t kind, float *to) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    for (int i = 0; i < p->n_parts; i++) {
        const kolo_status status = start_part(p, i, kind, p->clock, to);
        if (status != KOLO_OK) return kolo_parameters_fail_after(p, p->pulls, i, status);
    }
    return kolo_parameters_wait_for(p, p->pulls, 0, p->n_parts);
}

kolo_status kolo_parameters_read_state(kolo_parameters *p, float *state) {
    return read_all(p, KOLO_OWNER_STATE, state);
}

kolo_status kolo_parameters_read_sum(kolo_parameters *p, float *sum) {
    if (p->opts.sums) return read_all(p, KOLO_OWNER_SUM, sum);
    return KOLO_FAIL(KOLO_ERR_ARG, "a read of a sum: set `sums` of kolo_parameters_opts");
}

void kolo_parameters_count_reads(const kolo_parameters *p, uint64_t *counts) {
    for (int i = 0; i < KOLO_STALENESS_BINS; i++) counts[i] += p->reads[i];
}

void kolo_parameters_count_delays(const kolo_parameters *p, uint64_t *counts) {
    for (int i = 0; i < KOLO_STALENESS_BINS; i++) counts[i] += p->delays[i];
}

static kolo_status check_push(const kolo_parameters *p) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (!p->pushing && !p->finished) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, p->finished ? "a push after the end: this worker has finished"
                                               : "two pushes in a row: pull the parameters first");
}

void kolo_parameters_pull_early(kolo_parameters *p, float *values) {
    if (kolo_parameters_buckets(p) > 1) p->reads_into = values;
}

/* Whether few buckets are in flight before this one. */
static bool has_room(const kolo_parameters *p, int bucket) {
    bool done = true;
    const int before = bucket - KOLO_BUCKETS_AHEAD;
    if (before < 0) return true;
    for (int i = parts_of(p, before); i < parts_of(p, before + 1) && done; i++) {
        done = kolo_service_test(p->service, p->reads_into ? &p->pulls[i] : &p->pushes[i]);
    }
    return done;
}

/* Pushes, in their order, the parts that are final, and reads what the owners make of them. */
static kolo_status push_ready(kolo_parameters *p, const float *gradient) {
    p->pushed = gradient;
    while (p->n_pushed < p->n_parts && p->ready[p->n_pushed] &&
           has_room(p, p->n_pushed / p->n_servers)) {
        KOLO_TRY(start_pushes(p, p->n_pushed + 1, p->clock));
        p->parts++;
        if (p->reads_into) KOLO_TRY(start_pulls(p, p->n_pushed, p->clock + 1, p->reads_into));
    }
    return KOLO_OK;
}

kolo_status kolo_parameters_push_early(kolo_parameters *p, const float *gradient, int i,
                                       size_t ready) {
    KOLO_TRY(check_push(p));
    if (i < 0 || i >= p->n_parts || ready > p->owned[i].pushed.count) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%zu numbers of part %d", ready, i);
    }
    early_push *e = &p->early[i];
    const kolo_owned_span *part = &p->owned[i].pushed;
    if (kolo_parameters_buckets(p) > 1) {
        p->ready[i] = ready == part->count;
        return push_ready(p, gradient);
    }
    /* So there are not more than most. */
    const size_t least = part->count / KOLO_PUSH_PARTS_MOST + PART_LEAST;
    kolo_service_request *q = &e->part[e->n];
    if (ready < e->sent + least) return KOLO_OK;
    *q = kolo_parameters_request(p, i, KOLO_OWNER_PART);
    if (kolo_service_maps(p->service, q->server)) return KOLO_OK;
    q->key = e->sent;
    q->input = gradient + part->first + e->sent;
    q->input_bytes = (ready - e->sent) * sizeof *gradient;
    const kolo_status status = kolo_service_start(p->service, q);
    if (status != KOLO_OK) return kolo_parameters_move(p, i, status); /* nothing is sent so far */
    e->n++;
    e->sent = ready;
    p->parts++;
    return KOLO_OK;
}

void kolo_parameters_traffic(kolo_parameters *p, uint64_t *sent, uint64_t *received) {
    *sent = *received = 0;
    if (p->service) kolo_service_traffic(p->service, sent, received);
}

uint64_t kolo_parameters_count_parts(const kolo_parameters *p) { return p->parts; }

kolo_status kolo_parameters_push(kolo_parameters *p, const float *gradient) {
    KOLO_TRY(check_push(p));
    p->pushed = gradient;
    memset(p->ready, 0, (size_t)p->n_parts * sizeof *p->ready);
    kolo_service_hold(p->service);
    const kolo_status status = start_pushes(p, parts_of(p, KOLO_BUCKETS_AHEAD), p->clock);
    if (status != KOLO_OK) {
        const int started = p->n_pushed;
        p->n_pushed = 0;
        kolo_service_release(p->service);
        return kolo_parameters_fail_after(p, p->pushes, started, status);
    }
    kolo_service_release_sent(p->service); /* the pull, or the end, waits for the replies */
    p->pushing = true;
    p->clock++;
    if (p->held > 0) p->held--;
    return KOLO_OK;
}

/* Completes a push that no pull follows: pushes its other buckets, a few ahead of the replies. */
static kolo_status complete_push(kolo_parameters *p) {
    kolo_status status = KOLO_OK;
    for (int r = 0; p->pushing && p->n_pushed < p->n_parts && status == KOLO_OK; r++) {
        status = start_pushes(p, parts_of(p, r + KOLO_BUCKETS_AHEAD), p->clock - 1);
        if (status == KOLO_OK)
            status = kolo_parameters_wait_for(p, p->pushes, parts_of(p, r), parts_of(p, r + 1));
    }
    return status == KOLO_OK ? end_push(p)
                             : kolo_parameters_fail_after(p, p->pushes, p->n_pushed, status);
}

kolo_status kolo_parameters_finish(kolo_parameters *p) {
    KOLO_TRY(kolo_parameters_check_worker(p));
    if (p->finished) return KOLO_OK;
    p->finished = true;
    return kolo_parameters_signal_all(p, KOLO_OWNER_FINISH, complete_push(p));
}
