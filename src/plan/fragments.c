/* Divides the layers of a model into fragments. */
#include "plan/fragments.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* The length of the layer's name in that of a tensor. */
static size_t layer_length(const char *name) {
    for (const char *at = name; *at;) {
        const size_t length = strcspn(at, ".");
        if (length > 0 && strspn(at, "0123456789") == length) return (size_t)(at + length - name);
        at += length + (at[length] == '.');
    }
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

static bool same_layer(const char *a, const char *b) {
    const size_t length = layer_length(a);
    return length == layer_length(b) && strncmp(a, b, length) == 0;
}

/* Numbers the layers in the order of their first tensors; returns how many there are. */
static int find_layers(const char *const *names, const size_t *bytes, int n, int *layer,
                       size_t *of_layer) {
    int layers = 0;
    for (int i = 0; i < n; i++) {
        int before = 0;
        while (before < i && !same_layer(names[before], names[i])) before++;
        layer[i] = before < i ? layer[before] : layers++;
        if (before == i) of_layer[layer[i]] = 0;
        of_layer[layer[i]] += bytes[i];
    }
    return layers;
}

/* The fragment of each layer: one ends where it comes closest to an equal part of what is left, and
 * leaves a layer to each of those behind it. */
static void divide(const size_t *bytes, int layers, int fragments, int *fragment) {
    double left = 0, filled = 0;
    int f = 0;
    bool any = false; /* the fragment has a layer */
    for (int i = 0; i < layers; i++) left += (double)bytes[i];
    for (int i = 0; i < layers; i++) {
        const double target = left / (fragments - f), now = (double)bytes[i];
        const bool must = layers - i < fragments - f;
        if (any && f < fragments - 1 && (must || filled + now / 2 > target)) {
            left -= filled;
            filled = 0;
            f++;
        }
        fragment[i] = f;
        filled += now;
        any = true;
    }
}

kolo_status kolo_fragments_assign(const char *const *names, const size_t *bytes, int n,
                                  int fragments, bool strided, int *fragment) {
    const size_t room = (size_t)n + 1;
    int *layer = kolo_alloc(2 * room * sizeof *layer);
    size_t *of_layer = kolo_alloc(room * sizeof *of_layer);
    kolo_status status = layer && of_layer ? KOLO_OK : KOLO_NOMEM(room * sizeof *of_layer);
    if (status == KOLO_OK) {
        int *of = layer + room; /* by layer */
        const int layers = find_layers(names, bytes, n, layer, of_layer);
        if (layers < fragments) {
            status = KOLO_FAIL(KOLO_ERR_ARG,
                               "%d fragments of a model that has %d layer%s: give fewer fragments",
                               fragments, layers, layers == 1 ? "" : "s");
        } else {
            for (int l = 0; l < layers; l++) of[l] = l % fragments;
            if (!strided) divide(of_layer, layers, fragments, of);
            for (int i = 0; i < n; i++) fragment[i] = of[layer[i]];
        }
    }
    kolo_free(layer);
    kolo_free(of_layer);
    return status;
}
