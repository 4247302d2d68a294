#pragma once
/* Buckets of gradients: sizes from text. */

#include "kolo/status.h"

#include <stddef.h>

#define KOLO_BUCKETS_MEASURED "auto"

enum { KOLO_BUCKETS_STEPS = 5 }; /* full steps that are measured before the buckets are chosen */

/* Parses "1M,400K,64". Free *sizes with kolo_free. ARG: something else; NOMEM. */
kolo_status kolo_bucket_sizes_parse(const char *text, size_t **sizes, int *n);
