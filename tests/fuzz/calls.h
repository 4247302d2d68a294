#pragma once
/* Requests to the owner of a service, as its clients have them in flight: each gets one reply. */

#include "base/compiler.h"
#include "base/status.h"
#include "kolo/service.h"

enum { FUZZ_CALLS = 8, FUZZ_CALL_BYTES = 2048 }; /* in flight, of a client; most of one */

typedef struct fuzz_call {
    kolo_service_call call; /* first */
    bool open;
    _Alignas(64) char input[FUZZ_CALL_BYTES];
    _Alignas(64) char output[FUZZ_CALL_BYTES];
} fuzz_call;

/* One that is not in flight, of the FUZZ_CALLS of a client; NULL: there is none. */
static inline fuzz_call *fuzz_find_free(fuzz_call *calls) {
    for (int i = 0; i < FUZZ_CALLS; i++) {
        if (!calls[i].open) return &calls[i];
    }
    return NULL;
}

/* The reply to a request: reads what it has. */
static inline void fuzz_end_call(kolo_service_call *call, kolo_status status, const void *data,
                                 size_t bytes) {
    fuzz_call *c = (fuzz_call *)(void *)call; /* its first member */
    KOLO_ASSERT(c->open && bytes <= call->output_bytes);
    volatile unsigned sum = 0;
    for (size_t i = 0; i < bytes && status == KOLO_OK; i++) sum += ((const uint8_t *)data)[i];
    c->open = false;
}
