/* Loads the library that links UCX. */
#include "comm/transport/ucx/library.h"

#include "base/compiler.h"
#include "base/status.h"
#include "kolo/comm.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>

/* When it is loaded UCX installs handlers for crash signals, which print a backtrace. They are
 * removed, unless the user has set UCX's own variable: the program decides on its handlers. */
static void *load_quietly(const char *file) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    struct sigaction before[KOLO_COUNT(signals)];
    for (size_t i = 0; i < KOLO_COUNT(signals); i++) sigaction(signals[i], NULL, &before[i]);
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool wanted = getenv("UCX_HANDLE_ERRORS") != NULL;
    for (size_t i = 0; i < KOLO_COUNT(signals) && !wanted; i++) {
        sigaction(signals[i], &before[i], NULL);
    }
    return library;
}

kolo_status kolo_ucx_load(const kolo_ucx_ops **ops) {
    void *library = load_quietly("libkolo-ucx.so");
    const kolo_ucx_ops *found = library ? dlsym(library, "kolo_ucx_table") : NULL;
    if (!found) {
        return KOLO_FAIL(KOLO_ERR_UNSUPPORTED,
                         "transport ucx is not available (%s): install libucx-dev and rebuild "
                         "Kolo",
                         dlerror());
    }
    if (found->version != KOLO_UCX_VERSION) {
        return KOLO_FAIL(
            KOLO_ERR_UNSUPPORTED,
            "libkolo-ucx.so is from another build of Kolo (version %d, not %d): install "
            "both from the same build",
            found->version, KOLO_UCX_VERSION);
    }
    *ops = found;
    return KOLO_OK;
}

bool kolo_comm_has_ucx(void) {
    const kolo_ucx_ops *ops;
    return kolo_ucx_load(&ops) == KOLO_OK;
}
