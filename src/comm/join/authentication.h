#pragma once
/* Authentication by the job's secret, with proofs that cannot be replayed.
 *
 * Each side of a connection draws a nonce. A proof is an HMAC-SHA-256, with a key derived from the
 * secret, over a label (which message of the protocol it is), both nonces and the message. So a
 * proof is not valid on another connection, in the other direction or for another message.
 *
 * The keys of an encrypted connection are derived from the secret, both nonces, and a
 * Diffie-Hellman exchange (X25519) whose public halves are parts of proven messages. So only the
 * two ranks have them, and recorded traffic cannot be decrypted with a secret that leaks later
 * (forward secrecy). */

#include "comm/transport/seal.h"
#include "kolo/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KOLO_NONCE_BYTES = 32, KOLO_PROOF_BYTES = 32, KOLO_EXCHANGE_BYTES = 32 };

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

/* Draws one side of a Diffie-Hellman exchange: what is kept, and what the peer gets. */
void kolo_exchange_draw(unsigned char secret[KOLO_EXCHANGE_BYTES],
                        unsigned char half[KOLO_EXCHANGE_BYTES]);
/* Derives the keys of a connection from this side's secret and the peer's half. PEER: it is not a
 * valid one. */
kolo_status kolo_seal_keys_make(const kolo_key *key, const kolo_nonces *nonces, bool server,
                                const unsigned char secret[KOLO_EXCHANGE_BYTES],
                                const unsigned char half[KOLO_EXCHANGE_BYTES],
                                kolo_seal_keys *keys);
