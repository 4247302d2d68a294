#pragma once
/* A causal language model that reads a text token by token: the keys and values of earlier tokens
 * are kept (pass/cache.h). One text at a time. */

#include "train/session/session.h"

typedef struct kolo_decoder kolo_decoder;

/* Builds the model for single tokens and compiles it; parameters are zero. The windows of the
 * configuration are the most tokens of a text; of its other fields it reads the model, the data
 * types and the options of plans. ARG: a layer of the model needs several tokens, with the name of
 * the op. The errors of kolo_plan_compile. */
kolo_status kolo_decoder_create(const kolo_session_config *config, kolo_decoder **decoder);
void kolo_decoder_destroy(kolo_decoder *decoder);
/* The parameters; borrowed. */
kolo_store *kolo_decoder_store(const kolo_decoder *decoder);
/* Reads n tokens, the first of which has position `first`; those before it were read by earlier
 * calls, and those behind are forgotten. With `first` 0 a new text begins. Sets *logits to those
 * behind the last of the n tokens, [classes] of the type of the model, valid until the next call.
 * Compiles a plan for another n than before. The errors of kolo_plan_compile. */
kolo_status kolo_decoder_read(kolo_decoder *decoder, const int32_t *tokens, int64_t n,
                              int64_t first, const void **logits);
