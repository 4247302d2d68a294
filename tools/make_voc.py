#!/usr/bin/env python3
"""Makes a small segmentation set in the format of Pascal VOC: discs and boxes, with the class of each pixel.

    pip install pillow
    tools/make_voc.py DIR [--images 60] [--size 160x200] [--seed 0]
    kolo train --model deeplabv3_resnet101:width=8 --data voc:DIR,size=160x200,classes=3

Class 0 is the background, 1 discs, 2 boxes; the outlines of shapes have no label (255), as in VOC. One image
in five is in val.txt, the others are in train.txt. DIR must not exist.
"""
import argparse
import pathlib
import random

from PIL import Image, ImageDraw

NONE = 255


def palette():
    """VOC's: bits of the class spread over red, green and blue, from the highest one."""
    colours = []
    for number in range(256):
        rgb, bits = [0, 0, 0], number
        for shift in range(7, -1, -1):
            for channel in range(3):
                rgb[channel] |= (bits >> channel & 1) << shift
            bits >>= 3
        colours += rgb
    return colours


def colour(rng, dark):
    return tuple(rng.randrange(0, 110) if dark else rng.randrange(140, 256) for _ in range(3))


def make(rng, height, width):
    image = Image.effect_noise((width, height), 60).convert("RGB")
    image = Image.blend(image, Image.new("RGB", (width, height), colour(rng, True)), 0.6)
    mask = Image.new("P", (width, height), 0)
    mask.putpalette(palette())
    on_image, on_mask = ImageDraw.Draw(image), ImageDraw.Draw(mask)
    for _ in range(rng.randrange(1, 5)):
        kind = rng.randrange(1, 3)
        radius = rng.randrange(min(height, width) // 10, min(height, width) // 4)
        y, x = rng.randrange(height), rng.randrange(width)
        box = (x - radius, y - radius, x + radius, y + radius)
        fill = colour(rng, False)
        if kind == 1:
            on_image.ellipse(box, fill=fill)
            on_mask.ellipse(box, fill=kind, outline=NONE, width=2)
        else:
            on_image.rectangle(box, fill=fill)
            on_mask.rectangle(box, fill=kind, outline=NONE, width=2)
    return image, mask


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--size", default="160x200", help="HxW")
    parser.add_argument("--seed", type=int, default=0)
    opts = parser.parse_args()
    height, width = map(int, opts.size.split("x"))
    if opts.images < 5 or height < 20 or width < 20:
        parser.error("make 5 images or more, of 20x20 pixels or more")
    rng = random.Random(opts.seed)
    sets = {"train": [], "val": []}
    opts.dir.mkdir(parents=True)
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (opts.dir / folder).mkdir(parents=True)
    for number in range(opts.images):
        name = f"shapes_{number:06}"
        image, mask = make(rng, height, width)
        image.save(opts.dir / "JPEGImages" / f"{name}.jpg", quality=92)
        mask.save(opts.dir / "SegmentationClass" / f"{name}.png")
        sets["val" if number % 5 == 4 else "train"].append(name)
    for name, images in (*sets.items(), ("trainval", sets["train"] + sets["val"])):
        (opts.dir / "ImageSets/Segmentation" / f"{name}.txt").write_text("\n".join(images) + "\n")


if __name__ == "__main__":
    main()
