#pragma once
/* The cost model from which `auto` chooses an allreduce algorithm.
 *
 * The time is steps * step_us + volume * MiB * mib_us (alpha-beta model; Thakur, Rabenseifner,
 * Gropp, "Optimization of collective communication operations in MPICH", 2005). steps and volume
 * follow from the algorithm and the group (kolo_algorithm_info); the constants step_us and mib_us
 * are built in or measured. mib_us includes the reduction. */

#include "comm/schedule/algorithms.h"

typedef struct kolo_comm_costs {
    kolo_comm_cost of[KOLO_ALGORITHM_COUNT];
} kolo_comm_costs;

/* Constants for ranks that share memory (`windows`), or for a network of 10 Gbit/s. */
kolo_comm_costs kolo_comm_costs_builtin(bool windows);
double kolo_comm_cost_us(const kolo_comm_costs *costs, kolo_algorithm algorithm, int n, int hosts,
                         size_t bytes);
/* The cheapest usable algorithm (kolo_algorithm_usable). */
kolo_algorithm kolo_comm_costs_choose(const kolo_comm_costs *costs, bool windows, int n, int hosts,
                                      size_t bytes);

/* The file of constants has lines "transport algorithm step_us mib_us". Reading replaces the
 * constants that the file has for the transport. IO; FORMAT, with the line number. Writing keeps
 * the lines of other transports. */
kolo_status kolo_comm_costs_read(const char *path, const char *transport, kolo_comm_costs *costs);
kolo_status kolo_comm_costs_write(const char *path, const char *transport,
                                  const kolo_comm_costs *costs);
