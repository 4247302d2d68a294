#!/usr/bin/env python3
"""The trainer of llm.c (train_gpt2.c) data-parallel by Kolo: lines changed, and its losses on several ranks.

    bench/llm_c.py FOLDER [--ranks 1,2,3,5] [--steps 10] [--build build/release] [--keep FOLDER]

FOLDER is a checkout of https://github.com/karpathy/llm.c, which is not changed. A copy of the trainer is edited as below,
compiled and run on a small random network and random tokens, with the same 30 sequences in each step on any number of ranks:
then losses differ by the rounding of sums only. "plain" is the trainer without the edits. Each layer's gradients are averaged
while the backward pass computes the layers before it.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEQUENCES, LENGTH = 30, 32  # of a step
LAYERS, HEADS, WIDTH, VOCABULARY = 3, 4, 64, 256

# Where each edit belongs, as a pattern of one line, and the lines that follow it; "=": they take its place.
PARALLEL = (
    (r'#include "llmc/dataloader.h"', "", """
#include <kolo/reducer.h>
static kolo_comm *comm;
static kolo_reducer *reducer;
static void check(kolo_status status) { if (status) fprintf(stderr, "%s\\n", kolo_last_error()), exit(1); }
"""),
    (r" +model->grads_acts_memory = malloc_and_point_activations.*", "", """
        kolo_part parts[1000];
        int n = 0, layers = model->config.num_layers;
        float **grads = (float **)&model->grads;
        for (int k = 0; k < 12 * layers; k++, n++) { // tensors 2 to 13 have a slice for each layer
            size_t size = model->param_sizes[2 + k % 12] / layers;
            parts[n] = (kolo_part){.data = grads[2 + k % 12] + k / 12 * size, .count = size};
        }
        for (int i = 0; i < 16; i += i == 1 ? 13 : 1) parts[n++] = (kolo_part){.data = grads[i], .count = model->param_sizes[i]};
        parts[n++] = (kolo_part){.data = &model->mean_loss, .count = 1};
        check(kolo_reducer_create(comm, parts, n, KOLO_DTYPE_F32, NULL, &reducer));
"""),
    (r" +layernorm_backward\(dresidual, dl_ln1w.*", "", """
        check(kolo_reducer_ready_range(reducer, 12 * l, 12));
"""),
    (r" +encoder_backward\(.*", "", """
    check(kolo_reducer_ready_range(reducer, 12 * L, 5));
    check(kolo_reducer_wait(reducer));
"""),
    (r" +dataloader_free\(&train_loader\);", "", """
    kolo_reducer_destroy(reducer), kolo_comm_destroy(comm);
"""),
    (r"int main\(\) \{", "", """
    check(kolo_comm_create(NULL, &comm));
"""),
    (r" +dataloader_init\(&train_loader.*", "=", """
    dataloader_init(&train_loader, train_tokens, B, T, kolo_comm_rank(comm), kolo_comm_size(comm), 0);
"""),
)

# The same batches on any number of ranks, with and without Kolo (each rank of llm.c shuffles in an order of its own); these
# lines are not counted.
SIZES = (
    (r" +int B = 4;.*", "=", f"\n    int B = {SEQUENCES} / atoi(getenv(\"RANKS\"));\n"),
    (r" +int T = 64;.*", "=", f"\n    int T = {LENGTH};\n"),
    (r" +for \(int step = 0; step <= 40.*", "=", "\n    for (int step = 0; step <= atoi(getenv(\"STEPS\")); step++) {\n"),
    (r" +dataloader_init\(&train_loader.*", "=", "\n    dataloader_init(&train_loader, train_tokens, B, T, 0, 1, 0);\n"),
    (r" +const int genT = 64;.*", "=", "\n    const int genT = 1;\n"),
)


class Failure(Exception):
    """Something that cannot be made here."""


def edit(text, edits):
    """The text with these edits, and the number of lines that they add or change."""
    changed = 0
    for pattern, how, lines in edits:
        found = list(re.finditer(f"^{pattern}$", text, re.M))
        if not found:
            raise Failure(f"train_gpt2.c has no line {pattern!r}")
        at = found[0]
        new = lines.strip("\n")
        text = text[:at.start() if how else at.end() + 1] + new + ("" if how else "\n") + text[at.end() if how else at.end() + 1:]
        changed += len(new.splitlines())
    return text, changed


def write_files(folder):
    """A random network and random tokens, in the formats of llm.c."""
    draw = random.Random(1)
    padded, c, l = (VOCABULARY + 127) // 128 * 128, WIDTH, LAYERS
    sizes = [padded * c, LENGTH * c, l * c, l * c, l * 3 * c * c, l * 3 * c, l * c * c, l * c, l * c, l * c, l * 4 * c * c,
             l * 4 * c, l * c * 4 * c, l * c, c, c]
    with open(os.path.join(folder, "gpt2_124M.bin"), "wb") as f:
        f.write(struct.pack("256i", 20240326, 3, LENGTH, VOCABULARY, LAYERS, HEADS, WIDTH, padded, *[0] * 248))
        for i, size in enumerate(sizes):
            one = i in (2, 8, 14)  # weights of normalizations
            values = [1.0 if one else draw.gauss(0, 0.05) for _ in range(size)]
            f.write(struct.pack(f"{size}f", *values))
    data = os.path.join(folder, "dev", "data", "tinyshakespeare")
    os.makedirs(data)
    n = 12 * SEQUENCES * LENGTH
    for name in ("train", "val"):
        tokens = [draw.randrange(VOCABULARY // 4) for _ in range(n)]
        with open(os.path.join(data, f"tiny_shakespeare_{name}.bin"), "wb") as f:
            f.write(struct.pack("256i", 20240520, 1, n, *[0] * 253) + struct.pack(f"{n}H", *tokens))


def compile_trainer(folder, name, text, build):
    source = os.path.join(folder, name + ".c")
    with open(source, "w", encoding="utf-8") as f:
        f.write(text)
    command = ["cc", "-O2", "-w", "-I", folder, "-I", os.path.join(HERE, "include"), source, "-o", os.path.join(folder, name), "-lm",
               "-L", build, "-lkolo-comm", f"-Wl,-rpath,{build}"]
    made = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        raise Failure(made.stderr.strip())


def losses(folder, command, ranks, steps):
    """The training losses of rank 0."""
    env = {**os.environ, "RANKS": str(ranks), "STEPS": str(steps - 1), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise Failure("\n".join((done.stdout.strip() + "\n" + done.stderr.strip()).splitlines()[-6:]))
    found = re.findall(r"^(?:\[0\] )?step \d+: train loss (\S+)", done.stdout, re.M)
    if len(found) != steps:
        raise Failure(f"{len(found)} losses of {steps} steps")
    return [float(x) for x in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="a checkout of llm.c")
    parser.add_argument("--ranks", default="1,2,3,5")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--build", default=os.path.join(HERE, "build", "release"))
    parser.add_argument("--keep", default="", help="leave the edited trainer and its data in this new folder")
    o = parser.parse_args()
    groups = [int(n) for n in o.ranks.split(",")]
    if o.steps < 1 or any(n < 1 or SEQUENCES % n for n in groups):
        parser.error(f"--steps is at least 1, and each number of ranks divides {SEQUENCES}")
    build = os.path.abspath(o.build)
    with open(os.path.join(o.folder, "train_gpt2.c"), encoding="utf-8") as f:
        original = f.read()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(o.keep or temporary)
        os.makedirs(folder, exist_ok=True)
        shutil.copytree(os.path.join(o.folder, "llmc"), os.path.join(folder, "llmc"))
        write_files(folder)
        plain, _ = edit(original, SIZES)
        parallel, changed = edit(plain, PARALLEL)
        compile_trainer(folder, "plain", plain, build)
        compile_trainer(folder, "parallel", parallel, build)
        print(f"{changed} lines are new or changed")
        expected = losses(folder, ["./plain"], 1, o.steps)
        print("plain:      " + " ".join(f"{x:.6f}" for x in expected))
        worst = 0.0
        for ranks in groups:
            found = losses(folder, [os.path.join(build, "kolo"), "run", "-n", str(ranks), "--", "./parallel"], ranks, o.steps)
            differences = [abs(a - b) for a, b in zip(found, expected)]
            worst = math.nan if any(map(math.isnan, [worst, *differences])) else max(worst, *differences)
            print(f"{ranks} rank{'s' if ranks > 1 else ' '}:    " + " ".join(f"{x:.6f}" for x in found), flush=True)
        print(f"largest difference of a loss: {worst:.2g}")
        return 0 if worst < 1e-4 else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"llm_c.py: {failure}")
