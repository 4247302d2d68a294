#pragma once
/* Training of a small convolutional network on Fashion-MNIST in the virtual time of a simulation
 * (tests/support/policy_sim.h): gradients are those of a session, and only the steps take time. */

#include "support/policy_sim.h"

typedef struct virtual_training virtual_training;

/* Opens the data and draws the parameters. `adapts`: as in kolo_parameters_opts; `mean_of`: that
 * many evaluations that follow each other have the accuracy in the mean. ARG, IO, NOMEM. */
kolo_status virtual_training_create(uint64_t seed, int workers, bool adapts, double accuracy,
                                    int mean_of, virtual_training **training);
void virtual_training_destroy(virtual_training *training);
/* For a simulation, which ends once the test accuracy is reached. Borrowed. */
const policy_sim_model *virtual_training_model(const virtual_training *training);
/* Evaluation i; false: there were fewer. */
bool virtual_training_evaluation(const virtual_training *training, int i, double *seconds,
                                 double *accuracy);
