/* The user's cache folder: $XDG_CACHE_HOME/kolo or ~/.cache/kolo. */
#include "cli/options/cache_folder.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"

#include <stdlib.h>

static bool is_absolute(const char *path) { return path && *path == '/'; }

kolo_status cache_path(const char *name, bool make, char **path) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = is_absolute(cache);
    *path = NULL;
    if (!given && !is_absolute(home)) return KOLO_OK;
    char *folder = kolo_format("%s%s", given ? cache : home, given ? "" : "/.cache");
    char *ours = folder ? kolo_format("%s/kolo", folder) : NULL;
    kolo_status status = ours ? KOLO_OK : KOLO_NOMEM(64);
    if (status == KOLO_OK && make) status = kolo_folder_make(folder);
    if (status == KOLO_OK && make) status = kolo_folder_make(ours);
    if (status == KOLO_OK && !(*path = kolo_format("%s/%s", ours, name))) status = KOLO_NOMEM(64);
    kolo_free(folder);
    kolo_free(ours);
    return status;
}
