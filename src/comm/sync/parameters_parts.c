#include "comm/sync/parameters_parts.h"

#include "base/memory.h"
#include "base/status.h"

typedef struct part {
    kolo_parameters_opts opts; /* with the argument of this part */
    kolo_parameters_owner *owner;
} part;

struct kolo_owner_parts {
    int n, owners, index;
    part parts[]; /* [n] */
};

kolo_status kolo_owner_parts_create(const kolo_owner_parts_opts *o, kolo_owner_parts **made) {
    const size_t bytes = sizeof(kolo_owner_parts) + (size_t)o->buckets * sizeof(part);
    kolo_owner_parts *r = kolo_zalloc(bytes);
    if (!r) return KOLO_NOMEM(bytes);
    r->n = o->buckets;
    r->owners = o->owners;
    r->index = o->index;
    kolo_status status = KOLO_OK;
    for (int i = 0; i < r->n && status == KOLO_OK; i++) {
        part *own = &r->parts[i];
        own->opts = *o->parameters;
        if (own->opts.bucket_args) own->opts.arg = own->opts.bucket_args[i];
        status = kolo_parameters_owner_create(&own->opts, &o->owned[i * o->owners + o->index],
                                              o->workers, kolo_service_reply, &own->owner);
    }
    if (status != KOLO_OK) {
        kolo_owner_parts_destroy(r);
        return status;
    }
    *made = r;
    return KOLO_OK;
}

void kolo_owner_parts_destroy(kolo_owner_parts *r) {
    for (int i = 0; r && i < r->n; i++) kolo_parameters_owner_destroy(r->parts[i].owner);
    kolo_free(r);
}

kolo_parameters_owner *kolo_owner_parts_at(const kolo_owner_parts *r, int bucket) {
    return r->parts[bucket].owner;
}

void kolo_owner_parts_load(kolo_owner_parts *r, const float *all) {
    for (int i = 0; i < r->n; i++) kolo_parameters_owner_load(r->parts[i].owner, all);
}

kolo_status kolo_owner_parts_wait(kolo_owner_parts *r) {
    for (int i = 0; i < r->n; i++) KOLO_TRY(kolo_parameters_owner_wait(r->parts[i].owner));
    return KOLO_OK;
}

/* Bits 8 to 23 of the kind are the part: that of another owner is refused as an invalid request. */
void kolo_owner_parts_serve(void *arg, kolo_service_call *call) {
    kolo_owner_parts *r = arg;
    const int number = (int)(call->kind >> 8), bucket = number / r->owners;
    const bool own = number % r->owners == r->index && bucket < r->n;
    if (own) call->kind &= 0xff;
    kolo_parameters_owner_serve(r->parts[own ? bucket : 0].owner, call);
}

void kolo_owner_parts_lost(void *arg, int client, bool left, const char *reason) {
    kolo_owner_parts *r = arg;
    for (int i = 0; i < r->n; i++)
        kolo_parameters_owner_lost(r->parts[i].owner, client, left, reason);
}
