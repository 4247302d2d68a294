#pragma once
/* Checks shared objects before the dynamic linker maps them: it does not expect files that are cut
 * off, and would crash. */

#include "base/compiler.h"
#include "kolo/status.h"

#include <stddef.h>

/* Whether the bytes of a file are those of a shared object for the processor of this process, whose
 * segments lie within the file. FORMAT, naming `path`: they are not. */
KOLO_SHARED kolo_status kolo_elf_check(const void *bytes, size_t length, const char *path);
