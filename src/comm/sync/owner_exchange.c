/* Sums over the parts of all owners, such as norms, that an update of a step needs. Each owner
 * sends its summands to all others as it has them, and adds up those of all, in the order of
 * owners. Sums are numbered over the run: another owner may send those of the sum that this one
 * makes, or of the next one, since that needs this one's. */
#include "base/memory.h"
#include "base/status.h"
#include "comm/sync/owner_internal.h"

#include <stdatomic.h>
#include <string.h>

typedef kolo_parameters_owner owner;

/* What another owner sends, and gets, of the sums with an even or an odd number. */
typedef struct peer_sum {
    bool come;
    size_t count; /* numbers that have come */
    float *numbers;
    bool used;
    kolo_service_request request;
} peer_sum;

struct kolo_owner_sums {
    int owners, index, first;
    size_t most; /* numbers of a sum */
    kolo_owner_channel channel;
    _Atomic(void *) arg; /* of it; release by connect, acquire by the service's thread */
    uint64_t number;     /* of the sum that is made, or of the next one */
    peer_sum *peers;     /* [owners][2] */
    float *memory; /* [owners][2][most]: of the peers; in place of this owner, what it sends */
    float *sum;    /* [most] */
    /* Of the update that is being made, if it has begun: */
    bool open;
    int made;     /* its sums */
    size_t count; /* numbers of the next one, which this owner has sent; 0: not yet */
    const float *gradient;
    int gradients;
    uint64_t clock;
};

typedef kolo_owner_sums sums;

static peer_sum *peer_at(const sums *s, int i, uint64_t number) {
    return &s->peers[2 * i + (int)(number % 2)];
}

kolo_status kolo_parameters_owner_exchange(owner *o, int index, int owners, int first,
                                           const kolo_owner_channel *channel) {
    const size_t most = o->opts->exchanged, n = 2 * (size_t)owners;
    sums *s = kolo_zalloc(sizeof *s);
    if (!s) return KOLO_NOMEM(sizeof *s);
    o->sums = s;
    s->owners = owners;
    s->index = index;
    s->first = first;
    s->most = most;
    s->channel = *channel;
    s->peers = kolo_zalloc(n * sizeof *s->peers);
    s->memory = kolo_alloc((n * most + 1) * sizeof *s->memory);
    s->sum = kolo_alloc((most + 1) * sizeof *s->sum);
    if (!s->peers || !s->memory || !s->sum) return KOLO_NOMEM(n * most * sizeof *s->memory);
    for (size_t i = 0; i < n; i++) s->peers[i].numbers = s->memory + i * most;
    return KOLO_OK;
}

void kolo_parameters_owner_connect(owner *o, void *arg) {
    if (o->sums) atomic_store_explicit(&o->sums->arg, arg, memory_order_release);
}

void kolo_owner_sums_destroy(sums *s) {
    if (!s) return;
    kolo_free(s->peers);
    kolo_free(s->memory);
    kolo_free(s->sum);
    kolo_free(s);
}

void kolo_owner_sums_begin(sums *s, const float *gradient, int n, uint64_t clock) {
    s->open = true;
    s->made = 0;
    s->count = 0;
    s->gradient = gradient;
    s->gradients = n;
    s->clock = clock;
}

bool kolo_owner_sums_are_open(const sums *s) { return s->open; }

/* Sends this owner's summands. Those of two sums before have come to all: the sum between them
 * needed them. Returns the first owner that is lost; -1: none. */
static int send_summands(sums *s) {
    int lost = -1;
    void *arg = atomic_load_explicit(&s->arg, memory_order_acquire);
    const peer_sum *own = peer_at(s, s->index, s->number);
    for (int i = 0; i < s->owners; i++) {
        peer_sum *p = peer_at(s, i, s->number);
        if (p->used) (void)s->channel.wait(arg, &p->request);
    }
    memcpy(own->numbers, s->sum, s->count * sizeof *s->sum);
    for (int i = 0; i < s->owners; i++) {
        peer_sum *p = peer_at(s, i, s->number);
        if (i == s->index) continue;
        p->request = (kolo_service_request){
            .server = s->first + i,
            .name = "a sum over the owners",
            .kind = KOLO_OWNER_SUMMANDS,
            .key = s->number,
            .input = own->numbers,
            .input_bytes = s->count * sizeof *own->numbers,
        };
        p->used = s->channel.start(arg, &p->request) == KOLO_OK;
        if (!p->used && lost < 0) lost = i;
    }
    return lost;
}

static bool have_come(const sums *s) {
    bool all = true;
    for (int i = 0; i < s->owners; i++) all &= i == s->index || peer_at(s, i, s->number)->come;
    return all;
}

/* What an owner has not sent counts as 0. */
static void add_summands(sums *s) {
    peer_sum *own = peer_at(s, s->index, s->number);
    own->count = s->count;
    memset(s->sum, 0, s->count * sizeof *s->sum);
    for (int i = 0; i < s->owners; i++) {
        peer_sum *p = peer_at(s, i, s->number);
        const size_t n = p->count < s->count ? p->count : s->count;
        for (size_t k = 0; k < n; k++) s->sum[k] += p->numbers[k];
        p->come = false;
    }
    s->number++;
    s->made++;
    s->count = 0;
}

bool kolo_owner_sums_advance(owner *o, const float **gradient, int *n, uint64_t *clock) {
    sums *s = o->sums;
    const kolo_parameters_update u =
        kolo_owner_describe(o, s->gradient, s->gradients, -1, s->clock);
    for (;;) {
        if (s->count == 0) {
            s->count = o->opts->exchange(o->opts->arg, &u, s->made, s->sum);
            KOLO_ASSERT(s->count <= s->most);
            if (s->count == 0) break;
            const int lost = send_summands(s);
            if (lost >= 0) kolo_owner_end_job(o, "server rank", s->first + lost, "it is gone");
            if (lost >= 0) return false;
        }
        if (!have_come(s)) return false;
        add_summands(s);
    }
    s->open = false;
    *gradient = s->gradient;
    *n = s->gradients;
    *clock = s->clock;
    return true;
}

bool kolo_owner_sums_need(const sums *s, int client, bool left) {
    const int i = client - s->first;
    if (i < 0 || i >= s->owners || i == s->index) return false;
    return !left || (s->open && !peer_at(s, i, s->number)->come);
}

bool kolo_owner_sums_fit(const sums *s, const kolo_service_call *call) {
    const int i = call->client - s->first;
    const size_t size = sizeof *s->sum;
    if (i < 0 || i >= s->owners || i == s->index) return false;
    if (call->key != s->number && call->key != s->number + 1) return false;
    return !peer_at(s, i, call->key)->come && call->output_bytes == 0 &&
           call->input_bytes % size == 0 && call->input_bytes / size <= s->most;
}

void kolo_owner_sums_take(sums *s, const kolo_service_call *call) {
    peer_sum *p = peer_at(s, call->client - s->first, call->key);
    p->come = true;
    p->count = call->input_bytes / sizeof *p->numbers;
    if (p->count > 0) memcpy(p->numbers, call->input, call->input_bytes);
}
