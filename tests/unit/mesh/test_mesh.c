/* Meshes and placements: parsing, coordinates, groups, regions, the gradient's placement, and which
 * moves a redistribution takes. */
#include "base/memory.h"
#include "kolo/mesh.h"
#include "mesh/link.h"
#include "support/placements.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static kolo_mesh mesh_of(const char *text) {
    kolo_mesh mesh;
    ASSERT_OK(kolo_mesh_parse(text, 0, &mesh));
    return mesh;
}

static void a_mesh_is_read_and_printed(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int world;
        const char *printed; /* NULL: refused */
        const char *error;
    } cases[] = {
        {"dp=4", 4, "dp=4", NULL},
        {"dp=2,tp=3", 6, "dp=2,tp=3", NULL},
        {"dp=*,tp=2", 8, "dp=4,tp=2", NULL},
        {"dp=1,tp=1,pp=1", 1, "dp=1,tp=1,pp=1", NULL},
        {"dp=2,tp=3", 5, NULL, "has 6 workers, the job 5"},
        {"dp=*,tp=3", 8, NULL, "8 workers cannot be divided by the 3"},
        {"dp=*,tp=*", 8, NULL, "both dp and tp"},
        {"dp=2,dp=2", 4, NULL, "given twice"},
        {"dp=0", 0, NULL, "is not 1 to 1024"},
        {"dp=2000", 0, NULL, "is not 1 to 1024"},
        {"dp=", 0, NULL, "is not 1 to 1024"},
        {"dp=2,", 0, NULL, "is not NAME=SIZE"},
        {"=2", 0, NULL, "is not NAME=SIZE"},
        {"dataparallel=2", 0, NULL, "is not NAME=SIZE"},
        {"Dp=2", 0, NULL, "lower-case"},
        {"a=1,b=1,c=1,d=1,e=1,f=1,g=1", 0, NULL, "more than 6 axes"},
        {"a=1000,b=1000", 0, NULL, "more than 1024 workers"},
        {"", 0, NULL, "is not NAME=SIZE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kolo_mesh mesh;
        char text[KOLO_MESH_TEXT];
        kolo_status status = kolo_mesh_parse(cases[i].text, cases[i].world, &mesh);
        if (cases[i].printed) {
            assert_int_equal(status, KOLO_OK);
            assert_string_equal(kolo_mesh_text(&mesh, text), cases[i].printed);
        } else {
            assert_int_equal(status, KOLO_ERR_ARG);
            if (!strstr(kolo_last_error(), cases[i].error)) {
                fail_msg("%s: \"%s\"", cases[i].text, kolo_last_error());
            }
        }
    }
}

/* Before the number of workers is known. */
static void the_text_states_workers(void **state) {
    static const struct {
        const char *text;
        int all, dp, tp;
    } cases[] = {
        {"dp=2,tp=3", 6, 2, 3},
        {"tp=4", 4, 1, 4},
        {"dp=*,tp=2", 0, 0, 2},
        {"dp=2,tp=", 0, 0, 0},
        {"dp=1000,tp=8", 0, 1000, 8},
        {"tp", 0, 0, 0},
        {NULL, 0, 0, 0},
    };
    (void)state;
    kolo_error_set(KOLO_ERR_ARG, "earlier");
    assert_int_equal(kolo_mesh_workers("dp=*,tp=2", NULL), 0);
    assert_string_equal(kolo_last_error(), "earlier");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(kolo_mesh_workers(cases[i].text, NULL), cases[i].all);
        assert_int_equal(kolo_mesh_workers(cases[i].text, "dp"), cases[i].dp);
        assert_int_equal(kolo_mesh_workers(cases[i].text, "tp"), cases[i].tp);
    }
}

static void the_last_axis_varies_fastest(void **state) {
    (void)state;
    kolo_mesh mesh = mesh_of("pp=2,dp=3,tp=2");
    assert_int_equal(kolo_mesh_size(&mesh), 12);
    assert_int_equal(kolo_mesh_find(&mesh, "dp"), 1);
    assert_int_equal(kolo_mesh_find(&mesh, "sp"), -1);
    for (int r = 0; r < 12; r++) {
        assert_int_equal(kolo_mesh_coordinate(&mesh, r, 0), r / 6);
        assert_int_equal(kolo_mesh_coordinate(&mesh, r, 1), r / 2 % 3);
        assert_int_equal(kolo_mesh_coordinate(&mesh, r, 2), r % 2);
    }
    assert_int_equal(kolo_mesh_neighbour(&mesh, 7, 1, 2), 11);
    /* Groups of every set of axes: places and ranks correspond, colours distinguish groups. */
    for (kolo_axes axes = 0; axes <= kolo_mesh_all(&mesh); axes++) {
        int size = kolo_mesh_group_size(&mesh, axes), seen[12] = {0};
        for (int r = 0; r < 12; r++) {
            int index = kolo_mesh_group_index(&mesh, axes, r), before = -1;
            assert_int_equal(kolo_mesh_group_rank(&mesh, axes, r, index), r);
            for (int i = 0; i < size; i++) {
                int other = kolo_mesh_group_rank(&mesh, axes, r, i);
                assert_true(other > before);
                before = other;
                assert_int_equal(kolo_mesh_group_colour(&mesh, axes, other),
                                 kolo_mesh_group_colour(&mesh, axes, r));
            }
            seen[kolo_mesh_group_colour(&mesh, axes, r)]++;
        }
        for (int c = 0; c < 12 / size; c++) assert_int_equal(seen[c], size);
    }
}

/* ---- regions ---- */

/* "0-3,5-6 x 0-4" of a rank. */
static void region_text(const kolo_mesh *mesh, const kolo_placements *p, const kolo_shape *shape,
                        int rank, bool flat, char *text, size_t bytes) {
    kolo_arena arena = {0};
    kolo_mesh_region region;
    ASSERT_OK(kolo_placements_check(mesh, p, shape));
    ASSERT_OK(kolo_mesh_region_of(mesh, p, shape, rank, flat, &arena, &region));
    size_t used = 0;
    text[0] = '\0';
    for (int d = 0; d < region.rank; d++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s", d ? " x " : "");
        for (int i = 0; i < region.n[d]; i++) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%lld-%lld", i ? "," : "",
                                     (long long)region.intervals[d][i].first,
                                     (long long)region.intervals[d][i].end);
        }
        if (region.n[d] == 0) used += (size_t)snprintf(text + used, bytes - used, "none");
    }
    kolo_arena_fini(&arena);
}

static const int64_t uneven[] = {0, 1, 1, 7};

static void regions_follow_from_placements(void **state) {
    (void)state;
    const kolo_mesh mesh = mesh_of("dp=2,tp=3");
    static const struct {
        kolo_placements placements;
        int rank;
        const char *region;
        bool flat;
    } cases[] = {
        {{{INVARIANT, REPLICATED}}, 5, "0-7 x 0-6", false},
        {{{SHARDED(.dim = 0), INVARIANT}}, 0, "0-4 x 0-6", false},
        {{{SHARDED(.dim = 0), INVARIANT}}, 4, "4-7 x 0-6", false},
        {{{SHARDED(.dim = 0), SHARDED(.dim = 1)}}, 5, "4-7 x 4-6", false},
        {{{SHARDED(.dim = 0), SHARDED(.dim = 0)}}, 0, "0-2 x 0-6", false},
        {{{SHARDED(.dim = 0), SHARDED(.dim = 0)}}, 5, "6-7 x 0-6", false},
        {{{SHARDED(.dim = 0, .depth = 1), SHARDED(.dim = 0)}}, 3, "2-3 x 0-6", false},
        {{{INVARIANT, SHARDED(.dim = 0, .cuts = uneven)}}, 0, "0-1 x 0-6", false},
        {{{INVARIANT, SHARDED(.dim = 0, .cuts = uneven)}}, 1, "none x 0-6", false},
        {{{INVARIANT, SHARDED(.dim = 0, .cuts = uneven)}}, 2, "1-7 x 0-6", false},
        {{{SHARDED(.dim = 1, .blocks = 3), INVARIANT}}, 3, "0-7 x 1-2,3-4,5-6", false},
        {{{INVARIANT, SHARDED(.dim = 1, .rotation = 2)}}, 0, "0-7 x 4-6", false},
        {{{INVARIANT, SHARDED(.dim = 1, .rotation = 2)}}, 1, "0-7 x 0-2", false},
        {{{AT(1), INVARIANT}}, 0, "none x 0-6", false},
        {{{AT(1), INVARIANT}}, 3, "0-7 x 0-6", false},
        {{{SHARDED(.dim = KOLO_DIM_FLAT), SHARDED(.dim = 0)}}, 2, "0-6", true},
        {{{SHARDED(.dim = KOLO_DIM_FLAT), SHARDED(.dim = 0)}}, 5, "6-12", true},
        {{{INVARIANT, SHARDED(.dim = KOLO_DIM_FLAT)}}, 1, "14-28", true},
    };
    const kolo_shape shape = kolo_shape_2(7, 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        region_text(&mesh, &cases[i].placements, &shape, cases[i].rank, cases[i].flat, text,
                    sizeof text);
        if (strcmp(text, cases[i].region) != 0) {
            fail_msg("case %zu: region %s, expected %s", i, text, cases[i].region);
        }
    }
}

static void wrong_placements_are_refused(void **state) {
    (void)state;
    static const int64_t descending[] = {0, 5, 2, 7}, open_end[] = {0, 1, 2, 6};
    const kolo_mesh mesh = mesh_of("dp=2,tp=3");
    const kolo_shape shape = kolo_shape_2(7, 6);
    static const struct {
        kolo_placements placements;
        const char *error;
    } cases[] = {
        {{{SHARDED(.dim = 2)}}, "placement on dp: dimension 2 of a tensor of 2"},
        {{{SHARDED(.dim = -1)}}, "dimension -1"},
        {{{AT(2)}}, "placement on dp: coordinate 2 outside [0, 2)"},
        {{{AT(-1)}}, "coordinate -1"},
        {{{INVARIANT, SHARDED(.dim = 0, .cuts = descending)}}, "placement on tp: cuts"},
        {{{INVARIANT, SHARDED(.dim = 0, .cuts = open_end)}}, "placement on tp: cuts"},
        {{{SHARDED(.dim = 0, .blocks = 2)}}, "7 elements are not 2 equal parts"},
        {{{SHARDED(.dim = 0), SHARDED(.dim = 0, .cuts = uneven)}}, "placement on tp: cuts"},
        {{{{.kind = KOLO_PLACEMENT_PARTIAL, .op = KOLO_PROD}}}, "sums, minima or maxima"},
        {{{SHARDED(.dim = KOLO_DIM_FLAT, .blocks = 2)}}, "a flat shard"},
        {{{SHARDED(.dim = 0, .rotation = -1)}}, "rotation -1"},
        {{{{.kind = 17}}}, "unknown kind 17"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(kolo_placements_check(&mesh, &cases[i].placements, &shape), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), cases[i].error)) {
            fail_msg("case %zu: \"%s\"", i, kolo_last_error());
        }
    }
}

static const kolo_interval halo_rows[] = {{0, 3}, {1, 5}, {3, 6}},
                           strided_rows[] = {{0, 1}, {2, 3}, {4, 5}};
static const kolo_halo halo = {6, 6, 1, 1, false, halo_rows},
                       strided = {6, 3, 0, 0, false, strided_rows};

static void placements_are_printed(void **state) {
    (void)state;
    const kolo_mesh mesh = mesh_of("dp=2,tp=3");
    static const struct {
        kolo_placements placements;
        const char *text;
    } cases[] = {
        {{{INVARIANT}}, "invariant"},
        {{{PARTIAL, SHARDED(.dim = 0)}}, "dp:partial tp:sharded0"},
        {{{REPLICATED, SHARDED(.dim = 1, .blocks = 3, .rotation = 1, .cuts = uneven)}},
         "dp:replicated tp:sharded1/3+1*"},
        {{{AT(1), {.kind = KOLO_PLACEMENT_PARTIAL, .op = KOLO_MAX}}}, "dp:at1 tp:partial(max)"},
        {{{LOCAL, SHARDED(.dim = KOLO_DIM_FLAT)}}, "dp:local tp:sharded(flat)"},
        {{{INVARIANT, SHARDED(.dim = 2, .halo = &halo)}}, "tp:sharded2-1+1"},
        {{{INVARIANT, SHARDED(.dim = 2, .halo = &halo, .summands = true)}}, "tp:sharded2-1+1(sum)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[KOLO_PLACEMENT_TEXT];
        assert_string_equal(kolo_placements_text(&mesh, &cases[i].placements, text), cases[i].text);
    }
}

/* ---- moves ---- */

static const int64_t other_cuts[] = {0, 4, 5, 6};

/* Each row of the table, on one axis of three: the move, and the move of its gradient. */
static void each_pair_has_its_collective(void **state) {
    (void)state;
    enum { NONE = KOLO_MOVE_COUNT };
    static const struct {
        kolo_placement from, to;
        int move, gradient;
    } cases[] = {
        {PARTIAL, INVARIANT, KOLO_MOVE_ALLREDUCE, NONE},
        {PARTIAL, REPLICATED, KOLO_MOVE_ALLREDUCE, KOLO_MOVE_ALLREDUCE},
        {PARTIAL, SHARDED(.dim = 0), KOLO_MOVE_REDUCE_SCATTER, KOLO_MOVE_ALLGATHER},
        {PARTIAL, AT(1), KOLO_MOVE_REDUCE, KOLO_MOVE_BROADCAST},
        {SHARDED(.dim = 0), INVARIANT, KOLO_MOVE_ALLGATHER, KOLO_MOVE_SLICE},
        {SHARDED(.dim = 1), REPLICATED, KOLO_MOVE_ALLGATHER, KOLO_MOVE_REDUCE_SCATTER},
        {SHARDED(.dim = 0), AT(2), KOLO_MOVE_GATHER, KOLO_MOVE_SCATTER},
        {SHARDED(.dim = 0), SHARDED(.dim = 1), KOLO_MOVE_EXCHANGE, KOLO_MOVE_EXCHANGE},
        {SHARDED(.dim = 0), SHARDED(.dim = 0, .cuts = other_cuts), KOLO_MOVE_NEIGHBOUR,
         KOLO_MOVE_NEIGHBOUR},
        {SHARDED(.dim = 0), SHARDED(.dim = 0, .blocks = 2), KOLO_MOVE_EXCHANGE, KOLO_MOVE_EXCHANGE},
        {SHARDED(.dim = 0), SHARDED(.dim = 0, .rotation = 1), KOLO_MOVE_NEIGHBOUR,
         KOLO_MOVE_NEIGHBOUR},
        {SHARDED(.dim = 0), SHARDED(.dim = 0, .halo = &halo), KOLO_MOVE_NEIGHBOUR,
         KOLO_MOVE_NEIGHBOUR},
        {SHARDED(.dim = 0), SHARDED(.dim = 0, .halo = &strided), KOLO_MOVE_SLICE,
         KOLO_MOVE_NEIGHBOUR},
        {AT(1), INVARIANT, KOLO_MOVE_BROADCAST, KOLO_MOVE_SLICE},
        {AT(1), REPLICATED, KOLO_MOVE_BROADCAST, KOLO_MOVE_REDUCE},
        {AT(0), SHARDED(.dim = 1), KOLO_MOVE_SCATTER, KOLO_MOVE_GATHER},
        {AT(0), AT(2), KOLO_MOVE_NEIGHBOUR, KOLO_MOVE_NEIGHBOUR},
        {INVARIANT, REPLICATED, NONE, KOLO_MOVE_ALLREDUCE},
        {REPLICATED, INVARIANT, NONE, KOLO_MOVE_PAD},
        {INVARIANT, SHARDED(.dim = 1), KOLO_MOVE_SLICE, KOLO_MOVE_ALLGATHER},
        {REPLICATED, SHARDED(.dim = 0), KOLO_MOVE_SLICE, KOLO_MOVE_PAD},
        {INVARIANT, AT(1), KOLO_MOVE_SLICE, KOLO_MOVE_BROADCAST},
        {REPLICATED, AT(1), KOLO_MOVE_SLICE, KOLO_MOVE_PAD},
        {SHARDED(.dim = 0), PARTIAL, KOLO_MOVE_PAD, KOLO_MOVE_SLICE},
        {INVARIANT, PARTIAL, KOLO_MOVE_PAD, NONE},
        {REPLICATED, PARTIAL, KOLO_MOVE_PAD, KOLO_MOVE_PAD},
        {AT(1), PARTIAL, KOLO_MOVE_PAD, KOLO_MOVE_SLICE},
        {PARTIAL, SHARDED(.dim = KOLO_DIM_FLAT), KOLO_MOVE_REDUCE_SCATTER, KOLO_MOVE_ALLGATHER},
        {SHARDED(.dim = KOLO_DIM_FLAT), INVARIANT, KOLO_MOVE_ALLGATHER, KOLO_MOVE_SLICE},
        {LOCAL, LOCAL, NONE, NONE},
    };
    const kolo_mesh mesh = mesh_of("dp=3");
    const kolo_shape shape = kolo_shape_2(6, 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kolo_placements from = {.axis = {cases[i].from}}, to = {.axis = {cases[i].to}}, g_from,
                        g_to;
        kolo_move moves[KOLO_MOVES_MOST];
        int n;
        ASSERT_OK(kolo_redistribution_plan(&mesh, &shape, &from, &to, moves, &n));
        assert_int_equal(n, cases[i].move != NONE);
        if (n > 0) assert_int_equal(moves[0].kind, cases[i].move);
        ASSERT_OK(kolo_placements_gradient(&mesh, &from, &g_from));
        ASSERT_OK(kolo_placements_gradient(&mesh, &to, &g_to));
        ASSERT_OK(kolo_redistribution_plan(&mesh, &shape, &g_to, &g_from, moves, &n));
        assert_int_equal(n, cases[i].gradient != NONE);
        if (n > 0) assert_int_equal(moves[0].kind, cases[i].gradient);
    }
}

static void what_the_table_lacks_is_refused(void **state) {
    (void)state;
    static const struct {
        kolo_placements from, to;
        const char *error;
    } cases[] = {
        {{{SHARDED(.dim = 1)}}, {{SHARDED(.dim = 0, .halo = &halo)}}, "slices of the same"},
        {{{SHARDED(.dim = 0, .halo = &halo)}}, {{INVARIANT}}, "slices of the same"},
        {{{SHARDED(.dim = 0)}},
         {{SHARDED(.dim = 0, .halo = &halo, .summands = true)}},
         "slices of the same"},
        {{{SHARDED(.dim = 1)}},
         {{SHARDED(.dim = 1, .halo = &halo, .blocks = 2)}},
         "a halo is one range"},
        {{{LOCAL}}, {{INVARIANT}}, "local versions"},
        {{{INVARIANT}}, {{LOCAL}}, "local versions"},
        {{{INVARIANT}}, {{{.kind = KOLO_PLACEMENT_PARTIAL, .op = KOLO_MAX}}}, "must be a sum"},
        {{{{.kind = KOLO_PLACEMENT_PARTIAL, .op = KOLO_MAX}}}, {{PARTIAL}}, "must be a sum"},
        {{{SHARDED(.dim = 0)}}, {{SHARDED(.dim = KOLO_DIM_FLAT)}}, ""},
        {{{SHARDED(.dim = 0), INVARIANT}},
         {{INVARIANT, SHARDED(.dim = KOLO_DIM_FLAT)}},
         "shards of a dimension change under a flat shard"},
    };
    const kolo_mesh mesh = mesh_of("dp=2,tp=3");
    const kolo_shape shape = kolo_shape_2(6, 6);
    kolo_placements max = {.axis = {{.kind = KOLO_PLACEMENT_PARTIAL, .op = KOLO_MAX}}}, gradient;
    assert_int_equal(kolo_placements_gradient(&mesh, &max, &gradient), KOLO_ERR_ARG);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kolo_move moves[KOLO_MOVES_MOST];
        int n;
        kolo_status status =
            kolo_redistribution_plan(&mesh, &shape, &cases[i].from, &cases[i].to, moves, &n);
        assert_int_equal(status, KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), cases[i].error)) {
            fail_msg("case %zu: \"%s\"", i, kolo_last_error());
        }
    }
}

/* Adjacent changes are one collective where they can be; bytes are those of the papers' formulas.
 */
static void moves_and_bytes_over_two_axes(void **state) {
    (void)state;
    static const struct {
        kolo_placements from, to;
        const char *moves; /* names and axes */
        int64_t bytes;     /* that rank 0 sends of 6 x 6 doubles */
    } cases[] = {
        {{{PARTIAL, PARTIAL}}, {{INVARIANT, INVARIANT}}, "allreduce 3", 2 * 36 * 5 / 6 * 8},
        {{{PARTIAL, SHARDED(.dim = 1)}},
         {{INVARIANT, SHARDED(.dim = 1)}},
         "allreduce 1",
         2 * 12 / 2 * 8},
        {{{PARTIAL, PARTIAL}},
         {{SHARDED(.dim = 0), INVARIANT}},
         "reduce-scatter 1, allreduce 2",
         18 * 8 + 2 * 18 * 2 / 3 * 8},
        {{{SHARDED(.dim = 0), SHARDED(.dim = 1)}},
         {{REPLICATED, REPLICATED}},
         "allgather 3",
         6 * 5 * 8},
        {{{SHARDED(.dim = 0), SHARDED(.dim = 0)}},
         {{SHARDED(.dim = 0), INVARIANT}},
         "allgather 2",
         6 * 2 * 8},
        /* The outer axis alone cannot be gathered: what each rank then holds is cut anew. */
        {{{SHARDED(.dim = 0), SHARDED(.dim = 0)}},
         {{INVARIANT, SHARDED(.dim = 0)}},
         "all-to-all 3",
         6 * 1 * 8},
        {{{SHARDED(.dim = 0), REPLICATED}},
         {{REPLICATED, SHARDED(.dim = 0)}},
         "neighbour exchange 1",
         2 * 6 * 8},
        {{{INVARIANT, SHARDED(.dim = 0)}},
         {{PARTIAL, SHARDED(.dim = 1)}},
         "all-to-all 2, pad 0",
         2 * 4 * 8},
    };
    const kolo_mesh mesh = mesh_of("dp=2,tp=3");
    const kolo_shape shape = kolo_shape_2(6, 6);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kolo_move moves[KOLO_MOVES_MOST];
        char text[200] = "";
        int n;
        int64_t total = 0;
        ASSERT_OK(kolo_redistribution_plan(&mesh, &shape, &cases[i].from, &cases[i].to, moves, &n));
        for (int k = 0; k < n; k++) {
            int64_t bytes;
            size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s %u", k ? ", " : "",
                     kolo_move_name(moves[k].kind), moves[k].axes);
            ASSERT_OK(kolo_move_bytes(&mesh, &shape, &moves[k], KOLO_DTYPE_F64, 0, &bytes));
            total += bytes;
        }
        if (strcmp(text, cases[i].moves) != 0 || total != cases[i].bytes) {
            fail_msg("case %zu: %s, %lld bytes; expected %s, %lld", i, text, (long long)total,
                     cases[i].moves, (long long)cases[i].bytes);
        }
    }
}

static void lack_of_memory_is_reported(void **state) {
    (void)state;
    const kolo_mesh mesh = mesh_of("dp=2,tp=3");
    const kolo_placements from = {{PARTIAL, SHARDED(.dim = 0)}},
                          to = {{INVARIANT, SHARDED(.dim = 1)}};
    double source[36] = {0}, target[36];
    kolo_mesh_link_opts o = {
        .mesh = &mesh,
        .shape = kolo_shape_2(6, 6),
        .dtype = KOLO_DTYPE_F64,
        .from = from,
        .to = to,
        .source = source,
        .target = target,
    };
    kolo_mesh_link *link;
    kolo_status status = KOLO_ERR_NOMEM;
    for (long n = 1; status != KOLO_OK; n++) {
        kolo_alloc_fail_nth(n);
        status = kolo_mesh_link_create(&o, &link);
        kolo_alloc_fail_nth(0);
        if (status != KOLO_OK) assert_int_equal(status, KOLO_ERR_NOMEM);
        assert_true(n < 1000);
    }
    assert_int_equal(kolo_mesh_link_post(link), KOLO_ERR_ARG); /* not attached */
    kolo_mesh_link_destroy(link);
}

TEST_MAIN(test_mesh) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mesh_is_read_and_printed),
        cmocka_unit_test(the_text_states_workers),
        cmocka_unit_test(the_last_axis_varies_fastest),
        cmocka_unit_test(regions_follow_from_placements),
        cmocka_unit_test(wrong_placements_are_refused),
        cmocka_unit_test(placements_are_printed),
        cmocka_unit_test(each_pair_has_its_collective),
        cmocka_unit_test(what_the_table_lacks_is_refused),
        cmocka_unit_test(moves_and_bytes_over_two_axes),
        cmocka_unit_test(lack_of_memory_is_reported),
    };
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
