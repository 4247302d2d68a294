/* Records of a protected connection: ChaCha20-Poly1305 (RFC 8439) of libsodium. Content that is
 * authenticated only is the additional data of an empty message. */
#include "comm/transport/seal.h"

#include "base/memory.h"
#include "base/status.h"

#include <sodium.h>
#include <stdint.h>
#include <string.h>

_Static_assert(KOLO_SEAL_KEY_BYTES == crypto_aead_chacha20poly1305_ietf_KEYBYTES &&
                   KOLO_SEAL_TAG == crypto_aead_chacha20poly1305_ietf_ABYTES,
               "sizes of ChaCha20-Poly1305");

enum { NONCE_BYTES = crypto_aead_chacha20poly1305_ietf_NPUBBYTES };

struct kolo_seal {
    kolo_seal_keys keys;
    uint64_t sent, received; /* records */
};

void kolo_seal_keys_clear(kolo_seal_keys *keys) { sodium_memzero(keys, sizeof *keys); }

kolo_status kolo_seal_create(const kolo_seal_keys *keys, kolo_seal **seal) {
    kolo_seal *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    s->keys = *keys;
    *seal = s;
    return KOLO_OK;
}

void kolo_seal_destroy(kolo_seal *seal) {
    if (!seal) return;
    sodium_memzero(seal, sizeof *seal);
    kolo_free(seal);
}

static void put(unsigned char *to, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(number >> (8 * i));
}

/* 2^64 records are never reached. */
static void make_nonce(uint64_t number, unsigned char nonce[NONCE_BYTES]) {
    put(nonce, 0, NONCE_BYTES - 8);
    put(nonce + NONCE_BYTES - 8, number, 8);
}

size_t kolo_seal_close(kolo_seal *seal, const void *plain, size_t bytes, unsigned char *record) {
    unsigned char nonce[NONCE_BYTES];
    KOLO_ASSERT(bytes > 0 && bytes <= KOLO_SEAL_PLAIN);
    make_nonce(seal->sent++, nonce);
    put(record, bytes + KOLO_SEAL_TAG, KOLO_SEAL_HEAD);
    if (seal->keys.protection == KOLO_PROTECT_AUTHENTIC) {
        if (plain != record + KOLO_SEAL_HEAD) memcpy(record + KOLO_SEAL_HEAD, plain, bytes);
        (void)crypto_aead_chacha20poly1305_ietf_encrypt(record + KOLO_SEAL_HEAD + bytes, NULL, NULL,
                                                        0, record, KOLO_SEAL_HEAD + bytes, NULL,
                                                        nonce, seal->keys.send);
        return KOLO_SEAL_HEAD + bytes + KOLO_SEAL_TAG;
    }
    (void)crypto_aead_chacha20poly1305_ietf_encrypt(record + KOLO_SEAL_HEAD, NULL, plain, bytes,
                                                    record, KOLO_SEAL_HEAD, NULL, nonce,
                                                    seal->keys.send);
    return KOLO_SEAL_HEAD + bytes + KOLO_SEAL_TAG;
}

size_t kolo_seal_size(const unsigned char *head) {
    size_t bytes = 0;
    for (int i = 0; i < KOLO_SEAL_HEAD; i++) bytes |= (size_t)head[i] << (8 * i);
    bool valid = bytes > KOLO_SEAL_TAG && bytes <= KOLO_SEAL_PLAIN + KOLO_SEAL_TAG;
    return valid ? KOLO_SEAL_HEAD + bytes : 0;
}

bool kolo_seal_open(kolo_seal *seal, unsigned char *record, size_t size, size_t *bytes) {
    unsigned char nonce[NONCE_BYTES];
    bool secret = seal->keys.protection == KOLO_PROTECT_SECRET;
    size_t clear = secret ? KOLO_SEAL_HEAD : size - KOLO_SEAL_TAG; /* before the ciphertext */
    unsigned char *sealed = record + clear;
    make_nonce(seal->received, nonce);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(secret ? sealed : NULL, NULL, NULL, sealed,
                                                  size - clear, record, clear, nonce,
                                                  seal->keys.receive) != 0) {
        return false;
    }
    seal->received++;
    *bytes = size - KOLO_SEAL_HEAD - KOLO_SEAL_TAG;
    return true;
}
