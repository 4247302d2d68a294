#pragma once
/* The user's cache folder: $XDG_CACHE_HOME, where it is absolute, as its standard says, else
 * ~/.cache. */

#include "kolo/status.h"

#include <stdbool.h>

/* The path of Kolo's file `name` there, which the caller frees; NULL in *path for a user who has no
 * such folder. With `make` the folders are made. IO: they cannot be; NOMEM. */
kolo_status cache_path(const char *name, bool make, char **path);
