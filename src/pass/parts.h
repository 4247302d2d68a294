#pragma once
/* How the parts that a model is cut into lie on the stages of a pipeline. A stage has a part for
 * each of its chunks. */

enum { KOLO_CHUNKS_MOST = 16 };

/* Around the stages repeatedly, or there and back. */
typedef enum kolo_parts_path { KOLO_PARTS_LOOP, KOLO_PARTS_V } kolo_parts_path;

typedef struct kolo_parts {
    int stages, chunks;
    kolo_parts_path path;
} kolo_parts;

/* The part that a stage has as `chunk`, from 0; and the stage and chunk of a part. */
int kolo_parts_at(const kolo_parts *parts, int stage, int chunk);
int kolo_parts_stage(const kolo_parts *parts, int part, int *chunk);
