/* The table of policies, and their text. */
#include "train/session/consistency.h"

#include "base/compiler.h"
#include "base/number.h"
#include "base/option.h"
#include "base/rng.h"
#include "kolo/parameters.h"
#include "kolo/pass.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANY (INT64_C(1) << 40)

enum { GRACE_MOST_MS = 86400000 };

static const double block_momentum = -1; /* 1 - 1 / ranks */
static const double overlapped_mix = 0.5;

/* One row for each policy. */
static const struct {
    const char *name;
    int64_t most;       /* steps that it may be given; 0: none */
    bool alone;         /* the step of a rank has its own samples only */
    bool ring, servers; /* what can have it: an allreduce, servers */
    bool at_push;       /* each push is an update, which has parameters */
    bool rounds, outer; /* outer: the update of a round has parameters */
    double lr, momentum;
    bool nesterov;
} policies[] = {
    [KOLO_CONSISTENCY_BSP] = {.name = "bsp", .ring = true, .servers = true},
    [KOLO_CONSISTENCY_DROP] = {.name = "bsp:drop", .alone = true, .servers = true},
    [KOLO_CONSISTENCY_SSP] =
        {.name = "ssp", .most = 1 << 20, .alone = true, .servers = true, .at_push = true},
    [KOLO_CONSISTENCY_ASP] = {.name = "asp", .alone = true, .servers = true, .at_push = true},
    [KOLO_CONSISTENCY_AUTO] = {.name = "auto", .alone = true, .servers = true},
    [KOLO_CONSISTENCY_LAG] = {.name = "lag", .most = 64, .ring = true},
    [KOLO_CONSISTENCY_LOCAL] =
        {.name = "local", .most = MANY, .alone = true, .ring = true, .rounds = true},
    [KOLO_CONSISTENCY_BMUF] = {.name = "bmuf",
                               .most = MANY,
                               .alone = true,
                               .ring = true,
                               .servers = true,
                               .rounds = true,
                               .outer = true,
                               .lr = 1,
                               .momentum = block_momentum},
    [KOLO_CONSISTENCY_DILOCO] = {.name = "diloco",
                                 .most = MANY,
                                 .alone = true,
                                 .ring = true,
                                 .servers = true,
                                 .rounds = true,
                                 .outer = true,
                                 .lr = 0.7,
                                 .momentum = 0.9,
                                 .nesterov = true},
};

static kolo_status find(const char *text, size_t length, kolo_consistency_kind *kind) {
    const char *names[KOLO_COUNT(policies) + 1] = {0};
    for (size_t i = 0; i < KOLO_COUNT(policies); i++) {
        names[i] = policies[i].name;
        if (strlen(names[i]) != length || strncmp(text, names[i], length) != 0) continue;
        *kind = (kolo_consistency_kind)i;
        return KOLO_OK;
    }
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "consistency \"%s\": choose one of bsp, bsp:drop=M, ssp:S, asp, auto, lag:S, local:H, "
        "bmuf:H, diloco:H, with the bound, the lag or the steps between rounds",
        text);
}

/* What a key is of. */
enum {
    AT_PUSH = 1, /* pushes that are updates */
    ROUNDS = 2,
    OUTER = 4, /* the update of a round */
};

/* The keys that a policy has. */
static int keys_of(kolo_consistency_kind kind) {
    return (policies[kind].at_push ? AT_PUSH : 0) | (policies[kind].rounds ? ROUNDS : 0) |
           (policies[kind].outer ? OUTER : 0);
}

static const char *list_keys(kolo_consistency_kind kind) {
    if (policies[kind].at_push) {
        return "dc=X (up to 10), scale=0 or 1, delay=N (up to 65536), ahead=C (up to 1 / N), "
               "group=G and lease=0 or 1";
    }
    if (!policies[kind].outer) return "warmup=W (steps of bsp before the first round)";
    return "lr=X (up to 10), momentum=X (below 1), nesterov=0 or 1, warmup=W (steps of bsp before "
           "the first round), fragments=P (up to the steps of a round), strided=0 or 1, overlap=T "
           "(below the steps of a round), mix=X (below 1) and, with --sync ps or mesh, quorum=Q, "
           "grace=MS (up to a day), delay=N and ahead=C";
}

/* Parses one "key=value" up to a comma or the end, which *at becomes. */
static kolo_status parse_value(const char *text, const char **at, kolo_consistency *c) {
    const struct {
        const char *key;
        int of;
        bool above; /* more than 0 */
        double most;
        double *number;
        bool *flag;
        int64_t *count;
    } keys[] = {
        {"lr", OUTER, true, 10, &c->lr, NULL, NULL},
        {"momentum", OUTER, false, nextafter(1, 0), &c->momentum, NULL, NULL},
        {"nesterov", OUTER, false, 1, NULL, &c->nesterov, NULL},
        {"warmup", ROUNDS, true, (double)MANY, NULL, NULL, &c->warm_up},
        {"fragments", OUTER, true, fmin((double)c->steps, 1 << 16), NULL, NULL, &c->fragments},
        {"strided", OUTER, false, 1, NULL, &c->strided, NULL},
        {"overlap", OUTER, false, (double)c->steps - 1, NULL, NULL, &c->overlap},
        {"mix", OUTER, false, nextafter(1, 0), &c->mix, NULL, NULL},
        {"quorum", OUTER, true, 1 << 16, NULL, NULL, &c->quorum},
        {"grace", OUTER, false, GRACE_MOST_MS, NULL, NULL, &c->grace_ms},
        {"dc", AT_PUSH, false, 10, &c->compensation, NULL, NULL},
        {"scale", AT_PUSH, false, 1, NULL, &c->scale, NULL},
        {"lease", AT_PUSH, false, 1, NULL, &c->lease, NULL},
        {"group", AT_PUSH, true, 1 << 16, NULL, NULL, &c->group},
        {"delay", AT_PUSH | OUTER, true, KOLO_DELAY_MOST, NULL, NULL, &c->delay},
        {"ahead", AT_PUSH | OUTER, false, 1, &c->ahead, NULL, NULL},
    };
    const char *key = *at;
    size_t length = strcspn(key, "=,");
    char *end = (char *)key + length;
    double number = *end == '=' ? kolo_parse_double(end + 1, &end) : -1;
    bool complete = end > key + length + 1 && (*end == ',' || *end == '\0');
    *at = end;
    for (size_t i = 0; i < KOLO_COUNT(keys) && complete; i++) {
        bool named = strlen(keys[i].key) == length && strncmp(key, keys[i].key, length) == 0;
        bool fits = number >= 0 && number <= keys[i].most && !(keys[i].above && number == 0) &&
                    (!keys[i].flag || number == 0 || number == 1) &&
                    (!keys[i].count || number == floor(number));
        if (!named || !fits || !(keys[i].of & keys_of(c->kind))) continue;
        if (keys[i].number) *keys[i].number = number;
        if (keys[i].flag) *keys[i].flag = number == 1;
        if (keys[i].count) *keys[i].count = (int64_t)number;
        return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "consistency \"%s\": \"%s\": %s has no such parameter or value; it has %s",
                     text, key, policies[c->kind].name, list_keys(c->kind));
}

static kolo_status parse_steps(const char *text, const char **at, int64_t least, int64_t most,
                               int64_t *steps) {
    char *end = (char *)*at;
    errno = 0;
    *steps = **at >= '0' && **at <= '9' ? strtoll(*at, &end, 10) : -1;
    *at = end;
    if (*steps >= least && *steps <= most && (*end == ',' || *end == '\0')) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "consistency \"%s\": give a number of steps, such as %.*s:1, of at most %" PRId64, text,
        (int)strcspn(text, ":"), text, most);
}

/* The rest of "bsp:drop=M" and "bsp:drop=M,discard". */
static kolo_status parse_drop(const char *text, const char *at, kolo_consistency *c) {
    static const char key[] = "drop=";
    const bool named = strncmp(at, key, sizeof key - 1) == 0;
    char *end = (char *)at;
    errno = 0;
    if (named) at = end = (char *)at + sizeof key - 1;
    const long drop = named && *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : -1;
    c->kind = KOLO_CONSISTENCY_DROP;
    c->drop = (int)drop;
    c->discard = strcmp(end, ",discard") == 0;
    if (drop >= 1 && drop <= 1 << 16 && (c->discard || *end == '\0')) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "consistency \"%s\": give the gradients that a step does not wait for, at "
                     "least 1, as in bsp:drop=1 or bsp:drop=1,discard",
                     text);
}

kolo_status kolo_consistency_parse(const char *text, int ranks, kolo_consistency *consistency) {
    kolo_consistency c = {0};
    if (!text) text = "bsp";
    const char *at = text + strcspn(text, ":,");
    KOLO_TRY(find(text, (size_t)(at - text), &c.kind));
    c.lr = policies[c.kind].lr;
    c.momentum = policies[c.kind].momentum;
    c.nesterov = policies[c.kind].nesterov;
    if (c.momentum == block_momentum) c.momentum = 1 - 1.0 / ranks;
    c.fragments = 1;
    c.mix = -1;
    const bool ssp = c.kind == KOLO_CONSISTENCY_SSP;
    if (c.kind == KOLO_CONSISTENCY_BSP && *at == ':') {
        KOLO_TRY(parse_drop(text, at + 1, &c));
        at += strlen(at);
    } else if (policies[c.kind].most > 0) {
        at += *at == ':';
        KOLO_TRY(parse_steps(text, &at, ssp ? 0 : 1, policies[c.kind].most, &c.steps));
    } else if (*at == ':') {
        return KOLO_FAIL(KOLO_ERR_ARG, "consistency \"%s\": %s takes no argument", text,
                         policies[c.kind].name);
    }
    if (ssp && c.steps == 0) c.kind = KOLO_CONSISTENCY_BSP; /* the same: all read equal values */
    while (*at == ',' && keys_of(c.kind) != 0) {
        at++;
        KOLO_TRY(parse_value(text, &at, &c));
    }
    if (*at) {
        return KOLO_FAIL(KOLO_ERR_ARG, "consistency \"%s\": %s has no other parameters", text,
                         policies[c.kind].name);
    }
    if (c.momentum == 0) c.nesterov = false; /* the same */
    if (c.mix < 0) c.mix = c.overlap > 0 ? overlapped_mix : 0;
    *consistency = c;
    return KOLO_OK;
}

bool kolo_consistency_has_rounds(const kolo_consistency *c) { return policies[c->kind].rounds; }

bool kolo_consistency_is_alone(const kolo_consistency *c) { return policies[c->kind].alone; }

bool kolo_consistency_updates_at_push(const kolo_consistency *c) {
    return policies[c->kind].at_push;
}

bool kolo_consistency_outlives(const kolo_consistency *c) {
    return policies[c->kind].servers && policies[c->kind].alone && c->group <= 1;
}

bool kolo_consistency_is_weighted(const kolo_consistency *c) {
    return c->drop > 0 || c->kind == KOLO_CONSISTENCY_AUTO || policies[c->kind].rounds;
}

void kolo_consistency_print(int staleness, char text[KOLO_CONSISTENCY_NAME]) {
    const char *name = staleness == 0 ? "bsp" : staleness == KOLO_STALENESS_ANY ? "asp" : NULL;
    if (name) {
        snprintf(text, KOLO_CONSISTENCY_NAME, "%s", name);
    } else {
        snprintf(text, KOLO_CONSISTENCY_NAME, "ssp:%d", staleness);
    }
}

bool kolo_consistency_is_for(const kolo_consistency *c, bool servers) {
    return servers ? policies[c->kind].servers : policies[c->kind].ring;
}

uint64_t kolo_consistency_hash(const kolo_consistency *c) {
    const double fields[] = {
        c->kind,
        (double)c->steps,
        c->drop,
        c->discard,
        (double)c->warm_up,
        c->lr,
        c->momentum,
        c->nesterov,
        (double)c->fragments,
        c->strided,
        (double)c->overlap,
        c->mix,
        (double)c->quorum,
        (double)c->grace_ms,
        c->compensation,
        c->scale,
        (double)c->delay,
        c->ahead,
        (double)c->group,
        c->lease,
    };
    return kolo_hash_bytes(fields, sizeof fields);
}

int kolo_consistency_staleness(const kolo_consistency *c) {
    return c->kind == KOLO_CONSISTENCY_ASP   ? KOLO_STALENESS_ANY
           : c->kind == KOLO_CONSISTENCY_SSP ? (int)c->steps
                                             : 0;
}
