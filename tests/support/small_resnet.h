#pragma once
/* resnet8: resnet20 with one block in each stage instead of three. It has what tests need of that
 * model, such as running statistics, shortcuts and strides, and plans that compile in a third of
 * the time. */

/* Registers the model, once in a process; returns its name. Not for several threads at once. */
const char *small_resnet(void);
