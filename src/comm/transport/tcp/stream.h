#pragma once
/* A connection that carries frames in both directions, without blocking: what the transport `tcp`
 * says to one peer.
 *
 * A frame is a header and `bytes` of body. Small frames are copied into a queue. The body of one
 * DATA frame at a time is written straight from its owner's memory, between what was queued before
 * and after it. Bodies are read straight to where they belong: only what the kernel hands over
 * together with a header passes through the input buffer. One thread at a time uses a stream. */

#include "comm/transport/transport.h"

/* The one list of frame kinds: code, least and most bytes of its body. */
#define KOLO_FRAME_LIST(X)                                                                       \
    X(KOLO_FRAME_ANNOUNCE, sizeof(kolo_frame_call), sizeof(kolo_frame_call)) /* value: a word */ \
    X(KOLO_FRAME_PHASE, 0, 0)                   /* value: the phase */                           \
    X(KOLO_FRAME_DATA, 0, KOLO_FRAME_DATA_MOST) /* 0 bytes: an empty message */                  \
    X(KOLO_FRAME_TAKEN, 0, 0)                   /* value: bytes of data taken so far */          \
    X(KOLO_FRAME_FINISHED, 0, 0)                /* value: all below it are complete */           \
    X(KOLO_FRAME_REPORT, 0, KOLO_REPORT_BYTES)  /* value: status; the text of a failure */       \
    X(KOLO_FRAME_LEAVE, 0, 0)                   /* value: as FINISHED */                         \
    X(KOLO_FRAME_BEAT, 0, 0)                    /* still here */

typedef enum kolo_frame_kind {
#define KOLO_FRAME_ENUM(code, least, most) code,
    KOLO_FRAME_LIST(KOLO_FRAME_ENUM)
#undef KOLO_FRAME_ENUM
        KOLO_FRAME_KINDS
} kolo_frame_kind;

enum { KOLO_FRAME_DATA_MOST = 1 << 20, KOLO_STREAM_INPUT = 16 << 10 };

typedef struct kolo_frame {
    uint32_t kind : 8;
    uint32_t group : 24; /* the receiver's number of the group that it is for (tcp/tcp.c) */
    uint32_t bytes;
    uint64_t seq; /* of the collective; 0 where there is none */
    uint64_t value;
} kolo_frame;

typedef struct kolo_frame_call {
    kolo_announcement call;
    char title[KOLO_TITLE_BYTES];
} kolo_frame_call;

/* False for a header that no rank sends. */
bool kolo_frame_check(const kolo_frame *frame);

typedef struct kolo_stream {
    int fd; /* -1: none */
    bool closed;
    char why[64];    /* it was closed */
    bool readable;   /* the kernel may have more */
    bool stuck;      /* the kernel took less than there is to say */
    int write_error; /* nothing more can be said; what has come can still be read */
    int64_t heard_ns, said_ns;

    char *in; /* [KOLO_STREAM_INPUT] */
    size_t in_first, in_end;

    char *out; /* [out_first, out_end); the body of DATA goes out at out_data */
    size_t out_first, out_end, out_cap, out_data;
    const char *data;
    size_t data_left;
} kolo_stream;

/* Takes over a connected socket. NOMEM, then it stays the caller's. */
kolo_status kolo_stream_init(kolo_stream *s, int fd);
/* A zeroed stream with fd -1 is allowed. */
void kolo_stream_fini(kolo_stream *s);

/* Queues a frame with a copy of its body, of frame->bytes. NOMEM. */
kolo_status kolo_stream_push(kolo_stream *s, const kolo_frame *frame, const void *body);
/* Queues a frame whose body stays where it is, until `data_left` is 0; which it must be now. */
kolo_status kolo_stream_push_data(kolo_stream *s, const kolo_frame *frame, const void *data);
/* Copies what is left of that body: its owner may go. Without memory the stream ends. */
void kolo_stream_keep(kolo_stream *s);
/* Writes what the kernel takes. */
void kolo_stream_flush(kolo_stream *s);

/* True when `bytes` (at most KOLO_STREAM_INPUT) lie in the input buffer, at in + in_first. */
bool kolo_stream_peek(kolo_stream *s, size_t bytes);
/* Drops bytes that have been looked at. */
void kolo_stream_skip(kolo_stream *s, size_t bytes);
/* Takes what is there, at most `bytes`. */
size_t kolo_stream_read(kolo_stream *s, void *to, size_t bytes);
