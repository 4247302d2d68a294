/* Answers of a PMI-1 launcher to a joining rank. The first byte of the input is the rank, 0 or
 * another; the rest are the answers, all sent before the first request. Each rank publishes a value
 * and reads that of the other. */
#include "base/clock.h"
#include "base/status.h"
#include "comm/join/bootstrap.h"
#include "comm/join/manager.h"
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { INPUT_MOST = 32 << 10 }; /* fits into the socket buffer */

static const int64_t patience_ns = 1000000000; /* not reached: the input is finite */

static kolo_status lead(kolo_manager *m, int64_t deadline_ns) {
    char text[KOLO_MANAGER_TEXT_BYTES];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    return m->ops->share(m, text, deadline_ns);
}

static kolo_status follow(kolo_manager *m, int64_t deadline_ns) {
    kolo_comm_opts opts = {.timeout_ms = 1000};
    kolo_rank_env place = {.listen_fd = -1, .ended_fd = -1};
    kolo_key key;
    KOLO_TRY(kolo_bootstrap_with(m, &opts, deadline_ns, &place, &key));
    KOLO_ASSERT(memchr(place.master_addr, '\0', sizeof place.master_addr));
    KOLO_ASSERT(place.master_addr[0] && place.master_port > 0 && place.master_port <= 65535);
    KOLO_ASSERT(place.rank == 1 && place.world == 2);
    kolo_key_clear(&key);
    return KOLO_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    int fds[2];
    char number[16];
    if (length == 0 || length > INPUT_MOST) return 0;
    bool leader = bytes[0] == '0';
    KOLO_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    KOLO_ASSERT(send(fds[1], bytes + 1, length - 1, MSG_DONTWAIT) == (ssize_t)(length - 1));
    KOLO_ASSERT(shutdown(fds[1], SHUT_WR) == 0);
    snprintf(number, sizeof number, "%d", fds[0]);
    KOLO_ASSERT(setenv("PMI_FD", number, 1) == 0 && setenv("PMI_SIZE", "2", 1) == 0);
    KOLO_ASSERT(setenv("PMI_RANK", leader ? "0" : "1", 1) == 0);
    int64_t deadline_ns = kolo_now_ns() + patience_ns;
    kolo_manager *m;
    kolo_status status = kolo_pmi_open(deadline_ns, &m);
    if (status == KOLO_OK) {
        status = leader ? lead(m, deadline_ns) : follow(m, deadline_ns);
        m->failed = status != KOLO_OK;
        m->ops->close(m);
    }
    KOLO_ASSERT(status == KOLO_OK || kolo_last_error()[0]);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
