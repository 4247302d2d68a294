/* The text of a wait that takes long: which ranks have not posted the tensor. See named_stall.h. */
#include "comm/sync/named_stall.h"

#include "base/clock.h"
#include "comm/engine/comm.h"
#include "comm/engine/request.h"

enum {
    NAMED_IN_TEXTS = 3,
    ABSENT_NS = 100000000, /* a rank that has posted a tensor joins much sooner */
};

/* Adds the ranks that have not joined an agreement for long: they have posted no tensor that is not
 * agreed on. */
static bool add_absent(kolo_named *m, kolo_text *text) {
    kolo_transport *transport = m->comm->transport;
    int n = 0;
    bool old = m->phase == KOLO_NAMED_AGREEING && kolo_now_ns() - m->begun_ns > ABSENT_NS;
    for (int r = 0; r < m->comm->size && old; r++) {
        kolo_peer_call call;
        uint64_t seq = kolo_request_sequence(m->agreement);
        if (r == m->comm->rank || transport->ops->query(transport, seq, r, &call)) continue;
        if (n < NAMED_IN_TEXTS) kolo_text_add(text, "%s%d", n ? ", " : "not posted by rank ", r);
        n++;
    }
    if (n > NAMED_IN_TEXTS) kolo_text_add(text, " and %d more", n - NAMED_IN_TEXTS);
    if (n > 0)
        kolo_text_add(text, ", which %s posted no other tensor either", n > 1 ? "have" : "has");
    return n > 0;
}

/* Adds " (but 'a', 'b' and 3 more)": what a rank has posted and another one has not. */
static void add_others(kolo_named *m, kolo_text *text, int rank) {
    const uint8_t *own = m->table + (size_t)rank * m->table_ids;
    int n = 0;
    for (size_t id = 0; id < m->table_ids; id++) {
        if (!own[id]) continue;
        if (n < NAMED_IN_TEXTS) {
            kolo_text_add(text, "%s'%.60s'", n ? ", " : " (but ",
                          kolo_named_tensor_of(m, id)->name);
        }
        n++;
    }
    if (n > NAMED_IN_TEXTS) kolo_text_add(text, " and %d more", n - NAMED_IN_TEXTS);
    if (n > 0) kolo_text_add(text, ")");
}

static bool add_from_table(kolo_named *m, kolo_text *text, const kolo_named_tensor *t) {
    int n = 0;
    if (!m->table || m->phase == KOLO_NAMED_TABLE || t->id < 0 || (size_t)t->id >= m->table_ids)
        return false;
    for (int r = 0; r < m->comm->size; r++) {
        if (m->table[(size_t)r * m->table_ids + (size_t)t->id]) continue;
        if (n < NAMED_IN_TEXTS) {
            kolo_text_add(text, "%s%d", n ? ", " : "not posted by rank ", r);
            add_others(m, text, r);
        }
        n++;
    }
    if (n > NAMED_IN_TEXTS) kolo_text_add(text, " and %d more", n - NAMED_IN_TEXTS);
    return n > 0;
}

void kolo_named_describe_stall(kolo_named *m, kolo_text *text, const kolo_named_tensor *t,
                               bool answered) {
    char what[64];
    kolo_signature_text(&t->signature, what, sizeof what);
    kolo_text_add(text, "tensor '%.100s' (%s): ", t->name, what);
    if (t->state == KOLO_TENSOR_REDUCED) {
        kolo_text_add(text, "posted by all ranks, its reduction is in flight");
    } else if (!(answered && add_from_table(m, text, t)) && !add_absent(m, text) &&
               !add_from_table(m, text, t)) {
        kolo_text_add(text, "not posted by all ranks");
    }
}
