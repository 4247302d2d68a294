/* Transport `ucx`, send side: messages with a header and a borrowed body, within the peer's window.
 */
#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/ucx/internal.h"

#include <string.h>

/* A message in flight. */
typedef struct ucx_send {
    kolo_ucx_request request; /* first */
    kolo_ucx_transport *transport;
    kolo_ucx_channel *channel; /* NULL: no data */
    kolo_ucx_head head;
} ucx_send;

void *kolo_ucx_block_alloc(kolo_ucx_block **spare, size_t bytes) {
    kolo_ucx_block *block = *spare;
    if (!block) return kolo_alloc(bytes);
    *spare = block->next;
    return block;
}

void kolo_ucx_block_free(kolo_ucx_block **spare, void *block) {
    kolo_ucx_block *b = block;
    b->next = *spare;
    *spare = b;
}

/* Errors need no handling: UCX reports the lost peer. */
static void send_done(kolo_ucx_request *request, bool good) {
    ucx_send *s = (ucx_send *)request;
    kolo_ucx_transport *t = s->transport;
    t->n_operations--;
    if (s->channel) s->channel->n_sends--;
    kolo_ucx_block_free(&t->spare_sends, s);
}

kolo_status kolo_ucx_post(kolo_ucx_transport *t, int peer, kolo_ucx_kind kind, uint64_t seq,
                          uint64_t value, kolo_ucx_channel *c, const void *data, size_t bytes) {
    ucx_send *s = kolo_ucx_block_alloc(&t->spare_sends, sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    *s = (ucx_send){
        .request.done = send_done,
        .transport = t,
        .channel = c,
        .head = {.from = t->base.rank, .kind = kind, .seq = seq, .value = value},
    };
    memcpy(s->head.token, t->peers[peer]->token, sizeof s->head.token);
    t->n_operations++;
    if (c) c->n_sends++;
    t->ops->send(t->ucx, peer, &s->head, sizeof s->head, data, bytes, &s->request);
    return KOLO_OK;
}

kolo_status kolo_ucx_send(kolo_transport *base, uint64_t seq, int peer, const void *data,
                          size_t bytes, size_t *queued, bool *accepted) {
    kolo_ucx_transport *t = (kolo_ucx_transport *)base;
    kolo_ucx_channel *c = kolo_ucx_channel_of(t, seq, peer);
    uint64_t room = KOLO_UCX_WINDOW - (c->sent - c->sent_consumed);
    *queued = 0;
    *accepted =
        (room >= KOLO_UCX_CHARGE_MIN || bytes == 0) && !t->peers[peer]->lost_ns && !t->broken;
    if (!*accepted) return KOLO_OK;
    if (bytes > room) bytes = room;
    if (bytes > t->message_bytes) bytes = t->message_bytes;
    if (bytes > 0) c->sent += kolo_ucx_charge(bytes);
    KOLO_TRY(kolo_ucx_post(t, peer, KOLO_UCX_DATA, seq, 0, c, data, bytes));
    *queued = bytes;
    return KOLO_OK;
}

bool kolo_ucx_sent(kolo_transport *base, uint64_t seq, int peer) {
    return kolo_ucx_channel_of((kolo_ucx_transport *)base, seq, peer)->n_sends == 0;
}
