/* The list of a set of Pascal VOC with any bytes: each name has an image and a mask, or the list is
 * refused. The files are empty, so that no sample can be decoded. */
#define _GNU_SOURCE
#include "data/dataset.h"
#include "fuzz/folder.h"
#include "fuzz/fuzz.h"

enum { SIDE = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    static const char *const entries[] = {"ImageSets/",
                                          "ImageSets/Segmentation/",
                                          "ImageSets/Segmentation/train.txt@",
                                          "JPEGImages/",
                                          "JPEGImages/a.jpg",
                                          "JPEGImages/2007_000032.jpg",
                                          "SegmentationClass/",
                                          "SegmentationClass/a.png",
                                          "SegmentationClass/2007_000032.png",
                                          NULL};
    uint8_t x[3 * SIDE * SIDE];
    int32_t y[SIDE * SIDE];
    char spec[128];
    kolo_dataset *d;
    snprintf(spec, sizeof spec, "voc:%s,size=%d", fuzz_folder_with(entries, bytes, length), SIDE);
    const kolo_status status = kolo_dataset_open(spec, KOLO_SPLIT_TRAIN, &d);
    if (status != KOLO_OK) {
        KOLO_ASSERT(status == KOLO_ERR_FORMAT || status == KOLO_ERR_IO ||
                    status == KOLO_ERR_UNSUPPORTED); /* a build without images */
        KOLO_ASSERT(kolo_last_error()[0] && !strchr(kolo_last_error(), '\n'));
        return 0;
    }
    const int64_t count = kolo_dataset_describe(d)->count;
    KOLO_ASSERT(count > 0 && (size_t)count <= length);
    for (int64_t i = 0; i < count && i < 4; i++) {
        KOLO_ASSERT(kolo_dataset_gather(d, &i, 1, (void *[]){x, y}) == KOLO_ERR_FORMAT);
        KOLO_ASSERT(strstr(kolo_last_error(), ".jpg") && !strchr(kolo_last_error(), '\n'));
    }
    kolo_dataset_close(d);
    return 0;
}
