/* The orientation of a photograph: tag 0x112 of the first directory of the TIFF structure in an
 * EXIF marker (Exif 2.3, section 4.6). */
#include "data/images/formats.h"

#include <string.h>

enum { ENTRY = 12, ORIENTATION = 0x112, SHORT = 3 };

static uint32_t number(const uint8_t *p, int bytes, bool little) {
    uint32_t n = 0;
    for (int i = 0; i < bytes; i++) n = n << 8 | p[little ? bytes - 1 - i : i];
    return n;
}

int kolo_exif_orientation(const uint8_t *bytes, size_t length) {
    if (length < 14 || memcmp(bytes, "Exif\0\0", 6) != 0) return 1;
    const uint8_t *tiff = bytes + 6;
    const size_t size = length - 6;
    const bool little = tiff[0] == 'I';
    const size_t directory = number(tiff + 4, 4, little);
    if (directory > size || size - directory < 2) return 1;
    const size_t entries = number(tiff + directory, 2, little);
    if (entries > (size - directory - 2) / ENTRY) return 1;
    for (size_t i = 0; i < entries; i++) {
        const uint8_t *entry = tiff + directory + 2 + i * ENTRY;
        if (number(entry, 2, little) != ORIENTATION) continue;
        const uint32_t value = number(entry + 8, 2, little);
        return number(entry + 2, 2, little) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
