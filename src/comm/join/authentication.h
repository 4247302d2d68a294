#pragma once
/* Who may join: the job's secret, and proofs of knowing it that cannot be used twice.
 *
 * Each side of a connection draws a nonce. A proof is HMAC-SHA-256 under a key made of the secret,
 * over a label (which message of the protocol this is), both nonces and the message; so a proof is
 * worth nothing on another connection, in the other direction or for another message. */

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

/* Reads the secret: a file that nobody else may read, a memory file or a pipe. ARG, IO, TIMEOUT. */
kolo_status kolo_key_read(const char *path, int64_t deadline_ns, kolo_key *key);
/* Makes the key of a secret that is not in a file; draws such a secret, with its key. IO. */
kolo_status kolo_key_make(const void *secret, size_t bytes, kolo_key *key);
kolo_status kolo_key_draw(void *secret, size_t bytes, kolo_key *key);
/* The key of a job that does without a secret: known to everybody. */
kolo_status kolo_key_public(kolo_key *key);
/* Forgets a key. */
void kolo_key_clear(kolo_key *key);
void kolo_nonce_draw(unsigned char nonce[KOLO_NONCE_BYTES]);
void kolo_proof_make(const kolo_key *key, const char *label, const kolo_nonces *nonces,
                     const void *message, size_t bytes, unsigned char proof[KOLO_PROOF_BYTES]);
/* In constant time. */
bool kolo_proof_check(const kolo_key *key, const char *label, const kolo_nonces *nonces,
                      const void *message, size_t bytes,
                      const unsigned char proof[KOLO_PROOF_BYTES]);
