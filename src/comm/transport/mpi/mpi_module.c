/* The backend `mpi`: collectives by the non-blocking collectives of MPI-3.
 *
 * The only file that includes mpi.h. It is built once per MPI, as a library loaded on demand
 * (join/join_mpi.c). It initializes MPI unless the program has, and then finalizes it at the exit
 * of the process; like MPI, the state for that exists once per process. A duplicated communicator
 * separates its collectives from the program's.
 *
 * MPI counts elements in an int. Larger allreduces, reduces and broadcasts are split into pieces
 * that run concurrently; larger collectives with slices are refused. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/mpi/backend.h"

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 30 }; /* elements */

typedef struct mpi_state {
    MPI_Comm comm;
    MPI_Op unsigned_min, unsigned_max;
    int rank, size;
} mpi_state;

typedef struct mpi_call {
    mpi_state *mpi;
    kolo_collective kind;
    size_t element_bytes, count;
    MPI_Datatype type;
    MPI_Op op;
    int root;
    bool active;
    int *counts, *firsts;               /* [size]: slices */
    int *output_counts, *output_firsts; /* [size]: received slices of all-to-all */
    int n_pieces;
    MPI_Request pieces[];
} mpi_call;

/* ---- errors, types, operations ---- */

static kolo_status checked(int code, const char *what) {
    if (code == MPI_SUCCESS) return KOLO_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int n;
    (void)MPI_Error_string(code, text, &n);
    return KOLO_FAIL(KOLO_ERR_IO, "%s: %s", what, text);
}

#define MPI_TRY(call) KOLO_TRY(checked((call), #call))

/* For collectives that only move data, the width of the type is enough. */
static MPI_Datatype type_of(kolo_dtype dtype) {
    switch (dtype) {
    case KOLO_DTYPE_F32:
        return MPI_FLOAT;
    case KOLO_DTYPE_F64:
        return MPI_DOUBLE;
    case KOLO_DTYPE_I8:
        return MPI_INT8_T;
    case KOLO_DTYPE_U8:
        return MPI_UINT8_T;
    case KOLO_DTYPE_I32:
        return MPI_INT32_T;
    case KOLO_DTYPE_I64:
        return MPI_INT64_T;
    case KOLO_DTYPE_I16:
        return MPI_INT16_T;
    case KOLO_DTYPE_U32:
        return MPI_UINT32_T;
    case KOLO_DTYPE_U64:
        return MPI_UINT64_T;
    case KOLO_DTYPE_C64:
        return MPI_C_FLOAT_COMPLEX;
    case KOLO_DTYPE_C128:
        return MPI_C_DOUBLE_COMPLEX;
    default: /* u16, and those of which MPI sees only the width */
        return MPI_UINT16_T;
    }
}

/* Unsigned integers have operations of their own: MPICH 4.0 compares them as signed ones. */
#define COMPARE(bytes, RELATION)                                              \
    do {                                                                      \
        const uint##bytes##_t *a = from;                                      \
        uint##bytes##_t *b = to;                                              \
        for (int i = 0; i < *n; i++) b[i] = a[i] RELATION b[i] ? a[i] : b[i]; \
    } while (0)
#define UNSIGNED_OP(name, RELATION)                                      \
    static void name(void *from, void *to, int *n, MPI_Datatype *type) { \
        if (*type == MPI_UINT8_T) COMPARE(8, RELATION);                  \
        if (*type == MPI_UINT16_T) COMPARE(16, RELATION);                \
        if (*type == MPI_UINT32_T) COMPARE(32, RELATION);                \
        if (*type == MPI_UINT64_T) COMPARE(64, RELATION);                \
    }
UNSIGNED_OP(min_of_unsigned, <)
UNSIGNED_OP(max_of_unsigned, >)

static bool is_unsigned(kolo_dtype dtype) {
    return dtype == KOLO_DTYPE_U8 || dtype == KOLO_DTYPE_U16 || dtype == KOLO_DTYPE_U32 ||
           dtype == KOLO_DTYPE_U64;
}

static MPI_Op op_of(const mpi_state *mpi, kolo_dtype dtype, kolo_reduce_op op) {
    if (is_unsigned(dtype) && op == KOLO_MIN) return mpi->unsigned_min;
    if (is_unsigned(dtype) && op == KOLO_MAX) return mpi->unsigned_max;
    switch (op) {
    case KOLO_MIN:
        return MPI_MIN;
    case KOLO_MAX:
        return MPI_MAX;
    case KOLO_PROD:
        return MPI_PROD;
    case KOLO_AND:
        return MPI_BAND;
    case KOLO_OR:
        return MPI_BOR;
    case KOLO_XOR:
        return MPI_BXOR;
    default:
        return MPI_SUM;
    }
}

/* ---- initialization and finalization ---- */

static atomic_bool ends_in_order; /* MPI_Finalize may wait for the other ranks */

static void finalize(void) {
    int over = 1;
    if (!atomic_load(&ends_in_order)) return;
    if (MPI_Finalized(&over) == MPI_SUCCESS && !over) MPI_Finalize();
}

static kolo_status start_mpi(void) {
    int started, over, level;
    MPI_TRY(MPI_Finalized(&over));
    if (over) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "MPI was finalized in this process and cannot be initialized again");
    }
    MPI_TRY(MPI_Initialized(&started));
    if (!started) {
        MPI_TRY(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level));
        atomic_store(&ends_in_order, true);
        if (atexit(finalize) != 0) return KOLO_NOMEM(sizeof(void *));
    }
    MPI_TRY(MPI_Query_thread(&level));
    if (level >= MPI_THREAD_SERIALIZED) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_UNSUPPORTED,
        "the program initialized MPI for a single thread, but a communicator may use a "
        "thread of its own: call MPI_Init_thread with MPI_THREAD_SERIALIZED or more");
}

/* The longest wait of any rank, and the shortest timeout. */
static kolo_status measure_wait(const mpi_state *mpi, int64_t started_ns, int64_t timeout_ns,
                                kolo_backend_env *env) {
    int64_t most[2] = {kolo_now_ns() - started_ns, -timeout_ns};
    MPI_TRY(MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT64_T, MPI_MAX, mpi->comm));
    env->waited_ns = most[0];
    env->timeout_ns = -most[1];
    return KOLO_OK;
}

static kolo_status get_env(mpi_state *mpi, kolo_backend_env *env) {
    MPI_Comm host;
    MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm));
    MPI_TRY(MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN));
    MPI_TRY(MPI_Op_create(min_of_unsigned, 1, &mpi->unsigned_min));
    MPI_TRY(MPI_Op_create(max_of_unsigned, 1, &mpi->unsigned_max));
    MPI_TRY(MPI_Comm_rank(mpi->comm, &mpi->rank));
    MPI_TRY(MPI_Comm_size(mpi->comm, &mpi->size));
    MPI_TRY(MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank, MPI_INFO_NULL, &host));
    int here;
    MPI_TRY(MPI_Comm_size(host, &here));
    *env = (kolo_backend_env){.rank = mpi->rank, .world = mpi->size, .one_host = here == mpi->size};
    return checked(MPI_Comm_free(&host), "MPI_Comm_free");
}

static kolo_status mpi_open(void **state, int64_t started_ns, int64_t timeout_ns,
                            kolo_backend_env *env) {
    KOLO_TRY(start_mpi());
    mpi_state *mpi = kolo_zalloc(sizeof *mpi);
    if (!mpi) return KOLO_NOMEM(sizeof *mpi);
    kolo_status status = get_env(mpi, env);
    if (status == KOLO_OK) status = measure_wait(mpi, started_ns, timeout_ns, env);
    if (status != KOLO_OK) {
        kolo_free(mpi);
        return status;
    }
    *state = mpi;
    return KOLO_OK;
}

static kolo_status mpi_share(void *state, void *data, size_t bytes) {
    mpi_state *mpi = state;
    return checked(MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, mpi->comm), "MPI_Bcast");
}

static void mpi_close(void *state, bool sound) {
    mpi_state *mpi = state;
    if (sound) {
        (void)MPI_Op_free(&mpi->unsigned_min);
        (void)MPI_Op_free(&mpi->unsigned_max);
        (void)MPI_Comm_free(&mpi->comm);
    } else {
        atomic_store(&ends_in_order, false); /* the launcher detects that, and ends the job */
    }
    kolo_free(mpi);
}

/* ---- calls ---- */

static kolo_status check(const kolo_schedule_spec *spec, kolo_dtype dtype) {
    bool half = dtype == KOLO_DTYPE_F16 || dtype == KOLO_DTYPE_BF16;
    if (half && kolo_collective_reduces(spec->kind)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "MPI does not reduce %s: convert to f32, or use another transport",
                         kolo_dtype_name(dtype));
    }
    bool slices = kolo_collective_has_slices(spec->kind);
    size_t in = spec->firsts[spec->size], out = spec->output_firsts[spec->size];
    if (slices && (in > INT_MAX || out > INT_MAX)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "%zu elements in slices: MPI supports at most %d; use another transport",
                         in > out ? in : out, INT_MAX);
    }
    return KOLO_OK;
}

static void cut(const size_t *firsts, int size, int *counts, int *displacements) {
    for (int r = 0; r < size; r++) {
        counts[r] = (int)(firsts[r + 1] - firsts[r]);
        displacements[r] = (int)firsts[r];
    }
}

static void mpi_release(void *p) {
    mpi_call *c = p;
    if (!c || c->active) return; /* MPI may still use its memory */
    kolo_free(c->counts);
    kolo_free(c);
}

static kolo_status mpi_prepare(void *state, const kolo_schedule_spec *spec, kolo_dtype dtype,
                               kolo_reduce_op op, void **call) {
    mpi_state *mpi = state;
    KOLO_TRY(check(spec, dtype));
    size_t n = kolo_collective_has_slices(spec->kind) || spec->count == 0
                   ? 1
                   : (spec->count - 1) / PIECE + 1;
    size_t ranks = (size_t)spec->size;
    mpi_call *c = kolo_zalloc(sizeof *c + n * sizeof c->pieces[0]);
    int *slices = kolo_zalloc(4 * ranks * sizeof *slices);
    if (!c || !slices) {
        kolo_free(c);
        kolo_free(slices);
        return KOLO_NOMEM(sizeof *c + 4 * ranks * sizeof *slices);
    }
    *c = (mpi_call){.mpi = mpi,
                    .kind = spec->kind,
                    .element_bytes = kolo_dtype_bytes(dtype),
                    .count = spec->count,
                    .type = type_of(dtype),
                    .op = op_of(mpi, dtype, op),
                    .root = spec->root,
                    .counts = slices,
                    .firsts = slices + ranks,
                    .output_counts = slices + 2 * ranks,
                    .output_firsts = slices + 3 * ranks,
                    .n_pieces = (int)n};
    if (kolo_collective_has_slices(spec->kind)) {
        cut(spec->firsts, spec->size, c->counts, c->firsts);
        cut(spec->output_firsts, spec->size, c->output_counts, c->output_firsts);
    }
    *call = c;
    return KOLO_OK;
}

/* Starts piece i of a collective without slices. */
static int start_piece(mpi_call *c, int i, const void *input, void *output) {
    size_t first = (size_t)i * PIECE, left = c->count - first;
    int n = (int)(left < PIECE ? left : PIECE);
    char *to = output ? (char *)output + first * c->element_bytes : NULL;
    const void *from = input ? (const char *)input + first * c->element_bytes : MPI_IN_PLACE;
    MPI_Comm comm = c->mpi->comm;
    switch (c->kind) {
    case KOLO_COLLECTIVE_ALLREDUCE:
        return MPI_Iallreduce(from, to, n, c->type, c->op, comm, &c->pieces[i]);
    case KOLO_COLLECTIVE_BROADCAST:
        return MPI_Ibcast(to, n, c->type, c->root, comm, &c->pieces[i]);
    case KOLO_COLLECTIVE_REDUCE:
        return MPI_Ireduce(from, to, n, c->type, c->op, c->root, comm, &c->pieces[i]);
    default:
        return MPI_Ibarrier(comm, &c->pieces[i]);
    }
}

static int start_slices(mpi_call *c, const void *input, void *output) {
    MPI_Comm comm = c->mpi->comm;
    MPI_Request *request = &c->pieces[0];
    MPI_Datatype type = c->type;
    bool root = c->mpi->rank == c->root;
    int own = c->counts[c->mpi->rank];
    const void *from = input ? input : MPI_IN_PLACE;
    switch (c->kind) {
    case KOLO_COLLECTIVE_REDUCE_SCATTER:
        return MPI_Ireduce_scatter(from, output, c->counts, type, c->op, comm, request);
    case KOLO_COLLECTIVE_ALLGATHER:
        return MPI_Iallgatherv(from, own, type, output, c->counts, c->firsts, type, comm, request);
    case KOLO_COLLECTIVE_GATHER:
        return MPI_Igatherv(from, own, type, output, c->counts, c->firsts, type, c->root, comm,
                            request);
    case KOLO_COLLECTIVE_SCATTER: /* the root's own slice is in place */
        return MPI_Iscatterv(input, c->counts, c->firsts, type, root ? MPI_IN_PLACE : output, own,
                             type, c->root, comm, request);
    default:
        return MPI_Ialltoallv(from, c->counts, c->firsts, type, output, c->output_counts,
                              c->output_firsts, type, comm, request);
    }
}

static kolo_status mpi_start(void *p, const void *input, void *output) {
    mpi_call *c = p;
    c->active = true;
    for (int i = 0; i < c->n_pieces; i++) c->pieces[i] = MPI_REQUEST_NULL;
    if (kolo_collective_has_slices(c->kind)) return checked(start_slices(c, input, output), "MPI");
    for (int i = 0; i < c->n_pieces; i++) {
        KOLO_TRY(checked(start_piece(c, i, input, output), "MPI"));
    }
    return KOLO_OK;
}

static kolo_status mpi_test(void *p, bool *complete) {
    mpi_call *c = p;
    MPI_Status status;
    int done = 1;
    for (int i = 0; i < c->n_pieces && done; i++) { /* true for a null request */
        MPI_TRY(MPI_Test(&c->pieces[i], &done, &status));
    }
    *complete = done;
    c->active = !done;
    return KOLO_OK;
}

KOLO_API const kolo_backend_ops kolo_backend_table = {
    .name = "mpi",
    .open = mpi_open,
    .share = mpi_share,
    .prepare = mpi_prepare,
    .start = mpi_start,
    .test = mpi_test,
    .release = mpi_release,
    .close = mpi_close,
};
