#pragma once
/* Copies between the host and the device of a plan, for devices with memory of their own. On the
 * CPU nothing is copied, and a POST starts at once. */

#include "plan/internal.h"

/* Requests that no step of a run has posted, of a plan that has begun, between stages or of what a
 * run reports: kernels make progress in them. */
static inline void kolo_store_enter_background(kolo_store *s, kolo_comm *comm) {
    s->n_background++;
    s->background = comm;
}

static inline void kolo_store_leave_background(kolo_store *s) {
    if (--s->n_background == 0) s->background = NULL;
}

/* The plan whose requests a plan starts, but for those of activations, which are its own. */
static inline const kolo_plan *kolo_plan_owner(const kolo_plan *p) {
    return p->adds_to ? p->adds_to : p;
}

/* The request of a bucket in the current slot; NULL: a single rank. */
static inline kolo_request *kolo_plan_request_of(const kolo_plan *p, int bucket, int bank) {
    const kolo_plan *owner = p->map.buckets[bucket].of_model ? p : kolo_plan_owner(p);
    return owner->requests ? *kolo_plan_request_at(owner, p->slot, bucket, bank) : NULL;
}

/* NULL: a bucket that is moved by a request. */
static inline kolo_mesh_link *kolo_plan_link_of(const kolo_plan *p, int bucket) {
    return p->links ? p->links[p->slot * p->map.n_buckets + bucket] : NULL;
}

/* Room for the POSTs that have not started. NOMEM. */
kolo_status kolo_plan_reserve_transfers(kolo_plan *plan);
/* Before a run: the scalars, and with `inputs` the inputs that the current slot reads. */
void kolo_plan_send(kolo_plan *plan, bool inputs);
/* Starts a POST in the current slot while `bank` of the store is current: at once, or, in the order
 * of POSTs, when what it reads has been copied to the host. `there`: the host has it. In a run with
 * `posted` that is called in its place. The errors of these, of kolo_request_start and of the
 * device. */
kolo_status kolo_plan_post(kolo_plan *plan, const kolo_step *step, int bank, bool there);
/* Runs a kernel, or enqueues it on the device. An op of the program may fail: by setting the last
 * error of the thread that runs it, which a stream keeps. */
void kolo_plan_launch(const kolo_plan *plan, const kolo_step *step, const kolo_call *call);
/* Starts the POSTs whose copies have ended. */
kolo_status kolo_plan_start_ready(kolo_plan *plan);
/* Before a WAIT: starts its POST after its copies, and those behind it as soon as their copies have
 * ended, until the request of the WAIT is complete or no POST is left. The errors of
 * kolo_request_test and of the device. */
kolo_status kolo_plan_await(kolo_plan *plan, const kolo_step *wait, int bank);
/* Copies the outputs to the host. */
void kolo_plan_fetch(kolo_plan *plan);
/* The end of a run: waits for the device, and starts the POSTs that are left. */
kolo_status kolo_plan_finish(kolo_plan *plan);
/* What a WAIT has received goes to the device. */
void kolo_plan_receive(kolo_plan *plan, const kolo_step *step, int bank);

/* A value of the current slot: copies it to the host, waits and returns its address there; copies
 * it back. */
void *kolo_plan_pull(const kolo_plan *plan, kolo_value value);
void kolo_plan_push(const kolo_plan *plan, kolo_value value);
