#pragma once
/* The list of models: a row X(name) declares kolo_model_<name>, defined in this folder. */

#include "kolo/models.h"

#define KOLO_MODEL_LIST(X) \
    X(lenet)               \
    X(mlp)                 \
    X(resnet20)            \
    X(resnet18)            \
    X(resnet34)            \
    X(resnet50)            \
    X(resnet101)           \
    X(alexnet)             \
    X(vgg16)               \
    X(googlenet)           \
    X(mobilenet_v2)        \
    X(densenet121)         \
    X(vit_b_16)            \
    X(vit_tiny)            \
    X(deeplabv3_resnet101) \
    X(unet)                \
    X(lstm_lm)             \
    X(gpt2)                \
    X(gpt2_tiny)           \
    X(gpt2_medium)         \
    X(gpt2_large)          \
    X(gpt2_xl)             \
    X(gpt2_moe)            \
    X(llama)               \
    X(llama_tiny)          \
    X(bert_tiny)           \
    X(bert_mini)           \
    X(bert_small)          \
    X(bert_medium)         \
    X(bert_base)           \
    X(bert_large)          \
    X(dlrm)                \
    X(fasttext)

#define KOLO_MODEL_DECLARE(name) extern const kolo_model kolo_model_##name;
KOLO_MODEL_LIST(KOLO_MODEL_DECLARE)
#undef KOLO_MODEL_DECLARE
