/* Client of PMI version 1, implementing its wire protocol: requests "cmd=NAME KEY=VALUE ..." on the
 * socket PMI_FD, each answered by one line (Balaji et al., "PMI: A Scalable Parallel
 * Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010). Supported by the mpiexec
 * of MPICH and Intel MPI, and by srun --mpi=pmi2.
 *
 * A value has at most 1023 characters and no blanks, so texts are encoded in hexadecimal. A process
 * can use PMI once: it cannot be initialized again after it was finalized. */
#include "base/clock.h"
#include "base/memory.h"
#include "comm/join/manager.h"
#include "comm/transport/socket.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_BYTES = 2048, FINALIZE_NS = 1000000000 };

typedef struct pmi_manager {
    kolo_manager base;
    int fd;
    char space[257]; /* name of this job's key space */
} pmi_manager;

/* Reads one line, without its newline. */
static kolo_status read_line(const pmi_manager *m, char *line, int64_t deadline_ns) {
    for (size_t n = 0; n < LINE_BYTES; n++) {
        KOLO_TRY(kolo_socket_recv(m->fd, &line[n], 1, NULL, deadline_ns));
        if (line[n] == '\n') {
            line[n] = '\0';
            return KOLO_OK;
        }
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a line without a newline");
}

/* Finds the value of `name` in an answer, and terminates it in place. NULL if there is none. */
static char *find_value(char *line, const char *name) {
    size_t n = strlen(name);
    for (char *word = line; word; word = strchr(word, ' ')) {
        word += *word == ' ';
        if (strncmp(word, name, n) != 0 || word[n] != '=') continue;
        char *value = word + n + 1;
        value[strcspn(value, " ")] = '\0';
        return value;
    }
    return NULL;
}

/* Sends a request and reads the answer, which must have the expected name and a return code of 0.
 */
static kolo_status request_answer(const pmi_manager *m, const char *request, const char *expected,
                                  char *line, int64_t deadline_ns) {
    kolo_status status = kolo_socket_send(m->fd, request, strlen(request), NULL, deadline_ns);
    if (status == KOLO_OK) status = read_line(m, line, deadline_ns);
    if (status == KOLO_ERR_PEER) {
        return KOLO_FAIL(KOLO_ERR_IO, "PMI: the launcher has closed the socket; a process can "
                                      "use PMI only once");
    }
    if (status != KOLO_OK) return kolo_fail_in(status, "PMI");
    char *rc = strstr(line, " rc=");
    size_t n = strlen(expected);
    if (strncmp(line, "cmd=", 4) != 0 || strncmp(line + 4, expected, n) != 0 ||
        (line[4 + n] != ' ' && line[4 + n] != '\0') || (rc && strtol(rc + 4, NULL, 10) != 0)) {
        return KOLO_FAIL(KOLO_ERR_IO, "PMI: the launcher answered '%.100s' to %.*s", line,
                         (int)strcspn(request, " \n"), request);
    }
    return KOLO_OK;
}

static kolo_status get(const pmi_manager *m, const char *name, char *line, char **value,
                       int64_t deadline_ns) {
    char request[LINE_BYTES];
    snprintf(request, sizeof request, "cmd=get kvsname=%s key=%s\n", m->space, name);
    KOLO_TRY(request_answer(m, request, "get_result", line, deadline_ns));
    *value = find_value(line, "value");
    return *value ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "PMI: an answer without a value");
}

/* Parses the map of ranks to hosts: "(vector,(0,1,4))" is four ranks on one host. */
static bool on_one_host(const pmi_manager *m, int64_t deadline_ns) {
    static const char one[] = "(vector,(0,1,";
    char line[LINE_BYTES] = "", *map;
    if (get(m, "PMI_process_mapping", line, &map, deadline_ns) != KOLO_OK) return false;
    return strncmp(map, one, sizeof one - 1) == 0 && !strchr(map + sizeof one - 1, '(');
}

/* Publishes a value under this rank's key: rank 0 its text, the others that they have joined. */
static kolo_status publish(const pmi_manager *m, const char *value, int64_t deadline_ns) {
    char request[LINE_BYTES], line[LINE_BYTES] = "";
    snprintf(request, sizeof request, "cmd=put kvsname=%s key=kolo-rank%d value=%s\n", m->space,
             m->base.rank, value);
    kolo_status status = request_answer(m, request, "put_result", line, deadline_ns);
    sodium_memzero(request, sizeof request);
    return status;
}

static kolo_status lookup(const pmi_manager *m, int rank, char *line, char **word,
                          int64_t deadline_ns) {
    char key[32];
    snprintf(key, sizeof key, "kolo-rank%d", rank);
    kolo_status status = get(m, key, line, word, deadline_ns);
    bool none = status != KOLO_OK && strstr(line, "not_found");
    return none ? kolo_manager_missing(&m->base, rank) : status;
}

static kolo_status barrier(const pmi_manager *m, int64_t deadline_ns) {
    char line[LINE_BYTES] = "";
    kolo_status status = request_answer(m, "cmd=barrier_in\n", "barrier_out", line, deadline_ns);
    if (status != KOLO_ERR_TIMEOUT) return status;
    return KOLO_FAIL(status,
                     "rank %d: not all %d processes of the launcher joined in time: check that all "
                     "of them are ranks of this job",
                     m->base.rank, m->base.world);
}

/* Rank 0: publishes its text and checks that all ranks have published. A rank with --transport mpi
 * may be inside MPI_Init, which only the launcher can end, so a missing value is an error. */
static kolo_status share_own(const pmi_manager *m, const char *text, int64_t deadline_ns) {
    char hex[2 * KOLO_MANAGER_TEXT_BYTES + 1], line[LINE_BYTES] = "", *word;
    sodium_bin2hex(hex, sizeof hex, (const unsigned char *)text, strlen(text));
    kolo_status status = publish(m, hex, deadline_ns);
    sodium_memzero(hex, sizeof hex);
    KOLO_TRY(status);
    KOLO_TRY(barrier(m, deadline_ns));
    for (int r = 1; r < m->base.world; r++) KOLO_TRY(lookup(m, r, line, &word, deadline_ns));
    return KOLO_OK;
}

static kolo_status share(kolo_manager *base, char text[KOLO_MANAGER_TEXT_BYTES],
                         int64_t deadline_ns) {
    const pmi_manager *m = (const pmi_manager *)base;
    char line[LINE_BYTES] = "", *word = line;
    if (base->rank == 0) return share_own(m, text, deadline_ns);
    KOLO_TRY(publish(m, "joined", deadline_ns));
    KOLO_TRY(barrier(m, deadline_ns));
    KOLO_TRY(lookup(m, 0, line, &word, deadline_ns));
    size_t bytes = 0;
    bool good = sodium_hex2bin((unsigned char *)text, KOLO_MANAGER_TEXT_BYTES - 1, word,
                               strlen(word), NULL, &bytes, NULL) == 0;
    text[good ? bytes : 0] = '\0';
    sodium_memzero(line, sizeof line);
    return good ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "PMI: rank 0's address is malformed");
}

static void pmi_close(kolo_manager *base) {
    pmi_manager *m = (pmi_manager *)base;
    char line[LINE_BYTES];
    if (!base->failed) { /* else the launcher must see this process end as a failure */
        (void)request_answer(m, "cmd=finalize\n", "finalize_ack", line,
                             kolo_now_ns() + FINALIZE_NS);
    }
    kolo_free(m);
}

static const kolo_manager_ops ops = {.name = "PMI", .share = share, .close = pmi_close};

static kolo_status pmi_init(pmi_manager *m, int64_t deadline_ns) {
    char line[LINE_BYTES] = "", *space;
    KOLO_TRY(kolo_manager_number("PMI_SIZE", 1, INT32_MAX, &m->base.world));
    KOLO_TRY(kolo_manager_number("PMI_RANK", 0, m->base.world - 1, &m->base.rank));
    KOLO_TRY(kolo_manager_number("PMI_FD", 0, INT32_MAX, &m->fd));
    kolo_status status = kolo_socket_adopt(m->fd);
    if (status != KOLO_OK) return kolo_fail_in(status, "PMI_FD");
    KOLO_TRY(request_answer(m, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init",
                            line, deadline_ns));
    KOLO_TRY(request_answer(m, "cmd=get_my_kvsname\n", "my_kvsname", line, deadline_ns));
    space = find_value(line, "kvsname");
    if (!space || strlen(space) >= sizeof m->space) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "PMI: the launcher provides no key space");
    }
    snprintf(m->space, sizeof m->space, "%s", space);
    m->base.one_host = on_one_host(m, deadline_ns);
    return KOLO_OK;
}

kolo_status kolo_pmi_open(int64_t deadline_ns, kolo_manager **manager) {
    pmi_manager *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    m->base.ops = &ops;
    kolo_status status = pmi_init(m, deadline_ns);
    if (status != KOLO_OK) {
        kolo_free(m);
        return status;
    }
    *manager = &m->base;
    return KOLO_OK;
}
