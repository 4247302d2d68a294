/* PMI, version 1, by its wire protocol: lines "cmd=NAME KEY=VALUE ..." on the socket that PMI_FD
 * names, each answered by one line (Balaji et al., "PMI: A Scalable Parallel Process-Management
 * Interface for Extreme-Scale Systems", EuroMPI 2010). MPICH's and Intel MPI's mpiexec speak it,
 * and so does srun --mpi=pmi2.
 *
 * A value must not hold blanks and is at most 1023 characters long, so a text goes in hexadecimal.
 * A process can be a member once: who has left is not heard again. */
#include "base/clock.h"
#include "base/memory.h"
#include "comm/join/manager.h"
#include "comm/transport/socket.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_BYTES = 2048, LAST_WORD_NS = 1000000000 };

typedef struct pmi_manager {
    kolo_manager base;
    int fd;
    char space[257]; /* of keys: this job's */
} pmi_manager;

/* One line, without its end. */
static kolo_status read_line(const pmi_manager *m, char *line, int64_t deadline_ns) {
    for (size_t n = 0; n < LINE_BYTES; n++) {
        KOLO_TRY(kolo_socket_recv(m->fd, &line[n], 1, NULL, deadline_ns));
        if (line[n] == '\n') {
            line[n] = '\0';
            return KOLO_OK;
        }
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT, "a line without an end");
}

/* The value of `name` in an answer, in place: ends the line behind it. NULL when there is none. */
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

/* Sends a request and reads its answer, which must be of that name and say nothing of a failure. */
static kolo_status ask(const pmi_manager *m, const char *request, const char *expected, char *line,
                       int64_t deadline_ns) {
    kolo_status status = kolo_socket_send(m->fd, request, strlen(request), NULL, deadline_ns);
    if (status == KOLO_OK) status = read_line(m, line, deadline_ns);
    if (status == KOLO_ERR_PEER) {
        return KOLO_FAIL(KOLO_ERR_IO, "PMI: the launcher has closed its socket; a process can join "
                                      "through it once");
    }
    if (status != KOLO_OK) return kolo_fail_in(status, "PMI");
    char *rc = strstr(line, " rc=");
    size_t n = strlen(expected);
    if (strncmp(line, "cmd=", 4) != 0 || strncmp(line + 4, expected, n) != 0 ||
        (line[4 + n] != ' ' && line[4 + n] != '\0') || (rc && strtol(rc + 4, NULL, 10) != 0)) {
        return KOLO_FAIL(KOLO_ERR_IO, "PMI: the launcher answers '%.100s' to %.*s", line,
                         (int)strcspn(request, " \n"), request);
    }
    return KOLO_OK;
}

static kolo_status get(const pmi_manager *m, const char *name, char *line, char **value,
                       int64_t deadline_ns) {
    char request[LINE_BYTES];
    snprintf(request, sizeof request, "cmd=get kvsname=%s key=%s\n", m->space, name);
    KOLO_TRY(ask(m, request, "get_result", line, deadline_ns));
    *value = find_value(line, "value");
    return *value ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "PMI: an answer without a value");
}

/* The launcher's map of ranks to hosts: "(vector,(0,1,4))" are four ranks on one host. */
static bool on_one_host(const pmi_manager *m, int64_t deadline_ns) {
    static const char one[] = "(vector,(0,1,";
    char line[LINE_BYTES] = "", *map;
    if (get(m, "PMI_process_mapping", line, &map, deadline_ns) != KOLO_OK) return false;
    return strncmp(map, one, sizeof one - 1) == 0 && !strchr(map + sizeof one - 1, '(');
}

/* The word of rank 0 is its text; that of each other rank says that it is one of Kolo's. */
static kolo_status leave_word(const pmi_manager *m, const char *word, int64_t deadline_ns) {
    char request[LINE_BYTES], line[LINE_BYTES] = "";
    snprintf(request, sizeof request, "cmd=put kvsname=%s key=kolo-rank%d value=%s\n", m->space,
             m->base.rank, word);
    kolo_status status = ask(m, request, "put_result", line, deadline_ns);
    sodium_memzero(request, sizeof request);
    return status;
}

static kolo_status find_word(const pmi_manager *m, int rank, char *line, char **word,
                             int64_t deadline_ns) {
    char key[32];
    snprintf(key, sizeof key, "kolo-rank%d", rank);
    kolo_status status = get(m, key, line, word, deadline_ns);
    bool none = status != KOLO_OK && strstr(line, "not_found");
    return none ? kolo_manager_missing(&m->base, rank) : status;
}

static kolo_status meet_all(const pmi_manager *m, int64_t deadline_ns) {
    char line[LINE_BYTES] = "";
    kolo_status status = ask(m, "cmd=barrier_in\n", "barrier_out", line, deadline_ns);
    if (status != KOLO_ERR_TIMEOUT) return status;
    return KOLO_FAIL(status,
                     "rank %d: not all of the %d processes that the launcher has started have "
                     "joined in time: are all of them ranks of this job?",
                     m->base.rank, m->base.world);
}

/* Who has come with another transport may be in MPI's start, which nothing but the launcher can
 * end: so rank 0 looks for everybody's word, and fails where one is missing. */
static kolo_status share_own(const pmi_manager *m, const char *text, int64_t deadline_ns) {
    char hex[2 * KOLO_MANAGER_TEXT_BYTES + 1], line[LINE_BYTES] = "", *word;
    sodium_bin2hex(hex, sizeof hex, (const unsigned char *)text, strlen(text));
    kolo_status status = leave_word(m, hex, deadline_ns);
    sodium_memzero(hex, sizeof hex);
    KOLO_TRY(status);
    KOLO_TRY(meet_all(m, deadline_ns));
    for (int r = 1; r < m->base.world; r++) KOLO_TRY(find_word(m, r, line, &word, deadline_ns));
    return KOLO_OK;
}

static kolo_status share(kolo_manager *base, char text[KOLO_MANAGER_TEXT_BYTES],
                         int64_t deadline_ns) {
    const pmi_manager *m = (const pmi_manager *)base;
    char line[LINE_BYTES] = "", *word = line;
    if (base->rank == 0) return share_own(m, text, deadline_ns);
    KOLO_TRY(leave_word(m, "here", deadline_ns));
    KOLO_TRY(meet_all(m, deadline_ns));
    KOLO_TRY(find_word(m, 0, line, &word, deadline_ns));
    size_t bytes = 0;
    bool good = sodium_hex2bin((unsigned char *)text, KOLO_MANAGER_TEXT_BYTES - 1, word,
                               strlen(word), NULL, &bytes, NULL) == 0;
    text[good ? bytes : 0] = '\0';
    sodium_memzero(line, sizeof line);
    return good ? KOLO_OK : KOLO_FAIL(KOLO_ERR_FORMAT, "PMI: what rank 0 has left is malformed");
}

static void leave(kolo_manager *base) {
    pmi_manager *m = (pmi_manager *)base;
    char line[LINE_BYTES];
    if (!base->failed) { /* else the launcher is to notice when this process ends */
        (void)ask(m, "cmd=finalize\n", "finalize_ack", line, kolo_now_ns() + LAST_WORD_NS);
    }
    kolo_free(m);
}

static const kolo_manager_ops ops = {.name = "PMI", .share = share, .close = leave};

static kolo_status number(const char *name, long least, long most, int *value) {
    const char *text = getenv(name);
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || n < least || n > most) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s is '%s': a number from %ld to %ld is expected", name,
                         text ? text : "", least, most);
    }
    *value = (int)n;
    return KOLO_OK;
}

static kolo_status enter(pmi_manager *m, int64_t deadline_ns) {
    char line[LINE_BYTES] = "", *space;
    KOLO_TRY(number("PMI_SIZE", 1, INT32_MAX, &m->base.world));
    KOLO_TRY(number("PMI_RANK", 0, m->base.world - 1, &m->base.rank));
    KOLO_TRY(number("PMI_FD", 0, INT32_MAX, &m->fd));
    kolo_status status = kolo_socket_adopt(m->fd);
    if (status != KOLO_OK) return kolo_fail_in(status, "PMI_FD");
    KOLO_TRY(
        ask(m, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", line, deadline_ns));
    KOLO_TRY(ask(m, "cmd=get_my_kvsname\n", "my_kvsname", line, deadline_ns));
    space = find_value(line, "kvsname");
    if (!space || strlen(space) >= sizeof m->space) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "PMI: the launcher does not name the job's keys");
    }
    snprintf(m->space, sizeof m->space, "%s", space);
    m->base.one_host = on_one_host(m, deadline_ns);
    return KOLO_OK;
}

kolo_status kolo_pmi_open(int64_t deadline_ns, kolo_manager **manager) {
    pmi_manager *m = kolo_zalloc(sizeof *m);
    if (!m) return KOLO_NOMEM(sizeof *m);
    m->base.ops = &ops;
    kolo_status status = enter(m, deadline_ns);
    if (status != KOLO_OK) {
        kolo_free(m);
        return status;
    }
    *manager = &m->base;
    return KOLO_OK;
}
