/* JPEGs rewritten by their coefficients: sequential, with restart markers. */
#include "base/memory.h"
#include "data/images/formats.h"
#include "data/images/jpeg.h"

#include <string.h>

/* After stdio.h. */
#include <jerror.h>

typedef struct writer {
    struct jpeg_compress_struct jpeg; /* first */
    const uint8_t *source;
    size_t source_length;
    struct jpeg_destination_mgr destination;
    uint8_t *bytes;
    size_t length, capacity;
} writer;

/* ---- destination ---- */

static void set_room(j_compress_ptr j, size_t capacity) {
    writer *w = (writer *)j; /* its first member */
    uint8_t *bytes = kolo_realloc(w->bytes, capacity);
    if (!bytes) ERREXIT1(j, JERR_OUT_OF_MEMORY, 0);
    w->bytes = bytes;
    w->destination.next_output_byte = bytes + w->capacity;
    w->destination.free_in_buffer = capacity - w->capacity;
    w->capacity = capacity;
}

static void begin_output(j_compress_ptr j) { set_room(j, 1 << 16); }

/* All of the buffer is full. */
static boolean grow(j_compress_ptr j) {
    set_room(j, 2 * ((writer *)j)->capacity);
    return TRUE;
}

static void end_output(j_compress_ptr j) {
    writer *w = (writer *)j;
    w->length = w->capacity - w->destination.free_in_buffer;
}

/* ---- rewriting ---- */

static bool is_jfif(const struct jpeg_marker_struct *m) {
    return m->marker == JPEG_APP0 && m->data_length >= 5 && memcmp(m->data, "JFIF", 5) == 0;
}

static bool is_adobe(const struct jpeg_marker_struct *m) {
    return m->marker == JPEG_APP0 + 14 && m->data_length >= 5 && memcmp(m->data, "Adobe", 5) == 0;
}

/* Those of JFIF and Adobe the library writes itself, where the image has them. */
static void copy_markers(const struct jpeg_decompress_struct *from, j_compress_ptr to) {
    for (jpeg_saved_marker_ptr m = from->marker_list; m; m = m->next) {
        if ((to->write_JFIF_header && is_jfif(m)) || (to->write_Adobe_marker && is_adobe(m))) {
            continue;
        }
        jpeg_write_marker(to, m->marker, m->data, m->data_length);
    }
}

/* The compressor's errors leave through the decoder too. */
static void rewrite(kolo_jpeg_decoder *d, void *arg) {
    writer *w = arg;
    struct jpeg_decompress_struct *from = &d->jpeg;
    kolo_jpeg_create(d);
    jpeg_mem_src(from, w->source, (unsigned long)w->source_length);
    jpeg_save_markers(from, JPEG_COM, 0xffff);
    for (int m = 0; m < 16; m++) jpeg_save_markers(from, JPEG_APP0 + m, 0xffff);
    jpeg_read_header(from, TRUE);
    const int64_t height = from->image_height, width = from->image_width;
    if (kolo_image_check(height, width, w->source_length, "JPEG") != KOLO_OK) return;
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(from);
    if (kolo_jpeg_misses_scans(from) || d->errors.num_warnings > 0) return;
    w->jpeg.err = &d->errors;
    w->jpeg.client_data = d;
    jpeg_create_compress(&w->jpeg);
    w->jpeg.dest = &w->destination;
    jpeg_copy_critical_parameters(from, &w->jpeg);
    /* Colours follow from which of these an image has. */
    w->jpeg.write_JFIF_header = from->saw_JFIF_marker;
    w->jpeg.write_Adobe_marker = from->saw_Adobe_marker;
    w->jpeg.optimize_coding = TRUE;
    w->jpeg.restart_interval = kolo_jpeg_interval(from);
    jpeg_write_coefficients(&w->jpeg, coefficients);
    copy_markers(from, &w->jpeg);
    jpeg_finish_compress(&w->jpeg);
}

kolo_status kolo_jpeg_make_seekable(const uint8_t *bytes, size_t length, uint8_t **out,
                                    size_t *out_length) {
    kolo_jpeg_decoder *d = kolo_zalloc(sizeof *d);
    writer w = {.source = bytes,
                .source_length = length,
                .destination = {.init_destination = begin_output,
                                .empty_output_buffer = grow,
                                .term_destination = end_output}};
    *out = NULL;
    if (!d) return KOLO_NOMEM(sizeof *d);
    const bool done = kolo_jpeg_is_whole(bytes, length) && kolo_jpeg_try(d, rewrite, &w);
    const bool no_memory = !done && kolo_jpeg_is_out_of_memory(d);
    jpeg_destroy_compress(&w.jpeg);
    jpeg_destroy_decompress(&d->jpeg);
    kolo_free(d);
    if (done && w.length > 0) {
        *out = w.bytes;
        *out_length = w.length;
        return KOLO_OK;
    }
    kolo_free(w.bytes);
    return no_memory ? KOLO_NOMEM(length) : KOLO_OK;
}
