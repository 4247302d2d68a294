#pragma once
/* Small nets of every shape of graph, with the inputs x and y, and plans of them. */
#include "plan/plan.h"
#include "support/support.h"

enum { CLASSES = 7, NETS = 9 };

typedef void (*net)(kolo_graph *g, int64_t batch);
typedef struct named_net {
    const char *name;
    net build;
} named_net;
extern const named_net nets[NETS];

kolo_value net_images(kolo_graph *g, int64_t batch, int64_t channels, int64_t size);
kolo_value net_labels(kolo_graph *g, int64_t batch);
kolo_value net_head(kolo_graph *g, kolo_value features, kolo_value labels);
void net_lenet(kolo_graph *g, int64_t batch);
void net_residual(kolo_graph *g, int64_t batch);
void net_mlp(kolo_graph *g, int64_t batch);
void net_norm(kolo_graph *g, int64_t batch);
void net_rows(kolo_graph *g, int64_t batch);
void net_rows_apart(kolo_graph *g, int64_t batch);

/* Compiles a plan of a net on a store. */
kolo_plan *net_compile(net build, int64_t batch, const kolo_plan_opts *opts, kolo_store *store);
/* Fills the inputs and scalars of a plan with numbers that depend on `step`. */
void net_fill(kolo_plan *plan, uint64_t step);
