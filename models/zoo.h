#pragma once
/* Every model of the zoo, each defined in the file of its name. */

#include "kolo/models.h"

extern const kolo_model kolo_model_lenet, kolo_model_mlp;
