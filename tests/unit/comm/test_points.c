/* Points where workers at different steps meet: an owner chooses them, and nobody passes one. */
#include "base/rng.h"
#include "comm/sync/parameters_owner.h"
#include "support/support.h"

#include <string.h>

enum { WORKERS = 4, STEPS = 400, POINTS = STEPS + 16, SEEDS = 100 };

typedef struct member {
    bool gone, waits;
    uint64_t step, next; /* steps made; it asks again before it passes `next` */
    uint64_t known;      /* of the latest reply */
    bool met[POINTS];
} member;

typedef struct scene {
    kolo_parameters_owner *owner;
    member members[WORKERS];
    bool chosen[POINTS];
} scene;

static uint64_t answer;

static void keep_answer(kolo_service_call *call, kolo_status status, uint64_t clock,
                        const void *data, size_t bytes) {
    (void)call, (void)data, (void)bytes;
    assert_int_equal(status, KOLO_OK);
    answer = clock;
}

static void add(void *arg, const kolo_parameters_update *u) { (void)arg, (void)u; }

static void ask(scene *s, int w, bool wants) {
    member *m = &s->members[w];
    kolo_service_call call = {
        .client = w, .kind = KOLO_OWNER_PAUSE, .key = wants ? m->known + 1 : 0, .clock = m->next};
    kolo_parameters_owner_serve(s->owner, &call);
    if (answer == m->known) return;
    assert_true(answer > m->known && answer >= m->step && answer < POINTS);
    m->known = answer;
    s->chosen[answer] = true;
}

/* All who are there have reached the point. */
static void meet(scene *s) {
    uint64_t at = 0;
    for (int w = 0; w < WORKERS; w++) {
        const member *m = &s->members[w];
        if (m->gone) continue;
        if (!m->waits) return;
        assert_true(at == 0 || at == m->step); /* all at one */
        at = m->step;
    }
    for (int w = 0; w < WORKERS; w++) {
        s->members[w].met[at] = true;
        s->members[w].waits = false;
    }
}

static void move(scene *s, int w, kolo_rng *rng, uint64_t draw) {
    member *m = &s->members[w];
    if (m->gone || m->waits || m->step == STEPS) return;
    m->step++;
    if (m->step >= m->next) {
        m->next = m->step + 1 + kolo_rng_below(rng, draw, 9);
        ask(s, w, w == 0 && m->known < m->step);
    }
    m->waits = m->known == m->step && !m->met[m->step];
}

static void lose(scene *s, int w) {
    s->members[w].gone = true;
    kolo_parameters_owner_lost(s->owner, w, false, "killed");
}

static void nobody_passes_a_point(void **state) {
    const kolo_parameters_opts opts = {.staleness = KOLO_STALENESS_ANY, .update = add};
    const kolo_owned has = {.values = {0, 1}, .gradient = {0, 1}};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kolo_rng rng = kolo_rng_make(seed, 1, 0);
        scene s = {.owner = NULL};
        int points = 0;
        ASSERT_OK(kolo_parameters_owner_create(&opts, &has, WORKERS, keep_answer, &s.owner));
        for (int w = 0; w < WORKERS; w++) s.members[w].next = 1;
        for (uint64_t k = 0; k < 40 * STEPS; k++) {
            const int w = (int)kolo_rng_below(&rng, 3 * k, WORKERS);
            const uint64_t what = kolo_rng_below(&rng, 3 * k + 1, 20 * STEPS);
            if (what == 0 && w > 0 && !s.members[w].gone) {
                lose(&s, w);
            } else if (what % (uint64_t)(w + 1) == 0) { /* some are slower */
                move(&s, w, &rng, 3 * k + 2);
            }
            meet(&s);
        }
        for (uint64_t p = 1; p < STEPS; p++) {
            points += s.chosen[p];
            for (int w = 0; w < WORKERS && s.chosen[p]; w++) {
                const member *m = &s.members[w];
                if (!m->gone && m->step > p) assert_true(m->met[p]);
            }
        }
        for (int w = 0; w < WORKERS; w++) { /* nobody waits for ever */
            if (!s.members[w].gone) assert_int_equal(s.members[w].step, STEPS);
        }
        assert_true(points > 3);
        kolo_parameters_owner_destroy(s.owner);
    }
}

TEST_MAIN(test_points) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_passes_a_point),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
