/* Reproducible allreduces: the same bits for any number of ranks, any cut into buckets, chunks and
 * parts, threads or processes; against the tree evaluated in one place. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"
#include "support/ranks.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { MOST = 3001, SHARDS_MOST = 12 };

typedef struct setting {
    kolo_dtype dtype;
    kolo_reduce_op op;
    int shards;
    size_t count;
    size_t bucket; /* elements of one request; 0: all in one */
    size_t chunk_bytes;
    bool uneven; /* the ranks have unequal numbers of shards, some none */
} setting;

/* The number of shards of each rank of an uneven setting: 0, 1, 2, 3, 0, ...; the last takes the
 * rest. */
static void deal(int shards, int size, size_t *counts) {
    int left = shards;
    for (int r = 0; r < size; r++) {
        int n = r % 4 < left ? r % 4 : left;
        counts[r] = (size_t)(r == size - 1 ? left : n);
        left -= (int)counts[r];
    }
}

/* The nodes of this rank. */
static int list_nodes(const setting *s, int size, int rank, const size_t *counts, uint32_t *nodes) {
    size_t first = 0;
    if (!s->uneven) return kolo_tree_nodes(s->shards, size, rank, nodes);
    for (int r = 0; r < rank; r++) first += counts[r];
    return kolo_tree_range_nodes(s->shards, (int)first, (int)(first + counts[rank]), nodes);
}

/* Element i of a shard: sizes far apart, so that the order of additions shows in the last bits. */
static void fill(void *data, int shard, size_t count, kolo_dtype dtype) {
    kolo_rng rng = kolo_rng_make(5, KOLO_RNG_TEST, (uint64_t)shard);
    for (size_t i = 0; i < count; i++) {
        float v = ldexpf(kolo_rng_normal(&rng, i), (int)(i * 7 + (size_t)shard * 3) % 9);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        uint16_t half = (uint16_t)(bits >> 16);
        if (dtype == KOLO_DTYPE_F32) memcpy((char *)data + 4 * i, &v, 4);
        if (dtype == KOLO_DTYPE_BF16) memcpy((char *)data + 2 * i, &half, 2);
    }
}

/* The value of a node by its definition, into `to`. False: there are no shards below it. */
static bool node_value(const setting *s, uint32_t node, void *to) {
    uint32_t leaves = 1;
    while (leaves < (uint32_t)s->shards) leaves *= 2;
    if (node >= leaves) {
        if (node - leaves >= (uint32_t)s->shards) return false;
        fill(to, (int)(node - leaves), s->count, s->dtype);
        return true;
    }
    void *right = kolo_zalloc(s->count * 4 + 64);
    bool some = right && node_value(s, 2 * node, to);
    if (some && node_value(s, 2 * node + 1, right)) {
        some = kolo_combine(to, right, s->count, s->dtype, s->op) == KOLO_OK;
    }
    kolo_free(right);
    return some;
}

static kolo_status reduce_buckets(kolo_comm *comm, const setting *s, const uint32_t *nodes, int n,
                                  const size_t *counts, char **values, char *result) {
    size_t e = kolo_dtype_bytes(s->dtype), bucket = s->bucket ? s->bucket : s->count;
    for (size_t first = 0; first < s->count; first += bucket) {
        kolo_part parts[62];
        size_t count = s->count - first < bucket ? s->count - first : bucket;
        for (int i = 0; i < n; i++) {
            parts[i] = (kolo_part){nodes[i], values[i] + first * e, count};
        }
        kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                               .dtype = s->dtype,
                               .op = s->op,
                               .shards = s->shards,
                               .counts = s->uneven ? counts : NULL,
                               .parts = parts,
                               .n_parts = n,
                               .output = result + first * e,
                               .count = count,
                               .site = "reproducible"};
        KOLO_TRY(kolo_request_run(comm, &o, 0));
    }
    return KOLO_OK;
}

static kolo_status sum_body(kolo_comm *comm, const void *arg, void *result) {
    const setting *s = arg;
    uint32_t nodes[62];
    size_t counts[8];
    char *values[62] = {NULL}, *sum = kolo_zalloc(MOST * 4);
    deal(s->shards, kolo_comm_size(comm), counts);
    int n = list_nodes(s, kolo_comm_size(comm), kolo_comm_rank(comm), counts, nodes);
    kolo_comm_set_tuning(comm, (kolo_comm_tuning){.chunk_bytes = s->chunk_bytes});
    for (int i = 0; i < n; i++) {
        values[i] = kolo_zalloc(MOST * 4);
        if (!values[i] || !node_value(s, nodes[i], values[i])) return KOLO_NOMEM(MOST);
    }
    /* The memory of a part may take the result. */
    char *to = n > 0 && s->bucket ? values[s->uneven ? n - 1 : 0] : sum;
    kolo_status status = reduce_buckets(comm, s, nodes, n, counts, values, to);
    *(uint64_t *)result = kolo_hash_bytes(to, s->count * kolo_dtype_bytes(s->dtype));
    for (int i = 0; i < n; i++) kolo_free(values[i]);
    kolo_free(sum);
    return status;
}

static void bits_depend_on_the_shards_alone(void **state) {
    static const setting settings[] = {
        {KOLO_DTYPE_F32, KOLO_SUM, 8, MOST, 0, 0, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 8, MOST, 0, 256, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 8, MOST, 1000, 128, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 12, MOST, 0, 0, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 5, MOST, 700, 0, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 1, 100, 0, 0, false},
        {KOLO_DTYPE_F32, KOLO_PROD, 12, 77, 0, 64, false},
        {KOLO_DTYPE_BF16, KOLO_SUM, 8, MOST, 0, 64, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 3, 1, 0, 0, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 3, 0, 0, 0, false},
        {KOLO_DTYPE_F32, KOLO_SUM, 8, MOST, 0, 0, true},
        {KOLO_DTYPE_F32, KOLO_SUM, 11, MOST, 1000, 128, true},
        {KOLO_DTYPE_F32, KOLO_SUM, 7, 3, 1, 0, true},
    };
    static const int worlds[] = {1, 2, 3, 4, 5, 8};
    for (size_t i = 0; i < KOLO_COUNT(settings); i++) {
        const setting *s = &settings[i];
        char *whole = kolo_zalloc(MOST * 4);
        assert_true(node_value(s, 1, whole));
        uint64_t want = kolo_hash_bytes(whole, s->count * kolo_dtype_bytes(s->dtype));
        kolo_free(whole);
        for (size_t w = 0; w < KOLO_COUNT(worlds); w++) {
            for (int t = RANKS_THREAD; t <= RANKS_SHM; t++) {
                uint64_t hashes[8];
                if (t == RANKS_SHM && (i > 1 || worlds[w] > 4)) continue;
                ASSERT_OK(run_rank_job(&(rank_job){.n = worlds[w],
                                                   .transport = (rank_transport)t,
                                                   .body = sum_body,
                                                   .arg = s,
                                                   .arg_bytes = sizeof *s,
                                                   .results = hashes,
                                                   .result_bytes = sizeof hashes[0]}));
                for (int r = 0; r < worlds[w]; r++) assert_int_equal(hashes[r], want);
            }
        }
    }
}

/* Shard s has the value s + 1; its mean does not depend on the ranks that hold the shards. */
static kolo_status mean_body(kolo_comm *comm, const void *arg, void *result) {
    enum { SHARDS = 12 };
    kolo_part parts[62];
    float values[62] = {0};
    uint32_t nodes[62];
    int size = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    int n = kolo_tree_nodes(SHARDS, size, rank, nodes);
    for (int i = 0; i < n; i++) {
        uint32_t first = nodes[i], end = nodes[i] + 1;
        for (; first < 16; end *= 2) first *= 2;
        for (uint32_t leaf = first; leaf < end && leaf < 16 + SHARDS; leaf++) {
            values[i] += (float)(leaf - 15);
        }
        parts[i] = (kolo_part){nodes[i], &values[i], 1};
    }
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                           .op = KOLO_MEAN,
                           .shards = SHARDS,
                           .parts = parts,
                           .n_parts = n,
                           .output = result,
                           .count = 1};
    return kolo_request_run(comm, &o, 0);
}

static void a_mean_is_divided_by_the_shards(void **state) {
    for (int n = 1; n <= 4; n++) {
        float means[4];
        ASSERT_OK(run_rank_job(&(rank_job){
            .n = n, .body = mean_body, .results = means, .result_bytes = sizeof means[0]}));
        for (int r = 0; r < n; r++) assert_float_equal(means[r], 6.5F, 0);
    }
}

/* ---- the ways that values take ---- */

typedef struct way {
    bool registered;
    int shards;
    size_t count;
    const char schedule[24];
} way;

/* Started repeatedly, with the result in its own place and in that of the first value. */
static kolo_status way_body(kolo_comm *comm, const void *arg, void *result) {
    const way *w = arg;
    setting s = {.dtype = KOLO_DTYPE_BF16, .shards = w->shards, .count = w->count};
    uint32_t nodes[62];
    int n = kolo_tree_nodes(s.shards, kolo_comm_size(comm), kolo_comm_rank(comm), nodes);
    static char private_memory[12][2 * MOST];
    kolo_part parts[11];
    void *memory[12];
    for (int i = 0; i < n + 1; i++) {
        memory[i] = private_memory[i];
        if (w->registered) KOLO_TRY(kolo_comm_alloc(comm, 2 * MOST, &memory[i]));
        if (i < n) parts[i] = (kolo_part){nodes[i], memory[i], s.count};
    }
    for (int start = 0; start < 4; start++) {
        kolo_request *q;
        void *to = memory[start % 2 ? 0 : n];
        kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                               .dtype = s.dtype,
                               .shards = s.shards,
                               .parts = parts,
                               .n_parts = n,
                               .output = to,
                               .count = s.count};
        for (int i = 0; i < n; i++) {
            if (!node_value(&s, nodes[i], memory[i])) return KOLO_NOMEM(MOST);
        }
        KOLO_TRY(kolo_request_create(comm, &o, &q));
        KOLO_TRY(kolo_request_start(q));
        KOLO_TRY(kolo_request_wait(q, 0));
        if (strcmp(kolo_request_schedule_name(q), w->schedule) != 0) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "by %s", kolo_request_schedule_name(q));
        }
        kolo_request_destroy(q);
        uint64_t hash = kolo_hash_bytes(to, 2 * s.count);
        if (start > 0 && hash != *(uint64_t *)result) return KOLO_FAIL(KOLO_ERR_FORMAT, "bits");
        *(uint64_t *)result = hash;
    }
    return KOLO_OK;
}

static void all_ways_give_the_same_bits(void **state) {
    static const way ways[] = {
        {true, 9, 20, "fixed-tree-eager"},    {true, 9, MOST, "fixed-tree-direct"},
        {true, 2, MOST, "fixed-tree-direct"}, {true, 1, 700, "fixed-tree-direct"},
        {false, 9, 20, "fixed-tree-eager"},   {false, 9, MOST, "fixed-tree"}};
    for (size_t i = 0; i < KOLO_COUNT(ways); i++) {
        const way *w = &ways[i];
        setting s = {.dtype = KOLO_DTYPE_BF16, .shards = w->shards, .count = w->count};
        char *whole = kolo_zalloc(MOST * 4);
        assert_true(node_value(&s, 1, whole));
        uint64_t want = kolo_hash_bytes(whole, 2 * s.count), hashes[4];
        kolo_free(whole);
        for (int n = 2; n <= 4; n++) {
            ASSERT_OK(run_rank_job(&(rank_job){.n = n,
                                               .transport = RANKS_SHM,
                                               .body = way_body,
                                               .arg = w,
                                               .arg_bytes = sizeof *w,
                                               .results = hashes,
                                               .result_bytes = sizeof hashes[0]}));
            for (int r = 0; r < n; r++) assert_int_equal(hashes[r], want);
        }
    }
}

static void wrong_parts_are_refused(void **state) {
    kolo_comm *comms[2];
    kolo_request *q;
    float a[4] = {0}, b[4] = {0};
    uint32_t nodes[62];
    ASSERT_OK(kolo_comm_create_threads(2, NULL, comms));
    int n = kolo_tree_nodes(3, 2, 0, nodes); /* shards 0 and 1: their parent */
    assert_int_equal(n, 1);
    assert_int_equal(nodes[0], 2);
    kolo_part right = {2, a, 4}, other = {3, a, 4}, shorter = {2, a, 3};
    kolo_request_opts o = {.kind = KOLO_COLLECTIVE_ALLREDUCE,
                           .shards = 3,
                           .parts = &right,
                           .n_parts = 1,
                           .output = b,
                           .count = 4};
    ASSERT_OK(kolo_request_create(comms[0], &o, &q));
    kolo_request_destroy(q);
    o.parts = &other;
    assert_int_equal(kolo_request_create(comms[0], &o, &q), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "part 0 is node 3, not 2"));
    o.parts = &shorter;
    assert_int_equal(kolo_request_create(comms[0], &o, &q), KOLO_ERR_ARG);
    o.parts = &right;
    o.n_parts = 0;
    assert_int_equal(kolo_request_create(comms[0], &o, &q), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "has 1 nodes"));
    o.n_parts = 1;
    o.kind = KOLO_COLLECTIVE_BROADCAST;
    assert_int_equal(kolo_request_create(comms[0], &o, &q), KOLO_ERR_ARG);
    assert_int_equal(kolo_combine(a, b, 4, (kolo_dtype)77, KOLO_SUM), KOLO_ERR_ARG);
    for (int r = 0; r < 2; r++) kolo_comm_destroy(comms[r]);
}

TEST_MAIN(test_comm_reproducible) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_depend_on_the_shards_alone),
        cmocka_unit_test(a_mean_is_divided_by_the_shards),
        cmocka_unit_test(all_ways_give_the_same_bits),
        cmocka_unit_test(wrong_parts_are_refused),
    };
    return cmocka_run_group_tests_name("comm_reproducible", tests, NULL, NULL);
}
