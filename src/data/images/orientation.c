/* From images as they are stored to images as they are shown, and back. */
#include "data/images/formats.h"

/* By orientation: bit 2 of orientation - 1 exchanges rows and columns, and the table has the stored
 * corner that is shown at the top left. */
typedef struct turn {
    bool bottom, right, exchanges;
} turn;

static turn turn_of(int orientation) {
    static const turn turns[] = {{0, 0, 0}, {0, 1, 0}, {1, 1, 0}, {1, 0, 0},
                                 {0, 0, 1}, {1, 0, 1}, {1, 1, 1}, {0, 1, 1}};
    return turns[orientation >= 1 && orientation <= 8 ? orientation - 1 : 0];
}

static kolo_box exchanged(kolo_box b) { return (kolo_box){b.x, b.y, b.width, b.height}; }

kolo_box kolo_image_requested(const kolo_image_request *request, int64_t height, int64_t width,
                              int orientation, int64_t *shrink) {
    *shrink = 1;
    if (!request->choice) return (kolo_box){0, 0, height, width};
    const turn t = turn_of(request->turned ? orientation : 1);
    kolo_box part = request->choice->choose(request->choice->arg, t.exchanges ? width : height,
                                            t.exchanges ? height : width, shrink);
    if (t.exchanges) part = exchanged(part);
    if (t.bottom) part.y = height - part.y - part.height;
    if (t.right) part.x = width - part.x - part.width;
    return part;
}

/* From an image as stored to one as it is shown. Where a side is mirrored, the last pixel that a
 * shrink has cut off becomes the first one. */
void kolo_image_show(kolo_image *image, int orientation) {
    const turn t = turn_of(orientation);
    const int64_t s = image->shrink, rows = (image->height + s - 1) / s;
    const int64_t columns = (image->width + s - 1) / s;
    kolo_box *held = &image->held;
    ptrdiff_t column = image->grey ? 1 : 3, row = column * (ptrdiff_t)held->width;
    image->origin = image->pixels + (t.bottom ? (held->height - 1) * row : 0) +
                    (t.right ? (held->width - 1) * column : 0);
    if (t.bottom) {
        row = -row;
        held->y = rows - held->y - held->height;
        image->before[0] = rows * s - image->height;
    }
    if (t.right) {
        column = -column;
        held->x = columns - held->x - held->width;
        image->before[1] = columns * s - image->width;
    }
    image->row = t.exchanges ? column : row;
    image->column = t.exchanges ? row : column;
    if (!t.exchanges) return;
    *held = exchanged(*held);
    const int64_t height = image->height, before = image->before[0];
    image->height = image->width;
    image->width = height;
    image->before[0] = image->before[1];
    image->before[1] = before;
}
