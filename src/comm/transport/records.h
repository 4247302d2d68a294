#pragma once
/* The buffers of a protected connection: the record that is being written, and those that have been
 * read (seal.h). The owner moves the bytes between them and its socket. */

#include "comm/transport/seal.h"

#include <sys/uio.h>

typedef struct kolo_records kolo_records;

/* NOMEM. */
kolo_status kolo_records_create(const kolo_seal_keys *keys, kolo_records **records);
/* Erases the keys. NULL is allowed. */
void kolo_records_destroy(kolo_records *r);

/* What is to be written of the current record; empty: none is. */
struct iovec kolo_records_output(const kolo_records *r);
void kolo_records_wrote(kolo_records *r, size_t bytes);
/* Makes the next record from the first bytes of some pieces, as many as fit; returns how many.
 * There is at least one, and no output. */
size_t kolo_records_seal(kolo_records *r, const struct iovec *pieces, int n_pieces);
/* Drops the output. */
void kolo_records_drop(kolo_records *r);

/* Takes content that has been received into some pieces, up to the end of its record. 0: there is
 * none in the buffer, or `*changed`: what was received is not what the peer has sent. */
size_t kolo_records_take(kolo_records *r, const struct iovec *pieces, int n_pieces, bool *changed);
/* Whether kolo_records_take would return something else than 0. */
bool kolo_records_ready(const kolo_records *r);
/* Where the next bytes from the socket belong, once nothing can be taken. */
struct iovec kolo_records_room(kolo_records *r);
void kolo_records_filled(kolo_records *r, size_t bytes);
