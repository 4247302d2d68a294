/* The host as a device: what is enqueued runs at once. */
#include "base/memory.h"
#include "base/process.h"
#include "device/device.h"

#include <string.h>

static kolo_status open_host(int number, kolo_device **device) {
    kolo_device *d = kolo_zalloc(sizeof *d);
    if (!d) return KOLO_NOMEM(sizeof *d);
    *d = (kolo_device){&kolo_device_cpu, number};
    *device = d;
    return KOLO_OK;
}

static void close_host(kolo_device *device) { kolo_free(device); }

static kolo_device_memory memory_of(const kolo_device *device) {
    const size_t limit = (size_t)kolo_memory_limit();
    return (kolo_device_memory){limit, limit};
}

static void *alloc_pages(kolo_device *device, size_t bytes) { return kolo_pages_map(bytes); }

static void free_pages(kolo_device *device, void *at, size_t bytes) { kolo_pages_unmap(at, bytes); }

static void *kernel_address(const kolo_device *device, void *at) { return at; }

static bool pin_pages(kolo_device *device, void *host, size_t bytes) { return true; }

static void unpin_pages(kolo_device *device, void *host, size_t bytes) {}

static kolo_status create(kolo_device *device, kolo_device_stream **stream) {
    kolo_device_stream *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->device = device;
    *stream = s;
    return KOLO_OK;
}

static void destroy(kolo_device_stream *s) { kolo_free(s); }

static void copy(kolo_device_stream *s, kolo_copy_kind kind, void *to, const void *from,
                 size_t bytes) {
    if (to != from && bytes > 0) memcpy(to, from, bytes);
}

static void fill(kolo_device_stream *s, void *at, int byte, size_t bytes) {
    if (bytes > 0) memset(at, byte, bytes);
}

static void launch(kolo_device_stream *s, kolo_launched *run, const void *a, const void *b) {
    run(a, b);
}

static kolo_event record(kolo_device_stream *s) { return 0; }

static bool query(kolo_device_stream *s, kolo_event event) { return true; }

static void wait_for(kolo_device_stream *s, kolo_event event) {}

static kolo_status error_of(kolo_device_stream *s) { return KOLO_OK; }

const kolo_device_kind kolo_device_cpu = {
    .name = "cpu",
    .host_memory = true,
    .host_kernels = true,
    .count = 1,
    .open = open_host,
    .close = close_host,
    .memory = memory_of,
    .alloc = alloc_pages,
    .free = free_pages,
    .kernel_address = kernel_address,
    .pin = pin_pages,
    .unpin = unpin_pages,
    .stream = {create, destroy, copy, fill, launch, record, query, wait_for, error_of},
};
