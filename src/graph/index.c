/* Reading index notation. */
#include "graph/index.h"

#include <ctype.h>
#include <string.h>

const char *kolo_op_notation(const kolo_op *op, const kolo_attr *attr, int n_in,
                             const kolo_shape *in, char text[KOLO_NOTATION]) {
    return op->index_of ? op->index_of(attr, n_in, in, text) : op->index;
}

int kolo_index_find(const kolo_index_term *term, int code) {
    for (int d = 0; d < term->n; d++) {
        if (term->code[d] == code || (code != 0 && term->inner[d] == code)) return d;
    }
    return -1;
}

bool kolo_index_is_window(const kolo_index_term *term, int code) {
    const int d = kolo_index_find(term, code);
    return d >= 0 && term->window[d];
}

int kolo_index_of_cut(const kolo_index_term *term, const kolo_placement *cut) {
    const bool inner = term->inner[cut->dim] != 0 && cut->depth == KOLO_DEPTH_POSITIONS;
    return inner ? term->inner[cut->dim] : term->code[cut->dim];
}

/* Reads the dimensions of a term from its text [p, end); false: another number of them, or
 * more than one * or #. */
static bool read_dimensions(const char *p, const char *end, const kolo_shape *shape,
                            kolo_index_term *term) {
    int letters = 0, any = 0;
    for (const char *c = p; c < end; c++) {
        letters += !isdigit((unsigned char)*c) && !strchr("()~@", *c);
        letters -= *c == '('; /* two are one dimension */
        any += *c == '*' || *c == '#';
    }
    int extra = shape->rank - (letters - any); /* dimensions of * or # */
    if (any > 1 || extra < 0 || (any == 0 && extra != 0)) return false;
    term->is_star = letters == 1 && *p == '*';
    for (int parts = 1; p < end; p++) {
        if (isdigit((unsigned char)*p)) {
            parts = *p - '0';
            continue;
        }
        if (*p == '~') {
            term->window[term->n] = true;
            continue;
        }
        if (*p == '@') {
            term->listed[term->n] = true;
            continue;
        }
        if (*p == '(') {
            if (end - p < 4 || !islower((unsigned char)p[2]) || p[3] != ')') return false;
            term->parts[term->n] = 1;
            term->code[term->n] = (unsigned char)p[1];
            term->inner[term->n++] = (unsigned char)p[2];
            p += 3;
            continue;
        }
        int copies = *p == '*' || *p == '#' ? extra : 1;
        const unsigned char letter = (unsigned char)*p;
        KOLO_ASSERT(term->n + copies <= KOLO_MAX_RANK);
        for (int i = 0; i < copies; i++) {
            term->parts[term->n] = parts;
            term->code[term->n++] = letter == '*'     ? KOLO_INDEX_STAR + i
                                    : islower(letter) ? letter
                                                      : KOLO_INDEX_WHOLE;
        }
        parts = 1;
    }
    return true;
}

static void read_without(const char *p, const char *end, kolo_index_term *term) {
    for (; p < end && term->n_without < KOLO_MAX_RANK; p++) {
        if (*p != '*') {
            term->without[term->n_without++] = (unsigned char)*p;
            continue;
        }
        for (int i = 0; term->n_without < KOLO_MAX_RANK; i++) {
            term->without[term->n_without++] = KOLO_INDEX_STAR + i;
        }
    }
}

/* Reads a term for a tensor of this shape; returns its end, or NULL when it does not fit. */
static const char *read_term(const char *p, const kolo_shape *shape, kolo_index_term *term) {
    const char *end = p + strcspn(p, ",+|-");
    const char *without = memchr(p, '/', (size_t)(end - p));
    const char *dimensions_end = without ? without : end;
    *term = (kolo_index_term){.addend = term->addend};
    if (p < dimensions_end && *p == 's') {
        term->by_shard = true;
        p++;
    }
    if (!read_dimensions(p, dimensions_end, shape, term)) return NULL;
    if (without) read_without(without + 1, end, term);
    return end;
}

/* The length of a dimension that has the index by itself; 0: there is none. */
static int64_t length_of(const kolo_index_term *terms, int n, const kolo_shape *shapes, int code) {
    for (int k = 0; k < n; k++) {
        const int d = kolo_index_find(&terms[k], code);
        if (d >= 0 && terms[k].inner[d] == 0 && terms[k].parts[d] == 1) return shapes[k].dim[d];
    }
    return 0;
}

/* Finds the outer lengths of merged dimensions. */
static bool measure_merged(kolo_index_term *terms, int n, const kolo_index *index, int n_in,
                           const kolo_shape *in, int n_out, const kolo_shape *out) {
    for (int k = 0; k < n; k++) {
        for (int d = 0; d < terms[k].n; d++) {
            if (terms[k].inner[d] == 0) continue;
            int64_t length = length_of(index->in, n_in, in, terms[k].code[d]);
            if (length == 0) length = length_of(index->out, n_out, out, terms[k].code[d]);
            if (length == 0) return false;
            terms[k].outer[d] = length;
        }
    }
    return true;
}

/* Reads one alternative; whether it fits. */
static bool read_alternative(const char *p, int n_in, const kolo_shape *in, int n_out,
                             const kolo_shape *out, kolo_index *index) {
    int addend = 0;
    *index = (kolo_index){0};
    for (int k = 0; k < n_in; k++) {
        index->in[k].addend = addend;
        p = read_term(p, &in[k], &index->in[k]);
        if (!p || *p == '|' || *p == 0) return false;
        bool last = k == n_in - 1;
        if (!last && *p == '-') return false; /* more inputs than terms */
        if (*p == '+') addend++;
        if (!last) p++;
    }
    index->n_addends = index->in[n_in - 1].addend + 1;
    p = strstr(p, "->");
    if (!p) return false;
    p += 2;
    for (int k = 0; k < n_out; k++) {
        p = read_term(p, &out[k], &index->out[k]);
        if (!p) return false;
        bool last = k == n_out - 1;
        if (!last && *p != ',') return false;
        if (!last) p++;
    }
    return measure_merged(index->in, n_in, index, n_in, in, n_out, out) &&
           measure_merged(index->out, n_out, index, n_in, in, n_out, out);
}

kolo_status kolo_index_read(const kolo_op *op, const kolo_attr *attr, int n_in,
                            const kolo_shape *in, int n_out, const kolo_shape *out,
                            kolo_index *index) {
    char text[KOLO_NOTATION];
    const char *notation = kolo_op_notation(op, attr, n_in, in, text);
    if (!notation) return KOLO_FAIL(KOLO_ERR_UNSUPPORTED, "%s has no index notation", op->name);
    KOLO_ASSERT(n_in > 0 && n_in <= KOLO_MAX_IO && n_out <= KOLO_MAX_IO);
    for (const char *p = notation; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        if (read_alternative(p, n_in, in, n_out, out, index)) return KOLO_OK;
    }
    return KOLO_FAIL(KOLO_ERR_FORMAT, "%s: its index notation \"%s\" does not fit its tensors",
                     op->name, notation);
}

kolo_status kolo_index_of(const kolo_graph *g, const kolo_node *n, kolo_index *index) {
    kolo_shape in[KOLO_MAX_IO], out[KOLO_MAX_IO];
    for (int k = 0; k < n->n_in; k++) in[k] = kolo_info(g, n->in[k])->tensor.shape;
    for (int k = 0; k < n->n_out; k++) out[k] = kolo_info(g, n->out[k])->tensor.shape;
    return kolo_index_read(n->op, n->attr, n->n_in, in, n->n_out, out, index);
}
