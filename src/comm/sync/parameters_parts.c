#include "comm/sync/parameters_parts.h"

#include "base/integer.h"
#include "base/memory.h"
#include "base/status.h"

typedef struct part {
    kolo_parameters_opts opts; /* with the argument of this part */
    kolo_parameters_owner *owner;
} part;

enum { LINE = 64 };

struct kolo_owner_parts {
    int n, owners, index;
    float *sum;  /* of the gradients of a part: in the cache for the next one; NULL: of one part */
    part part[]; /* [n] */
};

/* Memory for the sums of all parts, one after the other. */
static kolo_status share_sum(kolo_owner_parts *parts, const kolo_owner_parts_opts *o) {
    size_t most = 1;
    if (parts->n == 1) return KOLO_OK;
    for (int i = 0; i < parts->n; i++) {
        const size_t count = o->owned[i * o->owners + o->index].gradient.count;
        if (count > most) most = count;
    }
    parts->sum = kolo_alloc(most * sizeof *parts->sum);
    if (!parts->sum) return KOLO_NOMEM(most * sizeof *parts->sum);
    for (int i = 0; i < parts->n; i++)
        kolo_parameters_owner_share_sum(parts->part[i].owner, parts->sum);
    return KOLO_OK;
}

size_t kolo_owner_parts_needs(const kolo_parameters_opts *o, int owners, int index, int workers,
                              int remote) {
    const bool sums = o->staleness == 0, keeps = (o->drop > 0 || o->quorum > 0) && !o->discard;
    const size_t all = (size_t)workers + (size_t)o->joins;
    const size_t unpacked = !o->unpack ? 0 : sums ? all : 1;
    const size_t gradients = (keeps ? all : 0) + unpacked + o->sums;
    size_t numbers = 0, sum = 0;
    for (int b = 0; b < (o->buckets > 1 ? o->buckets : 1); b++) {
        const kolo_parameters_part *sizes = &o->parts[b * owners + index];
        const size_t pushed = sizes->pushed > 0 ? sizes->pushed : sizes->gradient;
        numbers += sizes->values + sizes->state + gradients * sizes->gradient;
        numbers += ((size_t)remote + (size_t)o->joins) * pushed;
        if (sums && sizes->gradient > sum) sum = sizes->gradient;
    }
    return (numbers + sum) * sizeof(float);
}

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
    if (status == KOLO_OK) status = share_sum(parts, o);
    if (status != KOLO_OK) {
        kolo_owner_parts_destroy(parts);
        return status;
    }
    *made = parts;
    return KOLO_OK;
}

void kolo_owner_parts_destroy(kolo_owner_parts *parts) {
    if (!parts) return;
    for (int i = 0; i < parts->n; i++) kolo_parameters_owner_destroy(parts->part[i].owner);
    kolo_free(parts->sum);
    kolo_free(parts);
}

kolo_parameters_owner *kolo_owner_parts_at(const kolo_owner_parts *parts, int bucket) {
    return parts->part[bucket].owner;
}

/* Of a part; parts share no cache line. */
static size_t bytes_of(const part *p) {
    return kolo_round_up(kolo_parameters_owner_bytes(p->owner), LINE);
}

size_t kolo_owner_parts_bytes(const kolo_owner_parts *parts) {
    size_t bytes = 0;
    for (int i = 0; i < parts->n; i++) bytes += bytes_of(&parts->part[i]);
    return bytes;
}

void kolo_owner_parts_place(kolo_owner_parts *parts, void *memory) {
    char *at = memory;
    for (int i = 0; i < parts->n; i++) {
        kolo_parameters_owner_place(parts->part[i].owner, at);
        at += bytes_of(&parts->part[i]);
    }
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
