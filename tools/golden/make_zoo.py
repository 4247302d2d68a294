#!/usr/bin/env python3
"""Makes tests/golden/zoo.json: three steps of every convolutional network as torchvision has it.

    tools/golden/make_zoo.py [FILE]

Needs PyTorch, torchvision and NumPy (Debian: python3-torchvision). Weights, images and labels are not
stored: both sides draw them from the formula of draw() below, keyed by the name of the tensor, so the
file holds a few numbers for each network:

    losses      the mean loss of each step before its update (with that of the second heads)
    evaluated   the mean loss of the first batch after the last step, in evaluation (without)
    moved       the L2 norms of what the steps changed in parameters and in running statistics
    probe       the sums of these changes, each times a draw in [-1, 1), by `moved`
    rounding    how far each of these is off when PyTorch computes in f32, by max(1, the number)

The networks are torchvision's, made narrow: every channel count is a quarter, dropout is off. They run in
f64, so that the file holds the numbers themselves and not one processor's rounding of them; the deepest
ones amplify rounding; `rounding` is the factor. Their learning rate is therefore small.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision.models as zoo
import torchvision.models.segmentation as segmentation

STEPS, CLASSES = 3, 5
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
MEAN, STD = 0.5, 0.25
UNITS = 48


def hash_name(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return np.uint64(h)


def bits(name, count):
    """64 bits for each of the first `count` draws under a name (splitmix64 from the name's FNV-1a)."""
    with np.errstate(over="ignore"):
        z = hash_name(name) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(name, count):
    return (bits(name, count) >> np.uint64(40)).astype(np.float64) * 2.0**-24


def draw(name, count):
    return 2 * uniform(name, count) - 1


def in_block(name):
    """Normalizations in the branches of residual blocks begin small: deep sums then stay tame."""
    return "layer" in name and "downsample" not in name


def start_of(name, shape):
    """Vectors by their kind; products as He et al., 2015."""
    v = draw(name, int(np.prod(shape)))
    if len(shape) > 1:
        v = np.sqrt(6.0 / np.prod(shape[1:])) * v
    elif name.endswith("running_var"):
        v = 1 + 0.25 * v
    elif name.endswith(".weight"):
        v = (0.125 if in_block(name) else 0.75) * (1 + 0.25 * v)
    else:
        v = 0.125 * v
    return v.astype(np.float32).astype(np.float64).reshape(shape)


def narrow(model, linear_inputs, by=4):
    """A part of all channels, but for the image's and the classes."""
    def cut(n):
        return n if n in (3, CLASSES) else n // by

    for parent in list(model.modules()):
        for name, m in list(parent.named_children()):
            if isinstance(m, nn.Conv2d):
                new = nn.Conv2d(cut(m.in_channels), cut(m.out_channels), m.kernel_size, m.stride, m.padding,
                                m.dilation, m.groups, m.bias is not None)
            elif isinstance(m, nn.BatchNorm2d):
                new = nn.BatchNorm2d(cut(m.num_features), m.eps, m.momentum)
            elif isinstance(m, nn.Linear):
                inputs = linear_inputs.get(m.in_features, cut(m.in_features))
                outputs = linear_inputs.get(m.out_features, cut(m.out_features))
                new = nn.Linear(inputs, outputs)
            elif isinstance(m, nn.Dropout):
                new = nn.Identity()
            else:
                continue
            setattr(parent, name, new)
    return model


def load(model):
    state = model.state_dict()
    for name in state:
        if not name.endswith("num_batches_tracked"):
            state[name] = torch.from_numpy(start_of(name, tuple(state[name].shape)))
    model.double().load_state_dict(state)
    return {n: t.clone() for n, t in model.state_dict().items() if not n.endswith("num_batches_tracked")}


def data(case):
    shape = (STEPS, case["batch"], *case["sample"])
    images = (bits("images", int(np.prod(shape))) >> np.uint64(56)).astype(np.float64).reshape(shape)
    maps = case["model"].startswith("deeplab")
    shape = (STEPS, case["batch"], *(case["sample"][1:] if maps else ()))
    u = uniform("labels", int(np.prod(shape))).reshape(shape)
    labels = np.floor(u * (CLASSES + 1)) - 1 if maps else np.floor(u * CLASSES)
    x = (images / 255 - MEAN) / STD
    return torch.from_numpy(x), torch.from_numpy(labels.astype(np.int64))


def loss_of(model, x, y):
    def xent(logits):
        return F.cross_entropy(logits, y, ignore_index=-1)

    out = model(x)
    if isinstance(out, dict):
        return xent(out["out"]) + (0.5 * xent(out["aux"]) if model.training else 0)
    if isinstance(out, tuple):
        return xent(out.logits) + 0.3 * (xent(out.aux_logits1) + xent(out.aux_logits2))
    return xent(out)


def moves(start, end, names):
    squares = probe = 0.0
    for name in names:
        change = (end[name].double() - start[name]).numpy().ravel()
        squares += float(change @ change)
        probe += float(change @ draw("probe." + name, change.size))
    return squares**0.5, probe / squares**0.5 if squares else 0.0


def train(case, model, dtype):
    start = load(model)
    model.to(dtype).train()
    x, y = data(case)
    x = x.to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), case["lr"], momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    losses = []
    for step in range(STEPS):
        loss = loss_of(model, x[step], y[step])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        evaluated = loss_of(model, x[0], y[0]).item()
    parameters = {name for name, _ in model.named_parameters()}
    both = [moves(start, model.state_dict(), sorted(parameters)),
            moves(start, model.state_dict(), sorted(set(start) - parameters))]
    return dict(losses=losses, evaluated=[evaluated], moved=[m for m, _ in both], probe=[p for _, p in both])


def run(case, model):
    exact, rounded = train(case, model, torch.float64), train(case, model, torch.float32)
    rounding = {key: [abs(a - b) / max(1, abs(a)) for a, b in zip(exact[key], rounded[key])] for key in exact}
    return dict(case, **exact, rounding=rounding)


def cases(names=None):
    """The settings and the network of each case, of those in `names`."""
    def quarter(name, build, options, sample, batch, lr, linear_inputs):
        if names is None or name in names:
            yield (dict(model=name, options=options, sample=sample, batch=batch, lr=lr),
                   narrow(build(num_classes=CLASSES), linear_inputs))

    for name in ("resnet18", "resnet34", "resnet50", "resnet101"):
        size, lr = (64, 5e-4) if name in ("resnet18", "resnet34") else (96, 1e-4)
        yield from quarter(name, getattr(zoo, name), "width=16", [3, size, size], 4, lr, {})
    plain = f"width=25,units={UNITS},dropout=0"
    yield from quarter("alexnet", zoo.alexnet, plain, [3, 71, 67], 4, 5e-4, {9216: 2304, 4096: UNITS})
    yield from quarter("vgg16", zoo.vgg16, plain, [3, 40, 32], 4, 5e-4, {25088: 6272, 4096: UNITS})
    yield from quarter("googlenet", googlenet, "width=25,dropout=0,aux_dropout=0", [3, 70, 64], 4, 5e-5, {})
    yield from quarter("deeplabv3_resnet101", deeplab, "width=16,aux=1,dropout=0,aux_dropout=0", [3, 50, 65], 3,
                       1e-4, {})


def googlenet(num_classes):
    return zoo.googlenet(num_classes=num_classes, aux_logits=True, init_weights=False)


def deeplab(num_classes):
    return segmentation.deeplabv3_resnet101(weights=None, weights_backbone=None, num_classes=num_classes,
                                            aux_loss=True)


def main():
    root = Path(__file__).resolve().parents[2]
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/golden/zoo.json"
    torch.set_num_threads(1)
    settings = dict(classes=CLASSES, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, mean=MEAN, std=STD,
                    made_by=f"tools/golden/make_zoo.py, torch {torch.__version__}")
    networks = []
    for case, model in cases():
        networks.append(run(case, model))
        print(case["model"], " ".join(f"{x:.5f}" for x in networks[-1]["losses"]), networks[-1]["rounding"])
    lines = ",\n  ".join(json.dumps(n) for n in networks)
    path.write_text('{"settings": %s,\n "networks": [\n  %s\n]}\n' % (json.dumps(settings), lines))


if __name__ == "__main__":
    main()
