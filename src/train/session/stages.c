/* The stages of a pipeline: this rank's, the program of all, and metrics, which one stage has. */
#include "plan/program/program.h"
#include "train/session/agree.h"
#include "train/session/internal.h"

#include <math.h>

int kolo_session_stages(const kolo_session *s) {
    return s->comm ? kolo_mesh_stages(&s->opts.plan.mesh) : 1;
}

int kolo_session_stage(const kolo_session *s) {
    const kolo_mesh *mesh = &s->opts.plan.mesh;
    return kolo_mesh_coordinate(mesh, rank_of(s), kolo_mesh_find(mesh, "pp"));
}

kolo_parts kolo_session_parts(const kolo_session *s) {
    const kolo_program_schedule *schedule = s->opts.schedule;
    return (kolo_parts){kolo_session_stages(s), s->opts.chunks > 0 ? s->opts.chunks : 1,
                        schedule ? schedule->path : KOLO_PARTS_LOOP};
}

static kolo_axes stage_axis(const kolo_session *s) {
    return (kolo_axes)1 << kolo_mesh_find(&s->opts.plan.mesh, "pp");
}

kolo_status kolo_session_find_program(kolo_session *s, int64_t micro_batches) {
    const kolo_program_schedule *schedule =
        s->opts.schedule ? s->opts.schedule : &kolo_program_1f1b;
    const kolo_parts parts = kolo_session_parts(s);
    kolo_program *program;
    if (s->program && s->program->micro_batches == micro_batches) return KOLO_OK;
    if (micro_batches > INT32_MAX) micro_batches = INT32_MAX;
    KOLO_TRY(kolo_program_create(schedule, kolo_session_stages(s), parts.chunks, (int)micro_batches,
                                 &program));
    kolo_program_destroy(s->program);
    s->program = program;
    return KOLO_OK;
}

kolo_status kolo_session_share_sums(const kolo_session *s, kolo_sums *sums) {
    double all[2][KOLO_MAX_METRICS] = {{0}}; /* the values, and how many stages have one */
    kolo_comm *stages;
    if (kolo_session_stages(s) == 1) return KOLO_OK;
    for (int i = 0; i < KOLO_MAX_METRICS; i++) {
        if (isnan(sums->metric[i])) continue;
        all[0][i] = sums->metric[i];
        all[1][i] = 1;
    }
    KOLO_TRY(kolo_mesh_comms_get(s->groups, stage_axis(s), &stages));
    KOLO_TRY(kolo_allreduce(stages, all, (size_t)2 * KOLO_MAX_METRICS, KOLO_DTYPE_F64, KOLO_SUM));
    for (int i = 0; i < KOLO_MAX_METRICS; i++) {
        sums->metric[i] = all[1][i] > 0 ? all[0][i] : NAN;
    }
    return KOLO_OK;
}

kolo_status kolo_session_share_tensor(const kolo_session *s, double **data, kolo_shape *shape) {
    kolo_comm *stages;
    if (kolo_session_stages(s) == 1) return KOLO_OK;
    KOLO_TRY(kolo_mesh_comms_get(s->groups, stage_axis(s), &stages));
    return kolo_sum_tensor(stages, data, shape);
}
