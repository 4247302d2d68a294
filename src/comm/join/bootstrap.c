/* Bootstrap of ranks started by mpirun, mpiexec or srun, without a rank environment, or by
 * torchrun.
 *
 * Rank 0 opens the listening socket at a port that the kernel picks, draws the job's secret and
 * broadcasts both through the process manager:
 *
 *     ADDRESS[,ADDRESS...];PORT;SECRET     or     !STATUS;error text
 *
 * The rest is as for any job (rendezvous.c). If all ranks are on one host, the address is the
 * loopback address; otherwise the list starts with the manager's own address of rank 0's host and
 * has all addresses of rank 0. --interface selects one. SECRET is 64 hexadecimal digits, "file"
 * (all ranks read KOLO_SECRET_FILE) or "none" (--insecure). The managers except torchrun make the
 * text available only to processes of this job and user; how it is protected between hosts depends
 * on the launcher. KOLO_SECRET_FILE is for networks where that is not enough.
 *
 * If a launcher has started several processes but offers no process manager, it is an error: they
 * must not train independently of each other. */
#include "comm/join/bootstrap.h"

#include "base/compiler.h"
#include "base/log.h"
#include "base/status.h"
#include "comm/transport/socket.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECRET_BYTES = 32, HEX_BYTES = 2 * SECRET_BYTES + 1, PORT_MOST = 65535 };

/* ---- detection of the launcher ---- */

/* The number of processes that the launcher has started, the innermost launcher first, since one
 * may have been started by another. 0: unknown. */
static long n_started(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < KOLO_COUNT(names); i++) {
        const char *text = getenv(names[i]);
        if (text) return strtol(text, NULL, 10);
    }
    return 0;
}

const char *kolo_bootstrap_mpi(long *world) {
    const char *environment = getenv("WORLD_SIZE");
    *world = n_started();
    if (*world == 0 && environment) *world = strtol(environment, NULL, 10);
    if (getenv("OMPI_COMM_WORLD_SIZE")) return "openmpi";
    return getenv("PMI_SIZE") ? "mpich" : NULL;
}

/* KOLO_MASTER_PORT is for ranks that shall not use the store. */
bool kolo_bootstrap_by_torchrun(void) {
    const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return store && strcmp(store, "True") == 0 && getenv("RANK") && getenv("WORLD_SIZE") &&
           getenv("MASTER_PORT") && !getenv("KOLO_MASTER_PORT");
}
static bool offers_pmix(void) { return getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK"); }
static bool offers_pmi(void) { return getenv("PMI_FD") && getenv("PMI_RANK"); }

bool kolo_bootstrap_detected(void) {
    long n = n_started();
    return n > 1 || (n == 0 && (offers_pmix() || offers_pmi()));
}

/* The managers, in the order in which they are tried. */
static const struct {
    bool (*offered)(void); /* reads the environment */
    kolo_status (*open)(int64_t deadline_ns, kolo_manager **manager);
} managers[] = {
    {kolo_bootstrap_by_torchrun, kolo_torchrun_open},
    {offers_pmi, kolo_pmi_open},
    {offers_pmix, kolo_pmix_open},
};

static kolo_status open_manager(int64_t deadline_ns, kolo_manager **manager) {
    for (size_t i = 0; i < KOLO_COUNT(managers); i++) {
        if (managers[i].offered()) return managers[i].open(deadline_ns, manager);
    }
    bool slurm = getenv("SLURM_STEP_NUM_TASKS") && !getenv("PMI_SIZE");
    return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                     "%s has started %ld processes but provides no process manager: %s; or, to "
                     "run independent processes, set RANK=0 WORLD_SIZE=1",
                     slurm ? "srun" : "the launcher", n_started(),
                     slurm ? "use srun --mpi=pmix" : "use one with PMIx, or kolo run");
}

/* ---- rank 0's text ---- */

/* Opens the listening socket and writes its address. */
static kolo_status write_address(const kolo_comm_opts *opts, const kolo_manager *m,
                                 kolo_rank_env *c, char *text) {
    char addresses[KOLO_MASTER_ADDR_BYTES] = "127.0.0.1", unused[KOLO_ADDRESS_BYTES];
    const char *at = addresses;
    if (opts->interface) {
        KOLO_TRY(kolo_socket_find_address(opts->interface, addresses, NULL));
    } else if (!m->one_host) {
        size_t known = 0;
        if (m->address && strlen(m->address) + KOLO_ADDRESS_BYTES < sizeof addresses) {
            known = (size_t)snprintf(addresses, sizeof addresses, "%s,", m->address);
        }
        KOLO_TRY(kolo_socket_all_addresses(addresses + known, sizeof addresses - known, &at));
    }
    KOLO_TRY(kolo_socket_listen_tcp(at, c->master_port, &c->listen_fd));
    KOLO_TRY(kolo_socket_own_address(c->listen_fd, unused, &c->master_port));
    snprintf(c->master_addr, sizeof c->master_addr, "%s", addresses);
    int n = snprintf(text, KOLO_MANAGER_TEXT_BYTES, "%s;%d;", addresses, c->master_port);
    KOLO_ASSERT(n > 0 && n + HEX_BYTES <= KOLO_MANAGER_TEXT_BYTES);
    return KOLO_OK;
}

static kolo_status write_secret(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_key *key,
                                char *text) {
    const char *file = getenv("KOLO_SECRET_FILE");
    size_t n = strlen(text);
    if (opts->insecure || file) {
        snprintf(text + n, KOLO_MANAGER_TEXT_BYTES - n, "%s", opts->insecure ? "none" : "file");
        return opts->insecure ? kolo_key_public(key) : kolo_key_read(file, deadline_ns, key);
    }
    unsigned char secret[SECRET_BYTES];
    KOLO_TRY(kolo_key_draw(secret, sizeof secret, key));
    sodium_bin2hex(text + n, KOLO_MANAGER_TEXT_BYTES - n, secret, sizeof secret);
    sodium_memzero(secret, sizeof secret);
    return KOLO_OK;
}

/* ---- the other ranks ---- */

static kolo_status parse_secret(const char *secret_text, int64_t deadline_ns,
                                const kolo_comm_opts *opts, int rank, kolo_key *key) {
    const char *file = getenv("KOLO_SECRET_FILE");
    if ((strcmp(secret_text, "none") == 0) != opts->insecure) {
        return KOLO_FAIL(KOLO_ERR_ARG, "rank 0 and rank %d disagree on --insecure", rank);
    }
    if (opts->insecure) return kolo_key_public(key);
    if (strcmp(secret_text, "file") == 0) {
        if (file) return kolo_key_read(file, deadline_ns, key);
        return KOLO_FAIL(KOLO_ERR_ARG,
                         "KOLO_SECRET_FILE is set on rank 0 but not on rank %d: export it "
                         "(mpirun -x KOLO_SECRET_FILE)",
                         rank);
    }
    unsigned char secret[SECRET_BYTES];
    size_t n = 0;
    if (sodium_hex2bin(secret, sizeof secret, secret_text, strlen(secret_text), NULL, &n, NULL) !=
            0 ||
        n != sizeof secret) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "the job's secret from rank 0 is malformed");
    }
    kolo_status status = kolo_key_make(secret, sizeof secret, key);
    sodium_memzero(secret, sizeof secret);
    return status;
}

static kolo_status parse(char *text, int64_t deadline_ns, const kolo_comm_opts *opts,
                         kolo_rank_env *c, kolo_key *key) {
    char *end = text;
    if (*text == '!') {
        long status = strtol(text + 1, &end, 10);
        if (*end != ';' || status < 1 || status > KOLO_ERR_PEER) status = KOLO_ERR_FORMAT;
        return KOLO_FAIL((kolo_status)status, "rank 0: %s", *end ? end + 1 : end);
    }
    char *port = strchr(text, ';'), *secret = port ? strchr(port + 1, ';') : NULL;
    long number = port ? strtol(port + 1, &end, 10) : 0;
    if (!secret || end != secret || number < 1 || number > PORT_MOST || port == text ||
        (size_t)(port - text) >= sizeof c->master_addr) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "the address from rank 0 is malformed");
    }
    memcpy(c->master_addr, text, (size_t)(port - text));
    c->master_addr[port - text] = '\0';
    c->master_port = (int)number;
    return parse_secret(secret + 1, deadline_ns, opts, c->rank, key);
}

/* ---- exchange ---- */

static kolo_status exchange(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_manager *m,
                            kolo_rank_env *c, kolo_key *key, char *text) {
    if (c->rank != 0) {
        KOLO_TRY(m->ops->share(m, text, deadline_ns));
        return parse(text, deadline_ns, opts, c, key);
    }
    kolo_status status = write_address(opts, m, c, text);
    if (status == KOLO_OK) status = write_secret(opts, deadline_ns, key, text);
    if (status == KOLO_OK) return m->ops->share(m, text, deadline_ns);
    char error[KOLO_MANAGER_TEXT_BYTES]; /* the other ranks wait for the text */
    snprintf(error, sizeof error, "%s", kolo_last_error());
    snprintf(text, KOLO_MANAGER_TEXT_BYTES, "!%d;%.*s", (int)status, KOLO_MANAGER_TEXT_BYTES - 16,
             error);
    (void)m->ops->share(m, text, deadline_ns);
    return KOLO_FAIL(status, "%s", error);
}

kolo_status kolo_bootstrap_with(kolo_manager *m, const kolo_comm_opts *opts, int64_t deadline_ns,
                                kolo_rank_env *env, kolo_key *key) {
    env->rank = m->rank;
    env->world = m->world;
    char text[KOLO_MANAGER_TEXT_BYTES];
    kolo_status status = KOLO_OK;
    if (m->world > KOLO_WORLD_MAX) {
        status =
            KOLO_FAIL(KOLO_ERR_ARG, "the launcher has started %d ranks: at most %d are supported",
                      m->world, KOLO_WORLD_MAX);
    }
    if (status == KOLO_OK && m->world > 1) {
        status = exchange(opts, deadline_ns, m, env, key, text);
    }
    sodium_memzero(text, sizeof text);
    if (status != KOLO_OK && env->listen_fd >= 0) {
        close(env->listen_fd);
        env->listen_fd = -1;
    }
    return status;
}

kolo_status kolo_bootstrap(const kolo_comm_opts *opts, int64_t deadline_ns, kolo_rank_env *env,
                           kolo_key *key) {
    kolo_manager *m;
    KOLO_TRY(open_manager(deadline_ns, &m));
    kolo_log_line(KOLO_LOG_DEBUG, m->rank, "address exchange by %s", m->ops->name);
    kolo_status status = kolo_bootstrap_with(m, opts, deadline_ns, env, key);
    m->failed = status != KOLO_OK;
    m->ops->close(m);
    return status;
}

/* ---- public queries ---- */

bool kolo_comm_launched(void) { return getenv("RANK") != NULL || kolo_bootstrap_detected(); }

#define ALWAYS "kolo run, RANK and WORLD_SIZE, torchrun, "
const char *kolo_comm_launchers(void) {
    static const char all[] = ALWAYS "mpirun and srun (PMIx, PMI)";
    static const char not_built[] =
        ALWAYS "mpiexec of MPICH (PMI); not PMIx: built without libpmix-dev";
    static const char not_there[] =
        ALWAYS "mpiexec of MPICH (PMI); not PMIx: libpmix.so.2 is not installed";
    switch (kolo_pmix_state()) {
    case KOLO_PMIX_USABLE:
        return all;
    case KOLO_PMIX_NOT_BUILT:
        return not_built;
    default:
        return not_there;
    }
}
