#pragma once
/* JPEG files in memory, made by libjpeg. */
#include "support/support.h"

#include <jpeglib.h> /* needs stdio.h, which support.h includes */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After stdio.h. */
#include <jpeglib.h>

/* A JPEG that is written to memory. */
typedef struct jpeg_file {
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr errors;
    unsigned char *bytes;
    unsigned long length;
} jpeg_file;

/* Sets the sizes and what follows from the number of channels: 1 grey, 3 RGB, 4 CMYK. */
static void jpeg_open(jpeg_file *f, int height, int width, int components, int quality) {
    *f = (jpeg_file){0};
    f->j.err = jpeg_std_error(&f->errors);
    jpeg_create_compress(&f->j);
    jpeg_mem_dest(&f->j, &f->bytes, &f->length);
    f->j.image_height = (JDIMENSION)height;
    f->j.image_width = (JDIMENSION)width;
    f->j.input_components = components;
    f->j.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&f->j);
    jpeg_set_quality(&f->j, quality, TRUE);
}

/* Writes the headers, with the orientation `turned` unless 0. */
static void jpeg_begin(jpeg_file *f, int turned) {
    const uint8_t exif[] = {'E', 'x', 'i', 'f', 0,    0, 'M', 'M', 0, 42, 0, 0, 0,
                            8,   0,   1,   1,   0x12, 0, 3,   0,   0, 0,  1, 0, (uint8_t)turned,
                            0,   0,   0,   0,   0,    0};
    jpeg_start_compress(&f->j, TRUE);
    if (turned) jpeg_write_marker(&f->j, JPEG_APP0 + 1, exif, sizeof exif);
}

/* Ends the file and copies it to `out`; returns its bytes. */
static size_t jpeg_close(jpeg_file *f, uint8_t *out, size_t room) {
    jpeg_finish_compress(&f->j);
    jpeg_destroy_compress(&f->j);
    assert_true(f->length <= room);
    memcpy(out, f->bytes, f->length);
    free(f->bytes);
    return f->length;
}

/* Writes an image of one colour of `components` channels. */
static size_t make_jpeg(int height, int width, int components, const uint8_t *colour, int turned,
                        uint8_t *out, size_t room) {
    jpeg_file f;
    jpeg_open(&f, height, width, components, 100);
    jpeg_begin(&f, turned);
    uint8_t *row = malloc((size_t)width * (size_t)components);
    for (int x = 0; x < width; x++) memcpy(row + x * components, colour, (size_t)components);
    while (f.j.next_scanline < f.j.image_height) jpeg_write_scanlines(&f.j, &row, 1);
    free(row);
    return jpeg_close(&f, out, room);
}

/* A textured image in each way that a JPEG stores one: `kind` 0 to 5: without subsampling, by 2x1,
 * by 2x2, progressive, grey, CMYK. 6: a ramp. 7, 8: by 2x1, by 2x2, with a restart marker after
 * each unit. */
static size_t make_texture(int kind, int height, int width, int turned, uint8_t *out, size_t room) {
    const int components = kind == 4 ? 1 : kind == 5 ? 4 : 3;
    jpeg_file f;
    jpeg_open(&f, height, width, components, 90);
    if (kind < 2 || kind == 7) f.j.comp_info[0].v_samp_factor = 1;
    if (kind < 1) f.j.comp_info[0].h_samp_factor = 1;
    if (kind == 3) jpeg_simple_progression(&f.j);
    if (kind > 6) f.j.restart_interval = 1;
    jpeg_begin(&f, turned);
    uint8_t *row = malloc((size_t)(width * components));
    while (f.j.next_scanline < f.j.image_height) {
        const int y = (int)f.j.next_scanline;
        for (int i = 0; i < width * components; i++) {
            const int x = i / components, c = i % components;
            row[i] = kind == 6 ? (uint8_t)(2 * x + y)
                               : (uint8_t)(128 + 60 * ((x / 5 + y / 7) % 2) +
                                           (x * (3 + c) + y * (5 - c)) % 60);
        }
        jpeg_write_scanlines(&f.j, &row, 1);
    }
    free(row);
    return jpeg_close(&f, out, room);
}
