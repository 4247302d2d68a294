/* kolo info: what this build is, what it runs on, what it stands on. */
#include "base/process.h"
#include "cli/cli.h"

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

static void add_instruction_sets(kolo_text *t) {
    kolo_text_add(t, "%-18s", "instruction sets");
#if defined(__x86_64__)
    const struct {
        const char *name;
        int there;
    } sets[] = {
        {"avx2", __builtin_cpu_supports("avx2")},
        {"fma", __builtin_cpu_supports("fma")},
        {"avx512f", __builtin_cpu_supports("avx512f")},
        {"avx512bw", __builtin_cpu_supports("avx512bw")},
        {"avx512vl", __builtin_cpu_supports("avx512vl")},
        {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
    };
    kolo_text_add(t, "sse2");
    for (size_t i = 0; i < KOLO_COUNT(sets); i++) {
        if (sets[i].there) kolo_text_add(t, " %s", sets[i].name);
    }
#else
    kolo_text_add(t, "baseline");
#endif
    kolo_text_add(t, "\n");
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

int cmd_info(kolo_options *o) {
    kolo_text t = {0};
    add_row(&t, "kolo", kolo_version());
    add_row(&t, "compiler", __VERSION__);
    add_processor_name(&t);
    add_instruction_sets(&t);
    add_machine(&t);
    kolo_text_add(&t, "%-18s%d\n", "usable processors", kolo_processors());
    add_libraries(&t);
    kolo_status status = cli_print(&t);
    kolo_text_fini(&t);
    return status == KOLO_OK ? 0 : cli_fail(status);
}
