#!/usr/bin/python3
"""The convolutions of bench/conv_kernels.c in PyTorch: forward (f), the data's gradient (d) and the
weights' gradient (w), in NCHW and channels_last, least of several runs, on one thread.

    conv_torch.py [SHAPE [PASSES]]      SHAPE is a part of a name
"""
import re
import sys
import time
from pathlib import Path

import torch

torch.set_num_threads(1)


def shapes():
    """The table of conv_kernels.c, so that both measure the same."""
    text = (Path(__file__).parent.parent / "conv_kernels.c").read_text()
    row = re.compile(r'\{"([\w-]+)", (\d+), (\d+), (\d+), (\d+), (\d+), (\d+), (\d+)\}')
    for name, *numbers in row.findall(text):
        yield name, *map(int, numbers)


def least(run):
    times, total = [], 0.0
    run()
    while len(times) < 3 or (len(times) < 30 and total < 0.2):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        total += times[-1]
    return min(times)


def measure(name, passes, n, c, h, o, kernel, stride, pad):
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(n, c, h, h).to(memory_format=layout)
        w = torch.randn(o, c, kernel, kernel).to(memory_format=layout)
        y = torch.conv2d(x, w, None, stride, pad)
        dy = torch.randn_like(y)
        flops = 2e-9 * y.numel() * c * kernel * kernel

        def backward(mask):
            torch.ops.aten.convolution_backward(
                dy, x, w, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask)

        runs = {
            "f": lambda: torch.conv2d(x, w, None, stride, pad),
            "d": lambda: backward([True, False, False]),
            "w": lambda: backward([False, True, False]),
        }
        for which in passes:
            seconds = least(runs[which])
            form = "abcd" if layout == torch.contiguous_format else "acdb"
            print(f"{name:14} {which}  {form:8} {'torch':26} {1e3 * seconds:9.3f} "
                  f"{flops / seconds:9.1f}", flush=True)


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    passes = sys.argv[2] if len(sys.argv) > 2 else "fdw"
    with torch.no_grad():
        for shape, *numbers in shapes():
            if name in shape:
                measure(shape, passes, *numbers)


main()
