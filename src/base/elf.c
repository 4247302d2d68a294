/* Reads the headers of ELF files (System V ABI, chapters 4 and 5). */
#include "base/elf.h"

#include "base/status.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The ELF header of this library, which the linker defines: the processor, size and order of words.
 */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

static bool within(uint64_t offset, uint64_t bytes, size_t length) {
    return offset <= length && bytes <= length - offset;
}

static kolo_status check_segments(const char *bytes, size_t length, const ElfW(Ehdr) * header,
                                  const char *path) {
    int loaded = 0;
    for (int i = 0; i < header->e_phnum; i++) {
        ElfW(Phdr) segment;
        memcpy(&segment, bytes + header->e_phoff + (size_t)i * sizeof segment, sizeof segment);
        if (!within(segment.p_offset, segment.p_filesz, length)) {
            return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: is cut off: build it again", path);
        }
        loaded += segment.p_type == PT_LOAD;
    }
    if (loaded > 0) return KOLO_OK;
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: contains no program: build it with -shared", path);
}

kolo_status kolo_elf_check(const void *bytes, size_t length, const char *path) {
    ElfW(Ehdr) header;
    if (length < sizeof header || memcmp(bytes, ELFMAG, SELFMAG) != 0) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: is not a shared object: build it with -shared",
                         path);
    }
    memcpy(&header, bytes, sizeof header);
    if (memcmp(header.e_ident, __ehdr_start.e_ident, EI_VERSION) != 0 ||
        header.e_machine != __ehdr_start.e_machine) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: is for another kind of processor: build it here",
                         path);
    }
    if (header.e_type != ET_DYN || header.e_phentsize != sizeof(ElfW(Phdr))) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: is not a shared object: build it with -shared",
                         path);
    }
    if (!within(header.e_phoff, (uint64_t)header.e_phnum * header.e_phentsize, length)) {
        return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: is cut off: build it again", path);
    }
    return check_segments(bytes, length, &header, path);
}
