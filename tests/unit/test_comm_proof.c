/* Schedules: proven for any group size; every entry is needed; counts and text. */
#include "comm/schedule.h"
#include "support/support.h"

#include <string.h>

enum { SIZE_MOST = 64 };

typedef struct group {
    kolo_schedule schedules[SIZE_MOST];
    int size;
} group;

static void group_write(group *g, const kolo_algorithm_row *row, int size, int root, size_t count,
                        size_t chunk) {
    g->size = size;
    for (int r = 0; r < size; r++) {
        kolo_schedule_spec spec = {.kind = row->kind,
                                   .rank = r,
                                   .size = size,
                                   .root = root,
                                   .count = count,
                                   .chunk = chunk,
                                   .align = chunk < 4 ? 1 : 4};
        ASSERT_OK(kolo_schedule_build(row, &spec, &g->schedules[r]));
    }
}

static void group_fini(group *g) {
    for (int r = 0; r < g->size; r++) kolo_schedule_fini(&g->schedules[r]);
}

static void prove(const kolo_algorithm_row *row, int size, int root, size_t count, size_t chunk) {
    group g;
    if (row->kind == KOLO_COLLECTIVE_BARRIER) count = 0;
    group_write(&g, row, size, root, count, chunk);
    if (kolo_proof(row->kind, root, count, g.schedules, size) != KOLO_OK) {
        fail_msg("%s, %d ranks, root %d, %zu elements, chunk %zu: %s", row->name, size, root, count,
                 chunk, kolo_last_error());
    }
    group_fini(&g);
}

static void every_algorithm_is_proven_for_any_size(void **state) {
    static const struct {
        size_t count, chunk;
    } cases[] = {{0, 4},   {1, 4},   {7, 4},      {67, 4}, {15, 16},
                 {16, 16}, {17, 16}, {131, 1000}, {130, 3}};
    const kolo_algorithm_row *row;
    for (size_t i = 0; (row = kolo_algorithm_row_at(i)); i++) {
        for (size_t c = 0; c < KOLO_COUNT(cases); c++) {
            for (int size = 1; size <= SIZE_MOST; size = size < 17 ? size + 1 : size + 9) {
                for (int root = 0; root<size; root += size> 8 ? 7 : 1) {
                    prove(row, size, root, cases[c].count, cases[c].chunk);
                    if (row->kind != KOLO_COLLECTIVE_BROADCAST) break;
                }
            }
        }
        for (int size = 1; size <= SIZE_MOST; size++) prove(row, size, size / 2, 67, 4);
    }
}

/* Takes each entry of each rank out in turn. */
static void prove_every_entry(const kolo_algorithm_row *row, int size, size_t count, size_t chunk) {
    group g;
    for (int rank = 0; rank < size; rank++) {
        size_t n = 1;
        for (size_t i = 0; i < n; i++) {
            group_write(&g, row, size, 0, count, chunk);
            n = g.schedules[rank].n_entries;
            if (i < n) {
                kolo_schedule_remove(&g.schedules[rank], i);
                if (kolo_proof(row->kind, 0, count, g.schedules, size) == KOLO_OK) {
                    fail_msg("%s of %d ranks is proven without entry %zu of rank %d", row->name,
                             size, i, rank);
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
        for (int size = 2; size <= 5; size++) prove_every_entry(row, size, count, 4);
    }
    const kolo_algorithm_row *ring =
        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_RING, KOLO_VARIANT_MESSAGES);
    prove_every_entry(ring, 8, 64, 4);
}

/* The proof itself: wrong schedules get the right complaint. */
static void faults_are_told_apart(void **state) {
    const kolo_algorithm_row *ring =
        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_RING, KOLO_VARIANT_MESSAGES);
    const kolo_algorithm_row *direct =
        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_DIRECT, KOLO_VARIANT_WINDOW);
    group g;
    group_write(&g, ring, 2, 0, 8, 100);
    kolo_schedule_remove(&g.schedules[0], g.schedules[0].n_entries - 1);
    assert_int_equal(kolo_proof(ring->kind, 0, 8, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "deadlock"));
    group_fini(&g);

    group_write(&g, direct, 2, 0, 8, 100);
    kolo_schedule *s = &g.schedules[0]; /* copy_from 0, reduce_from 1, copy_to 0, copy_to 1 */
    s->entries[1].peer = 0;
    assert_int_equal(kolo_proof(direct->kind, 0, 8, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "twice"));
    s->entries[1].peer = 1;
    s->entries[2].to_first += 4; /* writes into the slice that the other rank reads and writes */
    assert_int_equal(kolo_proof(direct->kind, 0, 8, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "race"));
    s->entries[2].to_first += 100;
    assert_int_equal(kolo_proof(direct->kind, 0, 8, g.schedules, 2), KOLO_ERR_FORMAT);
    assert_non_null(strstr(kolo_last_error(), "outside"));
    group_fini(&g);
    assert_int_equal(kolo_proof(direct->kind, 0, 8, NULL, 65), KOLO_ERR_ARG);
}

static void ring_moves_the_least_that_is_possible(void **state) {
    const kolo_algorithm_row *ring =
        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_RING, KOLO_VARIANT_MESSAGES);
    for (int size = 2; size <= 8; size++) {
        group g;
        size_t count = (size_t)size * 12, slice = 12, steps = (size_t)size - 1;
        group_write(&g, ring, size, 0, count, 5);
        kolo_traffic t = kolo_schedule_traffic(&g.schedules[size - 1]);
        assert_int_equal(t.sent, 2 * steps * slice);
        assert_int_equal(t.received, 2 * steps * slice);
        assert_int_equal(t.reduced, steps * slice);
        assert_int_equal(t.copied, 0);
        group_fini(&g);
    }
}

static void schedules_print_as_text(void **state) {
    const kolo_algorithm_row *ring =
        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_RING, KOLO_VARIANT_MESSAGES);
    group g;
    group_write(&g, ring, 2, 0, 8, 100);
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
        kolo_schedule_spec spec = {
            .kind = row->kind, .size = 5, .rank = 3, .count = 100, .chunk = 4, .align = 1};
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_proven_for_any_size),
        cmocka_unit_test(no_entry_can_be_left_out),
        cmocka_unit_test(faults_are_told_apart),
        cmocka_unit_test(ring_moves_the_least_that_is_possible),
        cmocka_unit_test(schedules_print_as_text),
        cmocka_unit_test(building_survives_lack_of_memory),
        cmocka_unit_test(names_are_parsed_with_suggestions),
    };
    return cmocka_run_group_tests_name("comm_proof", tests, NULL, NULL);
}
