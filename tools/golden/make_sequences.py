#!/usr/bin/env python3
"""Makes tests/golden/{gpt2,lstm_lm,bert}.safetensors: three steps of small models of tokens in PyTorch.

    tools/golden/make_sequences.py

Needs PyTorch and NumPy (Debian: python3-torch). Initial parameters come from one formula on both sides
and are not in the files: element i (from 0, in the order of a flattened tensor) of parameter number p
(from 0, in the order of their names) is

    base + scale (u - 1/2),  u = frac(sin(12.9898 i + 78.233 p + 0.5) 43758.5453)   in f64, stored as f32

with base 1 and scale 0.2 for names that end in "norm.weight" or "Norm.weight" or hold "ln_", and end in
"weight"; else 0 and 0.4. The files hold tokens i32 [3,batch,T+1], losses f64 [3], the loss of the first batch after the
last step, f64 [1], and under end.NAME a few sums of each parameter: its sum and its sum of squares; as
metadata the settings. bert's also have, of these four, the accuracies over hidden tokens, the next_losses
(which the losses contain) and the next_accuracies, f64 [4]; they are pairs of sentences, its file holds ids i32 [3,batch,T] and labels i32
[3,batch,T] as in kolo/data.h; masks are drawn as documented in src/graph/ops/ops.h (Philox4x32-10), with the
keys of a session's first three steps under seed 1. It runs in f64, so that the numbers are no one processor's rounding.
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


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention, self.intermediate, self.output = nn.Module(), nn.Module(), nn.Module()
        self.attention.self, self.attention.output = nn.Module(), nn.Module()
        self.attention.self.qkv = nn.Linear(width, 3 * width)
        self.attention.output.dense = nn.Linear(width, width)
        self.attention.output.LayerNorm = nn.LayerNorm(width, 1e-12)
        self.intermediate.dense, self.output.dense = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.output.LayerNorm = nn.LayerNorm(width, 1e-12)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = [z.reshape(n, t, self.heads, c // self.heads).transpose(1, 2)
                   for z in self.attention.self.qkv(x).split(c, 2)]
        o = (q @ k.transpose(-1, -2) / (c // self.heads) ** 0.5).softmax(-1) @ v
        o = self.attention.output.dense(o.transpose(1, 2).reshape(n, t, c))
        x = self.attention.output.LayerNorm(x + o)
        return self.output.LayerNorm(x + self.output.dense(F.gelu(self.intermediate.dense(x))))


class Bert(nn.Module):
    def __init__(self, layers, width, heads, context, vocab):
        super().__init__()
        self.bert, self.cls = nn.Module(), nn.Module()
        e = self.bert.embeddings = nn.Module()
        e.word_embeddings, e.position_embeddings = nn.Embedding(vocab, width), nn.Embedding(context, width)
        e.token_type_embeddings, e.LayerNorm = nn.Embedding(2, width), nn.LayerNorm(width, 1e-12)
        self.bert.encoder, self.bert.pooler = nn.Module(), nn.Module()
        self.bert.encoder.layer = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.bert.pooler.dense, self.cls.seq_relationship = nn.Linear(width, width), nn.Linear(width, 2)
        p = self.cls.predictions = nn.Module()
        p.transform = nn.Module()
        p.transform.dense, p.transform.LayerNorm = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        p.bias = nn.Parameter(torch.empty(vocab))

    def forward(self, ids, segments):
        e, p = self.bert.embeddings, self.cls.predictions
        x = e.LayerNorm(e.word_embeddings(ids) + e.position_embeddings.weight[: ids.shape[1]]
                        + e.token_type_embeddings(segments))
        for layer in self.bert.encoder.layer:
            x = layer(x)
        h = p.transform.LayerNorm(F.gelu(p.transform.dense(x)))
        pooled = torch.tanh(self.bert.pooler.dense(x[:, 0]))
        return F.linear(h, e.word_embeddings.weight, p.bias), self.cls.seq_relationship(pooled)


def philox(seed, stream, counter):
    """Philox4x32-10: Salmon et al., 2011."""
    c = [counter & 0xffffffff, counter >> 32, stream & 0xffffffff, stream >> 32]
    k0, k1 = seed & 0xffffffff, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k0, b & 0xffffffff, a >> 32 ^ c[3] ^ k1, a & 0xffffffff]
        k0, k1 = (k0 + 0x9E3779B9) & 0xffffffff, (k1 + 0xBB67AE85) & 0xffffffff
    return c


# The random-number keys of three steps under seed 1, XXH3 of (seed, step) as two u64, and that of evaluation.
KEYS = [0x26f2a1148cf52011, 0x6ca7f978e15828a6, 0x07ee86c281446bef, 0]
MASK_STREAM = 9 << 56


def hide(ids, labels, key, count, mask, vocab):
    """Masked ids and their targets, -1 where there is none."""
    masked, targets = ids.copy(), np.full_like(ids, -1)
    length = ids.shape[1]
    for n in range(len(ids)):
        for k in range(count):
            four = philox(key, MASK_STREAM, n * count + k)
            begin, end = length * k // count, length * (k + 1) // count
            at = four[0] * (end - begin) >> 32
            places = [begin + (at + i) % (end - begin) for i in range(end - begin)]
            place = next((p for p in places if labels[n, p] >= 0), None)
            if place is None:
                continue
            targets[n, place] = ids[n, place]
            tenth = four[1] * 10 >> 32
            if tenth < 8:
                masked[n, place] = mask
            elif tenth == 8:
                masked[n, place] = four[2] * vocab >> 32
    return masked, targets


def pairs(rng, length, vocab, cls, sep):
    """Ids and labels [STEPS,BATCH,length] of pairs, every second of which is none."""
    ids = rng.integers(0, vocab - 3, (STEPS, BATCH, length)).astype(np.int32)
    labels = np.zeros_like(ids)
    front = (length - 3) // 2
    labels[:, :, front + 2:] = 1
    labels[:, 1::2] += 2
    for place, token in (0, cls), (front + 1, sep), (length - 1, sep):
        ids[:, :, place] = token
        labels[:, :, place] = -2 - labels[:, :, place]
    return ids, labels


def fill(model):
    for p, (name, t) in enumerate(sorted(model.named_parameters())):
        i = np.arange(t.numel(), dtype=np.float64)
        u = np.sin(12.9898 * i + 78.233 * p + 0.5) * 43758.5453
        u -= np.floor(u)
        gain = name.endswith("weight") and ("ln_" in name or name.lower().endswith("norm.weight"))
        values = (1 if gain else 0) + (0.2 if gain else 0.4) * (u - 0.5)
        with torch.no_grad():
            t.copy_(torch.from_numpy(values.astype(np.float32)).reshape(t.shape))


def next_token(tokens):
    """The loss of a step of tokens [STEPS,BATCH,T+1], and no other figures."""
    def loss_of(model, step):
        ids = torch.from_numpy(tokens[step % STEPS]).long()
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()), {}
    return loss_of


def masked_pairs(ids, labels, count, mask, vocab):
    """The loss of a step of pairs, and of what it consists."""
    def loss_of(model, step):
        masked, targets = hide(ids[step % STEPS], labels[step % STEPS], KEYS[step], count, mask, vocab)
        codes = np.where(labels[step % STEPS] < 0, -2 - labels[step % STEPS], labels[step % STEPS])
        logits, second = model(torch.from_numpy(masked).long(), torch.from_numpy(codes % 2).long())
        logits, targets = logits.flatten(0, 1), torch.from_numpy(targets).long().flatten()
        other = torch.from_numpy(codes[:, 0] // 2).long()
        next_loss = F.cross_entropy(second, other)
        figures = dict(accuracies=(logits.argmax(1) == targets)[targets >= 0].double().mean(), next_losses=next_loss,
                       next_accuracies=(second.argmax(1) == other).double().mean())
        return F.cross_entropy(logits, targets, ignore_index=-1) + next_loss, {k: v.item() for k, v in figures.items()}
    return loss_of


def make(name, model, options, inputs, loss_of, vocab, settings):
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

    losses, norms, figures = [], [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, more = loss_of(model, step)
        loss.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), settings["clip"]).item())
        optimizer.step()
        losses.append(loss.item())
        figures.append(more)
    assert max(norms) > settings["clip"], "clipping must happen"
    evaluated, more = loss_of(model, STEPS)
    figures.append(more)
    tensors = {**inputs, "losses": np.array(losses), "evaluated": np.array([evaluated.item()]),
               **{key: np.array([f[key] for f in figures]) for key in more}}
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

    def tokens(length, vocab):
        return np.random.default_rng(1).integers(0, vocab, (STEPS, BATCH, length + 1)).astype(np.int32)
    make("gpt2", Gpt2(2, 24, 3, 10, 17), "layers=2,width=24,heads=3,context=10,vocab=17",
         {"tokens": (t := tokens(10, 17))}, next_token(t), 17,
         dict(optimizer="adamw", lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1, clip=0.5))
    make("lstm_lm", LstmLm(2, 12, 8, 19), "layers=2,hidden=12,width=8,context=9,vocab=19",
         {"tokens": (t := tokens(9, 19))}, next_token(t), 19,
         dict(optimizer="nesterov", lr=4.0, momentum=0.9, weight_decay=0.01, clip=0.1))
    ids, labels = pairs(np.random.default_rng(2), 12, 23, cls=20, sep=21)
    make("bert", Bert(2, 24, 3, 12, 23),
         "layers=2,width=24,heads=3,context=12,vocab=23,mask=22,percent=34,nsp=1,cls=20,sep=21",
         {"ids": ids, "labels": labels}, masked_pairs(ids, labels, count=3, mask=22, vocab=23), 23,
         dict(optimizer="adamw", lr=0.01, beta1=0.8, beta2=0.95, eps=1e-6, weight_decay=0.1, clip=0.5))


if __name__ == "__main__":
    main()
