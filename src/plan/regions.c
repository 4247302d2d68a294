#include "plan/regions.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdint.h>

enum { PAGES = 1 << 16 }; /* what is smaller is on the heap */

typedef struct region {
    char *at, *host; /* equal on the CPU */
    size_t bytes;
    bool registered; /* `host` is a communicator's */
    bool pinned;
} region;

struct kolo_regions {
    kolo_device *device, *own; /* own: of the CPU, or NULL */
    kolo_device_stream *stream;
    const kolo_device_stream_ops *ops;
    bool apart;
    region *items;
    size_t n, capacity;
    const char *staged; /* by kolo_regions_stage */
    size_t staged_bytes;
};

static kolo_status start(kolo_regions *r, kolo_device *device) {
    if (!device) {
        KOLO_TRY(kolo_device_open("cpu", 0, &r->own));
        device = r->own;
    }
    r->device = device;
    r->ops = &device->kind->stream;
    r->apart = !device->kind->host_memory;
    return r->ops->create(device, &r->stream);
}

kolo_status kolo_regions_create(kolo_device *device, kolo_regions **regions) {
    kolo_regions *r = kolo_zalloc(sizeof *r);
    if (!r) return KOLO_NOMEM(sizeof *r);
    const kolo_status status = start(r, device);
    if (status != KOLO_OK) {
        kolo_regions_destroy(r);
        return status;
    }
    *regions = r;
    return KOLO_OK;
}

static void free_region(const kolo_regions *r, const region *x) {
    if (x->pinned) r->device->kind->unpin(r->device, x->host, x->bytes);
    if (r->apart && x->at) r->device->kind->free(r->device, x->at, x->bytes);
    if (x->registered || !x->host) return;
    if (x->bytes < PAGES) {
        kolo_free(x->host);
    } else {
        kolo_pages_unmap(x->host, x->bytes);
    }
}

void kolo_regions_destroy(kolo_regions *r) {
    if (!r) return;
    if (r->stream) r->ops->destroy(r->stream);
    for (size_t i = 0; i < r->n; i++) free_region(r, &r->items[i]);
    kolo_free(r->items);
    kolo_device_close(r->own);
    kolo_free(r);
}

bool kolo_regions_are_apart(const kolo_regions *r) { return r->apart; }
kolo_device *kolo_regions_device(const kolo_regions *r) { return r->device; }
kolo_device_stream *kolo_regions_stream(const kolo_regions *r) { return r->stream; }

static kolo_status fail_memory(const kolo_regions *r, size_t bytes) {
    char text[KOLO_DEVICE_TEXT];
    const kolo_device_memory m = r->device->kind->memory(r->device);
    if (!r->apart) return KOLO_NOMEM(bytes);
    return KOLO_FAIL(KOLO_ERR_NOMEM,
                     "device %s has %zu bytes free of %zu, and a region needs %zu: use a smaller "
                     "model or batch, --accumulate or --recompute full",
                     kolo_device_text(r->device, text), m.free, m.total, bytes);
}

static kolo_status map_host(const kolo_regions *r, kolo_comm *comm, region *x) {
    void *memory;
    if (comm) {
        KOLO_TRY(kolo_comm_alloc(comm, x->bytes, &memory));
        x->host = memory;
        return KOLO_OK;
    }
    x->host = x->bytes < PAGES ? kolo_zalloc(x->bytes) : kolo_pages_map(x->bytes);
    return x->host ? KOLO_OK : KOLO_NOMEM(x->bytes);
}

/* Page-locks what is exchanged or small, as scalars are; other pages are for what crosses. */
static kolo_status pin(const kolo_regions *r, region *x) {
    char text[KOLO_DEVICE_TEXT];
    if (!r->apart || (!x->registered && x->bytes >= PAGES)) return KOLO_OK;
    x->pinned = r->device->kind->pin(r->device, x->host, x->bytes);
    if (x->pinned) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_NOMEM,
                     "cannot page-lock %zu bytes for device %s: raise the limit (ulimit -l)",
                     x->bytes, kolo_device_text(r->device, text));
}

kolo_status kolo_regions_map(kolo_regions *r, kolo_comm *comm, size_t bytes, char **at) {
    region x = {.bytes = bytes, .registered = comm != NULL};
    if (!KOLO_GROW(r->items, r->n, r->capacity)) return KOLO_NOMEM(sizeof x);
    KOLO_TRY(map_host(r, comm, &x));
    const kolo_status status = pin(r, &x);
    if (status != KOLO_OK) {
        free_region(r, &x);
        return status;
    }
    x.at = r->apart ? r->device->kind->alloc(r->device, bytes) : x.host;
    if (!x.at) {
        free_region(r, &x);
        return fail_memory(r, bytes);
    }
    r->items[r->n++] = x;
    *at = x.at;
    return KOLO_OK;
}

kolo_status kolo_regions_take(kolo_regions *r, void *memory, size_t bytes) {
    KOLO_ASSERT(!r->apart);
    if (!KOLO_GROW(r->items, r->n, r->capacity)) return KOLO_NOMEM(sizeof *r->items);
    r->items[r->n++] = (region){.at = memory, .host = memory, .bytes = bytes, .registered = true};
    return KOLO_OK;
}

/* Also where the device has failed, whose error is another call's. */
static void drain(const kolo_regions *r) { r->ops->wait(r->stream, r->ops->record(r->stream)); }

void kolo_regions_unmap(kolo_regions *r, char *at) {
    if (at && r->apart) drain(r); /* copies may use it */
    for (size_t i = 0; at && i < r->n; i++) {
        if (r->items[i].at != at) continue;
        r->staged_bytes = 0; /* may be of it */
        free_region(r, &r->items[i]);
        r->items[i] = r->items[--r->n];
        return;
    }
    KOLO_ASSERT(!at);
}

void *kolo_regions_host(const kolo_regions *r, const void *at) {
    if (!r->apart) return (void *)(uintptr_t)at;
    for (size_t i = 0; i < r->n; i++) {
        const region *x = &r->items[i];
        const size_t offset = (size_t)((uintptr_t)at - (uintptr_t)x->at);
        if (offset <= x->bytes) return x->host + offset;
    }
    KOLO_ASSERT(!"memory of a region");
    return NULL;
}

void kolo_regions_fetch(const kolo_regions *r, const void *at, size_t bytes) {
    if (!r->apart || bytes == 0) return;
    r->ops->copy(r->stream, KOLO_COPY_TO_HOST, kolo_regions_host(r, at), at, bytes);
}

void *kolo_regions_pull(const kolo_regions *r, const void *at, size_t bytes) {
    if (!r->apart || bytes == 0) return (void *)(uintptr_t)at;
    kolo_regions_fetch(r, at, bytes);
    drain(r);
    return kolo_regions_host(r, at);
}

void kolo_regions_release(const kolo_regions *r, const void *at, size_t bytes) {
    for (size_t i = 0; r->apart && i < r->n; i++) {
        const region *x = &r->items[i];
        const size_t offset = (size_t)((uintptr_t)at - (uintptr_t)x->at);
        if (offset >= x->bytes) continue;
        if (!x->registered && x->bytes >= PAGES) kolo_pages_release(x->host + offset, bytes);
        return;
    }
}

void *kolo_regions_stage(kolo_regions *r, const void *at, size_t bytes) {
    if (!r->apart || bytes == 0) return (void *)(uintptr_t)at;
    drain(r); /* what was staged may be on its way */
    if (r->staged_bytes > 0) kolo_regions_release(r, r->staged, r->staged_bytes);
    r->staged = at;
    r->staged_bytes = bytes;
    return kolo_regions_pull(r, at, bytes);
}

size_t kolo_regions_staged(const kolo_regions *r) {
    size_t bytes = 0;
    for (size_t i = 0; r->apart && i < r->n; i++) {
        const region *x = &r->items[i];
        const bool pages = !x->registered && x->bytes >= PAGES;
        bytes += pages ? kolo_pages_resident(x->host, x->bytes) : x->bytes;
    }
    return bytes;
}

void kolo_regions_push(const kolo_regions *r, void *at, size_t bytes) {
    if (!r->apart || bytes == 0) return;
    r->ops->copy(r->stream, KOLO_COPY_TO_DEVICE, at, kolo_regions_host(r, at), bytes);
}

void kolo_regions_copy(const kolo_regions *r, void *to, const void *from, size_t bytes) {
    r->ops->copy(r->stream, KOLO_COPY_ON_DEVICE, to, from, bytes);
}

void kolo_regions_fill(const kolo_regions *r, void *at, int byte, size_t bytes) {
    r->ops->fill(r->stream, at, byte, bytes);
}

kolo_event kolo_regions_record(const kolo_regions *r) { return r->ops->record(r->stream); }

bool kolo_regions_reached(const kolo_regions *r, kolo_event event) {
    return r->ops->query(r->stream, event);
}

kolo_status kolo_regions_await(const kolo_regions *r, kolo_event event) {
    char text[KOLO_DEVICE_TEXT];
    r->ops->wait(r->stream, event);
    const kolo_status status = r->ops->error(r->stream);
    if (status == KOLO_OK) return KOLO_OK;
    return kolo_fail_in(status, "device %s", kolo_device_text(r->device, text));
}

kolo_status kolo_regions_wait(const kolo_regions *r) {
    return kolo_regions_await(r, kolo_regions_record(r));
}
