#pragma once
/* Options of communicators. The command's own defaults are the presets of cli/options/options.c. */

#include "kolo/comm.h"

/* Checks the options and fills in the defaults. ARG. */
kolo_status kolo_comm_resolve(const kolo_comm_opts *opts, kolo_comm_opts *resolved);
