#pragma once
/* The memory regions of a store and its plans, on its device, and the stream of the device.
 *
 * The address of a region is that of the device: kernels, copies on the device and offsets use it.
 * The host sees a region at the same offsets of its *host side*: on the CPU the region itself, else
 * staging memory, registered with a communicator where the region is. What is written on one side
 * reaches the other one by kolo_regions_push and _pull, which do nothing on the CPU.
 *
 * Staging memory that is not registered is pages, which the system provides when they are accessed:
 * it is as large as what crosses. What crosses once, as the tensors of the store in files, is
 * staged one after the other: kolo_regions_stage and _release. */

#include "base/compiler.h"
#include "device/device.h"
#include "kolo/comm.h"

typedef struct kolo_regions kolo_regions;

/* The device is borrowed; NULL: the CPU. NOMEM. */
kolo_status kolo_regions_create(kolo_device *device, kolo_regions **regions);
/* NULL is allowed. Regions that are left are unmapped. */
void kolo_regions_destroy(kolo_regions *regions);
/* Whether the host has another copy of the memory. */
bool kolo_regions_are_apart(const kolo_regions *regions);
kolo_device *kolo_regions_device(const kolo_regions *regions);
kolo_device_stream *kolo_regions_stream(const kolo_regions *regions);

/* Maps a zeroed region; its host side is registered with `comm` if that is not NULL, which then
 * keeps it. NOMEM; the errors of kolo_comm_alloc. */
kolo_status kolo_regions_map(kolo_regions *regions, kolo_comm *comm, size_t bytes, char **at);
/* Takes memory of a communicator of the CPU, which keeps it, as a region. NOMEM. */
kolo_status kolo_regions_take(kolo_regions *regions, void *memory, size_t bytes);
/* NULL is allowed. */
void kolo_regions_unmap(kolo_regions *regions, char *at);

/* The address on the host side of what is at `at`. */
void *kolo_regions_host(const kolo_regions *regions, const void *at);
/* Copies to the host side what the device has, and waits for it; returns its address there. After
 * a failure of the device the contents are undefined: the run that failed returns the error. */
void *kolo_regions_pull(const kolo_regions *regions, const void *at, size_t bytes);
/* As kolo_regions_pull, in place of what the call before has returned, whose pages are released. */
void *kolo_regions_stage(kolo_regions *regions, const void *at, size_t bytes);
/* Releases the host side of a range, on which no copy is under way: it is undefined afterwards. */
void kolo_regions_release(const kolo_regions *regions, const void *at, size_t bytes);
/* Bytes of memory that host sides take now; 0 on the CPU. */
size_t kolo_regions_staged(const kolo_regions *regions);
/* Enqueues a copy of what the host side has. The host side stays as it is until it has ended. */
void kolo_regions_push(const kolo_regions *regions, void *at, size_t bytes);
/* Enqueues a copy to the host side. */
void kolo_regions_fetch(const kolo_regions *regions, const void *at, size_t bytes);
/* Enqueues a copy between two places of the device. */
void kolo_regions_copy(const kolo_regions *regions, void *to, const void *from, size_t bytes);
void kolo_regions_fill(const kolo_regions *regions, void *at, int byte, size_t bytes);

/* The place in the stream behind all that was enqueued; whether the device has reached one. */
kolo_event kolo_regions_record(const kolo_regions *regions);
bool kolo_regions_reached(const kolo_regions *regions, kolo_event event);
/* Waits for an event, or for all that was enqueued. The error of the device, which it names. */
kolo_status kolo_regions_await(const kolo_regions *regions, kolo_event event);
kolo_status kolo_regions_wait(const kolo_regions *regions);
