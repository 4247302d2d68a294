/* Top-k selection by magnitude, compiled once per instruction set.
 *
 * The magnitudes of floats are ordered like their bits without the sign, so a radix select finds
 * the k-th largest: a histogram of the upper 11 bits gives its bucket, histograms of the next 10
 * and the last 10 bits within the bucket make it exact. No memory is needed beyond the
 * histograms. Among equal magnitudes the first elements are taken. All passes but the first test
 * whole vectors and only process those that contain a candidate. */
#include "comm/codec/kernels.h"
#include "comm/reduce/vector.isa.h"

enum { LANES = V / 4, STEP = 4 * LANES, BUCKETS = 2048, TABLES = 2 };

static inline uint32_t magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffff;
}

/* Adjacent elements use different tables, so that runs of similar magnitudes do not serialize on
 * one counter. */
static void count_top_bits(const float *v, size_t n, uint32_t counts[BUCKETS]) {
    uint32_t tables[TABLES][BUCKETS] = {{0}};
    size_t i = 0;
    for (; i + TABLES <= n; i += TABLES) {
        for (int t = 0; t < TABLES; t++) tables[t][magnitude(v[i + (size_t)t]) >> 20]++;
    }
    for (; i < n; i++) tables[0][magnitude(v[i]) >> 20]++;
    for (int b = 0; b < BUCKETS; b++) counts[b] = tables[0][b] + tables[1][b];
}

/* True when one of the STEP elements at v has a magnitude of at least `least`. */
ALWAYS_INLINE bool any_from(const float *v, uint32_t least) {
    i32v found = {0};
    for (int k = 0; k < 4; k++) {
        i32v x;
        memcpy(&x, v + (size_t)k * LANES, sizeof x);
        found |= (x & 0x7fffffff) >= (int32_t)least;
    }
    u64v lanes = (u64v)found;
    uint64_t any = 0;
    for (size_t i = 0; i < V / sizeof(uint64_t); i++) any |= lanes[i];
    return any != 0;
}

/* Histogram of the 10 bits from `shift` on, over the elements whose higher bits equal `prefix`. */
static void count_bits(const float *v, size_t n, uint32_t prefix, int shift,
                       uint32_t counts[BUCKETS]) {
    memset(counts, 0, BUCKETS * sizeof *counts);
    for (size_t at = 0; at < n; at += STEP) {
        size_t end = at + STEP < n ? at + STEP : n;
        if (end - at == STEP && !any_from(v + at, prefix << (shift + 10))) continue;
        for (size_t i = at; i < end; i++) {
            uint32_t m = magnitude(v[i]);
            if (m >> (shift + 10) == prefix) counts[m >> shift & 1023]++;
        }
    }
}

/* The bucket of the element with rank `*k` from the top; `*k` becomes its rank in the bucket. */
static uint32_t find_bucket(const uint32_t counts[BUCKETS], uint32_t buckets, size_t *k) {
    uint32_t b = buckets - 1;
    while (*k > counts[b]) *k -= counts[b--];
    return b;
}

static void emit(const float *v, size_t i, size_t at, void *indices, void *values) {
    uint32_t index = (uint32_t)i;
    memcpy((char *)indices + at * sizeof index, &index, sizeof index);
    memcpy((char *)values + at * sizeof *v, v + i, sizeof *v);
}

void KOLO_ISA_SYMBOL(kolo_top)(const float *v, size_t n, size_t k, void *indices, void *values) {
    uint32_t counts[BUCKETS];
    size_t ties = k, done = 0; /* elements to take of the smallest selected magnitude */
    if (k == 0) return;
    count_top_bits(v, n, counts);
    uint32_t least = find_bucket(counts, BUCKETS, &ties);
    for (int shift = 10; shift >= 0; shift -= 10) {
        count_bits(v, n, least, shift, counts);
        least = least << 10 | find_bucket(counts, 1024, &ties);
    }
    for (size_t at = 0; at < n && done < k; at += STEP) {
        size_t end = at + STEP < n ? at + STEP : n;
        if (end - at == STEP && !any_from(v + at, least)) continue;
        for (size_t i = at; i < end; i++) {
            uint32_t m = magnitude(v[i]);
            if (m < least || (m == least && ties == 0)) continue;
            if (m == least) ties--;
            emit(v, i, done++, indices, values);
        }
    }
}
