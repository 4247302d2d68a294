#pragma once
/* The limit of open files. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stdint.h>

/* Raises the soft limit to least + others, as far as the hard limit allows. IO: the hard limit is
 * below `least`; `who` ("a group of 40 ranks") needs them. */
KOLO_SHARED kolo_status kolo_open_files_allow(const char *who, uint64_t least, uint64_t others);
