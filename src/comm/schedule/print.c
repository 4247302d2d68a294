/* Counts the traffic of a schedule and prints it for `kolo dump`. */
#include "comm/schedule/schedule.h"

void kolo_traffic_add(kolo_traffic *traffic, kolo_entry_kind kind, uint64_t count) {
    switch (kind) {
    case KOLO_ENTRY_SEND:
        traffic->sent += count;
        break;
    case KOLO_ENTRY_RECV:
        traffic->received += count;
        break;
    case KOLO_ENTRY_REDUCE:
    case KOLO_ENTRY_REDUCE_FROM:
        traffic->reduced += count;
        break;
    case KOLO_ENTRY_COPY:
    case KOLO_ENTRY_COPY_FROM:
    case KOLO_ENTRY_COPY_TO:
        traffic->copied += count;
        break;
    case KOLO_ENTRY_PRESCALE:
    case KOLO_ENTRY_POSTSCALE:
    case KOLO_ENTRY_BARRIER:
    case KOLO_ENTRY_OFFLOADED: /* not counted: the backend moves the data */
        break;
    }
}

kolo_traffic kolo_schedule_traffic(const kolo_schedule *s) {
    kolo_traffic traffic = {0};
    for (size_t i = 0; i < s->n_entries; i++) {
        kolo_traffic_add(&traffic, s->entries[i].kind, s->entries[i].count);
    }
    return traffic;
}

const char *kolo_variant_name(kolo_variant variant) {
    static const char *const names[] = {
#define VARIANT_NAME(code, name) name,
        KOLO_VARIANT_LIST(VARIANT_NAME)
#undef VARIANT_NAME
    };
    return names[variant];
}

static void print_range(kolo_text *text, kolo_buffer buffer, size_t first, size_t count) {
    static const char *const names[] = {"data", "input", "scratch", "sum"};
    kolo_text_add(text, " %s[%zu,%zu)", names[buffer], first, first + count);
}

static void print_entry(const kolo_entry *e, kolo_text *text) {
    static const char *const names[] = {
#define KOLO_ENTRY_NAME(code, name) name,
        KOLO_ENTRY_LIST(KOLO_ENTRY_NAME)
#undef KOLO_ENTRY_NAME
    };
    kolo_text_add(text, "  %s", names[e->kind]);
    bool has_to = e->kind != KOLO_ENTRY_SEND && e->kind != KOLO_ENTRY_BARRIER;
    bool scale = e->kind == KOLO_ENTRY_PRESCALE || e->kind == KOLO_ENTRY_POSTSCALE;
    bool has_from = e->kind != KOLO_ENTRY_RECV && e->kind != KOLO_ENTRY_BARRIER && !scale;
    bool has_peer = e->kind != KOLO_ENTRY_REDUCE && e->kind != KOLO_ENTRY_COPY &&
                    e->kind != KOLO_ENTRY_BARRIER && e->kind != KOLO_ENTRY_OFFLOADED && !scale;
    if (has_to) print_range(text, e->to, e->to_first, e->count);
    if (has_to && has_from) kolo_text_add(text, " <-");
    if (has_from) print_range(text, e->from, e->from_first, e->count);
    if (has_peer) kolo_text_add(text, " rank %d", e->peer);
    kolo_text_add(text, "\n");
}

void kolo_schedule_print_totals(const kolo_schedule *s, kolo_text *text) {
    kolo_traffic t = kolo_schedule_traffic(s);
    kolo_text_add(text,
                  "schedule %s rounds %zu entries %zu scratch %zu sent %llu received %llu reduced "
                  "%llu copied %llu\n",
                  s->row->name, s->n_rounds, s->n_entries, s->scratch, (unsigned long long)t.sent,
                  (unsigned long long)t.received, (unsigned long long)t.reduced,
                  (unsigned long long)t.copied);
}

void kolo_schedule_print(const kolo_schedule *s, kolo_text *text) {
    kolo_schedule_print_totals(s, text);
    for (size_t r = 0; r < s->n_rounds; r++) {
        kolo_text_add(text, "round %zu%s\n", r,
                      r < s->prologue ? " (before the announcement)" : "");
        for (size_t i = s->rounds[r]; i < kolo_schedule_round_end(s, r); i++) {
            print_entry(&s->entries[i], text);
        }
    }
}
