#!/usr/bin/env python3
"""Makes tests/golden/models.json: networks of torchvision and Hugging Face, made small, in f64.

    tools/golden/make_models.py [FILE]
    tools/golden/make_models.py weights PREFIX MODEL...

Needs PyTorch, torchvision and transformers. Weights, images, tokens and labels are drawn as make_zoo.py
draws them, keyed by the names of tensors, so the file holds for each network:

    parameters  their number in the network's full size
    logits      of the first batch in training: norm, and sum under the probe's draws
    gradients   of its mean loss, by the name of the parameter: the same two numbers
    losses      of five steps; evaluated: the loss of the first batch after them, in evaluation
    rounding    how far these are off when PyTorch computes in f32, by max(1, the number)

The second form writes PREFIXMODEL.safetensors, the state_dict, and PREFIXMODEL.logits (raw f32) of the first
batch in evaluation: tests/golden/models_ has those of llama and vit_b_16.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as zoo
from transformers import LlamaConfig, LlamaForCausalLM

import make_zoo
from make_zoo import CLASSES, MEAN, MOMENTUM, STD, WEIGHT_DECAY, bits, draw, start_of, uniform

STEPS, BATCH, VOCABULARY = 5, 4, 17
TABLES, ROWS, DENSE = 9, 6, 3
FEATURES, NONE = 7, 3  # ids of labelled texts are from -NONE, and without a feature below 0


class UNet(nn.Module):
    """github.com/milesial/Pytorch-UNet without bilinear, by its parameter names."""

    @staticmethod
    def pair(inputs, outputs):
        m = nn.Module()
        m.double_conv = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())
        m.forward = m.double_conv.forward
        return m

    def __init__(self, width, classes):
        super().__init__()
        self.inc = self.pair(3, width)
        for i in range(4):
            down, up = nn.Module(), nn.Module()
            down.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), self.pair(width << i, width << i + 1))
            setattr(self, f"down{i + 1}", down)
            wide = width << 4 - i
            up.up, up.conv = nn.ConvTranspose2d(wide, wide // 2, 2, 2), self.pair(wide, wide // 2)
            setattr(self, f"up{i + 1}", up)
        self.outc = nn.Module()
        self.outc.conv = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        levels = [self.inc(x)]
        for i in range(4):
            levels.append(getattr(self, f"down{i + 1}").maxpool_conv(levels[-1]))
        x = levels.pop()
        for i in range(4):
            up = getattr(self, f"up{i + 1}")
            x = up.conv(torch.cat([levels.pop(), up.up(x)], 1))
        return self.outc.conv(x)


class Llama(nn.Module):
    """LlamaForCausalLM with all sums in the dtype of its parameters: Hugging Face's has f32 inside. Checked
    against that when it is made."""

    def __init__(self, size, tied):
        super().__init__()
        self.reference, self.tied, self.heads = huggingface(size, tie_word_embeddings=tied), tied, size["heads"]

    def norm(self, m, x):
        return m.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))

    def rotate(self, x):
        t, d = x.shape[-2:]
        angle = torch.arange(t, dtype=x.dtype)[:, None] / 10000 ** (torch.arange(0, d, 2, dtype=x.dtype) / d)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def forward(self, ids):
        m, (n, t) = self.reference.model, ids.shape
        x = m.embed_tokens(ids)
        for layer in m.layers:
            a, h = layer.self_attn, self.norm(layer.input_layernorm, x)
            q, k, v = [p(h).view(n, t, -1, a.head_dim).transpose(1, 2) for p in (a.q_proj, a.k_proj, a.v_proj)]
            k, v = [z.repeat_interleave(self.heads // z.shape[1], 1) for z in (self.rotate(k), v)]
            scores = self.rotate(q) @ k.transpose(-1, -2) / a.head_dim ** 0.5
            scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
            x = x + a.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
            h = self.norm(layer.post_attention_layernorm, x)
            x = x + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(h)) * layer.mlp.up_proj(h))
        logits = F.linear(self.norm(m.norm, x), self.reference.lm_head.weight)
        assert torch.allclose(self.reference(ids).logits, logits, rtol=1e-5, atol=1e-5)
        return logits.flatten(0, 1)

    def named_parameters(self, **opts):
        return self.reference.named_parameters(**opts)

    def state_dict(self):
        return self.reference.state_dict()

    def load_state_dict(self, state):
        self.reference.load_state_dict(state)


class Dlrm(nn.Module):
    """facebookresearch/dlrm by its parameter names, but with all tables in one, one below the other."""

    def __init__(self, tables, rows, dim, bottom, top):
        super().__init__()
        self.emb = nn.Embedding(tables * rows, dim)
        pairs = (1 + tables) * tables // 2
        self.bot_l, self.top_l = self.stack([*bottom, dim]), self.stack([dim + pairs, *top, 1])[:-1]

    @staticmethod
    def stack(sizes):
        return nn.Sequential(*(m for a, b in zip(sizes, sizes[1:]) for m in (nn.Linear(a, b), nn.ReLU())))

    def forward(self, x):
        numbers, ids = x
        x = self.bot_l(numbers)
        vectors = torch.cat([x[:, None], self.emb(ids)], 1)
        i, j = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
        return self.top_l(torch.cat([x, (vectors @ vectors.transpose(1, 2))[:, i, j]], 1))


class Fasttext(nn.Module):
    """Sums of rows, times the reciprocal of the number of features, and a linear layer."""

    def __init__(self, rows, width, classes):
        super().__init__()
        self.emb, self.output = nn.Embedding(rows, width), nn.Linear(width, classes, bias=False)

    def forward(self, x):
        scale, ids = x
        rows = self.emb(ids.clamp(min=0)) * (ids >= 0)[:, :, None]
        return self.output(rows.sum(1) * scale)


def huggingface(size, **opts):
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=size["vocab"], hidden_size=size["width"], intermediate_size=size["mlp"],
        num_hidden_layers=size["layers"], num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"], rms_norm_eps=1e-5, attn_implementation="eager", **opts))


def count(model):
    return sum(p.numel() for p in model.parameters())


def cases():
    """Settings, the small network, the number of parameters of the full one."""
    def case(model, options, sample, lr, net, full):
        return dict(model=model, options=options, sample=sample, batch=BATCH, lr=lr, parameters=full), net

    with torch.device("meta"):
        full = [count(m) for m in (zoo.mobilenet_v2(), zoo.densenet121(), zoo.vit_b_16(), UNet(64, 2), huggingface(
            dict(vocab=32000, width=2048, mlp=5632, layers=22, heads=32, kv_heads=4)),
            Dlrm(26, 10000, 16, (13, 512, 256, 64), (512, 256)), Fasttext(1000000, 10, 10))]
    yield case("mobilenet_v2", "width=25,dropout=0", [3, 64, 64], 1e-5,
               zoo.mobilenet_v2(width_mult=0.25, dropout=0, num_classes=CLASSES), full[0])
    yield case("densenet121", "growth=4,width=8,layers=17", [3, 64, 64], 1e-4,
               zoo.DenseNet(4, (2, 3, 5, 3), 8, num_classes=CLASSES), full[1])
    yield case("vit_b_16", "layers=2,width=16,heads=2,mlp=24,patch=4", [3, 8, 8], 1e-2,
               zoo.VisionTransformer(8, 4, 2, 2, 16, 24, num_classes=CLASSES), full[2])
    yield case("unet", "width=4", [3, 32, 48], 1e-4, UNet(4, CLASSES), full[3])
    small = dict(vocab=VOCABULARY, width=16, mlp=24, layers=2, heads=4, kv_heads=2)
    options = ",".join(f"{k}={v}" for k, v in small.items()) + ",context=8"
    yield case("llama", options, [8], 1e-1, Llama(small, False), full[4])
    yield case("llama", options + ",tied=1", [8], 1e-1, Llama(small, True), full[4])
    options = f"tables={TABLES},rows={ROWS},dim=4,dense={DENSE},bottom1=8,bottom2=0,bottom3=5,top1=7,top2=6"
    yield case("dlrm", options, [DENSE], 1e-1, Dlrm(TABLES, ROWS, 4, (DENSE, 8, 5), (7, 6)), full[5])
    yield case("fasttext", f"rows={ROWS},width=4,features={FEATURES}", [1], 1, Fasttext(ROWS, 4, CLASSES), full[6])


def data(case):
    """x and y of all steps."""
    shape = (STEPS, BATCH, *case["sample"])
    if case["model"] == "dlrm":
        ids = np.floor(uniform("ids", STEPS * BATCH * TABLES) * ROWS).reshape(STEPS, BATCH, TABLES)
        ids = torch.from_numpy(ids.astype(np.int64) + ROWS * np.arange(TABLES))
        clicks = np.floor(uniform("labels", STEPS * BATCH) * 2).reshape(STEPS, BATCH)
        numbers = draw("numbers", int(np.prod(shape))).reshape(shape)
        return list(zip(torch.from_numpy(numbers), ids)), torch.from_numpy(clicks)
    if case["model"] == "fasttext":
        ids = np.floor(uniform("ids", STEPS * BATCH * FEATURES) * (ROWS + NONE)).reshape(STEPS, BATCH, FEATURES) - NONE
        labels = np.floor(uniform("labels", STEPS * BATCH) * CLASSES).reshape(STEPS, BATCH)
        scales = draw("numbers", int(np.prod(shape))).reshape(shape)
        return (list(zip(torch.from_numpy(scales), torch.from_numpy(ids.astype(np.int64)))),
                torch.from_numpy(labels.astype(np.int64)))
    if len(case["sample"]) == 1:
        tokens = np.floor(uniform("tokens", int(np.prod(shape))) * VOCABULARY).reshape(shape)
        labels = np.floor(uniform("labels", int(np.prod(shape))) * VOCABULARY).reshape(shape)
        return torch.from_numpy(tokens.astype(np.int64)), torch.from_numpy(labels.astype(np.int64))
    images = (bits("images", int(np.prod(shape))) >> np.uint64(56)).astype(np.float64).reshape(shape)
    maps = case["model"] == "unet"
    shape = (STEPS, BATCH, *(case["sample"][1:] if maps else ()))
    labels = np.floor(uniform("labels", int(np.prod(shape))) * CLASSES).reshape(shape)
    return torch.from_numpy((images / 255 - MEAN) / STD), torch.from_numpy(labels.astype(np.int64))


def load(model):
    state = model.state_dict()
    for name in state:
        if not name.endswith("num_batches_tracked"):
            state[name] = torch.from_numpy(start_of(name, tuple(state[name].shape)))
    if getattr(model, "tied", False):
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.double().load_state_dict(state)


def loss_of(model, x, y):
    logits = model(x)
    if logits.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(logits[:, 0], y.to(logits.dtype)), logits
    return F.cross_entropy(logits, y.flatten() if logits.dim() == 2 else y), logits


def measure(name, tensor):
    values = tensor.detach().double().numpy().ravel()
    return [float(np.sqrt(values @ values)), float(values @ draw("probe." + name, values.size))]


def train(case, model, dtype):
    load(model)
    model.to(dtype).train()
    x, y = data(case)
    if isinstance(x, list):
        x = [(numbers.to(dtype), ids) for numbers, ids in x]
    x = x.to(dtype) if not isinstance(x, list) and x.is_floating_point() else x
    optimizer = torch.optim.SGD(model.parameters(), case["lr"], momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses, first = [], {}
    for step in range(STEPS):
        loss, logits = loss_of(model, x[step], y[step])
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            first = dict(logits=measure("logits", logits),
                         gradients={n: measure(n, p.grad) for n, p in model.named_parameters()})
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        evaluated = loss_of(model, x[0], y[0])[0].item()
    return first, dict(losses=losses, evaluated=[evaluated])


def run(case, model):
    first, exact = train(case, model, torch.float64)
    _, rounded = train(case, model, torch.float32)
    rounding = {key: [abs(a - b) / max(1, abs(a)) for a, b in zip(exact[key], rounded[key])] for key in exact}
    return dict(case, **first, **exact, rounding=rounding)


def write_weights(prefix, names):
    from make_torchvision import save
    for case, model in cases():
        if case["model"] not in names or "tied" in case["options"]:
            continue
        load(model)
        model.eval()
        with torch.no_grad():
            logits = model(data(case)[0][0]).numpy().astype(np.float32)
        state = {n: t.numpy().astype(np.int64 if n.endswith("tracked") else np.float32)
                 for n, t in model.state_dict().items()}
        save(Path(f"{prefix}{case['model']}.safetensors"), state)
        Path(f"{prefix}{case['model']}.logits").write_bytes(logits.tobytes())


def main():
    torch.set_num_threads(1)
    if len(sys.argv) > 2:
        return write_weights(sys.argv[2], sys.argv[3:])
    root = Path(__file__).resolve().parents[2]
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/golden/models.json"
    settings = dict(classes=CLASSES, vocabulary=VOCABULARY, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY,
                    mean=MEAN, std=STD, made_by=f"tools/golden/make_models.py, torch {torch.__version__}")
    networks = []
    for case, model in cases():
        networks.append(run(case, model))
        print(case["model"], " ".join(f"{x:.5f}" for x in networks[-1]["losses"]), networks[-1]["rounding"])
    lines = ",\n  ".join(json.dumps(n) for n in networks)
    path.write_text('{"settings": %s,\n "networks": [\n  %s\n]}\n' % (json.dumps(settings), lines))


if __name__ == "__main__":
    main()
