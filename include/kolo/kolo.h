#pragma once
/* All of Kolo's public interface. Programs that only synchronise buffers need kolo/comm.h alone. */

#include "kolo/bench.h"
#include "kolo/checkpoint.h"
#include "kolo/codec.h"
#include "kolo/comm.h"
#include "kolo/data.h"
#include "kolo/dtype.h"
#include "kolo/dump.h"
#include "kolo/graph.h"
#include "kolo/models.h"
#include "kolo/named.h"
#include "kolo/profile.h"
#include "kolo/reducer.h"
#include "kolo/sim.h"
#include "kolo/status.h"
#include "kolo/tensor.h"
#include "kolo/train.h"
