#pragma once
/* The functions of the commands; each is in its own file. They return the exit status. */

#include "base/option.h"
#include "cli/options/command_list.h"

#define CLI_COMMAND_DECLARE(bit, run, name, arguments, summary) int run(kolo_options *o);
CLI_COMMAND_LIST(CLI_COMMAND_DECLARE)
#undef CLI_COMMAND_DECLARE
