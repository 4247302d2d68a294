/* Transport `tcp`, peers of a group: frames and announcements to them. */
#include "base/memory.h"
#include "base/status.h"
#include "comm/transport/tcp/internal.h"

kolo_status kolo_tcp_add_peer(kolo_tcp_transport *t, int peer) {
    kolo_tcp_peer *p = kolo_zalloc(sizeof *p);
    if (!p) return KOLO_NOMEM(sizeof *p);
    p->link = t->wire->links[t->members[peer].wire_rank];
    for (size_t c = 0; c < KOLO_FLIGHT_MAX; c++) {
        const kolo_tcp_own *own = &t->own[c];
        bool open = own->started && own->seq >= t->finished;
        p->channels[c].seq = open ? own->seq : UINT64_MAX;
    }
    t->peers[peer] = p;
    return KOLO_OK;
}

kolo_status kolo_tcp_send_frame(kolo_tcp_transport *t, int peer, kolo_frame frame,
                                const void *body) {
    const kolo_tcp_member *m = &t->members[peer];
    if (!t->peers[peer]) return KOLO_OK;
    if (t->parent && m->group == 0) return KOLO_OK; /* the group was not completed */
    frame.group = m->group;
    return kolo_wire_send(t->wire, m->wire_rank, &frame, body);
}

kolo_status kolo_tcp_send_to_all(kolo_tcp_transport *t, kolo_frame frame, const void *body) {
    kolo_status status = KOLO_OK;
    for (int p = 0; p < t->base.size; p++) {
        kolo_status sent = kolo_tcp_send_frame(t, p, frame, body);
        if (status == KOLO_OK) status = sent;
    }
    return status;
}

kolo_status kolo_tcp_announce_one(kolo_tcp_transport *t, int peer, const kolo_tcp_own *own) {
    kolo_tcp_peer *p = t->peers[peer];
    uint64_t *sent = &p->sent_own[own->seq % KOLO_FLIGHT_MAX];
    if (!own->announced || *sent == own->seq + 1) return KOLO_OK;
    if (own->seq >= p->finished + KOLO_FLIGHT_MAX) {
        p->behind = true;
        return KOLO_OK;
    }
    *sent = own->seq + 1;
    kolo_frame f = {.kind = KOLO_FRAME_ANNOUNCE, .bytes = sizeof own->body, .seq = own->seq};
    kolo_frame_call body = own->body;
    if (own->peer_counts) {
        f.value = own->peer_counts[peer];
        body.expects = own->peer_counts[t->base.size + peer];
    }
    KOLO_TRY(kolo_tcp_send_frame(t, peer, f, &body));
    for (uint32_t phase = 1; phase <= own->phase; phase++) {
        f = (kolo_frame){.kind = KOLO_FRAME_PHASE, .seq = own->seq, .value = phase};
        KOLO_TRY(kolo_tcp_send_frame(t, peer, f, NULL));
    }
    return KOLO_OK;
}

kolo_status kolo_tcp_announce(kolo_tcp_transport *t, int peer) {
    t->peers[peer]->behind = false;
    if (t->broken) return KOLO_OK;
    for (int i = 0; i < KOLO_FLIGHT_MAX; i++) {
        const kolo_tcp_own *own = &t->own[i];
        if (own->started && own->seq >= t->finished) KOLO_TRY(kolo_tcp_announce_one(t, peer, own));
    }
    return KOLO_OK;
}
