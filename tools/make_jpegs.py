#!/usr/bin/env python3
"""Makes a folder of JPEGs cut from photographs that Python packages ship, for benchmarks of loaders.

    pip install pillow scikit-image scikit-learn
    tools/make_jpegs.py DIR [--images 192] [--size 500x375] [--only KIND] [--seed 0]

Nothing is enlarged, so the bytes per pixel are those of photographs; the quality is 92. Of 16 images one is
progressive, one grey, one CMYK and one rotated by EXIF; with --only all are of one kind: plain (none of these),
progressive, grey, cmyk or rotated. They are in DIR/train/0 and DIR/train/1, one of each class also in DIR/val. DIR must
not exist.
"""
import argparse
import importlib.util
import pathlib
import random

from PIL import Image

KINDS = {"plain": 0, "progressive": 1, "grey": 5, "cmyk": 9, "rotated": 13}  # of 16 images; the others are plain
PACKAGES = ("skimage", "sklearn", "scipy", "imageio", "matplotlib", "torchvision", "torch", "gradio")


def photographs(width, height):
    """Those that are large enough, of all folders of the packages that are there."""
    found = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for folder in spec.submodule_search_locations if spec else ():
            for path in sorted(pathlib.Path(folder).rglob("*")):
                if path.suffix.lower() not in (".jpg", ".jpeg", ".png"):
                    continue
                image = Image.open(path)
                if image.width < width or image.height < height or image.mode not in ("RGB", "RGBA"):
                    continue
                image = image.convert("RGB")
                colours = image.resize((64, 64)).getcolors(4096)
                if len(colours) > 1500:  # a photograph, not a drawing
                    found.append((path, image))
    return found


def save(image, path, kind):
    options = {"quality": 92}
    if kind == KINDS["progressive"]:
        options["progressive"] = True
    elif kind == KINDS["grey"]:
        image = image.convert("L")
    elif kind == KINDS["cmyk"]:
        image = image.convert("CMYK")
    elif kind == KINDS["rotated"]:
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by 90 degrees
        options["exif"] = exif
        image = image.rotate(90, expand=True)
    image.save(path, "JPEG", **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--size", default="500x375", metavar="WIDTHxHEIGHT")
    parser.add_argument("--only", choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    opts = parser.parse_args()
    width, height = map(int, opts.size.split("x"))
    rng = random.Random(opts.seed)
    sources = photographs(width, height)
    if not sources:
        parser.error(f"no photograph of {opts.size} or more in {', '.join(PACKAGES)}: install scikit-image")
    for folder in ("train/0", "train/1", "val/0", "val/1"):
        (opts.dir / folder).mkdir(parents=True)
    written = 0
    for i in range(opts.images + 2):
        image = sources[i % len(sources)][1]
        x, y = rng.randrange(image.width - width + 1), rng.randrange(image.height - height + 1)
        part = image.crop((x, y, x + width, y + height))
        if rng.random() < 0.5:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        split = "train" if i < opts.images else "val"
        path = opts.dir / split / str(i % 2) / f"{i:05d}.jpg"
        save(part, path, KINDS[opts.only] if opts.only else i % 16)
        written += path.stat().st_size
    print(f"{opts.images} images of {opts.size} from {len(sources)} photographs, "
          f"{written / (opts.images + 2) / 1024:.1f} KiB each: {opts.dir}")


main()
