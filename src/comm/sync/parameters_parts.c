#include "comm/sync/parameters_parts.h"

#include "base/memory.h"
#include "base/status.h"

typedef struct part {
    kolo_parameters_opts opts; /* with the argument of this part */
    kolo_parameters_owner *owner;
} part;

struct kolo_owner_parts {
    int n, owners, index;
    part part[]; /* [n] */
};

kolo_status kolo_owner_parts_create(const kolo_owner_parts_opts *o, kolo_owner_parts **made) {
    const size_t bytes = sizeof(kolo_owner_parts) + (size_t)o->buckets * sizeof(part);
    kolo_owner_parts *parts = kolo_zalloc(bytes);
    if (!parts) return KOLO_NOMEM(bytes);
    parts->n = o->buckets;
    parts->owners = o->owners;
    parts->index = o->index;
    kolo_status status = KOLO_OK;
    for (int i = 0; i < parts->n && status == KOLO_OK; i++) {
        part *own = &parts->part[i];
        own->opts = *o->parameters;
        if (own->opts.bucket_args) own->opts.arg = own->opts.bucket_args[i];
        status = kolo_parameters_owner_create(&own->opts, &o->owned[i * o->owners + o->index],
                                              o->workers, kolo_service_reply, &own->owner);
    }
    if (status != KOLO_OK) {
        kolo_owner_parts_destroy(parts);
        return status;
    }
    *made = parts;
    return KOLO_OK;
}

void kolo_owner_parts_destroy(kolo_owner_parts *parts) {
    for (int i = 0; parts && i < parts->n; i++) kolo_parameters_owner_destroy(parts->part[i].owner);
    kolo_free(parts);
}

kolo_parameters_owner *kolo_owner_parts_at(const kolo_owner_parts *parts, int bucket) {
    return parts->part[bucket].owner;
}

void kolo_owner_parts_load(kolo_owner_parts *parts, const float *all) {
    for (int i = 0; i < parts->n; i++) kolo_parameters_owner_load(parts->part[i].owner, all);
}

kolo_status kolo_owner_parts_wait(kolo_owner_parts *parts) {
    for (int i = 0; i < parts->n; i++) KOLO_TRY(kolo_parameters_owner_wait(parts->part[i].owner));
    return KOLO_OK;
}

/* Bits 8 to 23 of the kind are the part: that of another owner is refused as an invalid request. */
void kolo_owner_parts_serve(void *arg, kolo_service_call *call) {
    kolo_owner_parts *parts = arg;
    const int number = (int)(call->kind >> 8), bucket = number / parts->owners;
    const bool own = number % parts->owners == parts->index && bucket < parts->n;
    if (own) call->kind &= 0xff;
    kolo_parameters_owner_serve(parts->part[own ? bucket : 0].owner, call);
}

void kolo_owner_parts_lost(void *arg, int client, bool left, const char *reason) {
    kolo_owner_parts *parts = arg;
    for (int i = 0; i < parts->n; i++)
        kolo_parameters_owner_lost(parts->part[i].owner, client, left, reason);
}
