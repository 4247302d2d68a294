#include "comm/service/reply_queue.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

static void remove_first(kolo_reply_queue *q) {
    kolo_queued_reply *r = q->first;
    q->bytes -= sizeof *r + r->bytes - sizeof r->head;
    q->first = r->next;
    kolo_free(r);
}

/* Queues what the socket has not taken of a message. */
static kolo_status keep_rest(kolo_reply_queue *q, const kolo_reply_head *head,
                             const kolo_outgoing *m) {
    kolo_queued_reply *r = kolo_alloc(sizeof *r + m->body_bytes);
    if (!r) return KOLO_NOMEM(m->body_bytes);
    *r = (kolo_queued_reply){.head = *head, .bytes = sizeof *head + m->body_bytes, .done = m->done};
    size_t sent = m->done > sizeof *head ? m->done - sizeof *head : 0;
    if (m->body_bytes > sent) {
        memcpy(r->body + sent, (const char *)m->body + sent, m->body_bytes - sent);
    }
    if (q->first) q->last->next = r;
    if (!q->first) q->first = r;
    q->last = r;
    q->bytes += sizeof *r + m->body_bytes;
    return KOLO_OK;
}

kolo_status kolo_reply_queue_send(kolo_reply_queue *q, kolo_message_socket *socket,
                                  const kolo_reply_head *head, const void *body, size_t bytes) {
    kolo_outgoing m = {.head = head, .body = body, .head_bytes = sizeof *head, .body_bytes = bytes};
    bool complete = false;
    if (!q->first) KOLO_TRY(kolo_message_send(socket, &m, &complete));
    return complete ? KOLO_OK : keep_rest(q, head, &m);
}

kolo_status kolo_reply_queue_flush(kolo_reply_queue *q, kolo_message_socket *socket) {
    while (q->first) {
        kolo_queued_reply *r = q->first;
        bool complete;
        kolo_outgoing m = {.head = &r->head,
                           .body = r->body,
                           .head_bytes = sizeof r->head,
                           .body_bytes = r->bytes - sizeof r->head,
                           .done = r->done};
        KOLO_TRY(kolo_message_send(socket, &m, &complete));
        r->done = m.done;
        if (!complete) return KOLO_OK;
        remove_first(q);
    }
    return KOLO_OK;
}

void kolo_reply_queue_drop(kolo_reply_queue *q) {
    while (q->first) remove_first(q);
}
