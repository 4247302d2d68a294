/* Registered memory: large blocks are in huge pages, also where peers map them. */
#define _GNU_SOURCE
#include "comm/transport/segment.h"
#include "support/support.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { MIB = 1 << 20, HUGE_PAGE = 2 * MIB, SEGMENT = 64 * MIB, BLOCK = 9 * MIB };

/* The sum of a line of the mappings that begin in [address, address + bytes), in bytes. */
static int64_t mapped(const void *address, size_t bytes, const char *line) {
    FILE *file = fopen("/proc/self/smaps", "r");
    char text[512];
    int64_t sum = 0;
    bool inside = false;
    for (size_t n = strlen(line); file && fgets(text, sizeof text, file);) {
        uintptr_t begin, end;
        if (sscanf(text, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
            inside = begin >= (uintptr_t)address && begin < (uintptr_t)address + bytes;
        } else if (inside && strncmp(text, line, n) == 0) {
            sum += strtoll(text + n, NULL, 10) * 1024;
        }
    }
    if (file) fclose(file);
    return sum;
}

/* Whether the system gives shared memory huge pages without being asked, whatever is used of them.
 */
static bool gives_huge_pages(void) {
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "r");
    char text[128] = "";
    const bool read = file && fgets(text, sizeof text, file);
    if (file) fclose(file);
    return read &&
           (strstr(text, "[always]") || strstr(text, "[within_size]") || strstr(text, "[force]"));
}

/* Whether the system has huge pages of shared memory for a process that asks for them. */
static bool has_huge_pages(void) {
    kolo_segment s;
    ASSERT_OK(kolo_segment_init(&s, 2 * HUGE_PAGE, true));
    *(volatile char *)s.base = 0;
    const int result = madvise(s.base, HUGE_PAGE, MADV_COLLAPSE), error = errno;
    if (result != 0) print_message("skip: no huge pages of shared memory: %s\n", strerror(error));
    kolo_segment_fini(&s);
    return result == 0;
}

static int64_t sum_of(const unsigned char *bytes, size_t n) {
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += bytes[i];
    return sum;
}

static void large_blocks_are_in_huge_pages(void **state) {
    kolo_segment s;
    void *small, *block, *other;
    char *peer;
    if (!has_huge_pages()) skip();
    ASSERT_OK(kolo_segment_init(&s, SEGMENT, true));
    assert_int_equal((uintptr_t)s.base % HUGE_PAGE, 0);
    ASSERT_OK(kolo_segment_alloc(&s, 100, &small));
    assert_int_equal(mapped(s.base, s.bytes, "ShmemPmdMapped:"), 0);
    ASSERT_OK(kolo_segment_alloc(&s, BLOCK, &block));
    assert_true(mapped(s.base, s.bytes, "ShmemPmdMapped:") >=
                BLOCK / HUGE_PAGE * HUGE_PAGE - HUGE_PAGE);
    assert_int_equal(sum_of(block, BLOCK), 0);
    ASSERT_OK(kolo_segment_alloc(&s, 100, &other));
    memset(block, 1, BLOCK);
    assert_int_equal(sum_of(small, 100) + sum_of(other, 100), 0);

    ASSERT_OK(kolo_segment_map(s.fd, s.bytes, &peer));
    const unsigned char *its = (unsigned char *)peer + ((char *)block - s.base);
    assert_int_equal(sum_of(its, BLOCK), BLOCK);
    assert_true(mapped(peer, s.bytes, "ShmemPmdMapped:") >=
                BLOCK / HUGE_PAGE * HUGE_PAGE - HUGE_PAGE);
    kolo_segment_unmap(peer, s.bytes);
    kolo_segment_fini(&s);
}

/* A block of a power of two has memory for what was asked for alone. */
static void work_blocks_use_what_is_asked_for(void **state) {
    const size_t asked = 5 * MIB; /* of 8 */
    kolo_segment s;
    void *block;
    if (gives_huge_pages()) {
        print_message("skip: shmem_enabled gives all shared memory huge pages\n");
        skip();
    }
    ASSERT_OK(kolo_segment_init(&s, SEGMENT, true));
    ASSERT_OK(kolo_segment_take(&s, asked, &block));
    memset(block, 1, asked);
    assert_in_range(mapped(s.base, s.bytes, "Rss:"), asked, asked + 4096);
    kolo_segment_fini(&s);
}

/* Memory that is kept has the same contents when its segment has ended. */
static void kept_memory_outlives_its_segment(void **state) {
    for (int shared = 0; shared <= 1; shared++) {
        kolo_segment s;
        void *block;
        ASSERT_OK(kolo_segment_init(&s, SEGMENT, shared));
        ASSERT_OK(kolo_segment_alloc(&s, BLOCK, &block));
        memset(block, 7, BLOCK);
        char *base = s.base;
        s.kept = true;
        kolo_segment_fini(&s);
        assert_null(s.base);
        assert_int_equal(sum_of(block, BLOCK), (int64_t)7 * BLOCK);
        kolo_segment_unmap(base, SEGMENT);
    }
}

TEST_MAIN(test_segment) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_blocks_are_in_huge_pages),
        cmocka_unit_test(work_blocks_use_what_is_asked_for),
        cmocka_unit_test(kept_memory_outlives_its_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
