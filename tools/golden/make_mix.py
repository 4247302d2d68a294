#!/usr/bin/env python3
"""Makes tests/golden/mix.safetensors: mixup and cutmix as torchvision computes them, and the loss of PyTorch.

    pip install torch torchvision
    tools/golden/make_mix.py

Tensors: "images" u8 [2,3,H,W], of which the second is mixed with the first; "mixup_weights" f64 [M] of the first
image and "mixup" f32 [M,3HW]; "boxes" f64 [B,3], the weight and the centre (y, x) of each box as parts of height and
width, "cutmix" u8 [B,3HW] and "cutmix_weights" f64 [B], those that the classes get; "logits" f32 [N,C], "targets"
f32 [N,C] from pairs of labels and weights, for label smoothing of 0 and 0.1 "losses" f64 [2], sums over the
samples, and "gradients" f64 [2,N,C] of the logits.
"""
import json
import pathlib
import struct

import torch
from torchvision.transforms import v2

GOLDEN = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden/mix.safetensors"
HEIGHT, WIDTH, CLASSES = 16, 22, 7
WEIGHTS = (0.0, 0.03, 0.25, 0.5, 0.81, 1.0)
BOXES = ((0.25, 0.5, 0.5), (0.6, 0.1, 0.95), (0.01, 0.0, 0.0), (0.0, 0.4, 0.3), (0.9, 0.99, 0.02), (1.0, 0.55, 0.47))
SMOOTHING = (0.0, 0.1)


class Fixed:
    """A distribution with one value."""
    def __init__(self, value):
        self.value = value

    def sample(self, shape):
        return self.value


def parameters(transform, images, labels):
    return transform.make_params([images]) | {"labels": labels, "batch_size": len(labels)}


def mixed(images, labels, weight):
    """The second image, and the weights of its classes."""
    transform = v2.MixUp(num_classes=CLASSES)
    transform._dist = Fixed(1 - weight)
    params = parameters(transform, images, labels)
    return transform.transform(images, params)[1], transform.transform(labels, params)[1]


def cut(images, labels, weight, y, x):
    transform = v2.CutMix(num_classes=CLASSES)
    transform._dist = Fixed(1 - weight)
    numbers = {HEIGHT: int(y * HEIGHT), WIDTH: int(x * WIDTH)}
    drawn, torch.randint = torch.randint, lambda high, size: torch.tensor([numbers[high]])
    try:
        params = parameters(transform, images, labels)
    finally:
        torch.randint = drawn
    return transform.transform(images, params)[1], transform.transform(labels, params)[1]


def main():
    torch.manual_seed(3)
    images = torch.randint(0, 256, (2, 3, HEIGHT, WIDTH), dtype=torch.uint8)
    labels = torch.tensor([1, 4])
    blends = [mixed(images.float(), labels, w)[0].reshape(-1).tolist() for w in WEIGHTS]
    boxes = [cut(images, labels, *box) for box in BOXES]
    targets = torch.stack([mixed(images.float(), torch.tensor(pair), w)[1]
                           for pair, w in zip(([1, 4], [2, 2], [0, 6], [5, 3], [6, 1], [3, 0]), WEIGHTS)])
    logits = (torch.randn(len(WEIGHTS), CLASSES) * 3).float()
    losses, gradients = [], []
    for smoothing in SMOOTHING:
        at = logits.double().requires_grad_()
        loss = torch.nn.functional.cross_entropy(at, targets.double(), label_smoothing=smoothing, reduction="sum")
        loss.backward()
        losses.append(loss.item())
        gradients += at.grad.reshape(-1).tolist()

    def pack(kind, numbers):
        return struct.pack(f"<{len(numbers)}{kind}", *numbers)

    each, n = 3 * HEIGHT * WIDTH, len(WEIGHTS)
    tensors = {
        "mixup_weights": ("F64", [n], pack("d", WEIGHTS)),
        "boxes": ("F64", [len(BOXES), 3], pack("d", sum(BOXES, ()))),
        "cutmix_weights": ("F64", [len(BOXES)], pack("d", [float(target[1]) for _, target in boxes])),
        "losses": ("F64", [len(SMOOTHING)], pack("d", losses)),
        "gradients": ("F64", [len(SMOOTHING), n, CLASSES], pack("d", gradients)),
        "mixup": ("F32", [n, each], pack("f", sum(blends, []))),
        "logits": ("F32", [n, CLASSES], pack("f", logits.reshape(-1).tolist())),
        "targets": ("F32", [n, CLASSES], pack("f", targets.reshape(-1).tolist())),
        "images": ("U8", [2, 3, HEIGHT, WIDTH], bytes(images.reshape(-1).tolist())),
        "cutmix": ("U8", [len(BOXES), each], b"".join(bytes(image.reshape(-1).tolist()) for image, _ in boxes)),
    }
    header, data = {"__metadata__": {"torch": torch.__version__}}, b""
    for name, (dtype, dims, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    GOLDEN.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    main()
