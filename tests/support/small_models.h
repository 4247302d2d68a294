#pragma once
/* Small models of tokens with dropout, for `.model = ` in kolo_train_opts. Four divides their
 * sizes. */

#define SMALL_SIZES "layers=2,width=16,heads=4,context=8,vocab=48"
#define SMALL_GPT2 "gpt2_tiny", .model_options = SMALL_SIZES ",dropout=0.2"
#define SMALL_BERT "bert_tiny", .model_options = SMALL_SIZES ",mask=47,dropout=20"
