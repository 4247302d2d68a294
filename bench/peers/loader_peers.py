"""One loader of another project, on one thread: JPEGs in class folders to normalized batches of 64, 3x224x224.

    loader_peers.py NAME FOLDER SECONDS

NAME: pil (PyTorch's DataLoader, torchvision's ImageFolder, Pillow), torchvision (its own decoder and v2 transforms, in
a DataLoader), spdl (decoding and transforms by FFmpeg, whose libraries it loads), ffcv (its own format, written first).
The recipe is ImageNet's: a random part of 0.08 to 1 of the area, resized with antialiasing where the library can,
mirrored at random, normalized. Prints one JSON line: samples, seconds of processor time of all threads of the process,
seconds by the clock, versions. Samples of the first second, in which libraries load, do not count.
"""
import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE, BATCH = 224, 64


def versions(*modules):
    return {module.__name__: getattr(module, "__version__", "?") for module in modules}


def torch_loader(dataset):
    """Batches of shuffled epochs, one after the other."""
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=0)
    while True:
        yield from loader


def pil(folder):
    import PIL
    import torch
    import torchvision
    from torchvision import transforms as T

    recipe = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])
    return versions(torch, torchvision, PIL), torch_loader(torchvision.datasets.ImageFolder(folder, recipe))


def torchvision(folder):
    import torch
    import torchvision
    from torchvision import io
    from torchvision.transforms import v2

    recipe = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(),
                         v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])

    def read(path):
        return io.decode_image(io.read_file(path), io.ImageReadMode.RGB, apply_exif_orientation=True)

    return versions(torch, torchvision), torch_loader(torchvision.datasets.ImageFolder(folder, recipe, loader=read))


def files_of(folder):
    return sorted(os.path.join(folder, name, file) for name in os.listdir(folder)
                  for file in os.listdir(os.path.join(folder, name)))


def spdl(folder):
    import random

    import spdl.io
    import torch

    torch.set_num_threads(1)
    files = files_of(folder)
    scale = 1 / (255 * torch.tensor(STD).reshape(3, 1, 1))
    shift = (torch.tensor(MEAN) / torch.tensor(STD)).reshape(3, 1, 1)

    def part():
        """FFmpeg crops by expressions: the area and ratio of RandomResizedCrop, as far as they fit."""
        area, ratio = random.uniform(0.08, 1), random.uniform(3 / 4, 4 / 3)
        w, h = (area * ratio) ** 0.5, (area / ratio) ** 0.5
        return (f"crop=w='min(iw,sqrt(iw*ih)*{w:.5f})':h='min(ih,sqrt(iw*ih)*{h:.5f})'"
                f":x='(iw-ow)*{random.random():.5f}':y='(ih-oh)*{random.random():.5f}',scale={SIDE}:{SIDE}:flags=bilinear"
                + (",hflip" if random.random() < 0.5 else "") + ",format=pix_fmts=rgb24")

    def batches():
        while True:
            random.shuffle(files)
            for at in range(0, len(files) - BATCH + 1, BATCH):
                out = torch.empty(BATCH, 3, SIDE, SIDE)
                for i, path in enumerate(files[at:at + BATCH]):
                    packets = spdl.io.demux_image(path)
                    frames = spdl.io.decode_packets(packets, filter_desc=part())
                    pixels = torch.from_numpy(spdl.io.to_numpy(spdl.io.convert_frames(frames)))
                    torch.mul(pixels.permute(2, 0, 1), scale, out=out[i]).sub_(shift)
                yield out, None

    return versions(spdl.io, torch), batches()


def ffcv(folder):
    import ffcv
    import numpy
    import torch
    import torchvision
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter

    path = f"{folder}.beton"
    if not os.path.exists(path):
        writer = DatasetWriter(path, {"image": RGBImageField(write_mode="jpg"), "label": IntField()})
        writer.from_indexed_dataset(torchvision.datasets.ImageFolder(folder))
    image = [RandomResizedCropRGBImageDecoder((SIDE, SIDE)), RandomHorizontalFlip(), ToTensor(), ToTorchImage(),
             NormalizeImage(numpy.array(MEAN) * 255, numpy.array(STD) * 255, numpy.float32)]
    loader = Loader(path, batch_size=BATCH, num_workers=1, order=OrderOption.RANDOM,
                    pipelines={"image": image, "label": [IntDecoder(), ToTensor()]})

    def batches():
        while True:
            yield from loader

    return versions(ffcv, torch), batches()


def main():
    name, folder, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    found, batches = {"pil": pil, "torchvision": torchvision, "spdl": spdl, "ffcv": ffcv}[name](folder)
    begun = time.perf_counter()
    while time.perf_counter() - begun < 1:
        next(batches)
    wall, processor, samples = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - wall < seconds:
        samples += len(next(batches)[0])
    print(json.dumps({"samples": samples, "processor": time.process_time() - processor,
                      "wall": time.perf_counter() - wall, "versions": found}))


main()
