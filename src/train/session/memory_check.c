#include "train/session/memory_check.h"

#include "base/memory.h"
#include "base/process.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/sync/agree.h"

#include <math.h>
#include <string.h>

static const double gib = 1 << 30;

/* A row of numbers of each rank. */
static kolo_status gather(kolo_comm *comm, const void *own, void *rows, size_t bytes) {
    memcpy(rows, own, bytes);
    return comm ? kolo_allgather(comm, own, rows, bytes / sizeof(int64_t), KOLO_DTYPE_I64)
                : KOLO_OK;
}

kolo_status kolo_gather_memory(kolo_comm *comm, const kolo_train_memory *own,
                               kolo_train_memory *rows) {
    return gather(comm, own, rows, sizeof *own);
}

static double own_bytes(const kolo_train_memory *m) {
    return (double)m->store + (double)m->exchanged + (double)m->values;
}

/* Of the ranks of this machine. */
typedef struct local_needs {
    int workers, servers;
    double server;           /* the most that one of the servers needs */
    double tables;           /* the most that one needs for the rows of tables */
    double together, copies; /* what they share counts once */
} local_needs;

static bool serves(const kolo_memory_need *n) { return n->memory.store + n->memory.shared == 0; }

static local_needs add_local(const kolo_comm *comm, const kolo_memory_need *rows) {
    const int here = comm ? kolo_comm_host(comm, kolo_comm_rank(comm)) : 0;
    local_needs all = {0};
    double shared = 0;
    for (int r = 0; r < (comm ? kolo_comm_size(comm) : 1); r++) {
        if (comm && kolo_comm_host(comm, r) != here) continue;
        const bool server = serves(&rows[r]);
        *(server ? &all.servers : &all.workers) += 1;
        const double served = (double)rows[r].served + (double)rows[r].tables;
        if (server) all.server = fmax(all.server, served);
        all.tables = fmax(all.tables, (double)rows[r].tables);
        all.together += own_bytes(&rows[r].memory) + served;
        all.copies += (double)rows[r].copies;
        shared = fmax(shared, (double)rows[r].memory.shared);
    }
    all.together += shared;
    return all;
}

static void add_need(kolo_text *t, const kolo_memory_need *n) {
    const kolo_train_memory *m = &n->memory;
    kolo_text_add(t, "a %s needs %.1f GiB", serves(n) ? "server" : "worker",
                  (own_bytes(m) + (double)m->shared + (double)(n->served + n->tables)) / gib);
    if (serves(n)) return;
    kolo_text_add(t, " (parameters and optimizer %.1f, gradients %.1f, values of a step %.1f",
                  (double)(m->store + m->shared) / gib, (double)m->exchanged / gib,
                  (double)m->values / gib);
    if (n->served > 0) kolo_text_add(t, ", for parameter servers %.1f", (double)n->served / gib);
    if (n->tables > 0) kolo_text_add(t, ", for rows of tables %.1f", (double)n->tables / gib);
    kolo_text_add(t, ")");
}

static kolo_status fail_check(const kolo_memory_need *own, const local_needs *local, double limit) {
    kolo_text t = {0};
    add_need(&t, own);
    if (local->servers > 0) {
        if (!serves(own)) kolo_text_add(&t, ", a server %.1f GiB", local->server / gib);
        if (local->tables > 0) {
            kolo_text_add(&t, " (rows of tables up to %.1f)", local->tables / gib);
        }
        kolo_text_add(&t, ", workers (%d) and servers (%d) of this machine together %.1f GiB",
                      local->workers, local->servers, local->together / gib);
    } else if (local->workers > 1) {
        kolo_text_add(&t, ", all %d of them %.1f GiB", local->workers, local->together / gib);
    }
    if (local->copies > 0) {
        kolo_text_add(&t, ", copies for checkpoints %.1f GiB", local->copies / gib);
    }
    const kolo_status status = KOLO_FAIL(
        KOLO_ERR_NOMEM,
        "%s, and this machine has %.1f GiB for them: use a smaller model or batch, fewer workers, "
        "--accumulate or --recompute full%s%s%s",
        t.text ? t.text : "out of memory", limit / gib,
        local->servers > 0 ? ", or servers on other hosts" : "",
        local->tables > 0 ? ", or a smaller --table-bytes" : "",
        local->copies > 0 ? ", or --wait-for-saves" : "");
    kolo_text_fini(&t);
    return status;
}

kolo_status kolo_check_memory(kolo_comm *comm, const kolo_memory_need *own) {
    const size_t bytes = (size_t)(comm ? kolo_comm_size(comm) : 1) * sizeof *own;
    const double limit = (double)kolo_memory_limit();
    kolo_memory_need *rows = kolo_zalloc(bytes);
    kolo_status status = kolo_agree(comm, rows ? KOLO_OK : KOLO_NOMEM(bytes));
    if (status == KOLO_OK && rows) status = gather(comm, own, rows, sizeof *own);
    if (status == KOLO_OK && rows) {
        const local_needs local = add_local(comm, rows);
        const bool fits = limit <= 0 || local.together + local.copies <= limit;
        status = kolo_agree(comm, fits ? KOLO_OK : fail_check(own, &local, limit));
    }
    kolo_free(rows);
    return status;
}
