#pragma once
/* An algorithm is data: what one rank does in one collective, as rounds of entries.
 *
 * Entries move elements between four buffers. DATA is the vector of results (the request's parts,
 * taken as one). INPUT is what the rank contributes, never written, and empty when the collective
 * works in place. SCRATCH is working memory of `scratch` elements; peers reach it where the
 * transport has windows. SUM is an accumulator that never is in memory: a run of
 * COPY_FROM/REDUCE_FROM entries into SUM, followed by the COPY_TO entries out of it, is one sweep
 * over the range.
 *
 * Rounds run one after the other. Entries of a round are issued in order: local and window entries
 * are done when issued; SEND, RECV and BARRIER complete later, and the round with them. So data
 * that a RECV brings is used in a later round. A round has at most one SEND to a peer and one RECV
 * from a peer; a BARRIER stands alone. A SEND completes when the peer has taken the data (no
 * buffering is assumed). While a round does nothing but receive, the SENDs that the next one begins
 * with may go already, if they read nothing of what is to come: so a writer lists first in a round
 * what shall keep the link busy.
 *
 * A schedule that uses windows, or a backend, starts on no rank before all ranks have announced the
 * collective, so its first round may read any rank's DATA; its `prologue` rounds run before the
 * announcement and are local. Other schedules are synchronised by their messages only. */

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
#define KOLO_ENTRY_LIST(X)                                                      \
    X(KOLO_ENTRY_SEND, "send")               /* from -> peer */                 \
    X(KOLO_ENTRY_RECV, "recv")               /* to <- peer */                   \
    X(KOLO_ENTRY_REDUCE, "reduce")           /* to = to op from, both here */   \
    X(KOLO_ENTRY_COPY, "copy")               /* to = from, both here */         \
    X(KOLO_ENTRY_REDUCE_FROM, "reduce_from") /* to here op= from at the peer */ \
    X(KOLO_ENTRY_COPY_FROM, "copy_from")     /* to here = from at the peer */   \
    X(KOLO_ENTRY_COPY_TO, "copy_to")         /* to at the peer = from here */   \
    X(KOLO_ENTRY_PRESCALE, "prescale")       /* to = to * prescale, here */     \
    X(KOLO_ENTRY_POSTSCALE, "postscale")     /* to = to * postscale, here */    \
    X(KOLO_ENTRY_BARRIER, "barrier")         /* all ranks have come this far */ \
    X(KOLO_ENTRY_OFFLOADED, "offloaded")     /* the collective, by the backend */

typedef enum kolo_entry_kind {
#define KOLO_ENTRY_ENUM(code, name) code,
    KOLO_ENTRY_LIST(KOLO_ENTRY_ENUM)
#undef KOLO_ENTRY_ENUM
} kolo_entry_kind;

typedef struct kolo_entry {
    kolo_entry_kind kind;
    int peer; /* may be this rank itself for window entries */
    kolo_buffer to, from;
    size_t to_first, from_first, count; /* elements */
} kolo_entry;

/* One rank's schedule. Zero-initialise; a failed append sets `failed` and later ones do nothing. */
typedef struct kolo_schedule {
    const struct kolo_algorithm_row *row; /* that wrote it */
    bool windows;   /* needs a transport whose peers reach each other's memory */
    bool offloaded; /* has an OFFLOADED entry */
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

/* Each rank has a part of the whole vector of its own. */
static inline bool kolo_collective_has_slices(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_REDUCE_SCATTER || kind == KOLO_COLLECTIVE_ALLGATHER ||
           kind == KOLO_COLLECTIVE_GATHER || kind == KOLO_COLLECTIVE_SCATTER ||
           kind == KOLO_COLLECTIVE_ALLTOALL;
}

/* What a schedule is written for.
 *
 * `firsts` are where the ranks' slices of the whole vector start. The kinds with slices (all but
 * allreduce, reduce, broadcast and barrier) have count = firsts[size].
 *
 * The build function adds what every algorithm needs around it, so that the writers see fewer
 * cases. Before: the own input is copied to its place in DATA where it has one (allreduce; the root
 * of reduce, gather and scatter; allgather); what must be changed or kept and has no such place
 * (prescaled input, an all-to-all in place) goes to SCRATCH; then it is scaled. So a writer finds
 * the own contribution at `source`. Behind: the result is scaled. */
typedef struct kolo_schedule_spec {
    kolo_collective kind;
    int rank, size, root;
    size_t count;                /* elements of the whole vector */
    const size_t *firsts;        /* [size + 1] */
    const size_t *output_firsts; /* [size + 1]: all-to-all, slices as they come in */
    const int *hosts;            /* [size]: the host of each rank; NULL: all on one */
    int shards;                  /* fixed-tree: logical shards; 0 elsewhere */
    bool in_place;               /* no INPUT; of a scatter's root: no DATA */
    bool prescale, postscale;
    size_t chunk;       /* most elements of one message or of one staged piece; >= 1 */
    size_t align;       /* slices of an allreduce start at multiples of this many elements; >= 1 */
    kolo_buffer source; /* filled in by the build function */
} kolo_schedule_spec;

/* Elements of this rank's INPUT and DATA. */
KOLO_SHARED size_t kolo_spec_input(const kolo_schedule_spec *spec);
KOLO_SHARED size_t kolo_spec_data(const kolo_schedule_spec *spec);
/* The shards below node v of the fixed tree: [first, end); and whether there are any. */
void kolo_tree_span(uint32_t v, uint32_t shards, uint32_t *first, uint32_t *end);
bool kolo_tree_has(uint32_t v, uint32_t shards);
/* Where rank p has its contribution. */
kolo_buffer kolo_spec_source(const kolo_schedule_spec *spec, int rank);

/* The one list of variants, how a schedule moves its data: code, name. */
#define KOLO_VARIANT_LIST(X)                                                                     \
    X(KOLO_VARIANT_MESSAGES, "messages") /* sends and receives only: any transport */            \
    X(KOLO_VARIANT_WINDOW,                                                                       \
      "window") /* needs access to DATA of all ranks (hierarchical: of the host) */              \
    X(KOLO_VARIANT_STAGED, "staged") /* through SCRATCH of all ranks, in chunks: private data */ \
    X(KOLO_VARIANT_EAGER, "eager")   /* data is sent with the announcement: tiny sizes */        \
    X(KOLO_VARIANT_OFFLOADED, "offloaded") /* carried out by a backend (backend.h) */

typedef enum kolo_variant {
#define KOLO_VARIANT_ENUM(code, name) code,
    KOLO_VARIANT_LIST(KOLO_VARIANT_ENUM)
#undef KOLO_VARIANT_ENUM
} kolo_variant;

/* One way to carry out one kind of collective. `algorithm` is AUTO for other kinds than allreduce,
 * KOLO_ALGORITHM_REPRODUCIBLE for a reproducible allreduce. */
typedef struct kolo_algorithm_row {
    const char *name;
    kolo_collective kind;
    kolo_algorithm algorithm;
    kolo_variant variant;
    void (*write)(const kolo_schedule_spec *spec, kolo_schedule *schedule);
} kolo_algorithm_row;

/* Writes the schedule of one rank. NOMEM. */
KOLO_SHARED kolo_status kolo_schedule_build(const kolo_algorithm_row *row,
                                            const kolo_schedule_spec *spec,
                                            kolo_schedule *schedule);
KOLO_SHARED void kolo_schedule_fini(kolo_schedule *schedule);
/* For the writers: opens the next round (an empty round is used again); appends to it. */
void kolo_schedule_round(kolo_schedule *schedule);
void kolo_schedule_add(kolo_schedule *schedule, kolo_entry entry);
/* Takes `count` elements of SCRATCH; where they start. */
size_t kolo_schedule_scratch(kolo_schedule *schedule, size_t count);
/* Short forms of kolo_schedule_add. Nothing is added for no elements. */
void kolo_schedule_copy(kolo_schedule *s, kolo_buffer to, size_t to_first, kolo_buffer from,
                        size_t from_first, size_t count);
void kolo_schedule_send(kolo_schedule *s, int peer, kolo_buffer from, size_t first, size_t count);
void kolo_schedule_recv(kolo_schedule *s, int peer, kolo_buffer to, size_t first, size_t count);
/* DATA[to_first, +count) op= SCRATCH[scratch, +count). */
void kolo_schedule_reduce(kolo_schedule *s, size_t to_first, size_t scratch, size_t count);
/* A sweep: SUM = (start) or op= a rank's buffer, again and again; then SUM to ranks' buffers. The
 * rank may be this one. */
void kolo_schedule_gather(kolo_schedule *s, int peer, kolo_buffer from, size_t first, size_t count,
                          bool start);
void kolo_schedule_store(kolo_schedule *s, int peer, kolo_buffer to, size_t first, size_t count);
/* Takes entry `index` out, for tests that show that every entry is needed. */
KOLO_SHARED void kolo_schedule_remove(kolo_schedule *schedule, size_t index);
/* Index behind the last entry of a round. */
KOLO_SHARED size_t kolo_schedule_round_end(const kolo_schedule *schedule, size_t round);
/* Most entries of any round. */
size_t kolo_schedule_widest(const kolo_schedule *schedule);

/* Elements that this rank sends, receives, combines with another value, and moves without
 * arithmetic (to and from SCRATCH or a peer's memory). */
typedef struct kolo_traffic {
    uint64_t sent, received, reduced, copied;
} kolo_traffic;
KOLO_SHARED kolo_traffic kolo_schedule_traffic(const kolo_schedule *schedule);
/* Adds what `count` elements of one entry mean to `traffic`. */
void kolo_traffic_add(kolo_traffic *traffic, kolo_entry_kind kind, uint64_t count);

KOLO_SHARED const char *kolo_variant_name(kolo_variant variant);
/* The schedule as text, a line per entry, for `kolo dump`. */
KOLO_SHARED void kolo_schedule_print(const kolo_schedule *schedule, kolo_text *text);

/* Where slice `part` of `parts` of `count` elements starts (parts: the end of the last one). */
static inline size_t kolo_slice_first(size_t count, int parts, int part, size_t align) {
    if (part >= parts || parts < 1) return count;
    size_t units = (count + align - 1) / align, n = (size_t)parts, p = (size_t)part;
    size_t first = (units / n * p + (units % n < p ? units % n : p)) * align;
    return first < count ? first : count;
}

/* Runs the schedules of all ranks of a group on symbolic values (which element, whose
 * contributions) and says whether every rank ends with every contribution exactly once, without
 * deadlock, without reading what is not there, without writing input and without two ranks touching
 * the same element in one phase. specs[r] and schedules[r] are rank r's; size at most 64. FORMAT
 * with the first fault; NOMEM. */
KOLO_SHARED kolo_status kolo_schedule_check(const kolo_schedule_spec *specs,
                                            const kolo_schedule *schedules, int size);
