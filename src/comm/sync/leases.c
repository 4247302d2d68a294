#include "comm/sync/leases.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* Those of a worker, in the order in which it has got them. */
typedef struct holder {
    uint64_t number[KOLO_LEASES_MOST];
    int n;
} holder;

struct kolo_leases {
    uint64_t next;      /* the counter */
    uint64_t *returned; /* [KOLO_LEASES_MOST * workers]: ascending */
    int n_returned, n_workers;
    holder *holders; /* [workers] */
};

kolo_status kolo_leases_create(int workers, uint64_t first, kolo_leases **leases) {
    const size_t n = (size_t)workers;
    kolo_leases *l = kolo_zalloc(sizeof *l);
    if (!l) return KOLO_NOMEM(sizeof *l);
    l->next = first;
    l->n_workers = workers;
    l->holders = kolo_zalloc(n * sizeof *l->holders);
    l->returned = kolo_alloc(n * KOLO_LEASES_MOST * sizeof *l->returned);
    if (!l->holders || !l->returned) {
        kolo_leases_destroy(l);
        return KOLO_NOMEM(n * sizeof *l->holders);
    }
    *leases = l;
    return KOLO_OK;
}

void kolo_leases_destroy(kolo_leases *l) {
    if (!l) return;
    kolo_free(l->holders);
    kolo_free(l->returned);
    kolo_free(l);
}

static uint64_t take_first(uint64_t *numbers, int *n) {
    const uint64_t first = numbers[0];
    memmove(numbers, numbers + 1, (size_t)-- * n * sizeof *numbers);
    return first;
}

bool kolo_leases_take(kolo_leases *l, int worker, uint64_t end, uint64_t *number) {
    holder *h = &l->holders[worker];
    KOLO_ASSERT(h->n < KOLO_LEASES_MOST);
    if (l->n_returned > 0) {
        *number = take_first(l->returned, &l->n_returned);
    } else if (l->next < end) {
        *number = l->next++;
    } else {
        return false;
    }
    h->number[h->n++] = *number;
    return true;
}

void kolo_leases_acknowledge(kolo_leases *l, int worker) {
    holder *h = &l->holders[worker];
    if (h->n > 0) (void)take_first(h->number, &h->n);
}

void kolo_leases_return(kolo_leases *l, int worker) {
    holder *h = &l->holders[worker];
    while (h->n > 0) {
        const uint64_t number = h->number[--h->n];
        int at = l->n_returned++;
        for (; at > 0 && l->returned[at - 1] > number; at--) l->returned[at] = l->returned[at - 1];
        l->returned[at] = number;
    }
}

uint64_t kolo_leases_next(const kolo_leases *l) { return l->next; }

int kolo_leases_of(const kolo_leases *l, int worker) { return l->holders[worker].n; }

int kolo_leases_out(const kolo_leases *l) {
    int all = 0;
    for (int w = 0; w < l->n_workers; w++) all += l->holders[w].n;
    return all;
}
