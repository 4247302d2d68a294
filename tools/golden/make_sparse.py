#!/usr/bin/env python3
"""Makes tests/golden/sparse_{sgd,adam}.safetensors: three steps of a small lstm_lm in PyTorch whose embedding
has sparse gradients (nn.Embedding(sparse=True)), by SGD, and by SparseAdam with Adam for all else.

    tools/golden/make_sparse.py

Needs PyTorch and NumPy (Debian: python3-torch). Initial parameters, and what the files hold, are as
in make_sequences.py; in addition there is the embedding itself after the last step, end_table f64 [vocab,width].
Tokens of one step are few of those of the next: most rows are touched once or never.
"""
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

from make_lenet import write_safetensors
from make_sequences import BATCH, STEPS, LstmLm, fill, next_token

VOCAB, WIDTH, LENGTH = 60, 12, 7


def make(name, settings):
    model = LstmLm(layers=1, hidden=WIDTH, width=WIDTH, vocab=VOCAB).double()
    model.encoder = nn.Embedding(VOCAB, WIDTH, sparse=True).double()
    fill(model)
    table = list(model.encoder.parameters())
    rest = [t for n, t in model.named_parameters() if not n.startswith("encoder")]
    if settings["optimizer"] == "adam":
        how = dict(lr=settings["lr"], betas=(settings["beta1"], settings["beta2"]), eps=settings["eps"])
        optimizers = [torch.optim.SparseAdam(table, **how), torch.optim.Adam(rest, **how)]
    else:
        optimizers = [torch.optim.SGD(table + rest, settings["lr"])]
    rng = np.random.default_rng(7)
    tokens = (rng.integers(0, 20, (STEPS, BATCH, LENGTH + 1)) + 15 * np.arange(STEPS)[:, None, None]).astype(np.int32)
    loss_of, losses = next_token(tokens), []
    for step in range(STEPS):
        model.zero_grad()
        loss, _ = loss_of(model, step)
        loss.backward()
        assert model.encoder.weight.grad.is_sparse
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    tensors = {"tokens": tokens, "losses": np.array(losses), "evaluated": np.array([loss_of(model, 0)[0].item()]),
               "end_table": model.encoder.weight.detach().numpy()}
    for parameter, t in model.named_parameters():
        t = t.detach()
        tensors[f"end.{parameter}"] = np.array([t.sum().item(), (t * t).sum().item()])
    metadata = {key: str(value) for key, value in settings.items()}
    metadata.update(options=f"layers=1,hidden={WIDTH}", vocab=str(VOCAB))
    write_safetensors(Path(__file__).parents[2] / f"tests/golden/{name}.safetensors", tensors, metadata)
    print(name, losses)


if __name__ == "__main__":
    make("sparse_sgd", dict(optimizer="sgd", lr=2.0))
    make("sparse_adam", dict(optimizer="adam", lr=0.05, beta1=0.9, beta2=0.99, eps=1e-4))
