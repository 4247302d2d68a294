#pragma once
/* The reference recipe of a model (kolo/models.h): values of options that the user does not
 * give. */

#include "base/option.h"

/* Sets the options of the recipe of --model that neither the command line nor a file gives. No
 * effect with --no-recipe, and if the job continues a run that began without. *line lists what was
 * set, in the options' arena; NULL: nothing. ARG: unknown model. */
kolo_status recipe_apply(kolo_options *o, const char **line);
