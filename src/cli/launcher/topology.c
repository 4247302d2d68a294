/* Binding and description by hwloc. */
#include "cli/launcher/topology.h"

#include "base/memory.h"

#include <hwloc.h>
#include <limits.h>
#include <stdio.h>

/* The topology of the processors available to this process; NULL if hwloc fails. */
static hwloc_topology_t load(void) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return NULL;
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    bool good = mine && hwloc_topology_load(topology) == 0;
    if (good && hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) == 0) {
        (void)hwloc_topology_restrict(topology, mine, 0); /* on failure: all allowed processors */
    }
    hwloc_bitmap_free(mine);
    if (good) return topology;
    hwloc_topology_destroy(topology);
    return NULL;
}

static void bind(int rank, int ranks, hwloc_cpubind_flags_t what) {
    hwloc_topology_t topology = load();
    if (!topology) return;
    int processors = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    hwloc_bitmap_t *shares = kolo_zalloc((size_t)ranks * sizeof(hwloc_bitmap_t));
    hwloc_obj_t machine = hwloc_get_root_obj(topology);
    if (shares && processors >= ranks &&
        hwloc_distrib(topology, &machine, 1, shares, (unsigned)ranks, INT_MAX, 0) == 0) {
        (void)hwloc_set_cpubind(topology, shares[rank], what);
        for (int r = 0; r < ranks; r++) hwloc_bitmap_free(shares[r]);
    }
    kolo_free((void *)shares);
    hwloc_topology_destroy(topology);
}

void topology_bind_thread(int rank, int ranks) { bind(rank, ranks, HWLOC_CPUBIND_THREAD); }
void topology_bind_process(int rank, int ranks) { bind(rank, ranks, HWLOC_CPUBIND_PROCESS); }

/* Appends "L2 1 MiB x 2" for the caches of one level, if any. */
static void add_cache(kolo_text *t, hwloc_topology_t topology, hwloc_obj_type_t type,
                      const char *name, bool *any) {
    int n = hwloc_get_nbobjs_by_type(topology, type);
    if (n < 1) return;
    double kib = (double)hwloc_get_obj_by_type(topology, type, 0)->attr->cache.size / 1024;
    kolo_text_add(t, "%s%s %.4g %s", *any ? ", " : "", name, kib < 1024 ? kib : kib / 1024,
                  kib < 1024 ? "KiB" : "MiB");
    if (n > 1) kolo_text_add(t, " x %d", n);
    *any = true;
}

void topology_describe(kolo_text *t, int width) {
    hwloc_topology_t topology = load();
    if (!topology) return;
    kolo_text_add(t, "%-*s%d packages, %d NUMA nodes, %d cores, %d hardware threads, %.1f GiB\n",
                  width, "machine", hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
                  hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
                  hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
                  hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU),
                  (double)hwloc_get_root_obj(topology)->total_memory / (1 << 30));
    bool any = false;
    kolo_text_add(t, "%-*s", width, "caches");
    add_cache(t, topology, HWLOC_OBJ_L1CACHE, "L1", &any);
    add_cache(t, topology, HWLOC_OBJ_L2CACHE, "L2", &any);
    add_cache(t, topology, HWLOC_OBJ_L3CACHE, "L3", &any);
    kolo_text_add(t, "%s\n", any ? "" : "unknown");
    hwloc_topology_destroy(topology);
}
