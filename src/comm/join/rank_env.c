/* The rank environment: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT as set by Kubernetes operators and kolo run, and Kolo's own KOLO_SECRET_FILE,
 * KOLO_HOST_ID, KOLO_LISTEN_FD and KOLO_ENDED_FD. It takes precedence over the process managers of
 * mpirun and srun (bootstrap.c), so that kolo run or torchrun can be started by srun. Ranks of
 * torchrun exchange their addresses through its store (torchrun.c).
 *
 * LOCAL_RANK and LOCAL_WORLD_SIZE do not decide which ranks share a host. Each rank sends a host
 * id, a hash of the kernel's boot id and the network namespace: ranks with the same one can share
 * memory. KOLO_HOST_ID (an arbitrary string) overrides it: ranks with different ids communicate
 * over the network. cli/launcher/launch_env.c sets these variables for `kolo run`. */
#include "comm/join/rank_env.h"

#include "base/process.h"
#include "base/rng.h"
#include "base/text.h"
#include "comm/join/bootstrap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORLD_MOST = KOLO_WORLD_MAX, PORT_MOST = 65535 };

/* Reads an integer in [least, most] from the environment; `fallback` if it is not set. */
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
        return KOLO_FAIL(KOLO_ERR_ARG, "%s is '%s': must be a number from %d to %d", name, text,
                         least, most);
    }
    *value = (int)n;
    return KOLO_OK;
}

/* True if no variable is set. */
static bool env_empty(void) {
    return !getenv("RANK") && !getenv("WORLD_SIZE") && !getenv("LOCAL_RANK") &&
           !getenv("LOCAL_WORLD_SIZE");
}

static kolo_status need(const char *name) {
    if (getenv(name)) return KOLO_OK;
    return KOLO_FAIL(
        KOLO_ERR_ARG,
        "%s is not set, but other variables of the rank environment are: set it too, or "
        "start the job with kolo run",
        name);
}

static kolo_status set_address(kolo_rank_env *c, const char *address) {
    int n = snprintf(c->master_addr, sizeof c->master_addr, "%s", address);
    if (n > 0 && (size_t)n < sizeof c->master_addr) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_ARG, "MASTER_ADDR has %d characters: must have 1 to %zu", n,
                     sizeof c->master_addr - 1);
}

static kolo_status read_env(kolo_rank_env *c, const char **secret_file) {
    KOLO_TRY(need("RANK"));
    KOLO_TRY(need("WORLD_SIZE"));
    KOLO_TRY(env_int("WORLD_SIZE", 1, WORLD_MOST, 1, &c->world));
    KOLO_TRY(env_int("RANK", 0, c->world - 1, 0, &c->rank));
    KOLO_TRY(env_int("LOCAL_WORLD_SIZE", 1, c->world, c->world, &c->local_world));
    KOLO_TRY(env_int("LOCAL_RANK", 0, c->local_world - 1, c->local_world == c->world ? c->rank : 0,
                     &c->local_rank));
    if (c->world == 1) return KOLO_OK;
    const char *address = getenv("MASTER_ADDR");
    KOLO_TRY(set_address(c, address ? address : "127.0.0.1"));
    const char *port = getenv("KOLO_MASTER_PORT") ? "KOLO_MASTER_PORT" : "MASTER_PORT";
    KOLO_TRY(need(port));
    KOLO_TRY(env_int(port, 1, PORT_MOST, 0, &c->master_port));
    *secret_file = getenv("KOLO_SECRET_FILE");
    KOLO_TRY(env_int("KOLO_ENDED_FD", 3, INT32_MAX, -1, &c->ended_fd));
    return c->rank == 0 ? env_int("KOLO_LISTEN_FD", 3, INT32_MAX, -1, &c->listen_fd) : KOLO_OK;
}

/* Appends the start of a file, or the target of a link; nothing if it does not exist. */
static void add_file(kolo_text *text, const char *path) {
    char content[128];
    ssize_t n = readlink(path, content, sizeof content);
    if (n < 0) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        n = read(fd, content, sizeof content);
        close(fd);
    }
    if (n > 0) kolo_text_add(text, "%.*s ", (int)n, content);
}

static kolo_status find_host(uint64_t *host) {
    const char *named = getenv("KOLO_HOST_ID");
    kolo_text text = {0};
    if (named) {
        kolo_text_add(&text, "named %s", named);
    } else {
        add_file(&text, "/proc/sys/kernel/random/boot_id");
        add_file(&text, "/proc/self/ns/net");
    }
    bool failed = text.failed;
    if (!failed) *host = kolo_hash_text(text.text ? text.text : "");
    kolo_text_fini(&text);
    return failed ? KOLO_NOMEM(128) : KOLO_OK;
}

static kolo_status read_opts(const kolo_comm_opts *opts, kolo_rank_env *c,
                             const char **secret_file) {
    c->world = opts->world;
    c->rank = opts->rank;
    c->local_world = opts->local_world ? opts->local_world : opts->world;
    c->local_rank = opts->local_world ? opts->local_rank : opts->rank;
    KOLO_TRY(set_address(c, opts->master_addr ? opts->master_addr : "127.0.0.1"));
    c->master_port = opts->master_port;
    *secret_file = opts->secret_file;
    if (c->world < 1 || c->world > WORLD_MOST || c->rank < 0 || c->rank >= c->world) {
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "rank %d of a world of %d: the world size must be 1 to %d, "
                         "the rank less than it",
                         c->rank, c->world, WORLD_MOST);
    }
    if (c->local_world < 1 || c->local_world > c->world || c->local_rank < 0 ||
        c->local_rank >= c->local_world) {
        return KOLO_FAIL(KOLO_ERR_ARG, "local rank %d of %d in a world of %d", c->local_rank,
                         c->local_world, c->world);
    }
    if (c->world > 1 && (c->master_port < 1 || c->master_port > PORT_MOST)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "master_port is %d: must be 1 to %d", c->master_port,
                         PORT_MOST);
    }
    return KOLO_OK;
}

static kolo_status read_key(const char *secret_file, bool insecure, int64_t deadline_ns,
                            kolo_key *key) {
    if (insecure) return kolo_key_public(key);
    if (secret_file && secret_file[0]) return kolo_key_read(secret_file, deadline_ns, key);
    return KOLO_FAIL(KOLO_ERR_ARG, "no secret: set KOLO_SECRET_FILE to a file with the job's "
                                   "secret (kolo run creates one), or use --insecure if the whole "
                                   "network is trusted");
}

/* Bootstraps through a manager; NULL: the one of the launcher. */
static kolo_status read_launcher(kolo_manager *m, const kolo_comm_opts *opts, int64_t deadline_ns,
                                 kolo_rank_env *c, kolo_key *key) {
    bool any_port = m && m->any_port;
    if (!any_port) KOLO_TRY(env_int("KOLO_MASTER_PORT", 1, PORT_MOST, 0, &c->master_port));
    KOLO_TRY(m ? kolo_bootstrap_with(m, opts, deadline_ns, c, key)
               : kolo_bootstrap(opts, deadline_ns, c, key));
    c->local_world = c->world; /* until the hosts of all ranks are known */
    c->local_rank = c->rank;
    return KOLO_OK;
}

static kolo_rank_env default_env(void) {
    return (kolo_rank_env){.world = 1,
                           .local_world = 1,
                           .processors = kolo_processors(),
                           .listen_fd = -1,
                           .ended_fd = -1};
}

kolo_status kolo_rank_env_read(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_rank_env *env,
                               kolo_key *key) {
    kolo_rank_env c = default_env();
    uint64_t host = 0;
    KOLO_TRY(find_host(&host));
    bool launched = env_empty() ? kolo_bootstrap_detected() : kolo_bootstrap_by_torchrun();
    if (opts->world == 0 && launched) {
        KOLO_TRY(read_launcher(NULL, opts, deadline_ns, &c, key));
    } else if (opts->world != 0 || !env_empty()) {
        const char *secret_file = NULL;
        KOLO_TRY(opts->world == 0 ? read_env(&c, &secret_file) : read_opts(opts, &c, &secret_file));
        if (c.world > 1) KOLO_TRY(read_key(secret_file, opts->insecure, deadline_ns, key));
    }
    c.host = host;
    *env = c;
    return KOLO_OK;
}

kolo_status kolo_rank_env_from_manager(kolo_manager *manager, const kolo_comm_opts *opts,
                                       int64_t deadline_ns, kolo_rank_env *env, kolo_key *key) {
    kolo_rank_env c = default_env();
    KOLO_TRY(find_host(&c.host));
    KOLO_TRY(read_launcher(manager, opts, deadline_ns, &c, key));
    *env = c;
    return KOLO_OK;
}
