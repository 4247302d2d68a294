/* kolo info: what this build is, what it runs on, what it stands on. */
#include "base/isa.h"
#include "base/process.h"
#include "cli/cli.h"
#include "kolo/comm.h"

#include <hwloc.h>
#include <jansson.h>
#include <libfyaml.h>
#include <stdio.h>
#include <string.h>

static void add_row(kolo_text *t, const char *name, const char *value) {
    kolo_text_add(t, "%-18s%s\n", name, value);
}

/* "model name : AMD EPYC ..." of /proc/cpuinfo. */
static void add_processor_name(kolo_text *t) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = '\0';
        add_row(t, "processor", colon + 2);
        break;
    }
    if (file) fclose(file);
}

static void add_kernels(kolo_text *t) {
    static const char *const sets[] = {
        [KOLO_ISA_BASELINE] = "baseline", [KOLO_ISA_AVX2] = "AVX2", [KOLO_ISA_AVX512] = "AVX-512"};
    add_row(t, "instruction set", sets[kolo_isa_best()]);
}

static void add_machine(kolo_text *t) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        hwloc_obj_t machine = hwloc_get_root_obj(topology);
        kolo_text_add(t, "%-18s%d cores, %d hardware threads, %d NUMA nodes, %.1f GiB\n", "machine",
                      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
                      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU),
                      hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
                      (double)machine->total_memory / (1 << 30));
    }
    hwloc_topology_destroy(topology);
}

static void add_libraries(kolo_text *t) {
    unsigned hwloc = hwloc_get_api_version();
    kolo_text_add(t, "%-18slibkolo %s, jansson %s, libfyaml %s, hwloc API %u.%u\n", "libraries",
                  kolo_version(), jansson_version_str(), fy_library_version(), hwloc >> 16,
                  hwloc >> 8 & 255);
}

static void add_communication(kolo_text *t) {
    add_row(t, "transports", "shm between processes, thread between threads");
    kolo_text_add(t, "%-18s%s, %s\n", "algorithms", kolo_algorithm_name(KOLO_ALGORITHM_RING),
                  kolo_algorithm_name(KOLO_ALGORITHM_DIRECT));
}

int cmd_info(kolo_options *o) {
    kolo_text t = {0};
    add_row(&t, "kolo", kolo_version());
    add_row(&t, "compiler", __VERSION__);
    add_processor_name(&t);
    add_kernels(&t);
    add_machine(&t);
    kolo_text_add(&t, "%-18s%d\n", "usable processors", kolo_processors());
    add_communication(&t);
    add_libraries(&t);
    kolo_status status = cli_print(&t);
    kolo_text_fini(&t);
    return status == KOLO_OK ? 0 : cli_fail(status);
}
