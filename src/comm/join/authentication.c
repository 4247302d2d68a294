/* Authentication by the job's secret, with libsodium. */
#define _GNU_SOURCE
#include "comm/join/authentication.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/integer.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_LEAST = 16, SECRET_MOST = 4096 };

_Static_assert(sizeof((kolo_key){{0}}.bytes) == crypto_auth_hmacsha256_KEYBYTES &&
                   KOLO_PROOF_BYTES == crypto_auth_hmacsha256_BYTES,
               "sizes of HMAC-SHA-256");
_Static_assert(KOLO_EXCHANGE_BYTES == crypto_scalarmult_BYTES &&
                   sizeof((kolo_seal_keys *)0)->send == KOLO_PROOF_BYTES,
               "sizes of X25519");
_Static_assert(KOLO_EXCHANGE_BYTES == crypto_scalarmult_SCALARBYTES, "size of a secret");

/* Named files must not be readable by others; memory files and pipes have no name. */
static kolo_status check_file(int fd, const char *path) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "secret file %s: %s", path, kolo_errno_text(errno));
    }
    if (S_ISREG(st.st_mode) && st.st_nlink > 0 && (st.st_mode & 077) != 0) {
        return KOLO_FAIL(KOLO_ERR_ARG, "secret file %s is readable by other users: chmod 600 it",
                         path);
    }
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)) {
        return KOLO_FAIL(KOLO_ERR_ARG, "secret file %s is neither a regular file nor a pipe", path);
    }
    return KOLO_OK;
}

/* Reads a file or a pipe to its end. */
static kolo_status read_secret(int fd, const char *path, int64_t deadline_ns, unsigned char *secret,
                               size_t *bytes) {
    size_t n = 0;
    for (;;) {
        int64_t left_ms = (deadline_ns - kolo_now_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, left_ms > 0 ? (int)kolo_min_i64(left_ms, INT32_MAX) : 0);
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) {
            return KOLO_FAIL(KOLO_ERR_TIMEOUT, "secret file %s: no data from the pipe", path);
        }
        ssize_t got = read(fd, secret + n, SECRET_MOST + 1 - n);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0) {
            return KOLO_FAIL(KOLO_ERR_IO, "secret file %s: %s", path, kolo_errno_text(errno));
        }
        n += (size_t)got;
        if (n > SECRET_MOST) {
            return KOLO_FAIL(KOLO_ERR_ARG, "secret file %s has more than %d bytes", path,
                             SECRET_MOST);
        }
        if (got == 0) break;
    }
    while (n > 0 && (secret[n - 1] == '\n' || secret[n - 1] == '\r')) n--;
    if (n < SECRET_LEAST) {
        return KOLO_FAIL(KOLO_ERR_ARG, "secret file %s has %zu bytes: at least %d are required",
                         path, n, SECRET_LEAST);
    }
    *bytes = n;
    return KOLO_OK;
}

kolo_status kolo_key_make(const void *secret, size_t bytes, kolo_key *key) {
    if (sodium_init() < 0)
        return KOLO_FAIL(KOLO_ERR_IO, "libsodium has no source of random numbers");
    crypto_hash_sha256(key->bytes, secret, bytes);
    return KOLO_OK;
}

kolo_status kolo_key_draw(void *secret, size_t bytes, kolo_key *key) {
    if (sodium_init() < 0)
        return KOLO_FAIL(KOLO_ERR_IO, "libsodium has no source of random numbers");
    randombytes_buf(secret, bytes);
    return kolo_key_make(secret, bytes, key);
}

kolo_status kolo_key_read(const char *path, int64_t deadline_ns, kolo_key *key) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return KOLO_FAIL(KOLO_ERR_IO, "secret file %s: %s", path, kolo_errno_text(errno));
    }
    unsigned char secret[SECRET_MOST + 1];
    size_t bytes;
    kolo_status status = check_file(fd, path);
    if (status == KOLO_OK) status = read_secret(fd, path, deadline_ns, secret, &bytes);
    close(fd);
    if (status == KOLO_OK) status = kolo_key_make(secret, bytes, key);
    sodium_memzero(secret, sizeof secret);
    return status;
}

kolo_status kolo_key_public(kolo_key *key) {
    static const unsigned char nothing[] = "a job without a secret";
    return kolo_key_make(nothing, sizeof nothing, key);
}

void kolo_key_clear(kolo_key *key) { sodium_memzero(key, sizeof *key); }

void kolo_nonce_draw(unsigned char nonce[KOLO_NONCE_BYTES]) {
    randombytes_buf(nonce, KOLO_NONCE_BYTES);
}

void kolo_proof_make(const kolo_key *key, const char *label, const kolo_nonces *nonces,
                     const void *message, size_t bytes, unsigned char proof[KOLO_PROOF_BYTES]) {
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, key->bytes, sizeof key->bytes);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)label, strlen(label) + 1);
    crypto_auth_hmacsha256_update(&state, (const unsigned char *)nonces, sizeof *nonces);
    crypto_auth_hmacsha256_update(&state, message, bytes);
    crypto_auth_hmacsha256_final(&state, proof);
    sodium_memzero(&state, sizeof state);
}

bool kolo_proof_check(const kolo_key *key, const char *label, const kolo_nonces *nonces,
                      const void *message, size_t bytes,
                      const unsigned char proof[KOLO_PROOF_BYTES]) {
    unsigned char expected[KOLO_PROOF_BYTES];
    kolo_proof_make(key, label, nonces, message, bytes, expected);
    return sodium_memcmp(expected, proof, sizeof expected) == 0;
}

void kolo_exchange_draw(unsigned char secret[KOLO_EXCHANGE_BYTES],
                        unsigned char half[KOLO_EXCHANGE_BYTES]) {
    randombytes_buf(secret, KOLO_EXCHANGE_BYTES);
    (void)crypto_scalarmult_base(half, secret);
}

kolo_status kolo_seal_keys_make(const kolo_key *key, const kolo_nonces *nonces, bool server,
                                const unsigned char secret[KOLO_EXCHANGE_BYTES],
                                const unsigned char half[KOLO_EXCHANGE_BYTES],
                                kolo_seal_keys *keys) {
    unsigned char common[KOLO_EXCHANGE_BYTES];
    if (crypto_scalarmult(common, secret, half) != 0) {
        return KOLO_FAIL(KOLO_ERR_PEER, "it sent an invalid public key");
    }
    unsigned char *to_server = server ? keys->receive : keys->send;
    unsigned char *to_client = server ? keys->send : keys->receive;
    kolo_proof_make(key, "kolo data of the client", nonces, common, sizeof common, to_server);
    kolo_proof_make(key, "kolo data of the server", nonces, common, sizeof common, to_client);
    sodium_memzero(common, sizeof common);
    return KOLO_OK;
}
