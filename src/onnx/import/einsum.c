/* Einsum of one or two inputs. Letters of an input alone that the result lacks are summed first; an
 * ellipsis stands for letters of its own. The others of two inputs are of four kinds, and the
 * inputs become
 *
 *     a [both and the result, a and the result, both alone]      b [..., b and the result, ...]
 *
 * whose batched matrix product, or linear layer where no letter is of the first kind, is the result
 * with its dimensions in another order. */
#include "onnx/import/ops.h"

#include <string.h>

typedef struct equation {
    char in[2][KOLO_MAX_RANK + 1], out[KOLO_MAX_RANK + 1]; /* letters by dimension */
    int64_t size[128];                                     /* by letter; 0: not yet */
} equation;

static bool has(const char *letters, char letter) { return strchr(letters, letter) != NULL; }

/* The dimensions of an ellipsis, of which shorter ones have the last. */
static const char hidden[] = "012345";
_Static_assert(sizeof hidden == KOLO_MAX_RANK + 1, "a letter for each");

static bool is_letter(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
}

/* Adds a letter; false: it occurs before, or is one too many. */
static bool add(char *letters, char letter) {
    const size_t n = strlen(letters);
    if (n == KOLO_MAX_RANK || has(letters, letter)) return false;
    letters[n] = letter;
    letters[n + 1] = '\0';
    return true;
}

/* Adds the dimensions of the ellipses of both inputs. */
static bool add_hidden(equation *e) {
    for (const char *at = hidden; *at; at++) {
        if ((has(e->in[0], *at) || has(e->in[1], *at)) && !add(e->out, *at)) return false;
    }
    return true;
}

/* Without an arrow the result has the letters that occur once, in the order of the alphabet. */
static bool add_implicit(equation *e) {
    if (!add_hidden(e)) return false;
    for (int letter = 'A'; letter <= 'z'; letter++) {
        const bool first = has(e->in[0], (char)letter), second = has(e->in[1], (char)letter);
        if (first != second && !add(e->out, (char)letter)) return false;
    }
    return true;
}

/* The ellipsis of an input of `rank` dimensions, whose term begins at `text`: those that its
 * letters leave. */
static bool add_ellipsis(const char *text, size_t length, int rank, char *letters) {
    int left = rank;
    for (size_t i = 0; i < length && text[i] != ',' && text[i] != '-'; i++) {
        left -= is_letter(text[i]);
    }
    for (int k = KOLO_MAX_RANK - left; k < KOLO_MAX_RANK; k++) {
        if (!add(letters, hidden[k])) return false;
    }
    return true;
}

/* Reads "ij,jk->ik" of inputs with these numbers of dimensions; false: another form. */
static bool parse(const char *text, size_t length, int n_in, const int *ranks, equation *e) {
    int term = 0;
    bool arrow = false;
    size_t start = 0; /* of the term */
    for (size_t i = 0; i < length; i++) {
        char *to = arrow ? e->out : e->in[term];
        if (text[i] == ' ') continue;
        if (text[i] == ',' && !arrow && term + 1 < n_in) {
            term++;
            start = i + 1;
        } else if (text[i] == '-' && i + 1 < length && text[i + 1] == '>' && !arrow) {
            arrow = true;
            i++;
        } else if (length - i >= 3 && memcmp(text + i, "...", 3) == 0) {
            const bool added =
                arrow ? add_hidden(e) : add_ellipsis(text + start, length - start, ranks[term], to);
            if (!added) return false;
            i += 2;
        } else if (!is_letter(text[i]) || !add(to, text[i])) {
            return false;
        }
    }
    if (term + 1 != n_in || (!arrow && !add_implicit(e))) return false;
    for (const char *at = hidden; *at; at++) {
        if ((has(e->in[0], *at) || has(e->in[1], *at)) && !has(e->out, *at)) return false;
    }
    for (const char *at = e->out; *at; at++) {
        if (!has(e->in[0], *at) && !has(e->in[1], *at)) return false;
    }
    return true;
}

/* The sizes of the letters, by input `i`; false: they do not fit. */
static bool measure(equation *e, int i, const kolo_shape *shape) {
    if (strlen(e->in[i]) != (size_t)shape->rank) return false;
    for (int d = 0; d < shape->rank; d++) {
        int64_t *size = &e->size[(int)e->in[i][d]];
        if (*size != 0 && *size != shape->dim[d]) return false;
        *size = shape->dim[d];
    }
    return true;
}

/* x, whose dimensions are `from`, with those of `to` in their order; others are summed. */
static kolo_value arrange(onnx_call *c, kolo_value x, const char *from, const char *to) {
    char left[KOLO_MAX_RANK + 1] = "";
    int summed[KOLO_MAX_RANK], order[KOLO_MAX_RANK], n = 0;
    for (int d = 0; from[d]; d++) {
        if (has(to, from[d])) {
            add(left, from[d]);
        } else {
            summed[n++] = d;
        }
    }
    if (n > 0) x = kolo_reduce_sum(c->g, x, summed, n, false);
    for (int d = 0; to[d]; d++) order[d] = (int)(strchr(left, to[d]) - left);
    return strcmp(left, to) == 0 ? x : kolo_permute(c->g, x, order);
}

static int64_t product(const equation *e, const char *letters) {
    int64_t n = 1;
    for (; *letters; letters++) n *= e->size[(int)*letters];
    return n;
}

/* The letters of the lists, one after the other; false: too many. */
static bool join(char *all, const char *const *lists, int n) {
    *all = '\0';
    for (int k = 0; k < n; k++) {
        for (const char *at = lists[k]; *at; at++) {
            if (!add(all, *at)) return false;
        }
    }
    return true;
}

static kolo_status multiply(onnx_call *c, const equation *e, kolo_value a, kolo_value b) {
    char both[KOLO_MAX_RANK + 1] = "", inner[KOLO_MAX_RANK + 1] = "";
    char own[2][KOLO_MAX_RANK + 1] = {"", ""}, order[2][KOLO_MAX_RANK + 1];
    char result[KOLO_MAX_RANK + 1];
    for (int i = 0; i < 2; i++) {
        for (const char *at = e->in[i]; *at; at++) {
            const bool shared = has(e->in[1 - i], *at), kept = has(e->out, *at);
            if (shared && i == 0) add(kept ? both : inner, *at);
            if (!shared && kept) add(own[i], *at);
        }
    }
    for (int i = 0; i < 2; i++) {
        if (!join(order[i], (const char *const[]){both, own[i], inner}, 3)) {
            return ONNX_FAIL(c, "too many dimensions");
        }
    }
    if (!join(result, (const char *const[]){both, own[0], own[1]}, 3)) {
        return ONNX_FAIL(c, "too many dimensions");
    }
    const int64_t n = product(e, both), k = product(e, inner);
    const int64_t rows = product(e, own[0]), columns = product(e, own[1]);
    a = arrange(c, a, e->in[0], order[0]);
    b = arrange(c, b, e->in[1], order[1]);
    kolo_value y;
    if (*both) {
        y = kolo_matmul(c->g, onnx_as(c, a, kolo_shape_3(n, rows, k)),
                        onnx_as(c, b, kolo_shape_3(n, columns, k)), false, true);
    } else {
        y = kolo_linear(c->g, onnx_as(c, a, kolo_shape_2(rows, k)),
                        onnx_as(c, b, kolo_shape_2(columns, k)));
    }
    kolo_shape shape = {.rank = 0};
    for (const char *at = result; *at; at++) shape.dim[shape.rank++] = e->size[(int)*at];
    return onnx_set(c, 0, arrange(c, onnx_as(c, y, shape), result, e->out));
}

kolo_status onnx_map_einsum(onnx_call *c) {
    const Onnx__AttributeProto *text = onnx_attribute(c, "equation");
    equation e = {0};
    kolo_value x[2];
    int ranks[2] = {0};
    for (int i = 0; i < c->n_in; i++) {
        if (!onnx_has(c, i)) return ONNX_FAIL(c, "input %d is missing", i);
        ranks[i] = onnx_shape(c, i).rank;
    }
    if (!text || !parse((const char *)text->s.data, text->s.len, c->n_in, ranks, &e)) {
        return ONNX_FAIL(c,
                         "attribute equation: \"%.*s\": Kolo reads letters, each once in an "
                         "input, and an ellipsis, of one or two inputs",
                         text ? (int)text->s.len : 0, text ? (const char *)text->s.data : "");
    }
    for (int i = 0; i < c->n_in; i++) {
        KOLO_TRY(onnx_value(c, i, &x[i]));
        const kolo_shape shape = kolo_value_shape(c->g, x[i]);
        if (!measure(&e, i, &shape)) return ONNX_FAIL(c, "the shapes do not fit");
    }
    if (c->n_in == 1) return onnx_set(c, 0, arrange(c, x[0], e.in[0], e.out));
    const bool swap = c->in[0]->constant && !c->in[1]->constant;
    if (!swap) return multiply(c, &e, x[0], x[1]);
    equation turned = e; /* the samples are rows of a linear layer */
    memcpy(turned.in[0], e.in[1], sizeof e.in[0]);
    memcpy(turned.in[1], e.in[0], sizeof e.in[0]);
    return multiply(c, &turned, x[1], x[0]);
}
