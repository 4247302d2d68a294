/* The table of transports: names, descriptions and networks by KOLO_TRANSPORT_LIST. */
#include "comm/transport/network.h"

#include "base/compiler.h"
#include "base/status.h"

#include <string.h>

/* All ranks must be on one host. */
static const kolo_network kolo_network_none = {0};

#define EXTERN(code, memory, network, name, description) \
    extern const kolo_network kolo_network_##network;
KOLO_TRANSPORT_LIST(EXTERN)
#undef EXTERN

static const kolo_transport_info infos[] = {
#define INFO(code, memory_, network_, name_, description_) \
    {.name = (name_),                                      \
     .description = (description_),                        \
     .memory = (memory_),                                  \
     .network = &kolo_network_##network_},
    KOLO_TRANSPORT_LIST(INFO)
#undef INFO
};

static const char *const names[] = {
#define NAME(code, memory, network, name, description) name,
    KOLO_TRANSPORT_LIST(NAME) NULL,
#undef NAME
};

const kolo_transport_info *kolo_transport_info_of(kolo_transport_choice choice) {
    KOLO_ASSERT((size_t)choice < KOLO_TRANSPORT_COUNT);
    return &infos[choice];
}

kolo_status kolo_transport_parse(const char *name, kolo_transport_choice *choice) {
    if (!name) return KOLO_FAIL(KOLO_ERR_ARG, "missing transport name");
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *choice = (kolo_transport_choice)i;
            return KOLO_OK;
        }
    }
    const char *closest = kolo_closest(name, names);
    if (closest) {
        return KOLO_FAIL(KOLO_ERR_ARG, "unknown transport '%s': did you mean '%s'?", name, closest);
    }
#define SPACE_NAME(code, memory, network, name, description) " " name
    return KOLO_FAIL(KOLO_ERR_ARG,
                     "unknown transport '%s': choose one of:" KOLO_TRANSPORT_LIST(SPACE_NAME),
                     name);
#undef SPACE_NAME
}

const char *kolo_transport_name(kolo_transport_choice choice) {
    return (size_t)choice < KOLO_TRANSPORT_COUNT ? names[choice] : "unknown";
}
