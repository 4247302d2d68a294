/* Names ranks in the errors of joining, with their addresses where they are known. */
#include "comm/join/join.h"

#include <stdio.h>
#include <string.h>

/* The address at which other hosts reach a rank, with its length; NULL: not known, or this host. */
static const char *address_of(const kolo_joining *j, int rank, int *length) {
    const kolo_hello *h = &j->table[rank];
    if (h->world == 0) return NULL; /* it has not joined */
    if (j->choice->memory && h->host == j->own.host) return NULL;
    const char *address = h->address[0] ? h->address : j->env.master_addr;
    *length = (int)strcspn(address, ",");
    return address;
}

const char *kolo_joining_rank_text(const kolo_joining *j, int rank, char *text, size_t bytes) {
    int length = 0;
    const char *address = address_of(j, rank, &length);
    snprintf(text, bytes, "rank %d%s%.*s", rank, address ? " at " : "", length,
             address ? address : "");
    return text;
}

/* The end of a run of ranks that are named together: those without an address. */
static int end_of_run(const kolo_joining *j, const bool *wanted, int rank) {
    int unused, end = rank + 1;
    if (address_of(j, rank, &unused)) return end;
    while (end < j->env.world && wanted[end] && !address_of(j, end, &unused)) end++;
    return end;
}

const char *kolo_joining_names(const kolo_joining *j, const bool *wanted,
                               char text[KOLO_JOINING_NAMES_BYTES]) {
    enum { MORE_BYTES = 24 }; /* " and 1023 more ranks" */
    size_t n = 0;
    text[0] = '\0';
    for (int r = 0, end; r < j->env.world; r = end) {
        end = r + 1;
        if (!wanted[r]) continue;
        char name[KOLO_ADDRESS_BYTES + 32];
        end = end_of_run(j, wanted, r);
        kolo_joining_rank_text(j, r, name, sizeof name);
        if (end > r + 1) snprintf(name, sizeof name, "ranks %d to %d", r, end - 1);
        size_t bytes = strlen(name) + (n > 0 ? 2 : 0);
        if (n + bytes + MORE_BYTES >= KOLO_JOINING_NAMES_BYTES) {
            int left = 0;
            for (; r < j->env.world; r++) left += wanted[r];
            snprintf(text + n, KOLO_JOINING_NAMES_BYTES - n, " and %d more rank%s", left,
                     left == 1 ? "" : "s");
            return text;
        }
        snprintf(text + n, KOLO_JOINING_NAMES_BYTES - n, "%s%s", n > 0 ? ", " : "", name);
        n += bytes;
    }
    return text;
}
