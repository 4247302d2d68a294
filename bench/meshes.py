#!/usr/bin/env python3
"""Equivalence of meshes: small models in f64, with the reference kernels, dropout and clipping, on every mesh of 1 to 8
ranks. Prints, for each model and mesh, by how much the losses of the first and of the last step differ from those of one
rank, relative to them. Fails if one is above 1e-12 (first) or 1e-10 (last); with --f32, which has the fast kernels, above
1e-5 or 1e-3.

    bench/meshes.py [--build build/release] [--models gpt2,bert] [--meshes "dp=2,pp=1,tp=2 dp=2,pp=2,tp=1"] [--steps 50] [--all]
        [--axes dp,pp,tp] [--schedules 1f1b,interleaved:2,zbv] [--f32] [--resume] [--attention ring]
        [--reproducible 8 [--tp-blocks 4]]

Without --all one line for each model: how many meshes agree, the largest differences, and the meshes that are refused,
with the reasons. Networks of images (unet, deeplabv3, resnet20, vit) are for meshes with sp, which divides their rows, or positions.
Pipelines train 2 micro-batches a step, with each of --schedules (default 1f1b). Batch normalization is of all samples
(--sync-bn) where dp is above 1; in pipelines it is of a micro-batch of all workers, as with the same dp alone and two
micro-batches, with which these are compared. Meshes with a dp above 1 also run with --zero 1 (and without other axes 2
and 3). --attention is for meshes with sp, of models without rules of their own. "session" is a net that a program builds
and trains by the public header kolo/session.h. With --resume each mesh trains half of the steps and saves a file, which
the next mesh of the list loads to train the other half.

With --reproducible L the command `kolo train --reproducible L` trains on each mesh instead, in f32 with the fast kernels,
and the SHA-256 of the tensors of its checkpoint, parameters and optimizer state, is compared with that of one worker: a
line for each model with the number of meshes that have it. The nets of programs are left out. With --tp-blocks T all
runs have that option, and vocabularies of 24 words; of the LSTM the tables are divided.
docs/parallelism.md has the tables.
"""
import argparse
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

NETS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "onnx" / "nets"
# Name, model with options, optimizer, learning rate, samples, rules of tensor parallelism.
NORMS = {"googlenet", "onnx cnn", "unet", "deeplabv3", "resnet20"}  # have batch normalization
MODELS = [
    ("gpt2", "gpt2_tiny:layers=2,width=16,heads=8,context=6,vocab=19,dropout=0.1", "adamw", 0.003, "-", "-"),
    ("bert", "bert_tiny:layers=2,width=16,heads=8,context=6,vocab=19,dropout=0.1", "adamw", 0.003, "-", "-"),
    ("gpt2 moe", "gpt2_moe:layers=2,width=16,heads=8,context=6,vocab=19,experts=5,dropout=0.1", "adamw", 0.003, "-", "-"),
    ("alexnet", "alexnet:width=2,units=12", "sgd", 0.01, "3x63x63", "-"),
    ("googlenet", "googlenet:width=13,dropout=10", "sgd", 1e-4, "3x32x32", "-"),  # with more it is chaotic
    ("lstm_lm", "lstm_lm:layers=1,width=8,hidden=8,context=6,vocab=19,dropout=0.1", "sgd", 0.05, "-", "-"),
    ("onnx cnn", str(NETS / "cnn" / "model.onnx"), "sgd", 0.01, "-", "first.0.weight 0;head.weight 1 2"),
    ("own mine", "mine:hidden=16", "adamw", 0.003, "1x6x6", "w1 0;w2 1"),
    ("own session", "session", "adamw", 0.003, "-", "words 0;*.qkv 0 3;*.mix 1;*.gate 0;*.up 0;*.down 1;"),
    ("unet", "unet:width=2", "sgd", 0.01, "3x48x16", "-"),
    ("deeplabv3", "deeplabv3_resnet101:width=2,dropout=10", "sgd", 1e-6, "3x48x16", "-"),  # with more it is chaotic
    ("resnet20", "resnet20", "sgd", 0.01, "3x32x8", "-"),
    ("vit", "vit_tiny:layers=2,width=24,heads=12,mlp=20,patch=4,dropout=10", "adamw", 0.003, "3x12x16", "-"),
]
ROWS = {"unet", "deeplabv3", "resnet20", "vit"}  # of images, divided by sp: run where --models names them
RINGS = ("ring", "zigzag")  # names of built-in rules
BOUNDS = {"f64": (1e-12, 1e-10), "f32": (1e-5, 1e-3)}  # of the first and of the last loss
# What a mesh may be refused for; other errors count as wrong.
REFUSALS = ["cannot be divided", "too few layers", "--reproducible cannot be combined", "--reproducible was given",
            "logical shards", "is not a multiple of", "no rule of tensor parallelism"]
# Rules with which layers divide into blocks, where the built-in ones do not.
BLOCK_RULES = {"lstm_lm": "encoder.weight 0\ndecoder.weight 0\n"}


def products(axes, ranks, sizes):
    """Every mesh of so many ranks on these axes; sizes of the first one in this order."""
    if len(axes) == 1:
        return [f"{axes[0]}={ranks}"]
    return [f"{axes[0]}={n},{rest}" for n in sizes if ranks % n == 0
            for rest in products(axes[1:], ranks // n, range(1, ranks // n + 1))]


def meshes(axes):
    """Every product of the axes of 2 to 8 ranks, those with the most on the first axis first."""
    return [mesh for ranks in range(2, 9) for mesh in products(axes, ranks, range(ranks, 0, -1))]


def size(mesh, axis):
    return dict(part.split("=") for part in mesh.split(",")).get(axis, "1")


def has(run, axis):
    """Whether a mesh of a run divides an axis."""
    return any(size(mesh, axis) != "1" for mesh in run)


def sync_of(row, mesh):
    """Whether batch normalization is of the samples of all ranks."""
    return row[0] in NORMS and size(mesh, "dp") != "1"


def losses(program, row, run, steps, zero, parts, kind, schedule="1f1b"):
    """The losses of all steps of a run, on one mesh or on one after the other, or the text of the error."""
    _, model, optimizer, rate, sample, rules = row
    rules = rules if has(run, "sp" if rules in RINGS else "tp") else "-"
    sync = "1" if sync_of(row, run[0]) else "0"
    result = subprocess.run([program, model, ">".join(run), str(steps), str(zero), str(parts), optimizer, str(rate),
                             sample, rules, sync, schedule, kind], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return (result.stderr.strip().splitlines() or [f"status {result.returncode}"])[-1].removeprefix("mesh-losses: ")
    return [float(line) for line in result.stdout.split()]


def levels(run):
    if any(size(mesh, "dp") == "1" for mesh in run):
        return [0]
    return [0, 1] if any(has(run, axis) for axis in ("pp", "tp", "sp", "ep")) else [0, 1, 2, 3]


def parts_of(run):
    """Micro-batches of a step."""
    return 2 if has(run, "pp") else 1


def applies(row, run):
    """Whether the model computes the same on the meshes as on one rank: one plan normalizes by all samples, or not."""
    return len({(sync_of(row, mesh), base_of(row, (mesh,))) for mesh in run}) == 1


def base_of(row, run):
    """Micro-batches and dp of what a run is compared with: one rank with one batch; batch normalization is of a
    micro-batch of all workers, of which dp has its parts."""
    parts = parts_of(run) if row[0] in NORMS else 1
    return parts, size(run[0], "dp") if parts > 1 else "1"


def runs_of(chosen, resume):
    """The meshes of each run: one, or one and the next of the list, on which it is resumed."""
    return [(mesh, other) if resume else (mesh,) for mesh, other in zip(chosen, chosen[1:] + chosen[:1])]


def compare(program, row, alone, run, zero, steps, kind, schedule):
    """The differences at the first and the last step, or the text of the error."""
    got = losses(program, row, run, steps, zero, parts_of(run), kind, schedule)
    if isinstance(got, str):
        return got
    if len(got) != len(alone):
        return f"{len(got)} losses"
    return abs(got[0] / alone[0] - 1), abs(got[-1] / alone[-1] - 1)


def check(program, row, runs, steps, everything, kind, schedules):
    """Prints the lines of a model; the number of meshes that are wrong."""
    bases = {base_of(row, run) for run in runs}
    alone = {(parts, dp): losses(program, row, (f"dp={dp}",), steps, 0, parts, kind) for parts, dp in bases}
    for got in alone.values():
        if isinstance(got, str):
            sys.exit(f"{row[0]}: {got}")
    worst, agree, wrong, refused = [0.0, 0.0], 0, 0, {}
    for run, zero, schedule in [(run, zero, schedule) for run in runs if applies(row, run) for zero in levels(run)
                                for schedule in (schedules if has(run, "pp") else schedules[:1])]:
        text = ">".join(run) + (f" zero {zero}" if zero else "") + (f" {schedule}" if schedule != "1f1b" else "")
        found = compare(program, row, alone[base_of(row, run)], run, zero, steps, kind, schedule)
        if isinstance(found, str):
            if any(phrase in found for phrase in REFUSALS):
                refused.setdefault(re.sub(r"\d+", "N", found), []).append(text)
                continue
            print(f"| {row[0]} | {text} | {found} | | WRONG", flush=True)
            wrong += 1
            continue
        bad = not all(difference <= bound for difference, bound in zip(found, BOUNDS[kind]))
        wrong += bad
        agree += not bad
        worst = [max(pair) for pair in zip(worst, found)]
        if everything or bad:
            print(f"| {row[0]} | {text} | {found[0]:.1e} | {found[1]:.1e} |{' WRONG' if bad else ''}", flush=True)
    print(f"| {row[0]} | {agree} of {agree + wrong + sum(map(len, refused.values()))} | {worst[0]:.1e} | "
          f"{worst[1]:.1e} |")
    for reason, names in refused.items():
        print(f"    refused: {'; '.join(names)}: {reason}")
    sys.stdout.flush()
    return wrong


def hash_tensors(path):
    """SHA-256 of the names, types, shapes and values of a safetensors file, without its metadata, which name the mesh."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    digest = hashlib.sha256()
    for name in sorted(header):
        tensor = header[name]
        first, end = tensor["data_offsets"]
        digest.update(json.dumps([name, tensor["dtype"], tensor["shape"]]).encode())
        digest.update(content[begin + first:begin + end])
    return digest.hexdigest()


def data_of(row):
    _, model, _, _, sample, _ = row
    if "context=" in model:
        return "synthetic-tokens:N=128,test=8"
    return f"synthetic:N=128,test=8,shape={sample if sample != '-' else '3x16x16'}"


def block_options(row, blocks, folder):
    if not blocks:
        return []
    rules = pathlib.Path(folder) / "rules"
    rules.write_text(BLOCK_RULES.get(row[0], ""), encoding="utf-8")
    return ["--tp-blocks", str(blocks)] + (["--placement", str(rules)] if row[0] in BLOCK_RULES else [])


def train(build, row, mesh, zero, schedule, shards, blocks, steps):
    """The SHA-256 of what a run of `kolo train` ends with, or the text of the error."""
    _, model, optimizer, rate, _, _ = row
    if blocks:
        model = model.replace("vocab=19", "vocab=24")
    workers = 1
    for part in mesh.split(","):
        workers *= int(part.split("=")[1])
    command = [f"{build}/kolo", "train", "--model", model, "--data", data_of(row), "--workers", str(workers),
               "--reproducible", str(shards), "--global-batch", str(2 * shards), "--steps", str(steps), "--optimizer",
               optimizer, "--lr", str(rate), "--clip", "1", "--no-recipe", "--no-eval", "--autotune", "off",
               "--progress", "none"]
    if optimizer == "sgd":
        command += ["--momentum", "0.9"]
    if workers > 1:
        command += ["--mesh", mesh, "--zero", str(zero)]
    if size(mesh, "pp") != "1":
        command += ["--pipeline", schedule]
    with tempfile.TemporaryDirectory() as folder:
        command += block_options(row, blocks, folder)
        result = subprocess.run([*command, "--out", f"{folder}/run"], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            lines = [line for line in result.stderr.splitlines() if "warning: " not in line]
            return (lines or [f"status {result.returncode}"])[-1].removeprefix("kolo: ")
        return "sha256 " + hash_tensors(pathlib.Path(folder) / "run" / "checkpoint-final.safetensors")


def check_bits(build, row, chosen, steps, everything, schedules, shards, blocks):
    """Prints the line of a model; the number of meshes whose bits are wrong."""
    alone = train(build, row, "dp=1", 0, "1f1b", shards, blocks, steps)
    if any(phrase in alone for phrase in REFUSALS):
        print(f"| {row[0]} | refused: {alone} | |", flush=True)
        return 0
    if not alone.startswith("sha256 "):
        sys.exit(f"{row[0]}: {alone}")
    agree, wrong, refused = 0, 0, {}
    for mesh, zero, schedule in [(mesh, zero, schedule) for mesh in chosen for zero in levels((mesh,))
                                 for schedule in (schedules if has((mesh,), "pp") else schedules[:1])]:
        text = mesh + (f" zero {zero}" if zero else "") + (f" {schedule}" if schedule != "1f1b" else "")
        got = train(build, row, mesh, zero, schedule, shards, blocks, steps)
        if any(phrase in got for phrase in REFUSALS):
            refused.setdefault(re.sub(r"\d+", "N", got), []).append(text)
            continue
        agree += got == alone
        wrong += got != alone
        if everything or got != alone:
            print(f"| {row[0]} | {text} | {got} |{'' if got == alone else ' WRONG'}", flush=True)
    print(f"| {row[0]} | {agree} of {agree + wrong + sum(map(len, refused.values()))} | {alone.split()[1][:16]} |")
    for reason, names in refused.items():
        print(f"    refused: {'; '.join(names)}: {reason}")
    sys.stdout.flush()
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--models")
    parser.add_argument("--meshes")
    parser.add_argument("--axes", default="dp,pp,tp")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--schedules", default="1f1b")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--f32", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--attention", choices=RINGS)
    parser.add_argument("--reproducible", type=int, metavar="L")
    parser.add_argument("--tp-blocks", type=int, default=0, metavar="T")
    args = parser.parse_args()
    names = args.models.split(",") if args.models else [row[0] for row in MODELS if row[0] not in ROWS]
    rows = [row for row in MODELS if row[0] in names or row[0].split()[-1] in names]
    if args.attention:
        rows = [row[:5] + (args.attention if row[5] == "-" else row[5],) for row in rows]
    chosen = args.meshes.split() if args.meshes else meshes(args.axes.split(","))
    if args.reproducible:
        print("| model | meshes with these bits | SHA-256, first digits |\n| --- | --- | --- |", flush=True)
        wrong = sum(check_bits(args.build, row, chosen, args.steps, args.all, args.schedules.split(","),
                               args.reproducible, args.tp_blocks) for row in rows if not row[0].startswith("own"))
        sys.exit(1 if wrong else 0)
    runs = runs_of(chosen, args.resume)
    print("| model | meshes | first loss | last loss |\n| --- | --- | --- | --- |", flush=True)
    wrong = sum(check(f"{args.build}/bench/mesh-losses", row, runs, args.steps, args.all,
                      "f32" if args.f32 else "f64", args.schedules.split(",")) for row in rows)
    sys.exit(1 if wrong else 0)


main()
