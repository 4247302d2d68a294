/* kolo info: the build, the machine, and the libraries in use. */
#include "base/isa.h"
#include "base/process.h"
#include "cli/commands/commands.h"
#include "cli/launcher/error_report.h"
#include "cli/launcher/topology.h"
#include "cli/output/output.h"
#include "kolo/comm.h"
#include "kolo/dump.h"

#include <hwloc.h>
#include <jansson.h>
#include <libfyaml.h>
#include <stdio.h>
#include <string.h>

enum { NAME_WIDTH = 18 };

static void add_row(kolo_text *t, const char *name, const char *value) {
    kolo_text_add(t, "%-*s%s\n", NAME_WIDTH, name, value);
}

static void add_processor_name(kolo_text *t) {
    kolo_text name = {0};
    kolo_processor_name(&name);
    if (name.length > 0 && !name.failed) add_row(t, "processor", name.text);
    kolo_text_fini(&name);
}

static void add_kernels(kolo_text *t) {
    add_row(t, "instruction set", kolo_isa_describe(kolo_isa_best())->label);
    char *kernels; /* the kernel set and the version of oneDNN */
    if (kolo_dump_kernels(&kernels) != KOLO_OK) return;
    add_row(t, "kernels", kernels);
    kolo_dump_free(kernels);
}

static void add_devices(kolo_text *t) {
    char *devices;
    if (kolo_dump_devices(&devices) != KOLO_OK) return;
    add_row(t, "devices", devices);
    kolo_dump_free(devices);
}

static void add_precision(kolo_text *t) {
    const char *without = kolo_isa_best() == KOLO_ISA_BASELINE
                              ? "unsupported: requires AVX2 or AVX-512, or the reference kernels"
                              : "stored in bf16, computed in f32: saves memory";
    add_row(t, "bf16",
            kolo_dump_has_bf16()
                ? "convolutions and linear layers compute in bf16: saves memory and time"
                : without);
}

static void add_libraries(kolo_text *t) {
    unsigned hwloc = hwloc_get_api_version();
    kolo_text_add(t, "%-*slibkolo %s, jansson %s, libfyaml %s, hwloc API %u.%u\n", NAME_WIDTH,
                  "libraries", kolo_version(), jansson_version_str(), fy_library_version(),
                  hwloc >> 16, hwloc >> 8 & 255);
}

static void add_communication(kolo_text *t) {
    add_row(t, "started by", kolo_comm_launchers());
    add_row(
        t, "transports",
        "shm between processes, tcp between hosts, thread between threads; mpi under mpirun, if "
        "built with its MPI library");
    add_row(t, "",
            kolo_comm_has_ucx()
                ? "ucx and shm+ucx"
                : "ucx unavailable: UCX is not installed, or libucx-dev was missing at build time");
    for (int i = KOLO_ALGORITHM_AUTO + 1; i < KOLO_ALGORITHM_COUNT; i++) {
        kolo_algorithm a = (kolo_algorithm)i;
        kolo_text_add(t, "%-*s%s: %s\n", NAME_WIDTH, i == 1 ? "algorithms" : "",
                      kolo_algorithm_name(a), kolo_algorithm_description(a));
    }
}

int cmd_info(kolo_options *o) {
    kolo_text t = {0};
    add_row(&t, "kolo", kolo_version());
    add_row(&t, "compiler", __VERSION__);
    add_processor_name(&t);
    add_kernels(&t);
    add_precision(&t);
    add_devices(&t);
    topology_describe(&t, NAME_WIDTH);
    kolo_text_add(&t, "%-*s%d\n", NAME_WIDTH, "usable processors", kolo_processors());
    add_communication(&t);
    add_libraries(&t);
    kolo_status status = output_print(&t);
    kolo_text_fini(&t);
    return status == KOLO_OK ? 0 : report_failure(status);
}
