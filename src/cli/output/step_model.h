#pragma once
/* A prediction of a training step, as a table and as JSON. */

#include "kolo/step_model.h"

/* Prints the table and writes the JSON as output_result does. */
kolo_status step_model_report(const kolo_step_model *prediction, const char *model,
                              const char *json);
