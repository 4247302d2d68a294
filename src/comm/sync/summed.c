#include "comm/sync/summed.h"

#include "base/status.h"

#include <math.h>
#include <stdbool.h>

enum {
    LOW = 1 << 12,  /* sums of up to 4,096 are below 2^24 */
    MOST = 1 << 24, /* up to which each whole number is a float */
};

void kolo_summed_set(float *summed, int64_t number) {
    summed[0] = (float)(number / LOW);
    summed[1] = (float)(number % LOW);
}

/* NaN is 0; a sum of up to 4,096 numbers is below the limit. */
static int64_t whole(float x) {
    const float most = (float)MOST * LOW;
    return x >= most ? (int64_t)most : x > 0 ? (int64_t)x : 0;
}

int64_t kolo_summed_get(const float *summed) { return whole(summed[0]) * LOW + whole(summed[1]); }

static bool is_count(float x) { return x >= 0 && x <= (float)MOST && x == truncf(x); }

kolo_status kolo_summed_check(const float *summed, int n) {
    for (int i = 0; i < n * KOLO_SUMMED_FLOATS; i++) {
        if (is_count(summed[i])) continue;
        return KOLO_FAIL(KOLO_ERR_FORMAT, "a push over %g samples or labels: no whole number",
                         (double)summed[i]);
    }
    return KOLO_OK;
}
