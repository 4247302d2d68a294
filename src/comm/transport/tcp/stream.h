#pragma once
/* A non-blocking stream of frames over a socket, in both directions.
 *
 * A frame is a header and `bytes` of body. Small frames are copied into a queue. The body of one
 * DATA frame at a time is written directly from its owner's memory, between the frames queued
 * before and after it. Bodies are read directly to their destination; only bytes that arrive
 * together with a header pass through the input buffer. One thread at a time uses a stream.
 *
 * A protected stream is the same content in records (records.h), which pass through two buffers
 * more: one record to be sent, and those received. */

#include "comm/transport/records.h"
#include "comm/transport/transport.h"

/* Frame kinds: code, minimum and maximum size of the body. */
#define KOLO_FRAME_LIST(X)                                                                         \
    X(KOLO_FRAME_ANNOUNCE, sizeof(kolo_frame_call),                                                \
      sizeof(kolo_frame_call))                 /* value: peer count */                             \
    X(KOLO_FRAME_PHASE, 0, 0)                  /* value: the phase */                              \
    X(KOLO_FRAME_DATA, 0, KOLO_FRAME_DATA_MAX) /* 0 bytes: an empty message */                     \
    X(KOLO_FRAME_CREDIT, 0, 0)                 /* value: bytes consumed so far */                  \
    X(KOLO_FRAME_FINISHED, 0, 0)               /* value: all below are complete */                 \
    X(KOLO_FRAME_REPORT, 0, KOLO_REPORT_BYTES) /* value: status; body: error text; seq: its rank + \
                                                  1 if another rank passes it on */                \
    X(KOLO_FRAME_LEAVE, 0, KOLO_REPORT_BYTES)  /* value: as for FINISHED; body: after which error; \
                                                  empty: none */                                   \
    X(KOLO_FRAME_HEARTBEAT, 0, 0)              /* no content */                                    \
    X(KOLO_FRAME_GONE, 0, KOLO_FRAME_WHY_BYTES)      /* value: a rank that is lost; body: why */   \
    X(KOLO_FRAME_STARTED, 8, KOLO_FRAME_STARTED_MAX) /* value: a rank; body: collectives           \
                            that it and the next ranks have started */

typedef enum kolo_frame_kind {
#define KOLO_FRAME_ENUM(code, least, most) code,
    KOLO_FRAME_LIST(KOLO_FRAME_ENUM)
#undef KOLO_FRAME_ENUM
        KOLO_FRAME_KINDS
} kolo_frame_kind;

enum {
    KOLO_FRAME_DATA_MAX = 256 << 10,
    KOLO_STREAM_INPUT = 16 << 10,
    KOLO_FRAME_WHY_BYTES = 63,
    KOLO_FRAME_STARTED_MAX = KOLO_STREAM_INPUT / 2,
};

typedef struct kolo_frame {
    uint32_t kind : 8;
    uint32_t group : 24; /* the receiver's number for the group (tcp/tcp.c) */
    uint32_t bytes;
    uint64_t seq; /* of the collective; 0 if none */
    uint64_t value;
} kolo_frame;

typedef struct kolo_frame_call {
    kolo_announcement call;
    uint64_t expects; /* see peer_expects in transport.h */
    char title[KOLO_TITLE_BYTES];
} kolo_frame_call;

/* False if the header is invalid. */
bool kolo_frame_check(const kolo_frame *frame);

typedef struct kolo_stream {
    int fd; /* -1: none */
    bool closed;
    char why[64];       /* reason, if closed */
    bool readable;      /* the socket may have data */
    bool write_blocked; /* the socket buffer is full */
    int write_error;    /* writing failed; received data can still be read */
    int64_t received_ns, sent_ns;

    char *in; /* [KOLO_STREAM_INPUT] */
    size_t in_first, in_end;

    char *out; /* [out_first, out_end); `data` is inserted at out_data */
    size_t out_first, out_end, out_cap, out_data;
    const char *data;
    size_t data_left;

    kolo_records *records; /* NULL: not protected */
    bool dry;              /* the socket had no more than what is in `records` */
} kolo_stream;

/* Takes over a connected socket; protected unless `keys` is NULL. NOMEM: the caller keeps it. */
kolo_status kolo_stream_init(kolo_stream *s, int fd, const kolo_seal_keys *keys);
/* Accepts a zeroed stream with fd -1. */
void kolo_stream_fini(kolo_stream *s);

/* Closes the stream for a reason: nothing more is read or written. */
void kolo_stream_end(kolo_stream *s, const char *why);

/* Queues a frame with a copy of its body of frame->bytes. NOMEM. */
kolo_status kolo_stream_push(kolo_stream *s, const kolo_frame *frame, const void *body);
/* Queues a frame whose body is borrowed until `data_left` is 0. Requires `data_left` == 0. */
kolo_status kolo_stream_push_data(kolo_stream *s, const kolo_frame *frame, const void *data);
/* Copies the rest of the borrowed body, so that its owner can be freed. Closes the stream if there
 * is no memory. */
void kolo_stream_copy_data(kolo_stream *s);
/* Writes as much as the socket buffer accepts. */
void kolo_stream_flush(kolo_stream *s);
/* Whether anything is still to be written. */
bool kolo_stream_has_output(const kolo_stream *s);

/* True if `bytes` (at most KOLO_STREAM_INPUT) are in the input buffer, at in + in_first. */
bool kolo_stream_peek(kolo_stream *s, size_t bytes);
/* Removes bytes from the input buffer. */
void kolo_stream_skip(kolo_stream *s, size_t bytes);
/* Reads up to `bytes`; returns how many. */
size_t kolo_stream_read(kolo_stream *s, void *to, size_t bytes);
