/* Building, counting and printing schedules. */
#include "comm/schedule.h"

#include <string.h>

void kolo_schedule_round(kolo_schedule *s) {
    if (s->failed) return;
    if (s->n_rounds > 0 && s->rounds[s->n_rounds - 1] == s->n_entries) return;
    if (!KOLO_GROW(s->rounds, s->n_rounds, s->cap_rounds)) {
        s->failed = true;
        return;
    }
    s->rounds[s->n_rounds++] = s->n_entries;
}

void kolo_schedule_add(kolo_schedule *s, kolo_entry entry) {
    if (s->failed) return;
    if (s->n_rounds == 0) kolo_schedule_round(s);
    if (s->failed || !KOLO_GROW(s->entries, s->n_entries, s->cap_entries)) {
        s->failed = true;
        return;
    }
    s->entries[s->n_entries++] = entry;
}

void kolo_schedule_remove(kolo_schedule *s, size_t index) {
    KOLO_ASSERT(index < s->n_entries);
    memmove(&s->entries[index], &s->entries[index + 1],
            (s->n_entries - index - 1) * sizeof *s->entries);
    s->n_entries--;
    for (size_t r = 0; r < s->n_rounds; r++) {
        if (s->rounds[r] > index) s->rounds[r]--;
    }
}

size_t kolo_schedule_round_end(const kolo_schedule *s, size_t round) {
    return round + 1 < s->n_rounds ? s->rounds[round + 1] : s->n_entries;
}

size_t kolo_schedule_widest(const kolo_schedule *s) {
    size_t widest = 0;
    for (size_t r = 0; r < s->n_rounds; r++) {
        size_t n = kolo_schedule_round_end(s, r) - s->rounds[r];
        if (n > widest) widest = n;
    }
    return widest;
}

kolo_status kolo_schedule_build(const kolo_algorithm_row *row, const kolo_schedule_spec *spec,
                                kolo_schedule *schedule) {
    KOLO_ASSERT(spec->size >= 1 && spec->rank >= 0 && spec->rank < spec->size);
    KOLO_ASSERT(spec->chunk >= 1 && spec->align >= 1);
    kolo_schedule s = {.name = row->name, .windows = row->variant != KOLO_VARIANT_MESSAGES};
    if (spec->size > 1) row->write(spec, &s);
    if (s.n_rounds > 0 && s.rounds[s.n_rounds - 1] == s.n_entries) s.n_rounds--;
    if (s.failed) {
        kolo_schedule_fini(&s);
        return KOLO_FAIL(KOLO_ERR_NOMEM, "no memory for the %s schedule of %zu elements", row->name,
                         spec->count);
    }
    *schedule = s;
    return KOLO_OK;
}

void kolo_schedule_fini(kolo_schedule *s) {
    kolo_free(s->entries);
    kolo_free(s->rounds);
    *s = (kolo_schedule){0};
}

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
    case KOLO_ENTRY_BARRIER:
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

static void print_range(kolo_text *text, kolo_buffer buffer, size_t first, size_t count) {
    static const char *const names[] = {"data", "scratch", "sum"};
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
    bool has_from = e->kind != KOLO_ENTRY_RECV && e->kind != KOLO_ENTRY_BARRIER;
    bool has_peer =
        e->kind != KOLO_ENTRY_REDUCE && e->kind != KOLO_ENTRY_COPY && e->kind != KOLO_ENTRY_BARRIER;
    if (has_to) print_range(text, e->to, e->to_first, e->count);
    if (has_to && has_from) kolo_text_add(text, " <-");
    if (has_from) print_range(text, e->from, e->from_first, e->count);
    if (has_peer) kolo_text_add(text, " rank %d", e->peer);
    kolo_text_add(text, "\n");
}

void kolo_schedule_print(const kolo_schedule *s, kolo_text *text) {
    kolo_traffic t = kolo_schedule_traffic(s);
    kolo_text_add(text,
                  "schedule %s rounds %zu entries %zu scratch %zu sent %llu received %llu reduced "
                  "%llu copied %llu\n",
                  s->name, s->n_rounds, s->n_entries, s->scratch, (unsigned long long)t.sent,
                  (unsigned long long)t.received, (unsigned long long)t.reduced,
                  (unsigned long long)t.copied);
    for (size_t r = 0; r < s->n_rounds; r++) {
        kolo_text_add(text, "round %zu%s\n", r,
                      r < s->prologue ? " (before the announcement)" : "");
        for (size_t i = s->rounds[r]; i < kolo_schedule_round_end(s, r); i++) {
            print_entry(&s->entries[i], text);
        }
    }
}
