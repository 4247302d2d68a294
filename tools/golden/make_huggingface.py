#!/usr/bin/env python3
"""Writes small Hugging Face networks as their users export them, and their outputs for some tokens.

    tools/golden/make_huggingface.py write DIR
    tools/golden/make_huggingface.py check MODEL FILE

The first writes DIR/huggingface_{gpt2,bert}.safetensors, the state_dict of a GPT2LMHeadModel and of a
BertForPreTraining with all that it names, tied tensors twice, and beside each .logits: what the
network makes of the tokens (7 i + 3) mod V of a batch [2,8], in evaluation (raw f32; then, for bert, the two
logits of each window for the next sentence, its second half being one). The second loads a file
into such a network, which must find all that it does not tie, and compares the tensors with those
that it was made from, bitwise. Needs transformers (4.30.2 runs on Debian's python3-torch).
"""
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

from make_torchvision import read, save

VOCAB, CONTEXT, BATCH, LENGTH = 17, 8, 2, 8


def build(name):
    torch.manual_seed(3)
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2,
                                         initializer_range=0.3)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.BertConfig(vocab_size=VOCAB, max_position_embeddings=CONTEXT, hidden_size=16,
                                         num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                         initializer_range=0.3)
        model = transformers.BertForPreTraining(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def state_of(model):
    return {name: t.numpy() for name, t in model.state_dict().items() if t.dtype in (torch.float32, torch.int64)}


def logits_of(name, model):
    ids = torch.from_numpy((7 * np.arange(BATCH * LENGTH) + 3) % VOCAB).reshape(BATCH, LENGTH)
    model = model.double()
    with torch.no_grad():
        if name == "gpt2":
            return model(ids).logits.flatten()
        segments = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(BATCH, LENGTH)
        plain, pairs = model(ids), model(ids, token_type_ids=segments)
        return torch.cat([plain.prediction_logits.flatten(), pairs.prediction_logits.flatten(),
                          pairs.seq_relationship_logits.flatten()])


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "write":
        for name in "gpt2", "bert":
            model, path = build(name), Path(sys.argv[2]) / f"huggingface_{name}.safetensors"
            save(path, state_of(model))
            path.with_suffix(".logits").write_bytes(logits_of(name, model).numpy().astype(np.float32).tobytes())
        return
    name, path = sys.argv[2:]
    should, model = state_of(build(name)), build(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    result = model.load_state_dict(read(Path(path)), strict=False)
    tied = {"lm_head.weight", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias",
            "bert.embeddings.position_ids"}
    if result.unexpected_keys or set(result.missing_keys) - tied:
        sys.exit(f"{path}: {result}")
    for key, array in state_of(model).items():
        if not np.array_equal(array, should[key]):
            sys.exit(f"{key} differs")


if __name__ == "__main__":
    main()
