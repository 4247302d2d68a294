/* Runs a fuzz target where there is no libFuzzer: every file given, then N mutations of them, the
 * same at every run.
 *
 *     fuzz_idx N FILE...
 *
 * An input that fails ends the program; it stays in the file fuzz_idx.input beside it, and
 * `fuzz_idx 0 fuzz_idx.input` runs it again. Each input lies in a block of its exact size, so that
 * the address sanitizer sees a read beyond it. */
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_SEEDS = 64, MAX_GROWTH = 64 };

typedef struct seed {
    char *bytes;
    size_t length;
} seed;

/* The input that runs now, and where it is to be kept when it does not come back. */
static struct {
    const uint8_t *bytes;
    size_t length;
    const char *path;
} current;

/* Calls nothing that is not safe in a signal handler. */
static void keep_input(void) {
    int fd = open(current.path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && write(fd, current.bytes, current.length) >= 0) close(fd);
}

static void on_death(int signal_number) {
    keep_input();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* A sanitizer that is linked in calls back before it ends the program. */
extern void __sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));

static void watch_for_death(const char *path) {
    current.path = path;
    signal(SIGABRT, on_death);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(keep_input);
    } else {
        signal(SIGSEGV, on_death);
    }
}

static void run(const uint8_t *bytes, size_t length) {
    uint8_t *exact = malloc(length ? length : 1);
    memcpy(exact, bytes, length);
    current.bytes = exact;
    current.length = length;
    LLVMFuzzerTestOneInput(exact, length);
    free(exact);
}

/* splitmix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014. */
static uint64_t draw(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t n) { return n ? (size_t)(draw(state) % n) : 0; }

/* One change of `bytes`, which has room for MAX_GROWTH more; gives the new length. */
static size_t mutate(uint8_t *bytes, size_t length, size_t room, const seed *other,
                     uint64_t *state) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, '0', '9', '"', '{', '}', '[', ']', ','};
    size_t at = below(state, length), n = 1 + below(state, 8);
    switch (below(state, 6)) {
    case 0: /* flip a bit */
        if (length) bytes[at] ^= (uint8_t)(1U << below(state, 8));
        return length;
    case 1: /* an edge value */
        if (length) bytes[at] = edges[below(state, sizeof edges)];
        return length;
    case 2: /* cut the end off */
        return length - below(state, length / 4 + 2 < length ? length / 4 + 2 : length);
    case 3: /* take some bytes out */
        if (n > length - at) n = length - at;
        memmove(bytes + at, bytes + at + n, length - at - n);
        return length - n;
    case 4: /* repeat some bytes */
        if (n > length - at) n = length - at;
        if (n > room - length) n = room - length;
        memmove(bytes + at + n, bytes + at, length - at);
        return length + n;
    default: /* copy some bytes of another seed over */
        if (n > length - at) n = length - at;
        if (n > other->length) n = other->length;
        memcpy(bytes + at, other->bytes + below(state, other->length - n + 1), n);
        return length;
    }
}

/* Mutation number `i`: a seed, changed one to eight times. */
static void run_mutation(const seed *seeds, size_t n_seeds, uint64_t i) {
    uint64_t state = i;
    const seed *s = &seeds[below(&state, n_seeds)];
    size_t length = s->length, room = s->length + MAX_GROWTH;
    uint8_t *work = malloc(room);
    memcpy(work, s->bytes, length);
    for (size_t changes = 1 + below(&state, 8); changes > 0; changes--) {
        length = mutate(work, length, room, &seeds[below(&state, n_seeds)], &state);
    }
    run(work, length);
    free(work);
}

int main(int argc, char **argv) {
    static seed seeds[MAX_SEEDS];
    if (argc < 3 || argc - 2 > MAX_SEEDS) {
        fprintf(stderr, "usage: %s MUTATIONS FILE... (at most %d files)\n", argv[0], MAX_SEEDS);
        return 2;
    }
    char *path = kolo_format("%s.input", argv[0]);
    watch_for_death(path);
    uint64_t mutations = strtoull(argv[1], NULL, 10);
    size_t n_seeds = (size_t)argc - 2;
    for (size_t i = 0; i < n_seeds; i++) {
        if (kolo_file_read(argv[i + 2], 1 << 20, &seeds[i].bytes, &seeds[i].length) != KOLO_OK) {
            fprintf(stderr, "%s\n", kolo_last_error());
            return 1;
        }
        run((const uint8_t *)seeds[i].bytes, seeds[i].length);
    }
    for (uint64_t i = 0; i < mutations; i++) run_mutation(seeds, n_seeds, i);
    printf("%zu seeds, %llu mutations\n", n_seeds, (unsigned long long)mutations);
    for (size_t i = 0; i < n_seeds; i++) kolo_free(seeds[i].bytes);
    kolo_free(path);
    return 0;
}
