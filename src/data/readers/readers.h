#pragma once
/* The table of readers, and their open functions. */

#include "data/dataset.h"

/* All readers, ended by a row without a name. */
extern const kolo_reader kolo_readers[];

kolo_reader_open kolo_read_mnist, kolo_read_synthetic, kolo_read_synthetic_seg;
kolo_reader_open kolo_read_tokens, kolo_read_synthetic_tokens;

/* Opens pairs of sentences from the tokens of `reader`, for models that require pairs. */
kolo_reader_open kolo_pairs_open;

/* Sets what all token data sets have in common: shapes and classes as the model requires. */
kolo_status kolo_tokens_describe(const kolo_reader *reader, kolo_dataset *dataset);
