/* The map of ids against a list, also of the ids of a moment that are saved while it changes; ids
 * that collide, and the ids of a batch. */
#include "base/compiler.h"
#include "base/rng.h"
#include "comm/table/id_batch.h"
#include "comm/table/id_map.h"
#include "support/fewer.h"
#include "support/support.h"

#include <string.h>

enum { MOST = 400 };

/* ---- the map ---- */

typedef struct listed {
    uint64_t id, tick;
} listed;

/* A list from the oldest to the newest. */
typedef struct list {
    listed at[MOST];
    size_t n;
} list;

static size_t place_of(const list *l, uint64_t id) {
    size_t i = 0;
    while (i < l->n && l->at[i].id != id) i++;
    return i;
}

static void remove_at(list *l, size_t i) {
    memmove(&l->at[i], &l->at[i + 1], (--l->n - i) * sizeof l->at[0]);
}

static void append(list *l, uint64_t id, uint64_t tick) { l->at[l->n++] = (listed){id, tick}; }

static void check_map(const kolo_id_map *m, const list *l) {
    const int32_t oldest = kolo_id_map_oldest(m);
    assert_int_equal(kolo_id_map_count(m), l->n);
    for (size_t i = 0; i < l->n; i++) {
        const int32_t slot = kolo_id_map_find(m, l->at[i].id);
        assert_true(slot >= 0 && (i > 0 || slot == oldest));
        assert_true(kolo_id_map_id(m, slot) == l->at[i].id);
        assert_true(kolo_id_map_tick(m, slot) == l->at[i].tick);
    }
    if (l->n == 0) assert_int_equal(oldest, -1);
}

/* The ids of a moment, of which the first are saved. */
typedef struct saving {
    list ids;
    size_t saved;
} saving;

/* The next id is saved: it is that of the moment. */
static void save_one(kolo_id_map *m, saving *s) {
    const int32_t slot = kolo_id_map_unsaved(m);
    assert_true(slot >= 0 && s->saved < s->ids.n);
    assert_true(kolo_id_map_id(m, slot) == s->ids.at[s->saved].id);
    assert_true(kolo_id_map_tick(m, slot) == s->ids.at[s->saved].tick);
    kolo_id_map_set_saved(m);
    s->saved++;
    assert_int_equal(kolo_id_map_unsaved(m) < 0, s->saved == s->ids.n);
}

/* What is saved of a map that does not change is its list. Some saves go on while it changes. */
static void save_some(kolo_id_map *m, const list *l, saving *s, uint64_t tick, uint64_t draw) {
    if (kolo_id_map_unsaved(m) < 0 || draw % 64 == 0) {
        kolo_id_map_mark(m, tick);
        *s = (saving){*l, 0};
        while (draw % 2 == 1 && s->saved < s->ids.n) save_one(m, s);
    } else if (draw % 64 == 1) {
        kolo_id_map_forget(m);
        s->saved = s->ids.n;
    } else if (draw % 4 == 0 || kolo_id_map_spare(m) == 0) {
        save_one(m, s);
    }
}

/* The slot changes: one that is to be saved is there twice. */
static void keep(kolo_id_map *m, int32_t slot) {
    const uint64_t id = kolo_id_map_id(m, slot), tick = kolo_id_map_tick(m, slot);
    const int32_t kept = kolo_id_map_keep(m, slot);
    if (kept >= 0) {
        assert_true(kept != slot && kolo_id_map_id(m, kept) == id);
        assert_true(kolo_id_map_tick(m, kept) == tick && kolo_id_map_find(m, id) == slot);
    }
    assert_int_equal(kolo_id_map_keep(m, slot), -1);
}

static void a_map_is_a_list(void **state) {
    static const size_t capacities[] = {1, 2, 7, 100, MOST - 1};
    const kolo_rng rng = kolo_rng_make(5, KOLO_RNG_TEST, 1);
    uint64_t draw = 0;
    static saving saved, *const s = &saved;
    for (size_t k = 0; k < KOLO_COUNT(capacities); k++) {
        const size_t spare = capacities[k] / 4 + 1;
        kolo_id_map *m;
        list l = {.n = 0};
        ASSERT_OK(kolo_id_map_create(capacities[k], spare, 77, &m));
        *s = (saving){.saved = 0};
        for (uint64_t tick = 0; tick < TEST_FEWER(300, 3000); tick++) {
            save_some(m, &l, s, tick, kolo_rng_below(&rng, draw++, 1 << 20));
            while (kolo_id_map_spare(m) == 0) save_one(m, s);
            /* Far apart, so that the upper bits count too. */
            const uint64_t id = kolo_rng_below(&rng, draw++, 2 * capacities[k]) << 40;
            const size_t at = place_of(&l, id);
            int32_t slot = kolo_id_map_find(m, id);
            assert_int_equal(slot >= 0, at < l.n);
            if (slot >= 0 && kolo_rng_below(&rng, draw++, 3) == 0) {
                kolo_id_map_remove(m, slot);
                remove_at(&l, at);
            } else if (slot >= 0) {
                keep(m, slot);
                kolo_id_map_use_all(m, &slot, 1, tick + 1);
                remove_at(&l, at);
                append(&l, id, tick + 1);
            } else {
                if (kolo_id_map_is_full(m)) {
                    kolo_id_map_remove(m, kolo_id_map_oldest(m));
                    remove_at(&l, 0);
                }
                slot = kolo_id_map_add(m, id, tick + 1);
                assert_in_range(slot, 0, capacities[k] + spare - 1);
                append(&l, id, tick + 1);
            }
            check_map(m, &l);
        }
        kolo_id_map_destroy(m);
    }
}

static uint64_t inverse(uint64_t odd) {
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) x *= 2 - odd * x;
    return x;
}

/* The id that kolo_id_mix takes to a hash. */
static uint64_t id_of_hash(uint64_t hash, uint64_t seed) {
    uint64_t x = (hash ^ hash >> 32) * inverse(UINT64_C(0xd6e8feb86659fd93));
    x = (x ^ x >> 29 ^ x >> 58) * inverse(UINT64_C(0xe9846af9b1a615d5));
    return (x ^ x >> 32) ^ seed;
}

/* Ids that are chosen with the seed of the index, so that all have one tag: at the end of the
 * index, and at its begin. */
static void ids_that_collide_are_different(void **state) {
    enum { SAME = 40 };
    static const uint64_t tags[] = {0, UINT32_MAX, 12345};
    for (size_t k = 0; k < KOLO_COUNT(tags); k++) {
        kolo_id_map *m;
        uint64_t ids[SAME];
        int32_t slots[SAME];
        ASSERT_OK(kolo_id_map_create(SAME, 0, 99, &m));
        for (uint64_t i = 0; i < SAME; i++) {
            ids[i] = id_of_hash(tags[k] << 32 | i, 99);
            assert_true(kolo_id_mix(ids[i], 99) == (tags[k] << 32 | i));
            slots[i] = kolo_id_map_add(m, ids[i], i);
        }
        for (size_t i = 0; i < SAME; i += 2) kolo_id_map_remove(m, slots[i]);
        for (size_t i = 0; i < SAME; i++) {
            assert_int_equal(kolo_id_map_find(m, ids[i]), i % 2 ? slots[i] : -1);
        }
        kolo_id_map_destroy(m);
    }
}

/* ---- a batch ---- */

static void a_batch_has_each_id_once(void **state) {
    kolo_id_batch b;
    ASSERT_OK(kolo_id_batch_init(&b, 50, 3));
    for (int round = 0; round < 3; round++) {
        kolo_id_batch_begin(&b, 50);
        if (round == 1) b.batch = UINT32_MAX; /* the numbers of batches end */
        for (size_t i = 0; i < 200; i++) {
            const uint64_t id = i * i % 50 * UINT64_C(0x123456789);
            const size_t place = kolo_id_batch_add(&b, id);
            assert_true(place < b.count && b.ids[place] == id);
        }
        for (size_t i = 0; i < b.count; i++) {
            for (size_t k = 0; k < i; k++) assert_true(b.ids[i] != b.ids[k]);
        }
    }
    kolo_id_batch_fini(&b);
}

/* Batches of any size use the same memory, one after the other. */
static void ids_are_added_together(void **state) {
    enum { LARGEST = 300 };
    static const size_t sizes[] = {LARGEST, 1, 17, 0, 64, LARGEST, 5};
    uint64_t ids[LARGEST];
    uint32_t places[LARGEST];
    kolo_id_batch one, all;
    ASSERT_OK(kolo_id_batch_init(&one, LARGEST, 5));
    ASSERT_OK(kolo_id_batch_init(&all, LARGEST, 7));
    for (size_t round = 0; round < KOLO_COUNT(sizes); round++) {
        const size_t n = sizes[round];
        for (size_t i = 0; i < n; i++) ids[i] = (i * 7 + round) % (n / 2 + 1) << 40;
        kolo_id_batch_begin(&one, n);
        kolo_id_batch_begin(&all, n);
        kolo_id_batch_add_all(&all, ids, n, places);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(places[i], kolo_id_batch_add(&one, ids[i]));
            assert_int_equal(all.ids[places[i]], ids[i]);
        }
        assert_int_equal(all.count, one.count);
    }
    kolo_id_batch_fini(&one);
    kolo_id_batch_fini(&all);
}

TEST_MAIN(test_table_ids) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_is_a_list),
        cmocka_unit_test(ids_that_collide_are_different),
        cmocka_unit_test(a_batch_has_each_id_once),
        cmocka_unit_test(ids_are_added_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
