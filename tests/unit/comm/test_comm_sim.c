/* The modelled network: times against closed formulas, the same log for the same seed, sharing of
 * links, and schedules that cannot end. */
#include "base/compiler.h"
#include "comm/schedule/algorithms.h"
#include "comm/schedule/costs.h"
#include "comm/schedule/sim.h"
#include "comm/schedule/writers.h"
#include "support/fewer.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

enum { LOG_MOST = 20000 };

typedef struct event_log {
    size_t n;
    kolo_sim_event events[LOG_MOST];
} event_log;

static void keep(void *arg, const kolo_sim_event *event) {
    event_log *log = arg;
    if (log->n < LOG_MOST) log->events[log->n] = *event;
    log->n++;
}

static kolo_schedule_spec spec_of(int rank, int size, size_t count, size_t chunk) {
    return (kolo_schedule_spec){.kind = KOLO_COLLECTIVE_ALLREDUCE,
                                .rank = rank,
                                .size = size,
                                .count = count,
                                .in_place = true,
                                .chunk = chunk,
                                .align = 1};
}

static void build_ring(int size, size_t count, size_t chunk, kolo_schedule *schedules) {
    const kolo_algorithm_row *row =
        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, KOLO_ALGORITHM_RING, KOLO_VARIANT_MESSAGES);
    for (int r = 0; r < size; r++) {
        kolo_schedule_spec spec = spec_of(r, size, count, chunk);
        ASSERT_OK(kolo_schedule_build(row, &spec, &schedules[r]));
    }
}

static void free_ring(int size, kolo_schedule *schedules) {
    for (int r = 0; r < size; r++) kolo_schedule_fini(&schedules[r]);
}

/* 2 (n-1) messages of one slice in sequence, and n-1 reductions of one slice. */
static void a_ring_takes_the_time_of_the_formula(void **state) {
    static const struct {
        int n;
        size_t slice; /* elements */
    } cases[] = {{2, 16}, {3, 1600}, {8, 16}, {16, 65536}, {100, 160}};
    kolo_sim_network net = {.latency_us = 3, .gbit_per_s = 25, .reduce_gbit_per_s = 50};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_sim_result result;
        int n = cases[i].n;
        double bits = (double)cases[i].slice * 32;
        ASSERT_OK(kolo_sim_allreduce(&net, n, cases[i].slice * (size_t)n, KOLO_ALGORITHM_RING, 0,
                                     &result));
        double want = 2 * (n - 1) * (3 + bits / 25e3) + (n - 1) * bits / 50e3;
        if (fabs(result.us - want) > 1e-4 * want) {
            fail_msg("%d ranks: %.6f us, not %.6f", n, result.us, want);
        }
        assert_int_equal(result.messages, 2 * n * (n - 1));
        assert_int_equal(result.bytes_most, 2 * (size_t)(n - 1) * cases[i].slice * 4);
    }
}

/* Two hosts of two ranks: only every second message of the ring leaves a host. The ranks of a host
 * share its link; on four hosts of one rank each rank has a link of its own. */
static void ranks_of_a_host_share_its_link(void **state) {
    kolo_sim_network net = {
        .latency_us = 1, .gbit_per_s = 1, .local_gbit_per_s = 1000, .reduce_gbit_per_s = 1e6};
    kolo_sim_result apart, together;
    ASSERT_OK(kolo_sim_allreduce(&net, 4, 1 << 16, KOLO_ALGORITHM_RING, 0, &apart));
    net.ranks_per_host = 2;
    ASSERT_OK(kolo_sim_allreduce(&net, 4, 1 << 16, KOLO_ALGORITHM_RING, 0, &together));
    assert_int_equal(apart.bytes_most, together.bytes_most);
    assert_true(together.us <= apart.us && together.us > 0.9 * apart.us);

    /* All ranks send to all others at once: a link carries one message at a time. */
    static const kolo_algorithm_row row = {.name = "all"};
    kolo_schedule all[4] = {{0}};
    for (int r = 0; r < 4; r++) {
        all[r] = (kolo_schedule){.row = &row, .scratch = 4000};
        kolo_schedule_round(&all[r]);
        for (int p = 0; p < 4; p++) {
            if (p / 2 == r / 2) continue; /* only to the other host */
            kolo_schedule_add(&all[r],
                              (kolo_entry){.kind = KOLO_ENTRY_SEND, .peer = p, .count = 1000});
            kolo_schedule_add(&all[r], (kolo_entry){.kind = KOLO_ENTRY_RECV,
                                                    .peer = p,
                                                    .to = KOLO_BUFFER_SCRATCH,
                                                    .to_first = (size_t)p * 1000,
                                                    .count = 1000});
        }
    }
    kolo_sim_result shared, own;
    ASSERT_OK(kolo_sim_run(&net, all, 4, NULL, NULL, NULL, &shared));
    assert_true(fabs(shared.us - (1 + 4 * 32.0)) < 1e-6); /* 4 messages of 32 us on each link */
    net.ranks_per_host = 1;
    ASSERT_OK(kolo_sim_run(&net, all, 4, NULL, NULL, NULL, &own));
    assert_true(fabs(own.us - (1 + 3 * 32.0)) < 1e-6); /* rank 1 finds its first peer's link busy */
    free_ring(4, all);
}

/* Each rank sends to the next one first, so no message finds its receiver's link busy, although
 * rank 0 has issued its last send before rank 1 issues its first. */
static void links_are_free_until_a_message_starts(void **state) {
    kolo_sim_network net = {.latency_us = 1, .gbit_per_s = 1, .reduce_gbit_per_s = 1e6};
    for (int n = 3; n <= 9; n += 2) {
        kolo_sim_result result;
        size_t slice = 16000;
        ASSERT_OK(kolo_sim_allreduce(&net, n, slice * (size_t)n, KOLO_ALGORITHM_MESH, 0, &result));
        double us = 2 * (1 + (n - 1) * (double)slice * 32e-3);
        if (fabs(result.us - us) > 0.01 * us) fail_msg("%d ranks: %g, not %g", n, result.us, us);
    }
}

/* Long vectors: twice the vector per link (of two ranks: once), but for filling the pipeline and,
 * where the number of ranks is a power of two, roots with one child, which others wait for. */
static void trees_use_the_bandwidth(void **state) {
    static const int ranks[] = {2, 3, 4, 5, 7, 8, 16, 33};
    kolo_sim_network net = {.latency_us = 10, .gbit_per_s = 10};
    for (size_t i = 0; i < KOLO_COUNT(ranks); i++) {
        kolo_sim_result result;
        int n = ranks[i];
        size_t count = 36 << 20; /* too many for data: time only */
        double once = (double)count * 32 / 10e3, levels = kolo_log2_up(n);
        ASSERT_OK(kolo_sim_allreduce(&net, n, count, KOLO_ALGORITHM_DOUBLE_TREE, 0, &result));
        assert_true(result.bytes_most <= 2 * count * sizeof(float));
        double most = (n == 2 ? 1 : 2) * once * ((n & (n - 1)) == 0 ? 1.4 : 1.2);
        if (result.us > most) fail_msg("double-tree, %d ranks: %g, not %g", n, result.us, most);
        ASSERT_OK(kolo_sim_allreduce(&net, n, count, KOLO_ALGORITHM_TREE, 0, &result));
        most = 1.5 * levels * once; /* both directions at once */
        if (result.us > most) fail_msg("tree, %d ranks: %g, not %g", n, result.us, most);
    }
}

/* Within a factor of two, for every algorithm: the built-in constants are those of this network. */
static void the_cost_model_predicts_the_simulated_time(void **state) {
    static const int ranks[] = {2, 3, 4, 5, 7, 8, 13, 16, 32};
    const kolo_sim_network net = {.latency_us = 30, .gbit_per_s = 10};
    const kolo_comm_costs costs = kolo_comm_costs_builtin(false);
    for (size_t i = 0; i < KOLO_COUNT(ranks) * KOLO_ALGORITHM_COUNT; i++) {
        int n = ranks[i / KOLO_ALGORITHM_COUNT];
        kolo_algorithm a = (kolo_algorithm)(i % KOLO_ALGORITHM_COUNT);
        if (a == KOLO_ALGORITHM_AUTO || !kolo_algorithm_usable(a, false, n)) continue;
        for (size_t bytes = 64; bytes <= 4 << 20; bytes *= 16) {
            kolo_sim_result result;
            ASSERT_OK(kolo_sim_allreduce(&net, n, bytes / sizeof(float), a, 0, &result));
            double ratio = kolo_comm_cost_us(&costs, a, n, n, bytes) / result.us;
            if (ratio > 0.5 && ratio < 2) continue;
            fail_msg("%s, %d ranks, %zu bytes: %g us, predicted %g times that\n",
                     kolo_algorithm_name(a), n, bytes, result.us, ratio);
        }
    }
}

static void a_seed_gives_the_same_events(void **state) {
    enum { N = 7, COUNT = 1000 };
    static event_log logs[3];
    kolo_schedule schedules[N] = {{0}};
    kolo_sim_result results[3];
    build_ring(N, COUNT, 64, schedules);
    for (int i = 0; i < 3; i++) {
        kolo_sim_network net = {.jitter = 0.5, .late_us = 20, .seed = i < 2 ? 5 : 6};
        logs[i].n = 0;
        ASSERT_OK(kolo_sim_run(&net, schedules, N, NULL, keep, &logs[i], &results[i]));
        assert_int_equal(logs[i].n, results[i].events);
        assert_true(logs[i].n <= LOG_MOST);
        for (size_t k = 1; k < logs[i].n; k++) { /* time never decreases */
            assert_true(logs[i].events[k].ps >= logs[i].events[k - 1].ps);
        }
    }
    assert_int_equal(logs[0].n, logs[1].n);
    assert_memory_equal(logs[0].events, logs[1].events, logs[0].n * sizeof *logs[0].events);
    assert_true(results[0].hash == results[1].hash && results[0].us == results[1].us);
    assert_true(results[0].hash != results[2].hash && results[0].us != results[2].us);
    kolo_sim_result calm;
    ASSERT_OK(kolo_sim_run(&(kolo_sim_network){.seed = 5}, schedules, N, NULL, NULL, NULL, &calm));
    assert_true(calm.us < results[0].us);
    free_ring(N, schedules);
}

/* A thousand ranks with data, whose sum the simulator checks. Under sanitizers two hundred, in a
 * twentieth of the time. */
static void a_thousand_ranks_run_in_one_process(void **state) {
    enum { N = TEST_FEWER(200, 1000), EACH = 8, HOSTS = N / EACH };
    static const struct {
        kolo_algorithm algorithm;
        uint64_t messages; /* 0: not checked */
    } cases[] = {{KOLO_ALGORITHM_RING, 2 * (N - 1) * N},
                 {KOLO_ALGORITHM_TREE, 2 * (N - 1)},
                 {KOLO_ALGORITHM_DOUBLE_TREE, 0},
                 {KOLO_ALGORITHM_HALVING_DOUBLING, 0},
                 {KOLO_ALGORITHM_HIERARCHICAL,
                  HOSTS * 2 * EACH * (EACH - 1) + EACH * 2 * HOSTS * (HOSTS - 1)}};
    kolo_sim_network net = {.ranks_per_host = EACH, .jitter = 0.2, .late_us = 100, .seed = 3};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        kolo_sim_result first, second, other;
        kolo_sim_network later = net;
        later.seed++;
        kolo_algorithm a = cases[i].algorithm;
        ASSERT_OK(kolo_sim_allreduce(&net, N, 16000, a, 0, &first));
        if (cases[i].messages) assert_int_equal(first.messages, cases[i].messages);
        uint64_t about;
        ASSERT_OK(kolo_sim_messages(&net, N, 16000, a, 0, &about));
        assert_true(about > first.messages / 2 && about < first.messages * 2);
        if (first.messages > 1000000) continue; /* slow */
        ASSERT_OK(kolo_sim_allreduce(&net, N, 16000, a, 0, &second));
        assert_true(first.hash == second.hash && first.us == second.us);
        ASSERT_OK(kolo_sim_allreduce(&later, N, 16000, a, 0, &other));
        assert_true(first.hash != other.hash && first.events == other.events);
    }
}

/* ---- few connections ---- */

enum { CROWD = TEST_FEWER(200, 1000) };

/* The schedule of a collective in place, with slices of one element. */
static void build_slices(const kolo_algorithm_row *row, int rank, int size, kolo_schedule *s) {
    static size_t firsts[4097];
    for (int i = 0; i <= size; i++) firsts[i] = (size_t)i;
    const kolo_schedule_spec spec = {.kind = row->kind,
                                     .rank = rank,
                                     .size = size,
                                     .count = (size_t)size,
                                     .firsts = firsts,
                                     .in_place = true,
                                     .chunk = 64,
                                     .align = 1};
    ASSERT_OK(kolo_schedule_build(row, &spec, s));
}

/* Every peer is at a distance of a power of two, upwards or downwards. */
static void check_peers(const kolo_schedule *s, int rank, int size) {
    for (size_t i = 0; i < s->n_entries; i++) {
        const kolo_entry *e = &s->entries[i];
        if (e->kind != KOLO_ENTRY_SEND && e->kind != KOLO_ENTRY_RECV) continue;
        const int up = (e->peer - rank + size) % size, down = size - up;
        if (up == 0 || ((up & (up - 1)) != 0 && (down & (down - 1)) != 0)) {
            fail_msg("%s: rank %d of %d has peer %d", s->row->name, rank, size, e->peer);
        }
    }
}

static const kolo_algorithm_row *few_connections(kolo_collective kind, kolo_algorithm algorithm) {
    return kolo_algorithm_find(kind, algorithm, KOLO_VARIANT_MESSAGES);
}

/* Runs it on rows of one matrix, [rank][element]; returns the messages. */
static uint64_t run_crowd(const kolo_algorithm_row *row, float (*data)[CROWD]) {
    static kolo_schedule schedules[CROWD];
    static kolo_sim_data of[CROWD];
    kolo_sim_result result;
    for (int r = 0; r < CROWD; r++) {
        build_slices(row, r, CROWD, &schedules[r]);
        check_peers(&schedules[r], r, CROWD);
        of[r] = (kolo_sim_data){.elements = data[r]};
    }
    ASSERT_OK(kolo_sim_run(NULL, schedules, CROWD, of, NULL, NULL, &result));
    for (int r = 0; r < CROWD; r++) kolo_schedule_fini(&schedules[r]);
    return result.messages;
}

/* 10 steps of 1,000 ranks, with one message or two (8 of 200). */
static void an_allgather_needs_few_connections(void **state) {
    enum { STEPS = TEST_FEWER(8, 10) };
    static float data[CROWD][CROWD];
    for (int r = 0; r < CROWD; r++) {
        for (int i = 0; i < CROWD; i++) data[r][i] = i == r ? (float)r : -1;
    }
    const kolo_algorithm_row *row =
        few_connections(KOLO_COLLECTIVE_ALLGATHER, KOLO_ALGORITHM_HALVING_DOUBLING);
    const uint64_t messages = run_crowd(row, data);
    assert_true(messages >= STEPS * CROWD && messages < 2 * STEPS * CROWD);
    for (int r = 0; r < CROWD; r++) {
        for (int i = 0; i < CROWD; i++) assert_true(data[r][i] == (float)i);
    }
}

static void a_reduce_scatter_needs_few_connections(void **state) {
    static const kolo_algorithm algorithms[] = {KOLO_ALGORITHM_HALVING_DOUBLING,
                                                KOLO_ALGORITHM_RING};
    static float data[CROWD][CROWD];
    for (size_t a = 0; a < KOLO_COUNT(algorithms); a++) {
        int total = 0;
        for (int r = 0; r < CROWD; r++) {
            for (int i = 0; i < CROWD; i++) data[r][i] = (float)((r % 7) * (i + 1));
            total += r % 7;
        }
        (void)run_crowd(few_connections(KOLO_COLLECTIVE_REDUCE_SCATTER, algorithms[a]), data);
        for (int r = 0; r < CROWD; r++) { /* other slices are kept */
            for (int i = 0; i < CROWD; i++) {
                assert_true(data[r][i] == (float)((i == r ? total : r % 7) * (i + 1)));
            }
        }
    }
}

static void ranks_of_the_largest_groups_have_few_peers(void **state) {
    static const struct {
        kolo_collective kind;
        kolo_algorithm algorithm;
    } cases[] = {{KOLO_COLLECTIVE_ALLGATHER, KOLO_ALGORITHM_HALVING_DOUBLING},
                 {KOLO_COLLECTIVE_REDUCE_SCATTER, KOLO_ALGORITHM_HALVING_DOUBLING},
                 {KOLO_COLLECTIVE_REDUCE_SCATTER, KOLO_ALGORITHM_RING}};
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        for (int rank = 0; rank < 4096; rank += 585) {
            kolo_schedule s;
            build_slices(few_connections(cases[i].kind, cases[i].algorithm), rank, 4096, &s);
            check_peers(&s, rank, 4096);
            kolo_schedule_fini(&s);
        }
    }
}

/* An allreduce with data, whose sum the simulator checks, twice with equal results. On hosts of 3
 * ranks the last host is not full. */
static void check_allreduce(kolo_algorithm algorithm, int shards) {
    static const int ranks[] = {1, 2, 3, 4, 7, 20};
    static const size_t counts[] = {0, 1, 1009, 5003};
    for (size_t c = 0; c < KOLO_COUNT(ranks) * KOLO_COUNT(counts); c++) {
        int n = ranks[c % KOLO_COUNT(ranks)];
        size_t count = counts[c / KOLO_COUNT(ranks)];
        kolo_sim_network net = {
            .ranks_per_host = 3, .jitter = 0.3, .late_us = 10, .seed = c + 1000 * algorithm};
        kolo_sim_result first, second;
        ASSERT_OK(kolo_sim_allreduce(&net, n, count, algorithm, shards, &first));
        ASSERT_OK(kolo_sim_allreduce(&net, n, count, algorithm, shards, &second));
        assert_true(first.hash == second.hash && first.us == second.us);
    }
}

static void every_algorithm_with_messages_runs(void **state) {
    for (int a = KOLO_ALGORITHM_AUTO; a < KOLO_ALGORITHM_COUNT; a++) {
        bool messages = a == KOLO_ALGORITHM_AUTO ||
                        kolo_algorithm_find(KOLO_COLLECTIVE_ALLREDUCE, (kolo_algorithm)a,
                                            KOLO_VARIANT_MESSAGES);
        if (messages) check_allreduce((kolo_algorithm)a, 0);
    }
    check_allreduce(KOLO_ALGORITHM_AUTO, 5);
    check_allreduce(KOLO_ALGORITHM_AUTO, 64);
}

/* Each host sends 2 (h-1)/h of the vector to the next host, for any number of ranks per host; a
 * flat ring of all ranks sends 2 (n-1)/n. */
static void hierarchical_spares_the_links_between_hosts(void **state) {
    enum { COUNT = 1 << 20, HOSTS = 4, EACH = 8, N = HOSTS * EACH };
    kolo_sim_network net = {.ranks_per_host = EACH, .gbit_per_s = 1, .latency_us = 1};
    kolo_sim_result flat, layered;
    ASSERT_OK(kolo_sim_allreduce(&net, N, COUNT, KOLO_ALGORITHM_RING, 0, &flat));
    ASSERT_OK(kolo_sim_allreduce(&net, N, COUNT, KOLO_ALGORITHM_HIERARCHICAL, 0, &layered));
    assert_int_equal(flat.bytes_most, 2 * (size_t)COUNT * 4 / N * (N - 1));
    assert_int_equal(layered.bytes_most, 2 * (size_t)COUNT * 4 / HOSTS * (HOSTS - 1));
    assert_true(flat.us / layered.us > 0.95 * 31 / 32 * 4 / 3);
}

static void deadlocks_are_detected(void **state) {
    enum { N = 3 };
    kolo_schedule schedules[N] = {{0}};
    kolo_sim_result result;
    build_ring(N, 10, 64, schedules);
    for (size_t i = 0; i < schedules[1].n_entries; i++) {
        kolo_entry_kind kind = schedules[1].entries[i].kind;
        if (kind != KOLO_ENTRY_RECV && kind != KOLO_ENTRY_SEND) continue;
        kolo_schedule broken[N] = {{0}};
        build_ring(N, 10, 64, broken);
        kolo_schedule_remove(&broken[1], i);
        assert_int_equal(kolo_sim_run(NULL, broken, N, NULL, NULL, NULL, &result), KOLO_ERR_FORMAT);
        free_ring(N, broken);
    }
    schedules[2].entries[0].count++;
    assert_int_equal(kolo_sim_run(NULL, schedules, N, NULL, NULL, NULL, &result), KOLO_ERR_FORMAT);
    free_ring(N, schedules);
    assert_int_equal(kolo_sim_allreduce(NULL, 4, 100, KOLO_ALGORITHM_DIRECT, 0, &result),
                     KOLO_ERR_UNSUPPORTED);
    assert_int_equal(kolo_sim_allreduce(NULL, 0, 100, KOLO_ALGORITHM_RING, 0, &result),
                     KOLO_ERR_ARG);
    kolo_sim_network wrong = {.gbit_per_s = -1};
    assert_int_equal(kolo_sim_allreduce(&wrong, 2, 100, KOLO_ALGORITHM_RING, 0, &result),
                     KOLO_ERR_ARG);
}

TEST_MAIN(test_comm_sim) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_takes_the_time_of_the_formula),
        cmocka_unit_test(ranks_of_a_host_share_its_link),
        cmocka_unit_test(links_are_free_until_a_message_starts),
        cmocka_unit_test(trees_use_the_bandwidth),
        cmocka_unit_test(the_cost_model_predicts_the_simulated_time),
        cmocka_unit_test(a_seed_gives_the_same_events),
        cmocka_unit_test(a_thousand_ranks_run_in_one_process),
        cmocka_unit_test(an_allgather_needs_few_connections),
        cmocka_unit_test(a_reduce_scatter_needs_few_connections),
        cmocka_unit_test(ranks_of_the_largest_groups_have_few_peers),
        cmocka_unit_test(every_algorithm_with_messages_runs),
        cmocka_unit_test(hierarchical_spares_the_links_between_hosts),
        cmocka_unit_test(deadlocks_are_detected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
