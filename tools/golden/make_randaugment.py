#!/usr/bin/env python3
"""Makes tests/golden/randaugment.safetensors: what each operation of torchvision's RandAugment makes of an
image of Pillow, and the strengths of the operations.

    pip install torch torchvision pillow
    tools/golden/make_randaugment.py

Tensors: "strengths" f32 [14,31]; "image" u8 [3,H,W]; "results" u8 [14 * steps * 2, 3HW] of the steps below, with
strengths that are positive and negative where they have a sign; "grey" and "greys" the same for an image of one
channel [1,H,W]; "flat" and "flats" [8,3HW] for one of few values, and the last two operations.
"""
import json
import pathlib
import random
import struct

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.autoaugment import RandAugment, _apply_op

GOLDEN = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/golden/randaugment.safetensors"
HEIGHT, WIDTH, STEPS = 16, 22, (9, 30)


def planes(image):
    bands = [band.tobytes() for band in image.split()]
    return b"".join(bands)


def results(image, space):
    out = b""
    for name, (strengths, signed) in space.items():
        for step in STEPS:
            for sign in (1.0, -1.0):
                strength = float(strengths[step].item()) if strengths.ndim > 0 else 0.0
                changed = _apply_op(image, name, strength * (sign if signed else 1.0),
                                    interpolation=InterpolationMode.NEAREST, fill=None)
                out += planes(changed)
    return out


def main():
    rng = random.Random(5)
    image = Image.new("RGB", (WIDTH, HEIGHT))
    flat = Image.new("RGB", (WIDTH, HEIGHT))
    for y in range(HEIGHT):
        for x in range(WIDTH):
            image.putpixel((x, y), (40 + 8 * x + rng.randrange(9), 5 + 13 * y + rng.randrange(30), rng.randrange(256)))
            flat.putpixel((x, y), (77, 20 if x < 4 else 200, 30 if y < 13 else 31))
    grey = image.convert("L")
    space = RandAugment()._augmentation_space(31, (HEIGHT, WIDTH))
    strengths = [[float(s[i].item()) if s.ndim > 0 else 0.0 for i in range(31)] for s, _ in space.values()]
    assert len(space) == 14
    count = 14 * len(STEPS) * 2
    tensors = {
        "strengths": ("F32", [14, 31], struct.pack("<434f", *sum(strengths, []))),
        "image": ("U8", [3, HEIGHT, WIDTH], planes(image)),
        "results": ("U8", [count, 3 * HEIGHT * WIDTH], results(image, space)),
        "flat": ("U8", [3, HEIGHT, WIDTH], planes(flat)),
        "flats": ("U8", [8, 3 * HEIGHT * WIDTH], results(flat, {name: space[name] for name in ("AutoContrast", "Equalize")})),
        "grey": ("U8", [1, HEIGHT, WIDTH], planes(grey)),
        "greys": ("U8", [count, HEIGHT * WIDTH], results(grey, space)),
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
