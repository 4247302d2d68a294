#pragma once
/* Schedules: the part of one rank in one collective, as data.
 *
 * A schedule is a list of rounds, a round is a list of entries. Entries move elements between four
 * buffers:
 *   DATA     the result vector, the concatenated parts of the request;
 *   INPUT    this rank's contribution, read-only; empty in an in-place collective;
 *   SCRATCH  working memory of `scratch` elements, accessible to peers on transports with windows;
 *   SUM      an accumulator that exists only in registers: a run of COPY_FROM and REDUCE_FROM
 *            entries into SUM and the COPY_TO entries out of it form one sweep over a range.
 *
 * Rounds run in order, and so do the entries of a round. Local and window entries complete when
 * they are issued; SEND, RECV and BARRIER complete later, and the round ends when all entries are
 * complete. Therefore data that a RECV delivers is used in a later round. A round has at most one
 * SEND to and one RECV from each peer; a BARRIER is alone in its round. A SEND completes when the
 * peer has received the data: no buffering is assumed. While a round only waits for receives, the
 * leading SENDs of the next round may start early if they do not read the data being received, so
 * writers put the sends that keep a link busy first in a round.
 *
 * A schedule with window or OFFLOADED entries starts once all ranks have announced the collective;
 * its first round may read any rank's DATA. Its first `prologue` rounds are local and run before
 * the announcement. Other schedules are synchronized by their messages alone. */

#include "base/compiler.h"
#include "base/text.h"
#include "kolo/comm.h"

typedef enum kolo_buffer {
    KOLO_BUFFER_DATA,
    KOLO_BUFFER_INPUT,
    KOLO_BUFFER_SCRATCH,
    KOLO_BUFFER_SUM,
    KOLO_BUFFERS
} kolo_buffer;

/* The one list of entry kinds: code, name in dumps. */
#define KOLO_ENTRY_LIST(X)                                                    \
    X(KOLO_ENTRY_SEND, "send")               /* from -> peer */               \
    X(KOLO_ENTRY_RECV, "recv")               /* to <- peer */                 \
    X(KOLO_ENTRY_REDUCE, "reduce")           /* to = to op from, local */     \
    X(KOLO_ENTRY_COPY, "copy")               /* to = from, local */           \
    X(KOLO_ENTRY_REDUCE_FROM, "reduce_from") /* local to op= peer's from */   \
    X(KOLO_ENTRY_COPY_FROM, "copy_from")     /* local to = peer's from */     \
    X(KOLO_ENTRY_COPY_TO, "copy_to")         /* peer's to = local from */     \
    X(KOLO_ENTRY_PRESCALE, "prescale")       /* to = to * prescale, local */  \
    X(KOLO_ENTRY_POSTSCALE, "postscale")     /* to = to * postscale, local */ \
    X(KOLO_ENTRY_BARRIER, "barrier")         /* wait for all ranks */         \
    X(KOLO_ENTRY_OFFLOADED, "offloaded")     /* the whole collective, by a backend */

typedef enum kolo_entry_kind {
#define KOLO_ENTRY_ENUM(code, name) code,
    KOLO_ENTRY_LIST(KOLO_ENTRY_ENUM)
#undef KOLO_ENTRY_ENUM
} kolo_entry_kind;

typedef struct kolo_entry {
    kolo_entry_kind kind;
    int peer; /* in window entries possibly this rank */
    kolo_buffer to, from;
    size_t to_first, from_first, count; /* elements */
} kolo_entry;

/* One rank's schedule. Zero-initialize it. Once an append has failed, `failed` is set and further
 * appends do nothing. */
typedef struct kolo_schedule {
    const struct kolo_algorithm_row *row; /* whose writer made it */
    bool windows;                         /* ranks access each other's memory */
    bool offloaded;                       /* has an OFFLOADED entry */
    bool failed;
    size_t prologue; /* rounds before the announcement */
    size_t scratch;  /* elements of SCRATCH */
    kolo_entry *entries;
    size_t n_entries, cap_entries;
    size_t *rounds; /* index of each round's first entry */
    size_t n_rounds, cap_rounds;
} kolo_schedule;

static inline bool kolo_collective_reduces(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_ALLREDUCE || kind == KOLO_COLLECTIVE_REDUCE ||
           kind == KOLO_COLLECTIVE_REDUCE_SCATTER;
}

/* Whether each rank owns a slice of the vector. */
static inline bool kolo_collective_has_slices(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_REDUCE_SCATTER || kind == KOLO_COLLECTIVE_ALLGATHER ||
           kind == KOLO_COLLECTIVE_GATHER || kind == KOLO_COLLECTIVE_SCATTER ||
           kind == KOLO_COLLECTIVE_ALLTOALL;
}

/* The input of a writer.
 *
 * Collectives with slices (reduce-scatter, allgather, gather, scatter, all-to-all) have
 * count = firsts[size].
 *
 * kolo_schedule_build adds the rounds that all algorithms share. Before the writer's rounds, this
 * rank's input is copied to its location in DATA, if it has one (allreduce; allgather; the root of
 * reduce, gather and scatter), otherwise to SCRATCH if it will be modified or overwritten
 * (prescaled input, in-place all-to-all), and prescaled. The writer finds the contribution in
 * `source`. After the writer's rounds, the result is postscaled. */
typedef struct kolo_schedule_spec {
    kolo_collective kind;
    int rank, size, root;
    size_t count;                /* elements of the vector */
    const size_t *firsts;        /* [size + 1]: where each rank's slice of the vector starts */
    const size_t *output_firsts; /* [size + 1]: all-to-all, slices of the output */
    const int *hosts;            /* [size]: host of each rank; NULL: one host */
    int shards;                  /* reproducible allreduce: logical shards; else 0 */
    const size_t *shard_firsts;  /* [size + 1]: each rank's first shard; NULL: equal parts */
    bool in_place;               /* no INPUT; at the root of a scatter: no DATA */
    bool summands;               /* reduce-scatter in place: no rank adds; all may read DATA */
    bool prescale, postscale;
    size_t chunk;       /* most elements of one message or staged piece; >= 1 */
    size_t align;       /* slices of an allreduce start at multiples of this many elements; >= 1 */
    kolo_buffer source; /* filled in by kolo_schedule_build */
} kolo_schedule_spec;

/* Elements of this rank's INPUT, of its DATA. */
KOLO_SHARED size_t kolo_spec_input(const kolo_schedule_spec *spec);
KOLO_SHARED size_t kolo_spec_data(const kolo_schedule_spec *spec);
/* The shards [first, end) below node v of the fixed tree (shard_tree.c); whether there are any. */
void kolo_tree_span(uint32_t v, uint32_t shards, uint32_t *first, uint32_t *end);
bool kolo_tree_has(uint32_t v, uint32_t shards);
/* The nodes that `rank` contributes, as kolo_tree_nodes. */
int kolo_spec_nodes(const kolo_schedule_spec *spec, int rank, uint32_t *nodes);
/* The buffer that holds rank's contribution when the writer's rounds start. */
kolo_buffer kolo_spec_source(const kolo_schedule_spec *spec, int rank);

/* The one list of variants: code, name. The variant decides which memory a schedule needs. */
#define KOLO_VARIANT_LIST(X)                                                                   \
    X(KOLO_VARIANT_MESSAGES, "messages")   /* none: sends and receives on any transport */     \
    X(KOLO_VARIANT_WINDOW, "window")       /* DATA of all ranks (hierarchical: of the host) */ \
    X(KOLO_VARIANT_STAGED, "staged")       /* SCRATCH of all ranks; private data, in chunks */ \
    X(KOLO_VARIANT_EAGER, "eager")         /* none: tiny data is sent with the announcement */ \
    X(KOLO_VARIANT_OFFLOADED, "offloaded") /* none: a backend runs it (backend.h) */

typedef enum kolo_variant {
#define KOLO_VARIANT_ENUM(code, name) code,
    KOLO_VARIANT_LIST(KOLO_VARIANT_ENUM)
#undef KOLO_VARIANT_ENUM
} kolo_variant;

/* One way to carry out one kind of collective. `algorithm` of other kinds than allreduce is AUTO;
 * that of the reduce in rank order is MESH, and those that connect few ranks (choose_schedule.c)
 * are RING and HALVING_DOUBLING. It is KOLO_ALGORITHM_REPRODUCIBLE for a reproducible allreduce. */
typedef struct kolo_algorithm_row {
    const char *name;
    kolo_collective kind;
    kolo_algorithm algorithm;
    kolo_variant variant;
    void (*write)(const kolo_schedule_spec *spec, kolo_schedule *schedule);
} kolo_algorithm_row;

/* Builds one rank's schedule. NOMEM. */
KOLO_SHARED kolo_status kolo_schedule_build(const kolo_algorithm_row *row,
                                            const kolo_schedule_spec *spec,
                                            kolo_schedule *schedule);
KOLO_SHARED void kolo_schedule_fini(kolo_schedule *schedule);
/* For writers: starts a round, unless the current one is empty; appends an entry to it. */
void kolo_schedule_round(kolo_schedule *schedule);
void kolo_schedule_add(kolo_schedule *schedule, kolo_entry entry);
/* Reserves `count` elements of SCRATCH and returns the index of the first. */
size_t kolo_schedule_scratch(kolo_schedule *schedule, size_t count);
/* Short forms of kolo_schedule_add. A count of 0 adds nothing. */
void kolo_schedule_copy(kolo_schedule *s, kolo_buffer to, size_t to_first, kolo_buffer from,
                        size_t from_first, size_t count);
void kolo_schedule_send(kolo_schedule *s, int peer, kolo_buffer from, size_t first, size_t count);
void kolo_schedule_recv(kolo_schedule *s, int peer, kolo_buffer to, size_t first, size_t count);
/* DATA[to_first, +count) op= SCRATCH[scratch, +count). */
void kolo_schedule_reduce(kolo_schedule *s, size_t to_first, size_t scratch, size_t count);
/* A sweep: accumulate ranges of any rank's buffers into SUM, `start` with the first; then store SUM
 * to any rank's buffers. */
void kolo_schedule_accumulate(kolo_schedule *s, int peer, kolo_buffer from, size_t first,
                              size_t count, bool start);
void kolo_schedule_store(kolo_schedule *s, int peer, kolo_buffer to, size_t first, size_t count);
/* Removes entry `index`, for tests that every entry is needed. */
KOLO_SHARED void kolo_schedule_remove(kolo_schedule *schedule, size_t index);
/* Index past the last entry of a round. */
static inline size_t kolo_schedule_round_end(const kolo_schedule *s, size_t round) {
    return round + 1 < s->n_rounds ? s->rounds[round + 1] : s->n_entries;
}
/* Number of entries of the largest round. */
size_t kolo_schedule_widest(const kolo_schedule *schedule);

/* Elements that one rank sends, receives, reduces, and copies to and from SCRATCH or a peer's
 * memory. */
typedef struct kolo_traffic {
    uint64_t sent, received, reduced, copied;
} kolo_traffic;
KOLO_SHARED kolo_traffic kolo_schedule_traffic(const kolo_schedule *schedule);
/* Adds `count` elements of an entry of that kind. */
void kolo_traffic_add(kolo_traffic *traffic, kolo_entry_kind kind, uint64_t count);

KOLO_SHARED const char *kolo_variant_name(kolo_variant variant);
/* Append the schedule as text, for `kolo dump`: a line of its totals; and a line per entry. */
KOLO_SHARED void kolo_schedule_print_totals(const kolo_schedule *schedule, kolo_text *text);
KOLO_SHARED void kolo_schedule_print(const kolo_schedule *schedule, kolo_text *text);

/* The first element of slice `part`, if `count` elements are cut into `parts` slices; `count` for
 * part == parts. */
static inline size_t kolo_slice_first(size_t count, int parts, int part, size_t align) {
    if (part >= parts || parts < 1) return count;
    size_t units = (count + align - 1) / align, n = (size_t)parts, p = (size_t)part;
    size_t first = (units / n * p + (units % n < p ? units % n : p)) * align;
    return first < count ? first : count;
}

/* Executes the schedules of all ranks of a group symbolically. Checks that every rank ends with
 * every contribution exactly once, and that no rank deadlocks, reads uninitialized elements, writes
 * input, or accesses an element in the same phase as another rank that writes it. specs[r] and
 * schedules[r] belong to rank r; at most 64 ranks. FORMAT: the first fault; NOMEM. */
KOLO_SHARED kolo_status kolo_schedule_check(const kolo_schedule_spec *specs,
                                            const kolo_schedule *schedules, int size);
