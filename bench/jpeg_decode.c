/* What libjpeg-turbo alone takes to decode the JPEGs of a folder, whole, with nothing else: the
 * bound of loaders (bench/loaders.py).
 *
 *     jpeg-decode FOLDER SECONDS [seekable|codes]    FOLDER/CLASS/NAME.jpg
 *
 * The files are in memory, with `seekable` as `kolo data pack --seekable` rewrites them. With
 * `codes` their Huffman codes alone are decoded, to coefficients: what a loader spends that decodes
 * no pixel. Prints the images of a second of processor time, on one thread. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/images/image.h"

#include <jpeglib.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct images {
    char **bytes;
    size_t *length, count, capacity, capacity_of_lengths;
    const char *folder;
    bool codes; /* alone are decoded */
} images;

typedef struct handler {
    struct jpeg_error_mgr base;
    jmp_buf back;
} handler;

static void fail(j_common_ptr info) { longjmp(((handler *)info->err)->back, 1); }
static void be_silent(j_common_ptr info, int level) {}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static kolo_status add_image(void *arg, const char *name) {
    images *all = arg;
    const size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 4, ".jpg") != 0) return KOLO_OK;
    if (!KOLO_GROW(all->bytes, all->count, all->capacity) ||
        !KOLO_GROW(all->length, all->count, all->capacity_of_lengths)) {
        return KOLO_NOMEM(n);
    }
    char *path = kolo_format("%s/%s", all->folder, name);
    const kolo_status status =
        path ? kolo_file_read(path, 1 << 28, &all->bytes[all->count], &all->length[all->count])
             : KOLO_NOMEM(n);
    all->count += status == KOLO_OK;
    kolo_free(path);
    return status;
}

static kolo_status add_class(void *arg, const char *name) {
    images *all = arg;
    const char *root = all->folder;
    char *path = kolo_format("%s/%s", root, name);
    if (!path) return KOLO_NOMEM(strlen(name));
    all->folder = path;
    const kolo_status status =
        kolo_folder_exists(path) ? kolo_folder_each(path, add_image, all) : KOLO_OK;
    all->folder = root;
    kolo_free(path);
    return status;
}

static kolo_status make_seekable(images *all) {
    for (size_t i = 0; i < all->count; i++) {
        uint8_t *bytes;
        size_t length;
        KOLO_TRY(kolo_image_make_seekable((const uint8_t *)all->bytes[i], all->length[i], &bytes,
                                          &length));
        if (!bytes) continue;
        kolo_free(all->bytes[i]);
        all->bytes[i] = (char *)bytes;
        all->length[i] = length;
    }
    return KOLO_OK;
}

/* RGB; of CMYK images as they are. */
static void decode_pixels(struct jpeg_decompress_struct *d, JSAMPLE **row, size_t *room) {
    if (d->num_components == 3) d->out_color_space = JCS_RGB;
    jpeg_start_decompress(d);
    const size_t bytes = (size_t)d->output_width * (size_t)d->output_components;
    if (bytes > *room) {
        *row = kolo_realloc(*row, bytes);
        *room = bytes;
    }
    while (d->output_scanline < d->output_height) jpeg_read_scanlines(d, row, 1);
}

static void decode(const images *all, size_t i, JSAMPLE **row, size_t *room) {
    struct jpeg_decompress_struct d;
    handler h;
    d.err = jpeg_std_error(&h.base);
    h.base.error_exit = fail;
    h.base.emit_message = be_silent;
    if (setjmp(h.back)) {
        fprintf(stderr, "image %zu cannot be decoded\n", i);
        exit(1);
    }
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, (unsigned char *)all->bytes[i], all->length[i]);
    jpeg_read_header(&d, TRUE);
    if (all->codes) {
        (void)jpeg_read_coefficients(&d);
    } else {
        decode_pixels(&d, row, room);
    }
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
}

int main(int argc, char **argv) {
    images all = {0};
    JSAMPLE *row = NULL;
    size_t room = 0, done = 0;
    const bool seekable = argc == 4 && strcmp(argv[3], "seekable") == 0;
    all.codes = argc == 4 && strcmp(argv[3], "codes") == 0;
    if (argc != 3 && !seekable && !all.codes) {
        fprintf(stderr, "jpeg-decode FOLDER SECONDS [seekable|codes]\n");
        return 2;
    }
    all.folder = argv[1];
    if (kolo_folder_each(argv[1], add_class, &all) != KOLO_OK || all.count == 0) {
        fprintf(stderr, "%s: no images: %s\n", argv[1], kolo_last_error());
        return 1;
    }
    if (seekable && make_seekable(&all) != KOLO_OK) {
        fprintf(stderr, "%s\n", kolo_last_error());
        return 1;
    }
    const double seconds = atof(argv[2]);
    double begun = 0;
    for (size_t i = 0; begun == 0 || now() - begun < seconds; i++) {
        if (i == all.count) { /* all of them once, before the time counts */
            begun = now();
            done = 0;
        }
        decode(&all, i % all.count, &row, &room);
        done++;
    }
    printf("%.1f\n", (double)done / (now() - begun));
    for (size_t i = 0; i < all.count; i++) kolo_free(all.bytes[i]);
    kolo_free(all.bytes);
    kolo_free(all.length);
    kolo_free(row);
    return 0;
}
