#pragma once
/* Devices: processors with memory, and streams of work on them.
 *
 * The host enqueues copies, fills and launches in a stream; the device runs them in that order. A
 * call that enqueues does not block, but for a full queue. An event is a place in a stream, which
 * the host queries or waits for. A failure on the device stays with the stream, which runs nothing
 * after it: later events are reached at once, and `error` returns it.
 *
 * Each kind of device is a row of a table. `cpu` is the host: its memory is that of the host, and
 * its stream runs everything at once. `fake` is for tests: a thread that runs kernels of the CPU
 * over memory that the host cannot read or write.
 *
 * A device, its memory and its streams belong to one thread at a time. */

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_device kolo_device;
typedef struct kolo_device_stream kolo_device_stream;

/* How many operations were enqueued in a stream before it. */
typedef uint64_t kolo_event;

/* Of a copy: which side is memory of the device. */
typedef enum kolo_copy_kind {
    KOLO_COPY_ON_DEVICE,
    KOLO_COPY_TO_DEVICE,
    KOLO_COPY_TO_HOST
} kolo_copy_kind;

/* What a launch runs on the device. It may fail by setting the last error of its thread. */
typedef void kolo_launched(const void *a, const void *b);

typedef struct kolo_device_memory {
    size_t total, free; /* bytes; 0: unknown */
} kolo_device_memory;

typedef struct kolo_device_stream_ops {
    kolo_status (*create)(kolo_device *device, kolo_device_stream **stream); /* NOMEM */
    void (*destroy)(kolo_device_stream *stream); /* after all that was enqueued */
    void (*copy)(kolo_device_stream *stream, kolo_copy_kind kind, void *to, const void *from,
                 size_t bytes);
    void (*fill)(kolo_device_stream *stream, void *at, int byte, size_t bytes);
    void (*launch)(kolo_device_stream *stream, kolo_launched *run, const void *a, const void *b);
    kolo_event (*record)(kolo_device_stream *stream);
    bool (*query)(kolo_device_stream *stream,
                  kolo_event event); /* whether all before it has ended */
    void (*wait)(kolo_device_stream *stream, kolo_event event);
    kolo_status (*error)(kolo_device_stream *stream); /* of what has ended; OK: none */
} kolo_device_stream_ops;

/* A kind of device. */
typedef struct kolo_device_kind {
    const char *name;
    bool hidden;       /* for tests: listed nowhere */
    bool host_memory;  /* the host reads and writes its memory, and a stream runs everything at once
                        */
    bool host_kernels; /* it runs kernels that are code of the host (kolo_kernel.device) */
    int count;         /* devices of this kind */
    kolo_status (*open)(int number, kolo_device **device); /* NOMEM */
    void (*close)(kolo_device *device);                    /* its streams are destroyed */
    kolo_device_memory (*memory)(const kolo_device *device);
    void *(*alloc)(kolo_device *device, size_t bytes); /* zeroed, page-aligned; NULL: no memory */
    void (*free)(kolo_device *device, void *at, size_t bytes);
    /* The address by which kernels access what is at `at` in its memory. */
    void *(*kernel_address)(const kolo_device *device, void *at);
    /* Page-locks a block of the host: a copy of it does not block, while one of other memory of the
     * host may wait for all that was enqueued. False: the system does not allow so much. */
    bool (*pin)(kolo_device *device, void *host, size_t bytes);
    void (*unpin)(kolo_device *device, void *host, size_t bytes);
    kolo_device_stream_ops stream;
} kolo_device_kind;

struct kolo_device {
    const kolo_device_kind *kind;
    int number;
};

struct kolo_device_stream {
    kolo_device *device;
};

extern const kolo_device_kind kolo_device_cpu, kolo_device_fake;

/* Opens a device by its name: "auto" or NULL (the CPU), "cpu", or a kind and a number, such as
 * "fake:1"; without a number, that of the rank on its host, modulo their number. UNSUPPORTED: the
 * build has no such kind; ARG: no device has this name; NOMEM. */
kolo_status kolo_device_open(const char *name, int local_rank, kolo_device **device);
/* NULL is allowed. */
void kolo_device_close(kolo_device *device);
/* Checks a name as kolo_device_open does, without opening it. */
kolo_status kolo_device_check(const char *name);
/* Whether kernels run in another memory than that of the host. */
bool kolo_device_is_apart(const char *name);

/* Appends the devices of this machine, but for hidden kinds: "cpu (31.3 GiB)". NOMEM. */
kolo_status kolo_device_describe(kolo_text *text);

enum { KOLO_DEVICE_TEXT = 32 };
/* "fake:1". */
const char *kolo_device_text(const kolo_device *device, char text[KOLO_DEVICE_TEXT]);

/* Test hook: the memory of fake devices that this thread opens; 0: the default. */
void kolo_device_fake_pin(size_t bytes);
/* Test hook: the number, from 1, of the operation that fails in each stream of fake devices that
 * this thread opens; 0: none. */
void kolo_device_fake_fail(uint64_t nth);
