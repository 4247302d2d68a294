#pragma once
/* Config files: a YAML mapping from option names to values. */

#include "base/option.h"

/* Reads a config file. Its values give way to those of the command line. ARG names file, line and
 * column. */
kolo_status config_read(kolo_options *o, const char *path);
/* Reads the config.yaml of the run that --resume names, by its folder or by a checkpoint in it, and
 * sets --out to that folder. NULL and "latest" name no run. */
kolo_status config_read_run(kolo_options *o, const char *resume);
