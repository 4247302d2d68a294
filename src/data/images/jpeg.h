#pragma once
/* What the files about JPEG share: a decompressor whose errors leave through longjmp, cutting by
 * restart markers, and rewriting with such markers. Only files built with libjpeg include it. */

#include "data/images/image.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* After stdio.h. */
#include <jpeglib.h>

/* `failed` is set by kolo_jpeg_try, or setjmp, before each use that can fail. */
typedef struct kolo_jpeg_decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX]; /* of the error */
    uint8_t *cut;               /* a part of the image, for kolo_free */
} kolo_jpeg_decoder;

/* Creates the decompressor of a zeroed decoder; jpeg_destroy_decompress ends it. Leaves through
 * `failed`: no memory, or more scans than any useful file has. */
void kolo_jpeg_create(kolo_jpeg_decoder *d);
/* Calls `use`; false if it left through `failed`. */
bool kolo_jpeg_try(kolo_jpeg_decoder *d, void (*use)(kolo_jpeg_decoder *d, void *arg), void *arg);

/* Whether the file ends with its end mark. */
bool kolo_jpeg_is_whole(const uint8_t *bytes, size_t length);
/* Whether scans of a progressive image are missing: libjpeg then smooths blocks by their
 * neighbours. After jpeg_start_decompress or jpeg_read_coefficients. */
bool kolo_jpeg_misses_scans(const struct jpeg_decompress_struct *j);
/* Whether the error was that the system has no memory left, or that the image exceeds the limit of
 * JPEGMEM: the image is not damaged. */
bool kolo_jpeg_is_out_of_memory(const kolo_jpeg_decoder *d);

/* ---- restart markers ---- */

/* Cuts an image by its restart markers, without decoding it: *cut, for kolo_free, is a JPEG of the
 * part, which becomes larger, as what is between two markers stays together. NULL: it has no such
 * markers, is not sequential in one scan, or is needed whole. `j` has just read the header of the
 * file from memory. NOMEM. */
kolo_status kolo_jpeg_cut(const struct jpeg_decompress_struct *j, const uint8_t *bytes,
                          size_t length, kolo_box *part, uint8_t **cut, size_t *cut_length);
/* How many units between restart markers make an image good to cut: a few of each row of blocks, or
 * all of it where its number has no such divisor. After jpeg_read_header. */
unsigned kolo_jpeg_interval(const struct jpeg_decompress_struct *j);
