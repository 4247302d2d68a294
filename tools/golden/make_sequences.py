#!/usr/bin/env python3
"""Makes tests/golden/{gpt2,lstm_lm}.safetensors: three steps of small models of tokens in PyTorch.

    tools/golden/make_sequences.py

Needs PyTorch and NumPy (Debian: python3-torch). Initial parameters come from one formula on both sides
and are not in the files: element i (from 0, in the order of a flattened tensor) of parameter number p
(from 0, in the order of their names) is

    base + scale (u - 1/2),  u = frac(sin(12.9898 i + 78.233 p + 0.5) 43758.5453)   in f64, stored as f32

with base 1 and scale 0.2 for names that end in "norm.weight" or hold "ln_", and end in "weight"; else 0
and 0.4. The files hold tokens i32 [3,batch,T+1], losses f64 [3], the loss of the first batch after the
last step, f64 [1], and under end.NAME a few sums of each parameter: its sum and its sum of squares; as
metadata the settings. It runs in f64, so that the numbers are no one processor's rounding.
"""
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_lenet import write_safetensors

STEPS, BATCH = 3, 4


class Gpt2Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = [z.reshape(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for z in self.attn.c_attn(self.ln_1(x)).split(c, 2)]
        scores = q @ k.transpose(-1, -2) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        o = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c)
        x = x + self.attn.c_proj(o)
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, context, vocab):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Gpt2Layer(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for layer in self.h:
            x = layer(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class LstmLm(nn.Module):
    def __init__(self, layers, hidden, width, vocab):
        super().__init__()
        self.encoder = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, ids):
        return self.decoder(self.rnn(self.encoder(ids))[0])


def fill(model):
    for p, (name, t) in enumerate(sorted(model.named_parameters())):
        i = np.arange(t.numel(), dtype=np.float64)
        u = np.sin(12.9898 * i + 78.233 * p + 0.5) * 43758.5453
        u -= np.floor(u)
        gain = name.endswith("weight") and ("ln_" in name or name.endswith("norm.weight"))
        values = (1 if gain else 0) + (0.2 if gain else 0.4) * (u - 0.5)
        with torch.no_grad():
            t.copy_(torch.from_numpy(values.astype(np.float32)).reshape(t.shape))


def make(name, model, options, length, vocab, settings):
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, vocab, (STEPS, BATCH, length + 1)).astype(np.int32)
    fill(model.double())
    matrices = [t for t in model.parameters() if t.dim() >= 2]
    vectors = [t for t in model.parameters() if t.dim() < 2]
    lr, decay = settings["lr"], settings["weight_decay"]
    if settings["optimizer"] == "adamw":
        optimizer = torch.optim.AdamW(
            [{"params": matrices}, {"params": vectors, "weight_decay": 0}], lr,
            betas=(settings["beta1"], settings["beta2"]), eps=settings["eps"], weight_decay=decay)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr, momentum=settings["momentum"],
                                    nesterov=True, weight_decay=decay)

    def loss_of(step):
        ids = torch.from_numpy(tokens[step]).long()
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), settings["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
    assert max(norms) > settings["clip"], "clipping must happen"
    tensors = {"tokens": tokens, "losses": np.array(losses),
               "evaluated": np.array([loss_of(0).item()])}
    for parameter, t in model.named_parameters():
        t = t.detach()
        tensors[f"end.{parameter}"] = np.array([t.sum().item(), (t * t).sum().item()])
    metadata = {key: str(value) for key, value in settings.items()}
    metadata.update(options=options, vocab=str(vocab),
                    made_by=f"tools/golden/make_sequences.py, torch {torch.__version__}")
    path = Path(__file__).resolve().parents[2] / f"tests/golden/{name}.safetensors"
    write_safetensors(path, tensors, metadata)
    print(path, path.stat().st_size, "bytes, losses", losses, "norms", norms)


def main():
    torch.set_num_threads(1)
    make("gpt2", Gpt2(2, 24, 3, 10, 17), "layers=2,width=24,heads=3,context=10,vocab=17", 10, 17,
         dict(optimizer="adamw", lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1, clip=0.5))
    make("lstm_lm", LstmLm(2, 12, 8, 19), "layers=2,hidden=12,width=8,context=9,vocab=19", 9, 19,
         dict(optimizer="nesterov", lr=4.0, momentum=0.9, weight_decay=0.01, clip=0.1))


if __name__ == "__main__":
    main()
