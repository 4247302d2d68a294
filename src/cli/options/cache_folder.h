#pragma once
/* The user's cache folder: $XDG_CACHE_HOME if it is an absolute path, else ~/.cache (XDG Base
 * Directory Specification). */

#include "kolo/status.h"

#include <stdbool.h>

/* The path of Kolo's file `name` in the cache folder, for kolo_free; NULL if the user has none.
 * With `make` creates the folders. IO: they cannot be created; NOMEM. */
kolo_status cache_path(const char *name, bool make, char **path);
