/* Schedules: correct for any group size; every entry is needed; counts and text. */
#include "base/memory.h"
#include "comm/schedule/algorithms.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

enum { SIZE_MOST = 64 };

typedef enum slicing { EVEN, UNEVEN } slicing;

/* Which host each rank is on: none given, two by two, dealt out to three, and all but two together.
 */
typedef enum hosting { ONE_HOST, PAIRS, DEALT, CROWD, HOSTINGS } hosting;

/* What a check is about. */
typedef struct one_case {
    const kolo_algorithm_row *row;
    int size, root;
    size_t count, chunk; /* count: elements of the whole vector, about */
    slicing slicing;
    bool out_of_place, scaled;
    hosting hosts;
    int shards; /* fixed-tree; 0: some number */
} one_case;

typedef struct group {
    kolo_schedule_spec specs[SIZE_MOST];
    kolo_schedule schedules[SIZE_MOST];
    size_t firsts[SIZE_MOST][2][SIZE_MOST + 1]; /* an all-to-all's differ between ranks */
    int host_of[SIZE_MOST];
    int size;
} group;

/* Elements of rank `to`'s slice of rank `from`'s input; the same for every `from` but in an
 * all-to-all. Uneven: a few empty ones, and one long one. */
static size_t slice(const one_case *c, int from, int to) {
    size_t even = (c->count + (size_t)c->size - 1) / (size_t)c->size;
    if (c->slicing == EVEN) return even;
    int k = c->row->kind == KOLO_COLLECTIVE_ALLTOALL ? from + 2 * to : to;
    return k % 3 == 1 ? 0 : even + (size_t)(k % 5);
}

static int host(hosting hosts, int rank) {
    if (hosts == PAIRS) return rank / 2;
    if (hosts == DEALT) return rank % 3;
    return rank < 2 ? rank : 2;
}

static void group_write(group *g, const one_case *c) {
    for (int r = 0; r < c->size; r++) g->host_of[r] = host(c->hosts, r);
    bool alltoall = c->row->kind == KOLO_COLLECTIVE_ALLTOALL;
    g->size = c->size;
    for (int r = 0; r < c->size; r++) {
        for (int p = 0; p < c->size; p++) {
            size_t in = slice(c, r, p), out = slice(c, p, r);
            g->firsts[r][0][p + 1] = g->firsts[r][0][p] + in;
            g->firsts[r][1][p + 1] = g->firsts[r][1][p] + (alltoall ? out : in);
        }
        bool scales = c->scaled && kolo_collective_reduces(c->row->kind);
        g->specs[r] = (kolo_schedule_spec){
            .kind = c->row->kind,
            .rank = r,
            .size = c->size,
            .root = c->root,
            .count = kolo_collective_has_slices(c->row->kind) ? g->firsts[r][0][c->size] : c->count,
            .firsts = g->firsts[r][0],
            .output_firsts = g->firsts[r][1],
            .hosts = c->hosts == ONE_HOST ? NULL : g->host_of,
            .shards = c->row->algorithm != KOLO_ALGORITHM_REPRODUCIBLE ? 0
                      : c->shards > 0                                  ? c->shards
                                                                       : 2 * c->size + 1,
            .in_place = !c->out_of_place,
            .prescale = scales && c->row->algorithm != KOLO_ALGORITHM_REPRODUCIBLE,
            .postscale = scales,
            .chunk = c->chunk,
            .align = c->chunk < 4 ? 1 : 4,
        };
        ASSERT_OK(kolo_schedule_build(c->row, &g->specs[r], &g->schedules[r]));
    }
}

static void group_fini(group *g) {
    for (int r = 0; r < g->size; r++) kolo_schedule_fini(&g->schedules[r]);
}

static void fail_case(const one_case *c, const char *what) {
    fail_msg("%s, %d ranks, root %d, %zu elements, chunk %zu%s%s%s: %s", c->row->name, c->size,
             c->root, c->count, c->chunk, c->slicing == UNEVEN ? ", uneven" : "",
             c->out_of_place ? ", out of place" : "", c->scaled ? ", scaled" : "", what);
}

static void check(const one_case *c) {
    static group g;
    group_write(&g, c);
    if (kolo_schedule_check(g.specs, g.schedules, c->size) != KOLO_OK)
        fail_case(c, kolo_last_error());
    group_fini(&g);
}

/* In every form that its kind has: in place and not, scaled and not, with even and uneven slices.
 */
static void check_forms(one_case c) {
    kolo_collective kind = c.row->kind;
    if (kind == KOLO_COLLECTIVE_BARRIER) c.count = 0;
    bool has_input = kind != KOLO_COLLECTIVE_BARRIER && kind != KOLO_COLLECTIVE_BROADCAST;
    for (int out = 0; out <= has_input; out++) {
        for (int scaled = 0; scaled <= kolo_collective_reduces(kind); scaled++) {
            for (int uneven = 0; uneven <= kolo_collective_has_slices(kind); uneven++) {
                bool in_place_alltoall = kind == KOLO_COLLECTIVE_ALLTOALL && !out;
                if (in_place_alltoall && uneven) continue; /* slices must be alike */
                c.out_of_place = out;
                c.scaled = scaled;
                c.slicing = uneven ? UNEVEN : EVEN;
                check(&c);
            }
        }
    }
}

static bool has_root(kolo_collective kind) {
    return kind == KOLO_COLLECTIVE_BROADCAST || kind == KOLO_COLLECTIVE_REDUCE ||
           kind == KOLO_COLLECTIVE_GATHER || kind == KOLO_COLLECTIVE_SCATTER;
}

static void every_algorithm_is_correct_for_any_size(void **state) {
    static const struct {
        size_t count, chunk;
    } cases[] = {{0, 4},   {1, 4},   {7, 4},      {67, 4}, {15, 16},
                 {16, 16}, {17, 16}, {131, 1000}, {130, 3}};
    const kolo_algorithm_row *row;
    for (size_t i = 0; (row = kolo_algorithm_row_at(i)); i++) {
        for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
            for (int size = 1; size <= SIZE_MOST; size = size < 9 ? size + 1 : 2 * size - 1) {
                for (int root = 0; root<size; root += size> 8 ? 7 : 1) {
                    check_forms((one_case){.row = row,
                                           .size = size,
                                           .root = root,
                                           .count = cases[c].count,
                                           .chunk = cases[c].chunk});
                    if (!has_root(row->kind)) break;
                }
            }
        }
        for (int size = 1; size <= SIZE_MOST; size++) {
            check(&(one_case){.row = row,
                              .size = size,
                              .root = size / 2,
                              .count = 67,
                              .chunk = 4,
                              .out_of_place = size % 2 == 1});
        }
    }
}

/* The sums of the fixed tree are the same for any group; the check follows its nodes. */
static void the_fixed_tree_is_correct_for_any_shards(void **state) {
    static const kolo_variant variants[] = {KOLO_VARIANT_MESSAGES, KOLO_VARIANT_WINDOW,
                                            KOLO_VARIANT_EAGER};
    for (size_t v = 0; v < KOLO_COUNT(variants); v++) {
        const kolo_algorithm_row *row = kolo_algorithm_find(
            KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_REPRODUCIBLE, variants[v]);
        for (int size = 1; size <= SIZE_MOST; size = size < 9 ? size + 1 : 2 * size - 1) {
            for (int shards = 1; shards <= 70; shards += shards < 10 ? 1 : 6) {
                check(&(one_case){
                    .row = row, .size = size, .count = 19, .chunk = 4, .shards = shards});
            }
        }
    }
    for (int shards = 1; shards < 200; shards++) { /* every shard stands below one node, in order */
        for (int size = 1; size < 20; size++) {
            uint32_t nodes[64];
            int total = 0;
            for (int r = 0; r < size; r++) {
                int n = kolo_tree_nodes(shards, size, r, nodes);
                for (int i = 1; i < n; i++) assert_true(nodes[i] != nodes[i - 1]);
                assert_true(n <= 62);
                total += n;
            }
            assert_true(total >= 1 && total <= shards);
        }
    }
    assert_int_equal(kolo_tree_nodes(0, 2, 0, NULL), 0);
}

static const kolo_algorithm_row *by_messages(kolo_algorithm algorithm) {
    return kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, algorithm, KOLO_VARIANT_MESSAGES);
}

static const kolo_algorithm_row *hierarchical(kolo_variant variant) {
    return kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_HIERARCHICAL, variant);
}

static void hierarchical_is_correct_on_any_hosts(void **state) {
    static const kolo_variant variants[] = {KOLO_VARIANT_MESSAGES, KOLO_VARIANT_WINDOW};
    for (size_t i = 0; i < 2 * KOLO_COUNT(variants); i++) {
        const kolo_algorithm_row *row = hierarchical(variants[i / 2]);
        for (int size = 1; size <= SIZE_MOST; size = size < 13 ? size + 1 : 2 * size - 3) {
            for (int h = PAIRS; h < HOSTINGS; h++) {
                check(&(one_case){.row = row,
                                  .size = size,
                                  .count = i % 2 ? 67 : 3,
                                  .chunk = 4,
                                  .hosts = (hosting)h});
            }
        }
    }
}

/* Removes each entry of each rank in turn. */
static void check_every_entry(const one_case *c) {
    static group g;
    for (int rank = 0; rank < c->size; rank++) {
        size_t n = 1;
        for (size_t i = 0; i < n; i++) {
            group_write(&g, c);
            n = g.schedules[rank].n_entries;
            if (i < n) {
                kolo_schedule_remove(&g.schedules[rank], i);
                if (kolo_schedule_check(g.specs, g.schedules, c->size) == KOLO_OK) {
                    char what[80];
                    snprintf(what, sizeof what, "correct without entry %zu of rank %d", i, rank);
                    fail_case(c, what);
                }
            }
            group_fini(&g);
        }
    }
}

static void no_entry_can_be_left_out(void **state) {
    const kolo_algorithm_row *row;
    for (size_t i = 0; (row = kolo_algorithm_row_at(i)); i++) {
        size_t count = row->kind == KOLO_COLLECTIVE_BARRIER ? 0 : 23;
        bool has_input =
            row->kind != KOLO_COLLECTIVE_BARRIER && row->kind != KOLO_COLLECTIVE_BROADCAST;
        for (int size = 2; size <= 5; size++) {
            check_every_entry(
                &(one_case){.row = row, .size = size, .root = 0, .count = count, .chunk = 4});
            if (has_input) {
                check_every_entry(&(one_case){.row = row,
                                              .size = size,
                                              .root = size - 1,
                                              .count = count,
                                              .chunk = 4,
                                              .slicing = UNEVEN,
                                              .out_of_place = true,
                                              .scaled = true});
            }
        }
    }
    const kolo_algorithm_row *ring = by_messages(KOLO_ALGORITHM_RING);
    for (int h = PAIRS; h < HOSTINGS; h++) {
        for (int window = 0; window < 2; window++) {
            check_every_entry(&(one_case){
                .row = hierarchical(window ? KOLO_VARIANT_WINDOW : KOLO_VARIANT_MESSAGES),
                .size = 5,
                .count = 23,
                .chunk = 4,
                .hosts = (hosting)h});
        }
    }
    check_every_entry(&(one_case){.row = ring, .size = 8, .root = 0, .count = 64, .chunk = 4});
}

/* The check itself: wrong schedules get the right error. */
static void faults_are_distinguished(void **state) {
    const kolo_algorithm_row *ring = by_messages(KOLO_ALGORITHM_RING);
    const kolo_algorithm_row *direct =
        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_DIRECT, KOLO_VARIANT_WINDOW);
    static group g;
    const one_case of_ring = {.row = ring, .size = 2, .root = 0, .count = 8, .chunk = 100},
                   of_direct = {.row = direct, .size = 2, .root = 0, .count = 8, .chunk = 100};
    group_write(&g, &of_ring);
    kolo_schedule_remove(&g.schedules[0], g.schedules[0].n_entries - 1);
    assert_int_equal(kolo_schedule_check(g.specs, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "deadlock"));
    group_fini(&g);

    group_write(&g, &of_direct);
    kolo_schedule *s = &g.schedules[0]; /* copy_from 0, reduce_from 1, copy_to 0, copy_to 1 */
    s->entries[1].peer = 0;
    assert_int_equal(kolo_schedule_check(g.specs, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "twice"));
    s->entries[1].peer = 1;
    s->entries[2].to_first += 4; /* writes into the slice that the other rank reads and writes */
    assert_int_equal(kolo_schedule_check(g.specs, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "race"));
    s->entries[2].to_first += 100;
    assert_int_equal(kolo_schedule_check(g.specs, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "outside"));
    group_fini(&g);
    assert_int_equal(kolo_schedule_check(NULL, NULL, 65), KOLO_ERR_ARG);
}

static void ring_moves_the_minimum(void **state) {
    const kolo_algorithm_row *ring = by_messages(KOLO_ALGORITHM_RING);
    for (int size = 2; size <= 8; size++) {
        static group g;
        size_t count = (size_t)size * 12, part = 12, steps = (size_t)size - 1;
        group_write(&g,
                    &(one_case){.row = ring, .size = size, .root = 0, .count = count, .chunk = 5});
        kolo_traffic t = kolo_schedule_traffic(&g.schedules[size - 1]);
        assert_int_equal(t.sent, 2 * steps * part);
        assert_int_equal(t.received, 2 * steps * part);
        assert_int_equal(t.reduced, steps * part);
        assert_int_equal(t.copied, 0);
        group_fini(&g);
    }
}

/* Between hosts the traffic is that of a ring of hosts, spread over all their ranks; a flat ring
 * brings more than that through each link in either direction. */
static void hierarchical_spares_the_links_between_hosts(void **state) {
    static const struct {
        int size;
        hosting hosts;
        int n_hosts, lanes;
    } cases[] = {{4, PAIRS, 2, 2}, {8, PAIRS, 4, 2}, {9, DEALT, 3, 3}, {6, CROWD, 3, 1}};
    const size_t count = 720;
    for (size_t i = 0; i < 2 * KOLO_COUNT(cases); i++) {
        static group g;
        kolo_variant variant = i % 2 ? KOLO_VARIANT_WINDOW : KOLO_VARIANT_MESSAGES;
        group_write(&g, &(one_case){.row = hierarchical(variant),
                                    .size = cases[i / 2].size,
                                    .count = count,
                                    .chunk = 3,
                                    .hosts = cases[i / 2].hosts});
        size_t out[SIZE_MOST] = {0}, h = (size_t)cases[i / 2].n_hosts;
        for (int r = 0; r < g.size; r++) {
            for (size_t e = 0; e < g.schedules[r].n_entries; e++) {
                const kolo_entry *entry = &g.schedules[r].entries[e];
                bool leaves =
                    entry->kind == KOLO_ENTRY_SEND && g.host_of[entry->peer] != g.host_of[r];
                if (leaves) out[g.host_of[r]] += entry->count;
            }
        }
        for (size_t k = 0; k < h; k++) assert_int_equal(out[k], 2 * (h - 1) * count / h);
        group_fini(&g);
    }
}

/* No rank passes on more than a whole vector each way: none is an inner node of both trees. */
static void double_tree_shares_the_work(void **state) {
    for (int size = 2; size <= SIZE_MOST; size++) {
        static group g;
        const size_t count = 120;
        group_write(&g, &(one_case){.row = by_messages(KOLO_ALGORITHM_DOUBLE_TREE),
                                    .size = size,
                                    .count = count,
                                    .chunk = 8});
        for (int r = 0; r < size; r++) {
            kolo_traffic t = kolo_schedule_traffic(&g.schedules[r]);
            assert_true(t.sent <= 2 * count && t.received <= 2 * count);
            assert_true(t.reduced <= count);
        }
        group_fini(&g);
    }
}

static void halving_doubling_takes_logarithmic_steps(void **state) {
    for (int k = 1; k <= 6; k++) {
        static group g;
        size_t size = (size_t)1 << k, count = 4 * size;
        group_write(&g, &(one_case){.row = by_messages(KOLO_ALGORITHM_HALVING_DOUBLING),
                                    .size = (int)size,
                                    .count = count,
                                    .chunk = count});
        for (int r = 0; r < g.size; r++) {
            kolo_traffic t = kolo_schedule_traffic(&g.schedules[r]);
            assert_int_equal(t.sent, 2 * (size - 1) * count / size);
            assert_true(g.schedules[r].n_rounds <= 3 * (size_t)k + 1);
        }
        group_fini(&g);
    }
}

static void schedules_print_as_text(void **state) {
    const kolo_algorithm_row *ring = by_messages(KOLO_ALGORITHM_RING);
    static group g;
    group_write(&g, &(one_case){.row = ring, .size = 2, .root = 0, .count = 8, .chunk = 100});
    kolo_text text = {0};
    kolo_schedule_print(&g.schedules[0], &text);
    assert_string_equal(
        text.text,
        "schedule ring rounds 2 entries 5 scratch 8 sent 8 received 8 reduced 4 copied 0\n"
        "round 0\n"
        "  send data[0,4) rank 1\n"
        "  recv scratch[4,8) rank 1\n"
        "round 1\n"
        "  reduce data[4,8) <- scratch[4,8)\n"
        "  send data[4,8) rank 1\n"
        "  recv data[0,4) rank 1\n");
    kolo_text_fini(&text);
    group_fini(&g);
}

static void building_survives_lack_of_memory(void **state) {
    const kolo_algorithm_row *row;
    for (size_t i = 0; (row = kolo_algorithm_row_at(i)); i++) {
        static const size_t firsts[] = {0, 20, 40, 60, 80, 100};
        kolo_schedule_spec spec = {.kind = row->kind,
                                   .size = 5,
                                   .rank = 3,
                                   .count = 100,
                                   .firsts = firsts,
                                   .output_firsts = firsts,
                                   .shards = row->algorithm == KOLO_ALGORITHM_REPRODUCIBLE ? 7 : 0,
                                   .chunk = 4,
                                   .align = 1};
        kolo_status status = KOLO_ERR_NOMEM;
        for (long nth = 1; status != KOLO_OK; nth++) {
            kolo_schedule s;
            kolo_alloc_fail_nth(nth);
            status = kolo_schedule_build(row, &spec, &s);
            kolo_alloc_fail_nth(0);
            assert_true(status == KOLO_OK || status == KOLO_ERR_NOMEM);
            if (status == KOLO_OK) kolo_schedule_fini(&s);
        }
    }
}

static void every_algorithm_is_complete(void **state) {
    for (int i = KOLO_ALGORITHM_AUTO + 1; i < KOLO_ALGORITHM_COUNT; i++) {
        kolo_algorithm a = (kolo_algorithm)i;
        const kolo_algorithm_info *info = kolo_algorithm_info_of(a);
        assert_true(kolo_algorithm_name(a)[0] && kolo_algorithm_description(a)[0]);
        assert_true(info->steps && info->volume);
        for (int n = 2; n <= SIZE_MOST; n++) {
            assert_true(info->steps(n, 2) >= 1 && info->volume(n, 2) > 0);
        }
        assert_true(info->memory_cost.step_us > 0 && info->memory_cost.mib_us > 0);
        assert_true(info->network_cost.step_us > 0 && info->network_cost.mib_us > 0);
        assert_non_null(info->rows[0].write);
        assert_null(info->rows[KOLO_ALGORITHM_ROWS].write);
        /* Private data needs one of these. */
        assert_true(kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, a, KOLO_VARIANT_MESSAGES) ||
                    kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, a, KOLO_VARIANT_STAGED));
        for (const kolo_algorithm_row *row = info->rows; row->write; row++) {
            assert_true(row->name && row->name[0]);
            assert_int_equal(row->kind, KOLO_COLLECTIVE_ALLREDUCE);
            assert_int_equal(row->algorithm, a);
            assert_ptr_equal(kolo_algorithm_find(row->kind, a, row->variant), row);
        }
        kolo_algorithm parsed;
        ASSERT_OK(kolo_algorithm_parse(kolo_algorithm_name(a), &parsed));
        assert_int_equal(parsed, a);
        assert_int_equal(kolo_algorithm_parse("butterfly", &parsed), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), kolo_algorithm_name(a)));
    }
}

static void names_are_parsed_with_suggestions(void **state) {
    kolo_algorithm algorithm;
    ASSERT_OK(kolo_algorithm_parse("direct", &algorithm));
    assert_int_equal(algorithm, KOLO_ALGORITHM_DIRECT);
    assert_string_equal(kolo_algorithm_name(KOLO_ALGORITHM_RING), "ring");
    assert_int_equal(kolo_algorithm_parse("rnig", &algorithm), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "did you mean 'ring'?"));
    assert_int_equal(kolo_algorithm_parse("butterfly", &algorithm), KOLO_ERR_ARG);
    assert_int_equal(kolo_algorithm_parse(NULL, &algorithm), KOLO_ERR_ARG);
}

TEST_MAIN(test_comm_schedule_check) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_correct_for_any_size),
        cmocka_unit_test(the_fixed_tree_is_correct_for_any_shards),
        cmocka_unit_test(hierarchical_is_correct_on_any_hosts),
        cmocka_unit_test(no_entry_can_be_left_out),
        cmocka_unit_test(faults_are_distinguished),
        cmocka_unit_test(ring_moves_the_minimum),
        cmocka_unit_test(hierarchical_spares_the_links_between_hosts),
        cmocka_unit_test(double_tree_shares_the_work),
        cmocka_unit_test(halving_doubling_takes_logarithmic_steps),
        cmocka_unit_test(schedules_print_as_text),
        cmocka_unit_test(building_survives_lack_of_memory),
        cmocka_unit_test(every_algorithm_is_complete),
        cmocka_unit_test(names_are_parsed_with_suggestions),
    };
    return cmocka_run_group_tests_name("comm_schedule_check", tests, NULL, NULL);
}
