/* The file of constants for the choice of algorithms. */
#include "cli/costs_file.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

kolo_status costs_file_path(bool make, char path[COSTS_PATH_BYTES]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char host[64] = "", folder[COSTS_PATH_BYTES - 100];
    if (gethostname(host, sizeof host - 1) != 0 || !host[0]) snprintf(host, sizeof host, "machine");
    for (char *c = host; *c; c++) *c = *c == '/' ? '_' : *c;
    bool given = cache && cache[0] == '/'; /* a relative one is to be ignored, says its standard */
    if (!given && (!home || !home[0])) {
        return KOLO_FAIL(KOLO_ERR_ARG, "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
    }
    int n = snprintf(folder, sizeof folder, "%s%s", given ? cache : home, given ? "" : "/.cache");
    if (n < 0 || (size_t)n >= sizeof folder) {
        return KOLO_FAIL(KOLO_ERR_ARG, "the path of the cache folder is too long");
    }
    if (make) KOLO_TRY(kolo_folder_make(folder));
    snprintf(path, COSTS_PATH_BYTES, "%s/kolo", folder);
    if (make) KOLO_TRY(kolo_folder_make(path));
    snprintf(path, COSTS_PATH_BYTES, "%s/kolo/allreduce-%s.costs", folder, host);
    return KOLO_OK;
}

kolo_status costs_file_load(kolo_comm *comm) {
    char path[COSTS_PATH_BYTES];
    int32_t there = kolo_comm_rank(comm) == 0 && costs_file_path(false, path) == KOLO_OK &&
                    access(path, F_OK) == 0;
    if (kolo_comm_size(comm) == 1) return KOLO_OK;
    KOLO_TRY(kolo_broadcast(comm, &there, 1, KOLO_DTYPE_I32, 0));
    return there ? kolo_comm_load_costs(comm, path) : KOLO_OK;
}
