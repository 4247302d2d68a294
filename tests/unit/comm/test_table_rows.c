/* The rows of an owner against a naive model in f64: random updates, with admission, eviction,
 * refusal and expiry, and while rows are saved. */
#include "base/compiler.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/table/rows.h"
#include "support/fewer.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 3, MOST = 400 };

static const double rate = 0.1, decay = 0.9, scale = 0.5;

/* ---- the model of rows ---- */

typedef struct row {
    uint64_t id, tick;
    double value[WIDTH], state[WIDTH];
} row;

typedef struct waiting {
    uint64_t id, tick;
    uint32_t pushes;
} waiting;

/* Both lists from the oldest to the newest. */
typedef struct model {
    const kolo_table_opts *opts;
    kolo_rng rng;
    uint64_t version;
    row rows[MOST];
    waiting waits[MOST];
    size_t n_rows, n_waits, room;
    kolo_table_stats stats;
} model;

static void draw(const model *m, uint64_t id, double *value) {
    for (size_t c = 0; c < WIDTH; c++) {
        const uint64_t i = id * WIDTH + c;
        value[c] = m->opts->initial == KOLO_TABLE_UNIFORM
                       ? scale * (2 * (double)kolo_rng_uniform(&m->rng, i) - 1)
                   : m->opts->initial == KOLO_TABLE_NORMAL
                       ? scale * (double)kolo_rng_normal(&m->rng, i)
                       : 0;
    }
}

static size_t find_row(const model *m, uint64_t id) {
    size_t i = 0;
    while (i < m->n_rows && m->rows[i].id != id) i++;
    return i;
}

static void drop_row(model *m, size_t i) {
    memmove(&m->rows[i], &m->rows[i + 1], (--m->n_rows - i) * sizeof(row));
}

static void drop_waiting(model *m, size_t i) {
    memmove(&m->waits[i], &m->waits[i + 1], (--m->n_waits - i) * sizeof(waiting));
}

/* Row i becomes the latest. */
static void touch(model *m, size_t i) {
    row x = m->rows[i];
    drop_row(m, i);
    x.tick = m->version;
    m->rows[m->n_rows++] = x;
}

/* Counts a push of an id without a row. */
static uint32_t count_push(model *m, uint64_t id) {
    size_t i = 0;
    waiting x = {.id = id};
    if (m->opts->admit <= 1) return 1;
    while (i < m->n_waits && m->waits[i].id != id) i++;
    if (i < m->n_waits) {
        x = m->waits[i];
        drop_waiting(m, i);
    } else if (m->n_waits == m->room) {
        drop_waiting(m, 0);
        m->stats.forgotten++;
    }
    x.tick = m->version;
    if (x.pushes < m->opts->admit) x.pushes++;
    m->waits[m->n_waits++] = x;
    return x.pushes;
}

static bool create(model *m, uint64_t id) {
    if (count_push(m, id) < m->opts->admit) {
        m->stats.early++;
        return false;
    }
    if (m->n_rows == m->room) {
        if (m->opts->refuse || m->rows[0].tick == m->version) {
            m->stats.refused++;
            return false;
        }
        drop_row(m, 0);
        m->stats.evicted++;
    }
    if (m->opts->admit > 1) m->n_waits--; /* the latest */
    row x = {.id = id, .tick = m->version};
    draw(m, id, x.value);
    m->rows[m->n_rows++] = x;
    m->stats.created++;
    return true;
}

static void simulate(model *m, const uint64_t *ids, const float *gradients, size_t n) {
    bool has[MOST];
    m->version++;
    for (size_t i = 0; i < n; i++) {
        const size_t at = find_row(m, ids[i]);
        has[i] = at < m->n_rows;
        if (has[i]) touch(m, at);
    }
    for (size_t i = 0; i < n; i++) {
        if (!has[i]) has[i] = create(m, ids[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (!has[i]) continue;
        row *x = &m->rows[find_row(m, ids[i])];
        for (size_t c = 0; c < WIDTH; c++) {
            x->state[c] = decay * x->state[c] + (double)gradients[i * WIDTH + c];
            x->value[c] -= rate * x->state[c];
        }
    }
    const uint64_t age = m->opts->expire;
    while (age > 0 && m->n_rows > 0 && m->version - m->rows[0].tick >= age) {
        drop_row(m, 0);
        m->stats.expired++;
    }
    while (age > 0 && m->n_waits > 0 && m->version - m->waits[0].tick >= age) {
        drop_waiting(m, 0);
        m->stats.forgotten++;
    }
}

/* ---- both ---- */

static void update(void *arg, const kolo_table_update *u) {
    assert_in_range(u->n, 1, KOLO_TABLE_CHUNK);
    if (u->n < KOLO_TABLE_CHUNK) assert_int_equal(u->slots[u->n], -1);
    for (size_t i = 0; i < u->n; i++) {
        float *value = u->values + (size_t)u->slots[i] * u->width;
        float *momentum = u->state[0] + (size_t)u->slots[i] * u->width;
        for (size_t c = 0; c < u->width; c++) {
            momentum[c] = (float)decay * momentum[c] + u->gradients[i * u->width + c];
            value[c] -= (float)rate * momentum[c];
        }
    }
}

static void compare(const kolo_rows *r, const model *m, uint64_t ids) {
    for (uint64_t id = 0; id < ids; id++) {
        float got[WIDTH];
        double expected[WIDTH];
        const size_t at = find_row(m, id);
        kolo_rows_read(r, &id, 1, got);
        draw(m, id, expected);
        if (at < m->n_rows) memcpy(expected, m->rows[at].value, sizeof expected);
        for (size_t c = 0; c < WIDTH; c++) {
            assert_true(fabs((double)got[c] - expected[c]) < 1e-4);
        }
    }
    kolo_table_stats s = {0};
    kolo_rows_add_stats(r, &s);
    assert_int_equal(s.rows, m->n_rows);
    assert_int_equal(s.waiting, m->n_waits);
    assert_int_equal(s.version, m->version);
    assert_int_equal(s.created, m->stats.created);
    assert_int_equal(s.early, m->stats.early);
    assert_int_equal(s.refused, m->stats.refused);
    assert_int_equal(s.evicted, m->stats.evicted);
    assert_int_equal(s.expired, m->stats.expired);
    assert_int_equal(s.forgotten, m->stats.forgotten);
}

typedef struct policy {
    uint32_t admit;
    uint64_t expire;
    bool refuse;
    size_t bytes;
    kolo_table_initial initial;
} policy;

/* A random subset of the ids, in random order. */
static size_t draw_ids(const kolo_rng *rng, uint64_t *next, uint64_t all, uint64_t *ids) {
    size_t n = 0;
    const uint64_t share = 1 + kolo_rng_below(rng, (*next)++, 8);
    for (uint64_t id = 0; id < all; id++) {
        if (kolo_rng_below(rng, (*next)++, 10) >= share) continue;
        const size_t at = (size_t)kolo_rng_below(rng, (*next)++, n + 1);
        ids[n++] = ids[at];
        ids[at] = id;
    }
    return n;
}

/* ---- rows that are saved while they change ---- */

/* What is saved of a moment. */
typedef struct saving {
    model at; /* that moment */
    size_t rows, waits;
    bool goes_on, with_waiting;
} saving;

static void begin_save(kolo_rows *r, const model *m, bool with_waiting, saving *s) {
    kolo_rows_mark(r);
    *s = (saving){.at = *m, .goes_on = true, .with_waiting = with_waiting};
}

static void check_saved_row(const saving *s, const kolo_table_rows *page, size_t i, const row *x) {
    const float *values = page->values + i * 2 * WIDTH;
    assert_true(page->ids[i] == x->id && page->ages[i] == s->at.version - x->tick);
    if (page->pushes) assert_int_equal(page->pushes[i], 0);
    for (size_t c = 0; c < WIDTH; c++) {
        assert_true(fabs((double)values[c] - x->value[c]) < 1e-4);
        assert_true(fabs((double)values[WIDTH + c] - x->state[c]) < 1e-4);
    }
}

/* The next page: rows in the order of their latest gradients, then the ids that wait. */
static void save_page(kolo_rows *r, size_t most, saving *s) {
    enum { PAGE = 16 };
    uint64_t ids[PAGE], ages[PAGE];
    uint32_t pushes[PAGE];
    float values[PAGE * 2 * WIDTH];
    const bool waits = s->with_waiting;
    kolo_table_rows page = {
        .ids = ids, .ages = ages, .values = values, .pushes = waits ? pushes : NULL};
    assert_in_range(most, 1, PAGE);
    s->goes_on = kolo_rows_save(r, most, &page);
    assert_true(page.n <= most && page.version == s->at.version);
    for (size_t i = 0; i < page.n; i++) {
        if (s->rows < s->at.n_rows) {
            check_saved_row(s, &page, i, &s->at.rows[s->rows++]);
            continue;
        }
        const waiting *w = &s->at.waits[s->waits++];
        assert_true(waits && s->waits <= s->at.n_waits);
        assert_true(ids[i] == w->id && ages[i] == s->at.version - w->tick);
        assert_int_equal(pushes[i], w->pushes);
    }
    if (s->goes_on) return;
    assert_int_equal(s->rows, s->at.n_rows);
    assert_int_equal(s->waits, waits ? s->at.n_waits : 0);
}

/* Before an update by n gradients: begins a save, or goes on with one, at least until there is room
 * for it. */
static void save_some(kolo_rows *r, const model *m, size_t n, uint64_t draw, saving *s) {
    if (!s->goes_on) {
        begin_save(r, m, draw % 3 != 0, s);
    } else if (draw % 16 == 0) {
        kolo_rows_forget(r);
        s->goes_on = false;
    } else if (draw % 3 == 0) {
        save_page(r, 1 + draw / 16 % 16, s);
    }
    while (s->goes_on && !kolo_rows_has_room(r, n)) save_page(r, 5, s);
    assert_true(kolo_rows_has_room(r, n));
}

/* What a save of rows has is what there was when it began, whatever changes meanwhile. */
static void rows_are_those_of_a_naive_model(void **state) {
    static const policy policies[] = {
        {1, 0, false, 1 << 20, KOLO_TABLE_UNIFORM}, {1, 0, false, 8000, KOLO_TABLE_NORMAL},
        {1, 0, true, 8000, KOLO_TABLE_ZEROS},       {3, 0, false, 8000, KOLO_TABLE_UNIFORM},
        {3, 0, true, 8000, KOLO_TABLE_UNIFORM},     {1, 4, false, 8000, KOLO_TABLE_UNIFORM},
        {2, 3, false, 8000, KOLO_TABLE_UNIFORM},    {2, 1, true, 4000, KOLO_TABLE_NORMAL},
        {1, 1, false, 300, KOLO_TABLE_UNIFORM},
    };
    const uint64_t all = 300;
    const kolo_rng rng = kolo_rng_make(5, KOLO_RNG_TEST, 2);
    uint64_t next = 0;
    model *m = malloc(sizeof *m);
    saving *saved = malloc(sizeof *saved);
    for (size_t k = 0; k < KOLO_COUNT(policies); k++) {
        const policy *p = &policies[k];
        const kolo_table_opts opts = {.name = "rows",
                                      .width = WIDTH,
                                      .states = 1,
                                      .seed = 9,
                                      .initial = p->initial,
                                      .scale = scale,
                                      .bytes = p->bytes,
                                      .admit = p->admit,
                                      .expire = p->expire,
                                      .refuse = p->refuse,
                                      .update = update};
        kolo_rows *r;
        kolo_table_stats s = {0};
        ASSERT_OK(kolo_rows_create(&opts, MOST, 1234, &r));
        kolo_rows_add_stats(r, &s);
        memset(m, 0, sizeof *m);
        saved->goes_on = false;
        m->opts = &opts;
        m->rng = kolo_rng_make(opts.seed, KOLO_RNG_INIT, kolo_hash_text("rows") >> 8);
        m->room = s.room < MOST ? (size_t)s.room : MOST;
        for (int step = 0; step < TEST_FEWER(10, 60); step++) {
            uint64_t ids[MOST];
            float gradients[MOST * WIDTH];
            const size_t n = draw_ids(&rng, &next, all, ids);
            for (size_t i = 0; i < n * WIDTH; i++) {
                gradients[i] = kolo_rng_normal(&rng, next++);
            }
            save_some(r, m, n, kolo_rng_below(&rng, next++, 1 << 20), saved);
            kolo_rows_update(r, ids, gradients, n, &(kolo_table_update){.worker = 0});
            simulate(m, ids, gradients, n);
            compare(r, m, all);
        }
        while (saved->goes_on) save_page(r, 16, saved);
        kolo_rows_destroy(r);
    }
    free(m);
    free(saved);
}

static int64_t virtual_ns = 1;
static int64_t virtual_now(void) { return virtual_ns; }

static void add_ones(void *arg, const kolo_table_update *u) {
    for (size_t i = 0; i < u->n; i++) {
        float *value = u->values + (size_t)u->slots[i] * u->width;
        for (size_t c = 0; c < u->width; c++) value[c] += u->gradients[i * u->width + c];
    }
}

/* With updates at random times, in long pauses too: a row stays for its time since its latest
 * change, and no more than a 64th of that longer. */
static void rows_expire_by_time(void **state) {
    enum { IDS = 100, LIFE_MS = 640 };
    const int64_t life = LIFE_MS * INT64_C(1000000);
    const kolo_rng rng = kolo_rng_make(5, KOLO_RNG_TEST, 4);
    const kolo_table_opts opts = {.name = "rows",
                                  .width = WIDTH,
                                  .bytes = 1 << 16,
                                  .admit = 1,
                                  .expire_ms = LIFE_MS,
                                  .update = add_ones};
    uint64_t next = 0, gone = 0, kept = 0;
    int64_t changed[IDS] = {0};
    kolo_rows *r;
    ASSERT_OK(kolo_rows_create(&opts, MOST, 1, &r));
    kolo_rows_set_clock(r, virtual_now);
    for (int step = 0; step < TEST_FEWER(300, 3000); step++) {
        uint64_t ids[MOST];
        float ones[MOST * WIDTH], value[WIDTH];
        const bool pauses = kolo_rng_below(&rng, next++, 100) == 0;
        virtual_ns +=
            (int64_t)kolo_rng_below(&rng, next++, (uint64_t)(pauses ? 3 * life : life / 40));
        const size_t n = (size_t)kolo_rng_below(&rng, next++, 6);
        for (size_t i = 0; i < n; i++) {
            ids[i] = (kolo_rng_below(&rng, next++, IDS / 6) * 6 + i) % IDS;
            changed[ids[i]] = virtual_ns;
        }
        for (size_t i = 0; i < n * WIDTH; i++) ones[i] = 1;
        kolo_rows_update(r, ids, ones, n, &(kolo_table_update){.worker = 0});
        for (uint64_t id = 0; id < IDS; id++) {
            kolo_rows_read(r, &id, 1, value);
            const int64_t age = virtual_ns - changed[id];
            const bool has = value[0] > 0, was = changed[id] > 0;
            if ((was && age < life && !has) || (has && age >= life + life / 64)) {
                fail_msg("step %d: id %d, %g ms old: %d", step, (int)id, (double)age / 1e6, has);
            }
            gone += was && !has;
            kept += has;
        }
    }
    assert_true(gone > 1000 && kept > 1000);
    kolo_rows_destroy(r);
}

/* An id that occurs twice, which an owner cannot exclude, has one row and both gradients. */
static void an_id_that_occurs_twice_has_one_row(void **state) {
    const kolo_table_opts opts = {.name = "rows",
                                  .width = WIDTH,
                                  .states = 1,
                                  .bytes = 1 << 16,
                                  .admit = 1,
                                  .update = update};
    const uint64_t ids[] = {8, 8, 9, 8}, id = 8;
    const float gradients[4 * WIDTH] = {1, 0, 0, 1, 0, 0, 0, 0, 0, 1};
    float value[WIDTH];
    kolo_table_stats s = {0};
    kolo_rows *r;
    ASSERT_OK(kolo_rows_create(&opts, 4, 1, &r));
    for (int i = 0; i < 2; i++) {
        kolo_rows_update(r, ids, gradients, 4, &(kolo_table_update){.worker = 0});
    }
    kolo_rows_add_stats(r, &s);
    kolo_rows_read(r, &id, 1, value);
    assert_int_equal(s.rows, 2);
    assert_true(value[0] < -1);
    kolo_rows_destroy(r);
}

/* The initial values of ids are those of a parameter of the same name, row after row. */
static void initial_values_follow_from_the_id(void **state) {
    const kolo_table_opts opts = {.name = "emb.weight",
                                  .width = 5,
                                  .bytes = 1 << 16,
                                  .admit = 1,
                                  .seed = 3,
                                  .initial = KOLO_TABLE_UNIFORM,
                                  .scale = 0.25,
                                  .update = update};
    const kolo_rng rng = kolo_rng_make(3, KOLO_RNG_INIT, kolo_hash_text("emb.weight") >> 8);
    const uint64_t ids[] = {0, 1, 1000003, UINT64_C(1) << 63};
    float rows[4 * 5];
    kolo_rows *r;
    ASSERT_OK(kolo_rows_create(&opts, 4, 1, &r));
    kolo_rows_read(r, ids, 4, rows);
    for (size_t i = 0; i < 20; i++) {
        const uint64_t at = ids[i / 5] * 5 + i % 5;
        assert_true(rows[i] == (float)(0.25 * (2.0 * (double)kolo_rng_uniform(&rng, at) - 1.0)));
    }
    kolo_rows_destroy(r);
}

/* Rows that are saved and loaded go on as if they had not been. */
static void loaded_rows_go_on(void **state) {
    enum { N = 100, PAGE = 7 };
    const kolo_table_opts opts = {.name = "rows",
                                  .width = WIDTH,
                                  .states = 1,
                                  .bytes = 6000,
                                  .admit = 2,
                                  .expire = 5,
                                  .update = update};
    const kolo_rng rng = kolo_rng_make(5, KOLO_RNG_TEST, 3);
    uint64_t next = 0, ids[MOST];
    float gradients[MOST * WIDTH], a[WIDTH], b[WIDTH];
    kolo_rows *from, *to;
    ASSERT_OK(kolo_rows_create(&opts, MOST, 1, &from));
    ASSERT_OK(kolo_rows_create(&opts, MOST, 2, &to));
    for (int step = 0; step < 30; step++) {
        const size_t n = draw_ids(&rng, &next, N, ids);
        for (size_t i = 0; i < n * WIDTH; i++) gradients[i] = kolo_rng_normal(&rng, next++);
        kolo_rows_update(from, ids, gradients, n, &(kolo_table_update){.worker = 0});
        if (step > 10) kolo_rows_update(to, ids, gradients, n, &(kolo_table_update){.worker = 0});
        if (step != 10) continue;
        kolo_rows_mark(from);
        for (bool more = true; more;) {
            uint64_t saved[PAGE], ages[PAGE];
            uint32_t pushes[PAGE];
            float values[PAGE * 2 * WIDTH];
            kolo_table_rows page = {.ids = saved, .ages = ages, .values = values, .pushes = pushes};
            more = kolo_rows_save(from, PAGE, &page);
            kolo_rows_load(to, &page);
        }
    }
    for (uint64_t id = 0; id < N; id++) {
        kolo_rows_read(from, &id, 1, a);
        kolo_rows_read(to, &id, 1, b);
        assert_memory_equal(a, b, sizeof a);
    }
    kolo_table_stats one = {0}, other = {0};
    kolo_rows_add_stats(from, &one);
    kolo_rows_add_stats(to, &other);
    assert_int_equal(one.rows, other.rows);
    assert_int_equal(one.waiting, other.waiting);
    kolo_rows_destroy(from);
    kolo_rows_destroy(to);
}

static void no_room_for_a_row_is_an_error(void **state) {
    const kolo_table_opts opts = {.name = "rows", .width = 1000, .bytes = 4000, .admit = 1};
    kolo_rows *r;
    assert_int_equal(kolo_rows_create(&opts, 4, 1, &r), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "no row of 1000 floats"));
}

static void failed_allocations_are_errors(void **state) {
    const kolo_table_opts opts = {
        .name = "rows", .width = 4, .states = 2, .bytes = 1 << 16, .admit = 2, .update = update};
    kolo_rows *r;
    long n = 1;
    for (;; n++) {
        kolo_alloc_fail_nth(n);
        const kolo_status status = kolo_rows_create(&opts, 10, 1, &r);
        kolo_alloc_fail_nth(0);
        if (status == KOLO_OK) break;
        assert_int_equal(status, KOLO_ERR_NOMEM);
    }
    assert_true(n > 3);
    kolo_rows_destroy(r);
}

/* Pages of this process in memory, in bytes. */
static size_t resident(void) {
    unsigned long all = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &all, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Fills a table of `rows` rows of 16 floats and then pushes 10 % more: the memory that it takes, by
 * the kernel, is within the bound. So it is with a quarter more while rows that change are saved.
 * 10 million rows with KOLO_SOAK=1. */
static void the_bound_of_memory_holds(void **state) {
    enum { WIDE = 16, ROW = 100, PUSH = 20000 };
    const uint64_t rows = getenv("KOLO_SOAK") ? 10000000 : 400000;
    const size_t bytes = (size_t)rows * ROW + 4096;
    const kolo_table_opts opts = {.name = "rows",
                                  .width = WIDE,
                                  .initial = KOLO_TABLE_UNIFORM,
                                  .scale = 1,
                                  .bytes = bytes,
                                  .admit = 1,
                                  .update = add_ones};
    const size_t before = resident(), own = PUSH * (WIDE * sizeof(float) + 2 * sizeof(uint64_t));
    uint64_t *ids = malloc(PUSH * sizeof *ids);
    float *ones = malloc(PUSH * WIDE * sizeof *ones), read[WIDE], drawn[WIDE];
    float *zeros = calloc(PUSH, WIDE * sizeof *zeros);
    kolo_table_stats s = {0};
    kolo_rows *r, *empty;
    for (size_t i = 0; i < (size_t)PUSH * WIDE; i++) ones[i] = 1;
    ASSERT_OK(kolo_rows_create(&opts, PUSH, 1, &r));
    const uint64_t all = rows + rows / 10;
    for (uint64_t first = 0; first < all; first += PUSH) {
        for (uint64_t i = 0; i < PUSH; i++) ids[i] = (first + i) * UINT64_C(0x9e3779b97f4a7c15);
        kolo_rows_update(r, ids, ones, PUSH, &(kolo_table_update){.worker = 0});
    }
    kolo_rows_add_stats(r, &s);
    assert_in_range(s.rows, rows, rows + rows / 100);
    assert_int_equal(s.created, all);
    assert_int_equal(s.evicted, all - s.rows);
    const size_t used = resident() - before;
    print_message("%llu rows: %zu bytes in memory, bound %zu\n", (unsigned long long)s.rows, used,
                  bytes);
    if (!TEST_FEWER(true, false)) { /* sanitizers have memory of their own */
        /* Three arrays begin and end with huge pages. 10 million rows: less than 2 %. */
        assert_true(used < bytes + 3 * (2 << 20) + own);
        assert_true(used > bytes - bytes / 5);
    }
    kolo_rows_mark(r);
    uint64_t changed = 0;
    for (; changed < rows && kolo_rows_has_room(r, PUSH); changed += PUSH) {
        for (uint64_t i = 0; i < PUSH; i++) {
            ids[i] = (all - 1 - changed - i) * UINT64_C(0x9e3779b97f4a7c15);
        }
        kolo_rows_update(r, ids, zeros, PUSH, &(kolo_table_update){.worker = 0});
    }
    assert_in_range(changed, rows / 5, rows / 3);
    const size_t saved = resident() - before;
    print_message("%llu of them changed: %zu bytes\n", (unsigned long long)changed, saved);
    if (!TEST_FEWER(true, false)) {
        assert_true(saved < bytes + bytes / 4 + 4 * (2 << 20) + own);
    }
    kolo_rows_forget(r);
    ASSERT_OK(kolo_rows_create(&opts, 1, 1, &empty));
    for (uint64_t i = all - 1; i > all - 100; i--) { /* the newest are there */
        const uint64_t id = i * UINT64_C(0x9e3779b97f4a7c15);
        kolo_rows_read(r, &id, 1, read);
        kolo_rows_read(empty, &id, 1, drawn);
        for (size_t c = 0; c < WIDE; c++) assert_true(read[c] == drawn[c] + 1);
    }
    kolo_rows_destroy(empty);
    kolo_rows_destroy(r);
    free(ids);
    free(ones);
    free(zeros);
}

TEST_MAIN(test_table_rows) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_a_naive_model),
        cmocka_unit_test(rows_expire_by_time),
        cmocka_unit_test(an_id_that_occurs_twice_has_one_row),
        cmocka_unit_test(initial_values_follow_from_the_id),
        cmocka_unit_test(loaded_rows_go_on),
        cmocka_unit_test(the_bound_of_memory_holds),
        cmocka_unit_test(no_room_for_a_row_is_an_error),
        cmocka_unit_test(failed_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
