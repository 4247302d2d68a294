/* The table of devices, and their names. */
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const kolo_device_kind *const kinds[] = {&kolo_device_cpu, &kolo_device_fake};

static kolo_status fail_name(const char *name) {
    if (strcmp(name, "cuda") == 0 || strncmp(name, "cuda:", 5) == 0) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "device %s: Kolo has no kernels and no collectives for CUDA: choose cpu",
                         name);
    }
    return KOLO_FAIL(KOLO_ERR_ARG, "device \"%s\": there is none of this name: choose auto or cpu",
                     name);
}

/* *number: -1 if the name has none. */
static kolo_status find(const char *name, const kolo_device_kind **kind, int *number) {
    if (!name || strcmp(name, "auto") == 0) name = kolo_device_cpu.name;
    *number = -1;
    for (size_t i = 0; i < KOLO_COUNT(kinds); i++) {
        const size_t length = strlen(kinds[i]->name);
        if (strncmp(name, kinds[i]->name, length) != 0) continue;
        *kind = kinds[i];
        if (name[length] == '\0') return KOLO_OK;
        char *end;
        const long n = name[length] == ':' ? strtol(name + length + 1, &end, 10) : -1;
        const bool digit =
            name[length] == ':' && name[length + 1] >= '0' && name[length + 1] <= '9';
        if (!digit || *end != '\0') break;
        if (n >= kinds[i]->count) {
            return KOLO_FAIL(KOLO_ERR_ARG, "device %s: there are %d, numbered from 0", name,
                             kinds[i]->count);
        }
        *number = (int)n;
        return KOLO_OK;
    }
    return fail_name(name);
}

kolo_status kolo_device_check(const char *name) {
    const kolo_device_kind *kind;
    int number;
    return find(name, &kind, &number);
}

bool kolo_device_is_apart(const char *name) {
    const kolo_device_kind *kind;
    int number;
    return find(name, &kind, &number) == KOLO_OK && !kind->host_memory;
}

kolo_status kolo_device_open(const char *name, int local_rank, kolo_device **device) {
    const kolo_device_kind *kind;
    int number;
    KOLO_TRY(find(name, &kind, &number));
    return kind->open(number >= 0 ? number : local_rank % kind->count, device);
}

void kolo_device_close(kolo_device *device) {
    if (device) device->kind->close(device);
}

static void describe(kolo_text *text, const kolo_device *device) {
    static const double gib = 1 << 30;
    const size_t total = device->kind->memory(device).total;
    kolo_text_add(text, "%s%s", text->length > 0 ? ", " : "", device->kind->name);
    if (device->kind->count > 1) kolo_text_add(text, ":%d", device->number);
    if (total > 0) kolo_text_add(text, " (%.1f GiB)", (double)total / gib);
}

kolo_status kolo_device_describe(kolo_text *text) {
    for (size_t i = 0; i < KOLO_COUNT(kinds); i++) {
        for (int n = 0; n < kinds[i]->count && !kinds[i]->hidden; n++) {
            kolo_device *device;
            KOLO_TRY(kinds[i]->open(n, &device));
            describe(text, device);
            kinds[i]->close(device);
        }
    }
    return KOLO_OK;
}

const char *kolo_device_text(const kolo_device *device, char text[KOLO_DEVICE_TEXT]) {
    (void)snprintf(text, KOLO_DEVICE_TEXT, "%s:%d", device->kind->name, device->number);
    return text;
}
