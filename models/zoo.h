#pragma once
/* Every model of the zoo, each defined in the file of its name. */

#include "kolo/models.h"

extern const kolo_model kolo_model_lenet, kolo_model_mlp, kolo_model_alexnet, kolo_model_vgg16;
extern const kolo_model kolo_model_googlenet, kolo_model_deeplabv3_resnet101;
extern const kolo_model kolo_model_resnet18, kolo_model_resnet20, kolo_model_resnet34;
extern const kolo_model kolo_model_resnet50, kolo_model_resnet101;
extern const kolo_model kolo_model_lstm_lm;
extern const kolo_model kolo_model_gpt2, kolo_model_gpt2_tiny, kolo_model_gpt2_medium;
extern const kolo_model kolo_model_gpt2_large, kolo_model_gpt2_xl;
extern const kolo_model kolo_model_bert_tiny, kolo_model_bert_mini, kolo_model_bert_small;
extern const kolo_model kolo_model_bert_medium, kolo_model_bert_base, kolo_model_bert_large;
