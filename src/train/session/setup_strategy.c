/* What the workers divide and when they synchronize: mesh, placement, schedule, policy, servers,
 * compression; and what cannot be combined. */
#include "base/range.h"
#include "graph/ops/ops.h"
#include "kolo/parameters.h"
#include "pass/partition/rules.h"
#include "pass/pass.h"
#include "train/session/buckets.h"
#include "train/session/compression.h"
#include "train/session/setup_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Something that was asked for and excludes what is checked. */
typedef struct conflict {
    bool given;
    const char *option, *why;
} conflict;

/* UNSUPPORTED: one of the rows is given. `what` and `value` name what is checked: "consistency ",
 * "asp". */
static kolo_status check_conflicts(const char *what, const char *value, const conflict *rows,
                                   size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s%s cannot be combined with %s: %s", what, value,
                         rows[i].option, rows[i].why);
    }
    return KOLO_OK;
}

/* ---- mesh ---- */

/* The number of ranks along an axis. */
static int ranks_along(const kolo_mesh *mesh, const char *axis) {
    const int a = kolo_mesh_find(mesh, axis);
    return a >= 0 ? mesh->axes[a].size : 1;
}

/* Whether no axis but tp divides layers. */
static bool only_tp_divides(const kolo_mesh *mesh) {
    return ranks_along(mesh, "sp") * ranks_along(mesh, "ep") == 1;
}

/* What stages and tensor parallelism do not go with. */
static kolo_status check_model_axes(const kolo_train_opts *o, const kolo_mesh *mesh) {
    const bool unblocked =
        o->reproducible > 0 && o->tp_blocks == 0 && kolo_mesh_divides_layers(mesh);
    const struct {
        bool given;
        const char *option, *why; /* why: may be NULL */
        const char *advice;       /* NULL: to omit one of the two */
    } others[] = {
        {o->zero > 1, "--zero above 1", NULL, NULL},
        {unblocked && only_tp_divides(mesh), "--reproducible without --tp-blocks", NULL,
         "omit one of the two, or give kolo train --tp-blocks 2, 4 or 8"},
        {unblocked, "--reproducible", NULL, NULL},
        {o->audit > 0, "--audit",
         "the gradients of a shard are then on several workers, and it compares those of one",
         NULL},
        {o->sparse_embedding && kolo_mesh_stages(mesh) > 1, "--sparse-embedding", NULL, NULL},
        {o->consistency && strcmp(o->consistency, "bsp") != 0, "--consistency", NULL, NULL},
        {o->compress && strcmp(o->compress, "none") != 0, "--compress", NULL, NULL},
    };
    char text[KOLO_MESH_TEXT];
    for (size_t i = 0; i < KOLO_COUNT(others); i++) {
        if (!others[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s cannot be combined with the mesh %s%s%s: %s",
                         others[i].option, kolo_mesh_text(mesh, text), others[i].why ? ", as " : "",
                         others[i].why ? others[i].why : "",
                         others[i].advice ? others[i].advice : "omit one of the two");
    }
    return KOLO_OK;
}

/* The mesh of all workers; it gets an axis dp if it has none. */
static kolo_status choose_mesh(const kolo_train_opts *o, int workers, kolo_mesh *mesh) {
    *mesh = (kolo_mesh){1, {{"dp", workers}}};
    if (!o->mesh) return KOLO_OK;
    KOLO_TRY(kolo_mesh_parse(o->mesh, workers, mesh));
    for (int a = 0; a < mesh->n_axes; a++) {
        const char *name = mesh->axes[a].name;
        if (mesh->axes[a].size == 1 || strcmp(name, "dp") == 0 || strcmp(name, "tp") == 0 ||
            strcmp(name, "sp") == 0 || strcmp(name, "ep") == 0 || strcmp(name, "pp") == 0) {
            continue;
        }
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "mesh %s: the axes are dp, data parallelism, tp, tensor parallelism, sp, "
            "the positions of sequences, ep, experts, and pp, the stages of a pipeline: give "
            "dp=%d",
            o->mesh, workers);
    }
    if (kolo_mesh_find(mesh, "dp") < 0) {
        if (mesh->n_axes == KOLO_MESH_AXES) {
            return KOLO_FAIL(KOLO_ERR_ARG, "mesh %s has no axis dp: give dp=%d", o->mesh, workers);
        }
        memmove(mesh->axes + 1, mesh->axes, (size_t)mesh->n_axes++ * sizeof mesh->axes[0]);
        mesh->axes[0] = (kolo_mesh_axis){"dp", 1};
    }
    if (!kolo_mesh_has_model_axis(mesh)) return KOLO_OK;
    return check_model_axes(o, mesh);
}

kolo_status kolo_tp_blocks_check(int64_t blocks, const kolo_mesh *mesh) {
    const int ranks = mesh ? ranks_along(mesh, "tp") : 1;
    const conflict axes[] = {
        {mesh && !only_tp_divides(mesh), "an axis sp or ep", "the blocks are of the axis tp"},
    };
    char value[24];
    if (blocks != 2 && blocks != 4 && blocks != 8) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--tp-blocks %" PRId64 ": give 2, 4 or 8", blocks);
    }
    (void)snprintf(value, sizeof value, "%" PRId64, blocks);
    KOLO_TRY(check_conflicts("--tp-blocks ", value, axes, KOLO_COUNT(axes)));
    if (blocks % ranks == 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "--tp-blocks %" PRId64 " is not a multiple of the %d workers along tp: choose "
                     "another --tp-blocks, 2, 4 or 8, or another mesh",
                     blocks, ranks);
}

/* What computing layers in blocks needs, and does not go with. */
static kolo_status check_blocks(const kolo_train_opts *o, const kolo_mesh *mesh) {
    if (o->tp_blocks == 0) return KOLO_OK;
    KOLO_TRY(kolo_tp_blocks_check(o->tp_blocks, mesh));
    if (o->reproducible == 0) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--tp-blocks makes the bits of a reproducible run those of any number of "
                         "workers along tp: give --reproducible too");
    }
    if (o->sync == KOLO_SYNC_ALLREDUCE) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "--tp-blocks cannot be combined with --sync %s: owners have whole parameters",
                     kolo_sync_name(o->sync));
}

/* The rules of --placement, which blocks need on any mesh. */
static kolo_status read_placement(kolo_setup *s) {
    const kolo_mesh blocks = {1, {{"tp", (int)s->opts.tp_blocks}}};
    return kolo_placement_read(s->opts.placement, s->opts.tp_blocks > 0 ? &blocks : &s->mesh,
                               &s->placement);
}

/* What is for the stages of a pipeline. */
static kolo_status check_stages(const kolo_train_opts *o, const kolo_mesh *mesh) {
    const char *option = o->rebalance_stages > 0 ? "--rebalance-stages" : "--stage-memory";
    if (o->rebalance_stages == 0 && o->stage_bytes == 0) return KOLO_OK;
    if (kolo_mesh_stages(mesh) > 1) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s is for the stages of a pipeline: give --mesh pp=2, for example", option);
}

/* ---- synchronization ---- */

/* What policies other than bsp cannot do. */
static kolo_status check_consistency(const kolo_train_opts *o,
                                     const kolo_consistency *consistency) {
    const conflict refused[] = {
        {o->zero > 0, "--zero", "every worker keeps all of its own state"},
        {o->reproducible > 0, "--reproducible", "results depend on the number of workers"},
        {o->sync_bn && kolo_consistency_has_rounds(consistency), "--sync-bn",
         "steps of different workers do not communicate"},
        {o->sparse_embedding, "--sparse-embedding", "whole tables are exchanged or kept"},
    };
    if (consistency->kind == KOLO_CONSISTENCY_BSP) return KOLO_OK;
    return check_conflicts("consistency ", o->consistency, refused, KOLO_COUNT(refused));
}

/* --record and --replay. */
static kolo_status check_order(const kolo_train_opts *o, const kolo_consistency *consistency) {
    const char *option = o->record ? "--record" : "--replay";
    if (!o->record && !o->replay) return KOLO_OK;
    if (o->record && o->replay) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--record and --replay exclude each other: omit one");
    }
    if (o->sync == KOLO_SYNC_ALLREDUCE || o->servers == 0) {
        return KOLO_FAIL(
            KOLO_ERR_ARG,
            "%s is for servers apart from the workers: give --sync ps --servers 1, for "
            "example",
            option);
    }
    if (o->preempted) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "a run that saves upon a signal cannot be combined with %s: its length "
                         "would depend on the time: omit --grace",
                         option);
    }
    if (consistency->kind == KOLO_CONSISTENCY_AUTO) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "consistency auto cannot be combined with %s: its bounds depend on the "
                         "time of steps",
                         option);
    }
    if (consistency->kind != KOLO_CONSISTENCY_BSP) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s with --consistency bsp: these runs repeat bitwise without it", option);
}

/* --replicas. */
static kolo_status check_replicas(const kolo_train_opts *o) {
    if (o->replicas == 0) return KOLO_OK;
    if (o->sync == KOLO_SYNC_ALLREDUCE || o->servers < 2) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--replicas %d: the replica of a server's part is on another server: give "
                         "--sync ps --servers 2, for example",
                         o->replicas);
    }
    if (!o->record && !o->replay) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "--replicas cannot be combined with %s: a run that has lost a server is not "
                     "replayed",
                     o->record ? "--record" : "--replay");
}

/* --joins. */
static kolo_status check_joins(const kolo_train_opts *o, const kolo_consistency *consistency) {
    if (o->joins < 0 || o->joins > 1 << 10) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%d processes that join: must be 0 to 1024", o->joins);
    }
    if (o->joins == 0) return KOLO_OK;
    if (!consistency->lease || o->servers == 0 || !o->out_dir) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "--joins %d: those who join take leases from a server, which they find by "
                         "the folder of the run: give --consistency asp,lease=1, --servers 1 and "
                         "--out, for example",
                         o->joins);
    }
    if (!o->table && !o->record && !o->replay) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "--joins cannot be combined with %s",
                     o->table    ? "--table"
                     : o->record ? "--record"
                                 : "--replay");
}

/* --ledger: a worker must learn which of its samples are used. */
static kolo_status check_ledger(const kolo_train_opts *o, const kolo_consistency *consistency) {
    if (!o->ledger) return KOLO_OK;
    if (o->in_memory) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--ledger cannot be combined with a benchmark: it repeats one batch");
    }
    if (!consistency->discard) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "--ledger cannot be combined with consistency %s: each owner of parameters "
                     "decides which gradients it discards; bsp:drop=%d uses all",
                     o->consistency, consistency->drop);
}

/* --table: what its rows, which are not in the store, cannot be combined with. */
static kolo_status check_tables(const kolo_train_opts *o, const kolo_consistency *consistency) {
    kolo_consistency rows;
    const char *policy = o->table_consistency ? o->table_consistency
                         : o->consistency     ? o->consistency
                                              : "bsp";
    if (!o->table) return KOLO_OK;
    const conflict refused[] = {
        {o->sync == KOLO_SYNC_ALLREDUCE, "--sync allreduce", "rows are at servers: give --sync ps"},
        {o->record || o->replay, "--record and --replay", "the order of rows is not recorded"},
        {o->accumulate > 1, "--accumulate", "the rows of a step are pulled once"},
        {o->precision != KOLO_PRECISION_F32, "--precision bf16", "rows are f32"},
    };
    KOLO_TRY(check_conflicts("--table", "", refused, KOLO_COUNT(refused)));
    KOLO_TRY(kolo_consistency_parse(policy, 1, &rows));
    if (kolo_consistency_has_rounds(consistency)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--table cannot be combined with consistency %s: its workers push every "
                         "%" PRId64 " steps, and rows in each: use asp, for example",
                         o->consistency, consistency->steps);
    }
    const bool plain = !kolo_consistency_has_rounds(&rows) && rows.delay == 0 && rows.ahead == 0 &&
                       rows.group <= 1 && rows.kind != KOLO_CONSISTENCY_AUTO && rows.drop == 0 &&
                       !rows.lease && rows.compensation == 0 && !rows.scale;
    if (!kolo_consistency_is_for(&rows, true) || !plain) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "--table with the policy %s: rows have bsp, ssp:S or asp: give "
                         "--table-consistency",
                         policy);
    }
    if (kolo_consistency_staleness(&rows) == KOLO_STALENESS_ANY) return KOLO_OK;
    if (o->table_prefetch) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "--table-prefetch with rows of %s: a read must have the pushes of the step "
            "before: give --table-consistency asp",
            policy);
    }
    const bool together = consistency->kind != KOLO_CONSISTENCY_AUTO && consistency->drop == 0;
    if (together && !consistency->lease) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "--table with consistency %s: its workers make different numbers of steps, or "
                     "do not wait for each other: give --table-consistency asp",
                     o->consistency);
}

/* What a policy of rounds can have at owners only, and what there is not. */
static kolo_status check_rounds(const kolo_train_opts *o, const kolo_consistency *c, int workers) {
    const bool owned = o->sync != KOLO_SYNC_ALLREDUCE;
    const struct {
        bool given;
        const char *why;
    } refused[] = {
        {!owned && (c->quorum > 0 || c->grace_ms > 0),
         "an allreduce needs all workers in a round: quorum and grace are for --sync ps or mesh"},
        {!owned && c->delay > 0,
         "an allreduce makes one update of all changes of a round: delay is for --sync ps or mesh"},
        {owned && (c->fragments > 1 || c->overlap > 0 || c->mix > 0 || c->strided),
         "owners take whole rounds: fragments, overlap and mix are for --sync allreduce"},
        {owned && c->warm_up > 0,
         "owners take whole rounds from the first step on: warmup is for --sync allreduce; begin "
         "with weights that were trained before, by --init"},
        {c->grace_ms > 0 && c->quorum == 0, "a grace follows a quorum: give quorum=Q too"},
        {c->quorum > workers, "the quorum is larger than the number of workers"},
        {c->delay > 0 && !c->nesterov,
         "it delays Nesterov's momentum: give nesterov=1 and a momentum above 0"},
        {c->grace_ms > 0 && (o->record || o->replay || o->replicas > 0),
         "a grace depends on the time: omit it, or --record, --replay and --replicas"},
    };
    for (size_t i = 0; i < KOLO_COUNT(refused) && kolo_consistency_has_rounds(c); i++) {
        if (!refused[i].given) continue;
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "consistency %s: %s", o->consistency,
                         refused[i].why);
    }
    return KOLO_OK;
}

/* What a policy needs of the owners of parameters, the workers and the optimizer. */
static kolo_status check_policy(const kolo_train_opts *o, const kolo_consistency *c, int workers) {
    const bool owned = o->sync != KOLO_SYNC_ALLREDUCE;
    if (c->lease && o->servers == 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "consistency %s: leases are kept by a server apart from the workers: give "
                         "--servers 1, for example",
                         o->consistency);
    }
    if (!kolo_consistency_is_for(c, owned)) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED, "consistency %s cannot be combined with --sync %s: %s",
            o->consistency, kolo_sync_name(o->sync),
            owned ? "owners apply gradients as they arrive, or the changes of a round: use bsp, "
                    "bsp:drop=M, ssp:S, asp, auto, bmuf:H or diloco:H"
            : c->drop > 0 ? "an allreduce needs the gradients of all workers: give --sync ps"
                          : "in an allreduce no worker runs ahead: give --sync ps, or use lag:S");
    }
    if (c->ahead * (double)c->delay > 1 || (c->ahead > 0 && c->delay == 0)) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "consistency %s: ahead is at most 1 / delay, of the momentum that is "
                         "delayed",
                         o->consistency);
    }
    KOLO_TRY(check_rounds(o, c, workers));
    const bool uneven = workers % (c->group > 1 ? c->group : 1) != 0;
    if (c->group > 1 && (uneven || c->lease || o->table)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "consistency %s: %s", o->consistency,
                         uneven     ? "the number of workers must be a multiple of the group"
                         : c->lease ? "leases are given to single workers"
                                    : "rows of tables are pushed by single workers");
    }
    const bool rounds = kolo_consistency_has_rounds(c); /* the optimizer is a worker's */
    if (c->delay > 0 && !rounds && o->optimizer.kind != KOLO_OPTIMIZER_NESTEROV) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "consistency %s cannot be combined with --optimizer %s: it delays "
                         "Nesterov's momentum: give --optimizer nesterov and a --momentum",
                         o->consistency, kolo_optimizer_name(o->optimizer.kind));
    }
    if (c->drop < workers) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "consistency %s: a step needs at least one gradient of %d workers",
                     o->consistency, workers);
}

/* What owners of parameters cannot do. */
static kolo_status check_owners(const kolo_train_opts *o, const kolo_consistency *consistency,
                                const kolo_mesh *mesh, int workers) {
    const bool several = (o->servers > 0 ? o->servers : workers) > 1;
    const bool rounds = kolo_consistency_has_rounds(consistency); /* the optimizer is a worker's */
    /* Owners that update by the same gradients sum what each has of a norm. */
    const bool sums = consistency->kind == KOLO_CONSISTENCY_BSP && o->replicas == 0;
    const bool parts = several && !rounds && !sums;
    /* Where each push is an update a worker has what is clipped, unless the owner changes it. */
    const bool codes = o->compress && strcmp(o->compress, "none") != 0;
    const bool changes = consistency->compensation > 0 || codes;
    const bool clips = kolo_consistency_updates_at_push(consistency) && !changes;
    const conflict refused[] = {
        {o->zero > 0, "--zero", "owners have the optimizer state already"},
        {o->reproducible > 0, "--reproducible", "owners sum over the workers"},
        {o->sync_bn, "--sync-bn", "workers do not communicate within a step"},
        {o->sparse_embedding, "--sparse-embedding", "use --table, whose rows are at servers"},
        {kolo_mesh_has_model_axis(mesh), "--mesh", "workers are data-parallel"},
        {o->in_memory, "a benchmark", "its first steps are repeated on the workers"},
        {parts && o->optimizer.clip > 0 && !clips, "--clip",
         "an owner has only a part of the gradient that it updates by, whose norm is needed: give "
         "--servers 1, or --consistency bsp without --replicas, or asp or ssp without dc= and "
         "--compress"},
        {parts && kolo_optimizer_scales(o->optimizer.kind), "--optimizer lars or lamb",
         "an owner has only parts of tensors, whose norms are needed: give --servers 1, or "
         "--consistency bsp without --replicas"},
    };
    if (o->sync == KOLO_SYNC_ALLREDUCE) return KOLO_OK;
    return check_conflicts("--sync ", kolo_sync_name(o->sync), refused, KOLO_COUNT(refused));
}

static kolo_status check_servers(const kolo_train_opts *o, const kolo_consistency *consistency,
                                 const kolo_mesh *mesh, int workers) {
    if (o->sync != KOLO_SYNC_PS && o->servers > 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "--servers %d %s", o->servers,
                         o->sync == KOLO_SYNC_MESH
                             ? "with --sync mesh, whose workers own the parameters: give --sync ps"
                             : "without --sync ps: give it too");
    }
    KOLO_TRY(check_order(o, consistency));
    KOLO_TRY(check_replicas(o));
    KOLO_TRY(check_tables(o, consistency));
    KOLO_TRY(check_joins(o, consistency));
    KOLO_TRY(check_policy(o, consistency, workers));
    return check_owners(o, consistency, mesh, workers);
}

/* Momenta are compressed after the warm-up, not gradients. */
static kolo_status check_one_bit_adam(const kolo_train_opts *o, const kolo_consistency *c) {
    const kolo_optimizer kind = o->optimizer.kind;
    const conflict refused[] = {
        {kind != KOLO_OPTIMIZER_ADAM && kind != KOLO_OPTIMIZER_ADAMW, "this optimizer",
         "it is 1-bit Adam: use adam or adamw, or 1bit without a warm-up"},
        {c->kind != KOLO_CONSISTENCY_BSP, "--consistency", "it compresses the momentum of a step"},
        {o->optimizer.clip > 0, "--clip",
         "the gradients, whose norm is needed, are not summed: give --clip 0"},
    };
    return check_conflicts("compression ", o->compress, refused, KOLO_COUNT(refused));
}

/* Owners sum what they decode. */
static kolo_status check_pushed_codes(const kolo_train_opts *o, const kolo_compression *c,
                                      bool measured) {
    const char *why = measured ? "it measures the sums of an allreduce; give the codec alone"
                      : c->power_rank > 0 ? "its factors are sums of all workers; give a codec"
                      : c->frozen > 0     ? "the momentum is at the owners; give another codec"
                                          : NULL;
    if (!why) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "--sync %s cannot be combined with --compress %s: %s",
                     kolo_sync_name(o->sync), o->compress, why);
}

/* How gradients are compressed. */
static kolo_status choose_codec(const kolo_train_opts *o, int workers, kolo_strategy *strategy) {
    const kolo_consistency *consistency = &strategy->consistency;
    kolo_compression *compression = &strategy->compression;
    bool *measured = &strategy->measure_compression;
    const char *text = o->compress ? o->compress : "none";
    const bool rounds = kolo_consistency_has_rounds(consistency); /* SGD gets what is compressed */
    *compression = (kolo_compression){.min_bytes = (size_t)o->compress_min_bytes};
    KOLO_TRY(kolo_check_count("least bytes to compress", o->compress_min_bytes, 0, INT64_MAX));
    KOLO_TRY(kolo_compression_parse(text, compression, measured));
    if (!kolo_compresses(compression)) return KOLO_OK;
    const conflict refused[] = {
        {o->zero > 0, "--zero", "each worker gets a range of the sums"},
        {o->reproducible > 0, "--reproducible", "errors depend on the number of workers"},
        {consistency->kind == KOLO_CONSISTENCY_LOCAL, "--consistency local",
         "it averages parameters; use bmuf or diloco"},
        {*measured && consistency->kind != KOLO_CONSISTENCY_BSP, "--consistency",
         "its exchanges do not follow the backward pass; give the codec alone"},
        {*measured && workers == 1, "one worker", "it exchanges nothing"},
    };
    KOLO_TRY(check_conflicts("compression ", text, refused, KOLO_COUNT(refused)));
    if (o->sync != KOLO_SYNC_ALLREDUCE) KOLO_TRY(check_pushed_codes(o, compression, *measured));
    if (compression->frozen > 0) return check_one_bit_adam(o, consistency);
    if (compression->codec.kind == KOLO_CODEC_ONEBIT && !rounds &&
        !kolo_optimizer_has_momentum(o->optimizer.kind)) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "1-bit gradients have no second moments, which %s needs: %s",
                         kolo_optimizer_name(o->optimizer.kind),
                         kolo_optimizer_scales(o->optimizer.kind) || o->sync != KOLO_SYNC_ALLREDUCE
                             ? "use another --compress, or another optimizer"
                             : "give 1bit,warmup=N, which is 1-bit Adam after N updates, or use "
                               "another --compress");
    }
    return KOLO_OK;
}

/* The buckets of gradients. */
static kolo_status choose_buckets(kolo_setup *s, kolo_strategy *strategy, int workers) {
    const kolo_train_opts *o = &s->opts;
    const conflict refused[] = {
        {workers == 1, "one worker", "it sums nothing over workers"},
        {o->zero > 0, "--zero", "it divides units of --bucket-bytes"},
        {o->reproducible > 0, "--reproducible", "logical shards have buckets of --bucket-bytes"},
        {o->sync != KOLO_SYNC_ALLREDUCE, "--sync ps or mesh",
         "owners sum ranges of the parameters"},
        {kolo_mesh_has_model_axis(&s->mesh), "--mesh", "it is for data parallelism"},
        {strategy->consistency.kind != KOLO_CONSISTENCY_BSP, "--consistency",
         "its sums do not follow the backward pass"},
        {kolo_compresses(&strategy->compression), "--compress",
         "it exchanges each gradient on its own"},
    };
    strategy->measure_buckets = false;
    strategy->n_bucket_sizes = 0;
    if (!o->buckets) return KOLO_OK;
    KOLO_TRY(check_conflicts("--buckets", "", refused, KOLO_COUNT(refused)));
    strategy->measure_buckets = strcmp(o->buckets, KOLO_BUCKETS_MEASURED) == 0;
    if (strategy->measure_buckets) return KOLO_OK;
    return kolo_bucket_sizes_parse(o->buckets, &s->bucket_sizes, &strategy->n_bucket_sizes);
}

/* What runs in memory of the host alone. */
static kolo_status check_device(const kolo_train_opts *o) {
    KOLO_TRY(kolo_device_check(o->device));
    if (!kolo_device_is_apart(o->device)) return KOLO_OK;
    if (o->lanes == KOLO_LANES_ALL) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "lanes divide the threads of the processor: choose others or omit device "
                         "%s",
                         o->device);
    }
    return KOLO_OK;
}

kolo_status kolo_setup_choose_strategy(kolo_setup *s, int workers, kolo_strategy *strategy) {
    const kolo_train_opts *o = &s->opts;
    KOLO_TRY(kolo_consistency_parse(o->consistency, workers, &strategy->consistency));
    KOLO_TRY(check_device(o));
    KOLO_TRY(choose_mesh(o, workers, &s->mesh));
    KOLO_TRY(check_stages(o, &s->mesh));
    KOLO_TRY(check_blocks(o, &s->mesh));
    KOLO_TRY(check_servers(o, &strategy->consistency, &s->mesh, workers));
    KOLO_TRY(check_consistency(o, &strategy->consistency));
    KOLO_TRY(check_ledger(o, &strategy->consistency));
    KOLO_TRY(choose_codec(o, workers, strategy));
    KOLO_TRY(read_placement(s));
    KOLO_TRY(choose_buckets(s, strategy, workers));
    return kolo_program_find(s->opts.pipeline, &strategy->schedule, &strategy->chunks);
}

bool kolo_train_can_be_preempted(const kolo_train_opts *opts) {
    kolo_consistency c;
    return opts->out_dir && !opts->record && !opts->replay &&
           kolo_consistency_parse(opts->consistency, 2, &c) == KOLO_OK;
}

bool kolo_train_outlives_workers(const kolo_train_opts *opts) {
    kolo_consistency c;
    return opts->sync == KOLO_SYNC_PS && opts->servers > 0 && !opts->replay &&
           kolo_consistency_parse(opts->consistency, 2, &c) == KOLO_OK &&
           kolo_consistency_outlives(&c);
}
