/* The environment contract: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT as torchrun and the Kubernetes operators set them, and our KOLO_SECRET_FILE and
 * KOLO_LISTEN_FD. */
#include "comm/contract.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_MOST = 1024, PORT_MOST = 65535 };

/* An integer of the environment in [least, most]; `fallback` when it is not set. */
static kolo_status env_int(const char *name, int least, int most, int fallback, int *value) {
    const char *text = getenv(name);
    if (!text) {
        *value = fallback;
        return KOLO_OK;
    }
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || n < least || n > most) {
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is '%s': a number from %d to %d is needed", name, text,
                         least, most);
    }
    *value = (int)n;
    return KOLO_OK;
}

/* No part of the contract is set: this process is alone. */
static bool env_empty(void) {
    return !getenv("RANK") && !getenv("WORLD_SIZE") && !getenv("LOCAL_RANK") &&
           !getenv("LOCAL_WORLD_SIZE");
}

static kolo_status need(const char *name) {
    if (getenv(name)) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "%s is not set, but other parts of a job's environment are: set it too, or "
                     "start the job with kolo run",
                     name);
}

static kolo_status read_env(kolo_contract *c) {
    if (env_empty()) {
        c->world = c->local_world = 1;
        return KOLO_OK;
    }
    KOLO_TRY(need("RANK"));
    KOLO_TRY(need("WORLD_SIZE"));
    KOLO_TRY(env_int("WORLD_SIZE", 1, WORLD_MOST, 1, &c->world));
    KOLO_TRY(env_int("RANK", 0, c->world - 1, 0, &c->rank));
    KOLO_TRY(env_int("LOCAL_WORLD_SIZE", 1, c->world, c->world, &c->local_world));
    KOLO_TRY(env_int("LOCAL_RANK", 0, c->local_world - 1, c->local_world == c->world ? c->rank : 0,
                     &c->local_rank));
    if (c->world == 1) return KOLO_OK;
    const char *address = getenv("MASTER_ADDR");
    if (address) c->master_addr = address;
    KOLO_TRY(need("MASTER_PORT"));
    KOLO_TRY(env_int("MASTER_PORT", 1, PORT_MOST, 0, &c->master_port));
    c->secret_file = getenv("KOLO_SECRET_FILE");
    if (c->rank == 0) KOLO_TRY(env_int("KOLO_LISTEN_FD", 3, INT32_MAX, -1, &c->listen_fd));
    return KOLO_OK;
}

static kolo_status read_opts(const kolo_comm_opts *opts, kolo_contract *c) {
    c->world = opts->world;
    c->rank = opts->rank;
    c->local_world = opts->local_world ? opts->local_world : opts->world;
    c->local_rank = opts->local_world ? opts->local_rank : opts->rank;
    if (opts->master_addr) c->master_addr = opts->master_addr;
    c->master_port = opts->master_port;
    c->secret_file = opts->secret_file;
    if (c->world < 1 || c->world > WORLD_MOST || c->rank < 0 || c->rank >= c->world) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "rank %d of a world of %d: the world must be 1 to %d, the "
                         "rank below it",
                         c->rank, c->world, WORLD_MOST);
    }
    if (c->local_world < 1 || c->local_world > c->world || c->local_rank < 0 ||
        c->local_rank >= c->local_world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "local rank %d of %d in a world of %d", c->local_rank,
                         c->local_world, c->world);
    }
    if (c->world > 1 && (c->master_port < 1 || c->master_port > PORT_MOST)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "master_port is %d: 1 to %d is needed", c->master_port,
                         PORT_MOST);
    }
    return KOLO_OK;
}

kolo_status kolo_contract_read(const kolo_comm_opts *opts, kolo_contract *contract) {
    kolo_contract c = {.master_addr = "127.0.0.1", .listen_fd = -1};
    KOLO_TRY(opts->world == 0 ? read_env(&c) : read_opts(opts, &c));
    if (c.world > 1) {
        bool loopback =
            strncmp(c.master_addr, "127.", 4) == 0 || strcmp(c.master_addr, "localhost") == 0;
        if (c.local_world != c.world || !loopback) {
            return KOLO_FAIL(
                KOLO_ERR_UNSUPPORTED,
                "a job on several hosts (%d of %d ranks here, rank 0 at %s): all ranks "
                "must be on one host, with a loopback MASTER_ADDR",
                c.local_world, c.world, c.master_addr);
        }
        if (!c.secret_file || !c.secret_file[0]) {
            return KOLO_FAIL(KOLO_ERR_ARG, "no secret: KOLO_SECRET_FILE must name a file with the "
                                           "job's secret (kolo run makes one)");
        }
    }
    *contract = c;
    return KOLO_OK;
}
