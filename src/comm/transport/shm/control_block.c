/* Announcements, phases, messages and failure reports in shared memory. */
#include "comm/transport/shm/control_block.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/shm/private_memory.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>

enum {
    STAGE_BYTES = 256 << 10,
    PHASE_BITS = 24,
    PEER_COUNTS_MAX = KOLO_EAGER_BYTES / sizeof(uint64_t),
    /* Rank r leaves r times this much address space unused, before its control block. Segments are
     * mapped at multiples of their large size, so equal offsets differ only in the highest bits;
     * first-level caches that predict ways by a hash of the lower bits (AMD) mistake such addresses
     * for each other, and a loop over all ranks' vectors misses at every step (measured: half the
     * speed). */
    SKEW_BYTES = 33 * 4096,
    MEMORY_MIN = 1 << 20, /* beside the control block and the skew */
};

static const uint64_t phase_mask = ((uint64_t)1 << PHASE_BITS) - 1;

static kolo_block_transport *block_transport(kolo_transport *t) {
    return (kolo_block_transport *)t;
}

static kolo_slot *slot_of(kolo_control_block *block, uint64_t seq) {
    return &block->slots[seq % KOLO_FLIGHT_MAX];
}

/* The channel index of a sequence number: its slot, or the one after all slots. */
static size_t channels_of(uint64_t seq) {
    return seq == KOLO_SEQ_P2P ? KOLO_FLIGHT_MAX : seq % KOLO_FLIGHT_MAX;
}

/* The channel of collective `seq` between two ranks, in the sender's control block. */
static kolo_channel *channel_of(kolo_block_transport *t, uint64_t seq, int from, int to) {
    size_t slot = channels_of(seq);
    return &t->blocks[from]->channels[slot * (size_t)t->base.size + (size_t)to];
}

static kolo_channel_end *end_of(kolo_block_transport *t, uint64_t seq, int peer) {
    size_t slot = channels_of(seq);
    return &t->ends[slot * (size_t)t->base.size + (size_t)peer];
}

size_t kolo_control_block_offset(int rank) { return (size_t)rank * SKEW_BYTES; }

size_t kolo_control_block_bytes(int size) {
    return sizeof(kolo_control_block) + sizeof(kolo_channel) * KOLO_BLOCK_CHANNELS * (size_t)size;
}

/* Everything but the segment. */
static kolo_status init_tables(kolo_block_transport *t, const kolo_transport_ops *ops, int rank,
                               int size) {
    size_t n = (size_t)size;
    t->base = (kolo_transport){.ops = ops,
                               .rank = rank,
                               .size = size,
                               .windows = true,
                               .no_wakeup = true,
                               .events = -1,
                               .segment.fd = -1};
    t->stage_bytes = STAGE_BYTES;
    t->all_finished = 0;
    t->blocks = kolo_zalloc(n * sizeof(kolo_control_block *));
    t->ends = kolo_zalloc(n * KOLO_BLOCK_CHANNELS * sizeof *t->ends);
    if (t->blocks && t->ends) return KOLO_OK;
    return KOLO_NOMEM(n * KOLO_BLOCK_CHANNELS * sizeof *t->ends);
}

/* The own block, the first thing in a segment of its own, but for its offset. */
static kolo_status alloc_block(kolo_block_transport *t) {
    void *block;
    KOLO_TRY(kolo_segment_alloc(&t->base.segment, kolo_control_block_bytes(t->base.size), &block));
    t->blocks[t->base.rank] = block;
    t->blocks[t->base.rank]->generation = 1;
    t->base.alarm = &t->blocks[t->base.rank]->alarm;
    return KOLO_OK;
}

kolo_status kolo_block_init(kolo_block_transport *t, const kolo_transport_ops *ops, int rank,
                            int size, size_t segment_bytes, bool shared) {
    void *skew;
    size_t least = kolo_control_block_offset(size) + kolo_control_block_bytes(size) + MEMORY_MIN;
    if (segment_bytes < least) segment_bytes = least;
    kolo_status status = init_tables(t, ops, rank, size);
    if (status == KOLO_OK) status = kolo_segment_init(&t->base.segment, segment_bytes, shared);
    if (status == KOLO_OK) {
        status = kolo_segment_alloc(&t->base.segment, kolo_control_block_offset(rank), &skew);
    }
    if (status == KOLO_OK) status = alloc_block(t);
    if (status != KOLO_OK) {
        kolo_block_fini(t);
        return status;
    }
    char *block = t->base.segment.base + kolo_control_block_offset(rank); /* as peers find it */
    KOLO_ASSERT((char *)t->blocks[rank] == block);
    return KOLO_OK;
}

kolo_status kolo_block_init_in(kolo_block_transport *t, const kolo_transport_ops *ops, int rank,
                               int size, kolo_segment *segment, kolo_control_block *block) {
    kolo_status status = init_tables(t, ops, rank, size);
    t->base.segment.of = segment;
    if (status == KOLO_OK && block) {
        size_t kept = offsetof(kolo_control_block, finished);
        memset((char *)block + kept, 0, kolo_control_block_bytes(size) - kept);
        block->generation++;
        t->blocks[rank] = block;
        t->base.alarm = &block->alarm;
    } else if (status == KOLO_OK) {
        status = alloc_block(t);
    }
    if (status != KOLO_OK) kolo_block_fini(t);
    return status;
}

void kolo_block_give_stages(kolo_segment *segment, kolo_channel_end *ends, int size,
                            size_t stage_bytes) {
    for (size_t i = 0; i < (size_t)size * KOLO_BLOCK_CHANNELS; i++) {
        kolo_segment_give(segment, ends[i].stage, stage_bytes);
        ends[i].stage = NULL;
    }
}

void kolo_block_fini(kolo_block_transport *t) {
    kolo_segment_fini(&t->base.segment);
    kolo_free(t->blocks);
    kolo_free(t->ends);
    t->blocks = NULL;
    t->ends = NULL;
}

bool kolo_block_start(kolo_transport *base, uint64_t seq, void **payload) {
    kolo_block_transport *t = block_transport(base);
    if (seq >= t->all_finished + KOLO_FLIGHT_MAX) {
        uint64_t least = UINT64_MAX;
        for (int p = 0; p < base->size; p++) { /* including its own: peers may be ahead */
            if (!t->blocks[p]) continue;       /* on another host */
            uint64_t finished = atomic_load_explicit(&t->blocks[p]->finished, memory_order_acquire);
            if (finished < least) least = finished;
        }
        t->all_finished = least;
        if (seq >= t->all_finished + KOLO_FLIGHT_MAX) return false;
    }
    *payload = slot_of(t->blocks[base->rank], seq)->payload;
    return true;
}

void kolo_block_signal(kolo_transport *base, uint64_t seq, uint32_t phase,
                       const kolo_announcement *call, const uint64_t *peer_counts,
                       const char *title) {
    kolo_block_transport *t = block_transport(base);
    kolo_slot *slot = slot_of(t->blocks[base->rank], seq);
    KOLO_ASSERT(phase < phase_mask);
    if (phase == 0) {
        if (slot->call.request != call->request || call->request == KOLO_REQUEST_ONE_SHOT) {
            memcpy(slot->title, title, sizeof slot->title);
        }
        slot->call = *call;
        if (peer_counts && base->size <= PEER_COUNTS_MAX) {
            memcpy(slot->payload, peer_counts, (size_t)base->size * sizeof *peer_counts);
        }
    }
    atomic_store_explicit(&slot->state, seq << PHASE_BITS | (phase + 1), memory_order_release);
}

bool kolo_block_query(kolo_transport *base, uint64_t seq, int peer, kolo_peer_call *peer_call) {
    kolo_block_transport *t = block_transport(base);
    const kolo_slot *slot = slot_of(t->blocks[peer], seq);
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    if (state == 0 || state >> PHASE_BITS != seq) return false;
    *peer_call = (kolo_peer_call){
        .call = &slot->call,
        .title = slot->title,
        .phase = (uint32_t)(state & phase_mask) - 1,
        .peer_count =
            base->size <= PEER_COUNTS_MAX ? (const uint64_t *)slot->payload + base->rank : NULL,
    };
    return true;
}

/* Frees the stage blocks of finished collectives. */
static void free_stages(kolo_block_transport *t, uint64_t from, uint64_t to) {
    for (uint64_t seq = from; seq < to; seq++) {
        for (int p = 0; p < t->base.size; p++) {
            kolo_channel_end *end = end_of(t, seq, p);
            if (!end->stage) continue;
            kolo_segment_give(&t->base.segment, end->stage, t->stage_bytes);
            end->stage = NULL;
        }
    }
}

void kolo_block_finish(kolo_transport *base, uint64_t finished) {
    kolo_block_transport *t = block_transport(base);
    kolo_control_block *own = t->blocks[base->rank];
    uint64_t before = atomic_load_explicit(&own->finished, memory_order_relaxed);
    if (t->staged) free_stages(t, before, finished);
    atomic_store_explicit(&own->finished, finished, memory_order_release);
}

/* Memory of a segment stays until all ranks have left. */
static bool in_segment(const kolo_segment *s, const void *data) {
    while (s->of) s = s->of;
    uintptr_t first = (uintptr_t)s->base, p = (uintptr_t)data;
    return p >= first && p - first < s->bytes;
}

/* Gets a handle for the data that the peer can use: of the data itself, its private address
 * (`bytes` with KOLO_PRIVATE_BIT), or of a copy in the stage block. */
static kolo_status expose(kolo_block_transport *t, const kolo_channel *channel,
                          kolo_channel_end *end, const void *data, size_t *bytes,
                          uint64_t *handle) {
    kolo_transport *base = &t->base;
    *handle = base->ops->handle(base, data, *bytes);
    if (*bytes > 0 && base->accesses && !in_segment(&base->segment, data)) {
        *bytes |= KOLO_PRIVATE_BIT;
    }
    if (*handle || *bytes == 0) return KOLO_OK;
    if (base->reads_private && *bytes >= KOLO_READ_MIN &&
        atomic_load_explicit(&channel->reads, memory_order_acquire)) {
        *handle = (uint64_t)(uintptr_t)data;
        *bytes |= KOLO_PRIVATE_BIT;
        return KOLO_OK;
    }
    if (!end->stage) {
        KOLO_TRY(kolo_segment_take(&base->segment, t->stage_bytes, &end->stage));
        t->staged = true;
    }
    size_t half = t->stage_bytes / KOLO_CHANNEL_DEPTH;
    char *copy = (char *)end->stage + end->posted % KOLO_CHANNEL_DEPTH * half;
    if (*bytes > half) *bytes = half;
    memcpy(copy, data, *bytes);
    *handle = base->ops->handle(base, copy, *bytes);
    return KOLO_OK;
}

kolo_status kolo_block_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                            size_t bytes, size_t *queued, bool *accepted) {
    kolo_block_transport *t = block_transport(base);
    kolo_channel *channel = channel_of(t, seq, base->rank, peer);
    kolo_channel_end *end = end_of(t, seq, peer);
    uint64_t consumed = atomic_load_explicit(&channel->consumed, memory_order_acquire);
    *queued = 0;
    *accepted = end->posted - consumed < KOLO_CHANNEL_DEPTH;
    if (!*accepted) return KOLO_OK;
    uint64_t handle;
    uint64_t posted = bytes;
    KOLO_TRY(expose(t, channel, end, data, &posted, &handle));
    size_t i = end->posted % KOLO_CHANNEL_DEPTH;
    channel->message[i].handle = handle;
    channel->message[i].bytes = posted;
    atomic_store_explicit(&channel->posted, ++end->posted, memory_order_release);
    *queued = posted & ~KOLO_PRIVATE_BIT;
    return KOLO_OK;
}

bool kolo_block_sent(kolo_transport *base, uint64_t seq, int peer) {
    kolo_block_transport *t = block_transport(base);
    const kolo_channel *channel = channel_of(t, seq, base->rank, peer);
    return atomic_load_explicit(&channel->consumed, memory_order_acquire) ==
           end_of(t, seq, peer)->posted;
}

/* Copies from the private memory of a peer; `valid` is false if it may have been freed. */
static kolo_status read_private(kolo_block_transport *t, int peer, void *data, uint64_t from,
                                size_t bytes, bool *valid) {
    const kolo_control_block *block = t->blocks[peer];
    if (!t->base.accesses) {
        return kolo_private_memory_read(block, peer, data, from, bytes, valid);
    }
    kolo_transport_begin_access(&t->base);
    *valid = !kolo_block_withdrawn(block);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another thread of this process
    if (*valid) memcpy(data, (const void *)(uintptr_t)from, bytes);
    kolo_transport_end_access(&t->base);
    return KOLO_OK;
}

kolo_status kolo_block_recv(kolo_transport *base, uint64_t seq, int peer, void *data, size_t bytes,
                            size_t *received, bool *arrived) {
    kolo_block_transport *t = block_transport(base);
    kolo_channel *channel = channel_of(t, seq, peer, base->rank);
    kolo_channel_end *end = end_of(t, seq, peer);
    uint64_t posted = atomic_load_explicit(&channel->posted, memory_order_acquire);
    *received = 0;
    *arrived = posted != end->consumed;
    if (!*arrived) return KOLO_OK;
    size_t i = end->consumed % KOLO_CHANNEL_DEPTH;
    uint64_t handle = channel->message[i].handle;
    bool private_data = channel->message[i].bytes & KOLO_PRIVATE_BIT;
    uint64_t size = channel->message[i].bytes & ~KOLO_PRIVATE_BIT, left = size - end->offset;
    if (left > 0) {
        const char *from = private_data ? NULL : base->ops->window(base, peer, handle, size);
        if ((!from && !private_data) || end->offset > size || bytes == 0) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d sent %llu bytes where %zu are expected",
                             peer, (unsigned long long)size, bytes);
        }
        *received = left < bytes ? left : bytes;
        if (private_data) {
            KOLO_TRY(read_private(t, peer, data, handle + end->offset, *received, arrived));
            if (!*arrived) {
                *received = 0;
                return KOLO_OK;
            }
        } else {
            memcpy(data, from + end->offset, *received);
        }
        if (!end->probed && size >= KOLO_READ_MIN) {
            kolo_private_memory_probe(t->blocks[peer], channel, end);
        }
    }
    end->offset += *received;
    if (end->offset == size) {
        end->offset = 0;
        atomic_store_explicit(&channel->consumed, ++end->consumed, memory_order_release);
    }
    return KOLO_OK;
}

void kolo_block_peer_state(kolo_transport *base, int peer, kolo_peer_state *state) {
    kolo_control_block *block = block_transport(base)->blocks[peer];
    *state = (kolo_peer_state){.condition = KOLO_PEER_ALIVE};
    /* Before `finished`, which its owner changes no more once it has set one of these. */
    uint32_t left = atomic_load_explicit(&block->left, memory_order_acquire);
    bool broken = atomic_load_explicit(&block->broken, memory_order_acquire);
    state->finished = atomic_load_explicit(&block->finished, memory_order_acquire);
    if (broken) {
        state->condition = KOLO_PEER_FAILED;
        state->status = (kolo_status)block->status;
    } else if (left != KOLO_LEFT_NOT) {
        state->condition = KOLO_PEER_LEFT;
        state->unfinished = left == KOLO_LEFT_UNFINISHED;
    }
    if (state->condition == KOLO_PEER_ALIVE) return;
    memcpy(state->report, block->report, sizeof state->report);
    state->report[sizeof state->report - 1] = '\0';
}

static void raise_alarms(kolo_block_transport *t) {
    for (int p = 0; p < t->base.size; p++) {
        kolo_control_block *peer = t->blocks[p];
        if (peer && p != t->base.rank) atomic_store_explicit(&peer->alarm, 1, memory_order_release);
    }
}

/* Waits until no peer accesses memory that this rank may free. Own accesses, around this call, do
 * not go on: two ranks may fail in the middle of them. */
static void await_accesses(kolo_block_transport *t) {
    _Atomic uint32_t *own = t->base.accesses;
    if (!own) return;
    uint32_t n = atomic_load_explicit(own, memory_order_relaxed);
    atomic_store_explicit(own, 0, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    for (int p = 0; p < t->base.size; p++) {
        kolo_control_block *peer = t->blocks[p];
        while (peer && atomic_load_explicit(&peer->accesses, memory_order_acquire) > 0) {
            sched_yield();
        }
    }
    atomic_store_explicit(own, n, memory_order_relaxed);
}

void kolo_block_leave(kolo_transport *base, const char *why) {
    kolo_block_transport *t = block_transport(base);
    kolo_control_block *own = t->blocks[base->rank];
    bool broken = atomic_load_explicit(&own->broken, memory_order_relaxed);
    kolo_left left = base->unfinished ? KOLO_LEFT_UNFINISHED : KOLO_LEFT_IN_ORDER;
    if (why && !broken) strncpy(own->report, why, sizeof own->report - 1);
    atomic_store_explicit(&own->left, left, memory_order_release);
    if (!base->unfinished) return;
    raise_alarms(t);
    await_accesses(t);
}

void kolo_block_report(kolo_transport *base, kolo_status status, const char *text) {
    kolo_block_transport *t = block_transport(base);
    kolo_control_block *own = t->blocks[base->rank];
    own->status = (int32_t)status;
    strncpy(own->report, text, sizeof own->report - 1);
    atomic_store_explicit(&own->broken, 1, memory_order_release);
    raise_alarms(t);
    atomic_thread_fence(memory_order_release); /* before the program uses its memory again */
    await_accesses(t);
}
