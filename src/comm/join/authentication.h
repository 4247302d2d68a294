#pragma once
/* Authentication by the job's secret, with proofs that cannot be replayed.
 *
 * Each side of a connection draws a nonce. A proof is an HMAC-SHA-256, with a key derived from the
 * secret, over a label (which message of the protocol it is), both nonces and the message. So a
 * proof is not valid on another connection, in the other direction or for another message. */

#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_NONCE_BYTES = 32, KOLO_PROOF_BYTES = 32 };

typedef struct kolo_key {
    unsigned char bytes[32];
} kolo_key;

typedef struct kolo_nonces {
    unsigned char server[KOLO_NONCE_BYTES], client[KOLO_NONCE_BYTES];
} kolo_nonces;

/* Reads the secret from a file that only its owner can read, a memory file or a pipe. ARG, IO,
 * TIMEOUT. */
kolo_status kolo_key_read(const char *path, int64_t deadline_ns, kolo_key *key);
/* Derives the key of a secret in memory. IO. */
kolo_status kolo_key_make(const void *secret, size_t bytes, kolo_key *key);
/* Draws a random secret and derives its key. IO. */
kolo_status kolo_key_draw(void *secret, size_t bytes, kolo_key *key);
/* The well-known key of jobs without a secret. */
kolo_status kolo_key_public(kolo_key *key);
/* Erases a key from memory. */
void kolo_key_clear(kolo_key *key);
void kolo_nonce_draw(unsigned char nonce[KOLO_NONCE_BYTES]);
void kolo_proof_make(const kolo_key *key, const char *label, const kolo_nonces *nonces,
                     const void *message, size_t bytes, unsigned char proof[KOLO_PROOF_BYTES]);
/* Verifies a proof in constant time. */
bool kolo_proof_check(const kolo_key *key, const char *label, const kolo_nonces *nonces,
                      const void *message, size_t bytes,
                      const unsigned char proof[KOLO_PROOF_BYTES]);
