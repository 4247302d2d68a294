#pragma once
/* The options of all commands. */

#include "base/option.h"

extern const kolo_option cli_options[];
extern const size_t cli_n_options;
