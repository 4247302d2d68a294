/* Redistributions on ranks: every pair of placements on meshes of two axes, in f64.
 *
 * The numbers are small integers, so all sums are exact and comparisons are bitwise. Checked is
 * that the target's local tensors represent the tensor that the source's did, and that the
 * redistribution of gradients, gradient(to) -> gradient(from), is the adjoint: <T x, g> = <x, T' g>
 * for arbitrary x and g, where a product counts each invariant tensor once and the others on every
 * rank. */
#include "base/compiler.h"
#include "base/memory.h"
#include "comm/engine/request.h"
#include "mesh/link.h"
#include "support/fewer.h"
#include "support/placements.h"
#include "support/ranks.h"
#include "support/support.h"

#include <stdlib.h>
#include <string.h>

/* The tensor: [7, 6, 4]; cuts for axes of two and of three ranks. */
enum { ROWS = 7, COLUMNS = 6, DEPTH = 4, ELEMENTS = ROWS * COLUMNS * DEPTH };
static const int64_t cuts2[] = {0, 5, 7}, cuts3[] = {0, 0, 6, 7};

/* Rows with those of neighbours, and of ranks behind these. */
static const kolo_interval rows2[] = {{0, 5}, {3, 7}}, rows3[] = {{0, 4}, {2, 7}, {2, 7}};
static const kolo_halo halo2 = {.length = ROWS, .places = 2, .rows = rows2},
                       halo3 = {.length = ROWS, .places = 3, .rows = rows3};

/* Placements of an axis of two and of three ranks; the flat one comes last. */
static const kolo_placement placements[2][12] = {
    {INVARIANT, REPLICATED, PARTIAL, AT(1), SHARDED(.dim = 0), SHARDED(.dim = 1),
     SHARDED(.dim = 0, .cuts = cuts2), SHARDED(.dim = 1, .blocks = 3),
     SHARDED(.dim = 1, .rotation = 1), SHARDED(.dim = 0, .zigzag = true),
     SHARDED(.dim = 0, .halo = &halo2), SHARDED(.dim = KOLO_DIM_FLAT)},
    {INVARIANT, REPLICATED, PARTIAL, AT(2), SHARDED(.dim = 0, .depth = -1), SHARDED(.dim = 1),
     SHARDED(.dim = 0, .cuts = cuts3), SHARDED(.dim = 2, .blocks = 2),
     SHARDED(.dim = 1, .rotation = 2),
     SHARDED(.dim = 1, .blocks = 2, .rotation = 1, .zigzag = true),
     SHARDED(.dim = 0, .depth = -1, .halo = &halo3), SHARDED(.dim = KOLO_DIM_FLAT)},
};

typedef struct trial {
    kolo_mesh mesh;
    kolo_mesh_comms *comms;
    kolo_comm *world;
    int rank;
    kolo_shape shape;
} trial;

/* A small integer that depends on all of these. */
static double draw(uint64_t seed, uint64_t owner, uint64_t element) {
    uint64_t x =
        seed * 0x9e3779b97f4a7c15u + owner * 0xc2b2ae3d27d4eb4fu + element * 0x165667b19e3779f9u;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    return (double)(x % 17) - 8;
}

static bool any_flat(const trial *t, const kolo_placements *p) {
    for (int a = 0; a < t->mesh.n_axes; a++) {
        if (p->axis[a].kind == KOLO_PLACEMENT_SHARDED && p->axis[a].dim == KOLO_DIM_FLAT)
            return true;
    }
    return false;
}

/* Number of the rank among those that may differ in what they hold: ranks that are equal along
 * invariant and replicated axes have the same. */
static uint64_t version_of(const trial *t, const kolo_placements *p) {
    uint64_t version = 0;
    for (int a = 0; a < t->mesh.n_axes; a++) {
        kolo_placement_kind kind = p->axis[a].kind;
        if (kind != KOLO_PLACEMENT_PARTIAL && !p->axis[a].summands) continue;
        version = version * 8 + 1 + (uint64_t)kolo_mesh_coordinate(&t->mesh, t->rank, a);
    }
    return version;
}

/* Walks over the elements of this rank's region: fills `global` with their indices in the tensor.
 */
static kolo_status indices_of(const trial *t, const kolo_placements *p, int64_t *global,
                              int64_t *n) {
    kolo_arena arena = {0};
    kolo_mesh_region region;
    kolo_status status =
        kolo_mesh_region_of(&t->mesh, p, &t->shape, t->rank, false, &arena, &region);
    int64_t count = 0;
    if (status != KOLO_OK) return status;
    int64_t index[3];
    for (int i = 0; i < region.n[0]; i++)
        for (index[0] = region.intervals[0][i].first; index[0] < region.intervals[0][i].end;
             index[0]++)
            for (int j = 0; j < region.n[1]; j++)
                for (index[1] = region.intervals[1][j].first; index[1] < region.intervals[1][j].end;
                     index[1]++)
                    for (int k = 0; k < region.n[2]; k++)
                        for (index[2] = region.intervals[2][k].first;
                             index[2] < region.intervals[2][k].end; index[2]++)
                            global[count++] = (index[0] * COLUMNS + index[1]) * DEPTH + index[2];
    if (any_flat(t, p)) { /* a range of what the other axes leave */
        kolo_mesh_region range;
        status = kolo_mesh_region_of(&t->mesh, p, &t->shape, t->rank, true, &arena, &range);
        int64_t first = range.n[0] ? range.intervals[0][0].first : 0, length = range.shape.dim[0];
        if (status == KOLO_OK) memmove(global, global + first, (size_t)length * sizeof *global);
        count = length;
    }
    kolo_arena_fini(&arena);
    *n = count;
    return status;
}

/* Fills this rank's local tensor of a random tensor so placed. */
static kolo_status fill(const trial *t, const kolo_placements *p, uint64_t seed, double *local,
                        int64_t *n) {
    int64_t global[ELEMENTS];
    KOLO_TRY(indices_of(t, p, global, n));
    for (int64_t i = 0; i < *n; i++) local[i] = draw(seed, version_of(t, p), (uint64_t)global[i]);
    return KOLO_OK;
}

/* Whether this rank has a row as a copy for its halo. */
static bool is_copy(const trial *t, const kolo_placements *p, int64_t element) {
    const int64_t row = element / (COLUMNS * DEPTH);
    for (int a = 0; a < t->mesh.n_axes; a++) {
        if (!p->axis[a].halo || p->axis[a].summands) continue;
        const kolo_interval own =
            kolo_even_slice(ROWS, t->mesh.axes[a].size, kolo_mesh_coordinate(&t->mesh, t->rank, a));
        if (row < own.first || row >= own.end) return true;
    }
    return false;
}

/* The tensor that the local ones represent: each part from the rank at `end` of the axes along
 * which all hold it; summands add up. */
static kolo_status gather_tensor(const trial *t, const kolo_placements *p, const double *local,
                                 bool end, double *tensor) {
    int64_t global[ELEMENTS], n;
    KOLO_TRY(indices_of(t, p, global, &n));
    memset(tensor, 0, ELEMENTS * sizeof *tensor);
    for (int a = 0; a < t->mesh.n_axes; a++) {
        kolo_placement_kind kind = p->axis[a].kind;
        bool whole = kind == KOLO_PLACEMENT_INVARIANT || kind == KOLO_PLACEMENT_REPLICATED;
        int one = end ? t->mesh.axes[a].size - 1 : 0;
        if (whole && kolo_mesh_coordinate(&t->mesh, t->rank, a) != one) n = 0;
    }
    for (int64_t i = 0; i < n; i++) tensor[global[i]] += is_copy(t, p, global[i]) ? 0 : local[i];
    return kolo_allreduce(t->world, tensor, ELEMENTS, KOLO_DTYPE_F64, KOLO_SUM);
}

/* <x, g> over all ranks; where both are invariant, once. */
static kolo_status product(const trial *t, const kolo_placements *p, const double *x,
                           const double *g, int64_t n, double *result) {
    double sum = 0;
    for (int a = 0; a < t->mesh.n_axes; a++) {
        if (p->axis[a].kind == KOLO_PLACEMENT_INVARIANT &&
            kolo_mesh_coordinate(&t->mesh, t->rank, a) != 0) {
            n = 0;
        }
    }
    for (int64_t i = 0; i < n; i++) sum += x[i] * g[i];
    KOLO_TRY(kolo_allreduce(t->world, &sum, 1, KOLO_DTYPE_F64, KOLO_SUM));
    *result = sum;
    return KOLO_OK;
}

static kolo_status fault(const trial *t, const char *what, const kolo_placements *from,
                         const kolo_placements *to) {
    char a[KOLO_PLACEMENT_TEXT], b[KOLO_PLACEMENT_TEXT];
    return KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d: %s: %s -> %s", t->rank, what,
                     kolo_placements_text(&t->mesh, from, a),
                     kolo_placements_text(&t->mesh, to, b));
}

static kolo_status attach_measured(const trial *t, kolo_mesh_link *link) {
    KOLO_TRY(kolo_mesh_link_attach(link, t->comms));
    kolo_request *request;
    for (int i = 0; (request = kolo_mesh_link_request(link, i)); i++) kolo_request_measure(request);
    return KOLO_OK;
}

/* Each collective of a link has been timed, in the order in which they ran. */
static kolo_status check_times(const trial *t, const kolo_mesh_link *link,
                               const kolo_mesh_link_opts *o) {
    int64_t begin, end, before = 1;
    const kolo_request *request;
    for (int i = 0; (request = kolo_mesh_link_request(link, i)); i++) {
        kolo_request_interval(request, &begin, &end);
        if (kolo_collective_is_message(request->kind)) continue; /* not timed */
        if (begin < before || end < begin) return fault(t, "times", &o->from, &o->to);
        before = begin;
    }
    return KOLO_OK;
}

/* Runs a link three times: the second run finds the buffers of the first, the third new requests.
 */
static kolo_status move(const trial *t, const kolo_placements *from, const kolo_placements *to,
                        const double *source, double *target) {
    kolo_mesh_link_opts o = {
        .mesh = &t->mesh,
        .rank = t->rank,
        .shape = t->shape,
        .dtype = KOLO_DTYPE_F64,
        .from = *from,
        .to = *to,
        .source = source,
        .target = target,
    };
    kolo_mesh_link *link;
    if (kolo_mesh_link_create(&o, &link) != KOLO_OK) return fault(t, kolo_last_error(), from, to);
    kolo_status status = attach_measured(t, link);
    for (int i = 0; i < 3 && status == KOLO_OK; i++) {
        if (i == 2) {
            kolo_mesh_link_detach(link);
            KOLO_TRY(attach_measured(t, link));
        }
        memset(target, 0x7f, ELEMENTS * sizeof *target);
        status = kolo_mesh_link_post(link);
        if (status == KOLO_OK) status = kolo_mesh_link_wait(link);
        if (status == KOLO_OK) status = check_times(t, link, &o);
    }
    kolo_mesh_link_destroy(link);
    return status;
}

static bool has_halo(const trial *t, const kolo_placements *p) {
    for (int a = 0; a < t->mesh.n_axes; a++) {
        if (p->axis[a].halo) return true;
    }
    return false;
}

/* Copies of rows are those of the slice that another rank has. */
static kolo_status check_copies(const trial *t, const kolo_placements *p, const double *local) {
    double whole[ELEMENTS];
    int64_t global[ELEMENTS], n;
    KOLO_TRY(indices_of(t, p, global, &n));
    KOLO_TRY(gather_tensor(t, p, local, false, whole));
    for (int a = 0; a < t->mesh.n_axes; a++) { /* else the sum of several tensors */
        if (p->axis[a].kind == KOLO_PLACEMENT_PARTIAL) return KOLO_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        if (local[i] != whole[global[i]]) return fault(t, "copies", p, p);
    }
    return KOLO_OK;
}

/* One pair: values, equality of replicas, and the adjoint. */
static kolo_status check_pair(const trial *t, const kolo_placements *from,
                              const kolo_placements *to, uint64_t seed) {
    double x[ELEMENTS], y[ELEMENTS], g[ELEMENTS], h[ELEMENTS], before[ELEMENTS], after[ELEMENTS];
    kolo_placements g_from, g_to;
    int64_t n_from, n_to;
    KOLO_TRY(fill(t, from, seed, x, &n_from));
    KOLO_TRY(move(t, from, to, x, y));
    KOLO_TRY(gather_tensor(t, from, x, false, before));
    for (int end = 0; end < 2; end++) {
        KOLO_TRY(gather_tensor(t, to, y, end, after));
        if (memcmp(before, after, sizeof before) != 0) return fault(t, "values", from, to);
    }
    if (has_halo(t, to)) KOLO_TRY(check_copies(t, to, y));
    KOLO_TRY(kolo_placements_gradient(&t->mesh, from, &g_from));
    KOLO_TRY(kolo_placements_gradient(&t->mesh, to, &g_to));
    KOLO_TRY(fill(t, &g_to, seed + 1, g, &n_to));
    KOLO_TRY(move(t, &g_to, &g_from, g, h));
    double left, right;
    KOLO_TRY(product(t, to, y, g, n_to, &left));
    KOLO_TRY(product(t, from, x, h, n_from, &right));
    return left == right ? KOLO_OK : fault(t, "adjoint", from, to);
}

/* Whether the table has a row for the pair: shards of a dimension do not change under a flat
 * shard, and halos come from slices of the same dimension, which no other axis cuts. */
static bool is_pair(const trial *t, const kolo_placements *from, const kolo_placements *to) {
    bool flat = false, other = false;
    for (int a = 0; a < t->mesh.n_axes; a++) {
        const kolo_placement *ends[] = {&from->axis[a], &to->axis[a]};
        bool changes = !kolo_placement_equal(ends[0], ends[1], t->mesh.axes[a].size);
        if (changes && ends[0]->halo) return false;
        if (changes && ends[1]->halo) {
            kolo_placement slice = *ends[1];
            slice.halo = NULL;
            if (!kolo_placement_equal(ends[0], &slice, t->mesh.axes[a].size)) return false;
            const kolo_placement *beside = &from->axis[!a];
            if (beside->kind == KOLO_PLACEMENT_SHARDED && beside->dim == slice.dim) return false;
        }
        for (int i = 0; i < 2; i++) {
            if (ends[i]->kind != KOLO_PLACEMENT_SHARDED) continue;
            if (ends[i]->dim == KOLO_DIM_FLAT) flat = true;
            if (ends[i]->dim != KOLO_DIM_FLAT && changes) other = true;
        }
    }
    return !flat || !other;
}

/* Whether both ends fit the tensor: cuts cannot be given where another axis has cut unevenly. */
static bool fits(const trial *t, const kolo_placements *p) {
    return kolo_placements_check(&t->mesh, p, &t->shape) == KOLO_OK;
}

typedef struct pairs {
    char mesh[32];
    int stride; /* of the pairs that are tried */
} pairs;

static kolo_status pairs_body(kolo_comm *comm, const void *arg, void *result) {
    const pairs *j = arg;
    trial t = {.world = comm, .rank = kolo_comm_rank(comm), .shape = {3, {ROWS, COLUMNS, DEPTH}}};
    int *tried = result, number = 0;
    KOLO_TRY(kolo_mesh_parse(j->mesh, kolo_comm_size(comm), &t.mesh));
    KOLO_TRY(kolo_mesh_comms_create(&t.mesh, comm, &t.comms));
    const kolo_placement *first = placements[t.mesh.axes[0].size == 3],
                         *second = placements[t.mesh.axes[1].size == 3];
    enum { N = KOLO_COUNT(placements[0]) };
    kolo_status status = KOLO_OK;
    for (int i = 0; i < N * N * N * N && status == KOLO_OK; i++) {
        kolo_placements from = {.axis = {first[i % N], second[i / N % N]}};
        kolo_placements to = {.axis = {first[i / N / N % N], second[i / N / N / N]}};
        if (!fits(&t, &from) || !fits(&t, &to) || !is_pair(&t, &from, &to) ||
            number++ % j->stride != 0)
            continue;
        status = check_pair(&t, &from, &to, (uint64_t)i);
        ++*tried;
    }
    kolo_mesh_comms_destroy(t.comms);
    return status;
}

static void run_pairs(const char *mesh, int ranks, rank_transport transport, int stride,
                      int least) {
    int tried[8] = {0};
    pairs j = {.stride = stride};
    snprintf(j.mesh, sizeof j.mesh, "%s", mesh);
    rank_job job = {
        .n = ranks,
        .transport = transport,
        .body = pairs_body,
        .arg = &j,
        .arg_bytes = sizeof j,
        .results = tried,
        .result_bytes = sizeof *tried,
    };
    ASSERT_OK(run_rank_job(&job));
    for (int r = 0; r < ranks; r++) assert_true(tried[r] >= least);
}

/* Groups have a communicator each, in which ranks are numbered by their place. */
static kolo_status groups_body(kolo_comm *comm, const void *arg, void *result) {
    kolo_mesh mesh;
    kolo_mesh_comms *comms;
    int rank = kolo_comm_rank(comm);
    KOLO_TRY(kolo_mesh_parse("pp=2,dp=1,tp=3", kolo_comm_size(comm), &mesh));
    KOLO_TRY(kolo_mesh_comms_create(&mesh, comm, &comms));
    kolo_status status = KOLO_OK;
    for (kolo_axes axes = 0; axes <= kolo_mesh_all(&mesh) && status == KOLO_OK; axes++) {
        kolo_comm *group;
        status = kolo_mesh_comms_get(comms, axes, &group);
        if (status != KOLO_OK) break;
        if (kolo_comm_size(group) != kolo_mesh_group_size(&mesh, axes) ||
            kolo_comm_rank(group) != kolo_mesh_group_index(&mesh, axes, rank)) {
            status = KOLO_FAIL(KOLO_ERR_FORMAT, "rank %d: wrong group of axes %u", rank, axes);
        }
    }
    kolo_mesh_comms_destroy(comms);
    if (status != KOLO_OK) return status;
    KOLO_TRY(kolo_mesh_parse("dp=5", 0, &mesh));
    if (kolo_mesh_comms_create(&mesh, comm, &comms) == KOLO_ERR_ARG) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a mesh of 5 for 6 ranks is accepted");
}

/* Rank 0 fails while a message of the world is on its way: the cause stays the last error, and is
 * what the other rank gets. */
static kolo_status failing_body(kolo_comm *comm, const void *arg, void *result) {
    static const char cause[] = "the cause";
    kolo_mesh mesh;
    kolo_mesh_comms *comms;
    kolo_request *receive;
    float data;
    const kolo_request_opts opts = {
        .kind = KOLO_COLLECTIVE_RECV, .output = &data, .count = 1, .root = 1};
    if (kolo_comm_rank(comm) == 1) {
        if (kolo_recv(comm, &data, 1, KOLO_DTYPE_F32, 0, 0) == KOLO_ERR_PEER &&
            strstr(kolo_last_error(), cause))
            return KOLO_OK;
        return kolo_fail_in(KOLO_ERR_FORMAT, "rank 1");
    }
    KOLO_TRY(kolo_mesh_parse("tp=1,pp=2", kolo_comm_size(comm), &mesh));
    KOLO_TRY(kolo_mesh_comms_create(&mesh, comm, &comms));
    KOLO_TRY(kolo_request_create(comm, &opts, &receive));
    KOLO_TRY(kolo_request_start(receive));
    kolo_mesh_comms_fail(comms, KOLO_FAIL(KOLO_ERR_PEER, "%s", cause));
    kolo_request_destroy(receive);
    kolo_mesh_comms_destroy(comms);
    if (strcmp(kolo_last_error(), cause) == 0) return KOLO_OK;
    return kolo_fail_in(KOLO_ERR_FORMAT, "the last error");
}

static void a_failure_keeps_its_cause(void **state) {
    (void)state;
    ASSERT_OK(run_ranks(2, RANKS_THREAD, failing_body, NULL, 0));
    ASSERT_OK(run_ranks(2, RANKS_TCP, failing_body, NULL, 0));
}

/* Tensors without elements and scalars: each move runs, and scalars add up. */
static kolo_status edges_body(kolo_comm *comm, const void *arg, void *result) {
    static const kolo_placement ends[] = {
        INVARIANT,         PARTIAL,           AT(1),
        SHARDED(.dim = 0), SHARDED(.dim = 1), SHARDED(.dim = KOLO_DIM_FLAT)};
    enum { N = KOLO_COUNT(ends) };
    trial t = {.world = comm, .rank = kolo_comm_rank(comm), .shape = {2, {0, 5}}};
    double one[ELEMENTS] = {1}, two[ELEMENTS] = {0};
    KOLO_TRY(kolo_mesh_parse("dp=3", kolo_comm_size(comm), &t.mesh));
    KOLO_TRY(kolo_mesh_comms_create(&t.mesh, comm, &t.comms));
    kolo_status status = KOLO_OK;
    for (int i = 0; i < N * N && status == KOLO_OK; i++) {
        kolo_placements from = {.axis = {ends[i % N]}}, to = {.axis = {ends[i / N]}};
        bool flat = from.axis[0].dim == KOLO_DIM_FLAT || to.axis[0].dim == KOLO_DIM_FLAT;
        bool both = from.axis[0].kind == to.axis[0].kind;
        if (!(flat && both)) status = move(&t, &from, &to, one, two);
    }
    t.shape = (kolo_shape){0, {0}};
    kolo_placements partial = {.axis = {PARTIAL}}, invariant = {.axis = {INVARIANT}};
    if (status == KOLO_OK) status = move(&t, &partial, &invariant, one, two);
    if (status == KOLO_OK && two[0] != 3) status = fault(&t, "scalar", &partial, &invariant);
    kolo_mesh_comms_destroy(t.comms);
    return status;
}

static void empty_tensors_and_scalars(void **state) {
    (void)state;
    ASSERT_OK(run_ranks(3, RANKS_THREAD, edges_body, NULL, 0));
    ASSERT_OK(run_ranks(3, RANKS_TCP, edges_body, NULL, 0));
}

static void groups_have_communicators(void **state) {
    (void)state;
    ASSERT_OK(run_ranks(6, RANKS_THREAD, groups_body, NULL, 0));
}

/* Every how many of the pairs: all of them in `make soak`. */
static int stride(int usual) { return getenv("KOLO_SOAK") ? 1 : TEST_FEWER(5 * usual, usual); }

static void pairs_on_two_by_two(void **state) {
    (void)state;
    run_pairs("dp=2,tp=2", 4, RANKS_THREAD, stride(7), 100);
}

static void pairs_on_two_by_three(void **state) {
    (void)state;
    run_pairs("dp=2,tp=3", 6, RANKS_THREAD, stride(11), 60);
}

static void pairs_between_processes(void **state) {
    (void)state;
    run_pairs("dp=2,tp=2", 4, RANKS_SHM, stride(67), 10);
    run_pairs("dp=2,tp=2", 4, RANKS_TCP, stride(67), 10);
}

TEST_MAIN(test_redistribute) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_have_communicators), cmocka_unit_test(empty_tensors_and_scalars),
        cmocka_unit_test(pairs_on_two_by_two),       cmocka_unit_test(pairs_on_two_by_three),
        cmocka_unit_test(pairs_between_processes),   cmocka_unit_test(a_failure_keeps_its_cause),
    };
    return cmocka_run_group_tests_name("redistribute", tests, NULL, NULL);
}
