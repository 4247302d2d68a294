#pragma once
/* Protection of a connection: a stream of records, each authenticated, and encrypted if asked for
 * (AEAD).
 *
 *     bytes of what follows (4, little-endian) | ciphertext or content | tag (16)
 *
 * Each direction has a key of its own, which is used on one connection only (kolo_seal_keys_make in
 * join/authentication.h). The nonce of a record is its number, so records cannot be changed, left
 * out, repeated or exchanged; the length is authenticated too. An observer sees when and how much
 * is sent. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    KOLO_SEAL_KEY_BYTES = 32,
    KOLO_SEAL_HEAD = 4,
    KOLO_SEAL_TAG = 16,
    KOLO_SEAL_PLAIN = 64 << 10, /* most bytes of a record before encryption */
    KOLO_SEAL_RECORD = KOLO_SEAL_HEAD + KOLO_SEAL_PLAIN + KOLO_SEAL_TAG,
};

/* The same on all ranks of a group; sent as a number. */
typedef enum kolo_protection {
    KOLO_PROTECT_NOTHING,
    KOLO_PROTECT_AUTHENTIC, /* data cannot be changed */
    KOLO_PROTECT_SECRET,    /* nor read */
} kolo_protection;

/* Of one side of a connection. */
typedef struct kolo_seal_keys {
    kolo_protection protection; /* NOTHING: there are none */
    unsigned char send[KOLO_SEAL_KEY_BYTES], receive[KOLO_SEAL_KEY_BYTES];
} kolo_seal_keys;

/* The keys, or NULL if they protect nothing. */
static inline const kolo_seal_keys *kolo_seal_keys_or_none(const kolo_seal_keys *keys) {
    return keys->protection ? keys : NULL;
}
/* Erases keys from memory. */
void kolo_seal_keys_clear(kolo_seal_keys *keys);

typedef struct kolo_seal kolo_seal;

/* Copies the keys. NOMEM. */
kolo_status kolo_seal_create(const kolo_seal_keys *keys, kolo_seal **seal);
/* Erases the keys. NULL is allowed. */
void kolo_seal_destroy(kolo_seal *seal);
/* Seals the next record of `bytes` (1 to KOLO_SEAL_PLAIN); returns its size. `plain` may be
 * record + KOLO_SEAL_HEAD, and does not overlap the record otherwise. */
size_t kolo_seal_close(kolo_seal *seal, const void *plain, size_t bytes, unsigned char *record);
/* The size of the record that starts with these KOLO_SEAL_HEAD bytes; 0: there is none so long. */
size_t kolo_seal_size(const unsigned char *head);
/* Checks and decrypts the next record of that size in place: its content is at record +
 * KOLO_SEAL_HEAD. False: it is not the record that the peer sent next. */
bool kolo_seal_open(kolo_seal *seal, unsigned char *record, size_t size, size_t *bytes);
