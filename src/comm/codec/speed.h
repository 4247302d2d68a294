#pragma once
/* The speed of a codec, as measured. */

#include "base/compiler.h"
#include "kolo/bench.h"

/* kolo_bench_codec without the errors of the codec, which are 0. */
KOLO_SHARED kolo_status kolo_bench_codec_speed(const kolo_codec *codec, size_t count,
                                               int64_t budget_ms, kolo_bench_codec_row *row);
