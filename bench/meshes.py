#!/usr/bin/env python3
"""Equivalence of meshes: trains small models for 50 steps on one worker and on meshes of 2 to 8, and
prints a table of relative differences of the loss at the first and the last step. Fails if one is
above 1e-5 (first) or 1e-3 (last), f32.

    bench/meshes.py build/release/kolo [--models gpt2,bert] [--meshes "tp=2;dp=2,tp=2"] [--steps 50]

All models on all meshes take about ten minutes on two idle cores. docs/parallelism.md has the table.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

TOKENS = "synthetic-tokens:N=200,test=1"
IMAGES = "synthetic:N=200,test=1,shape={},classes=10,seed=2"
# Name, model with options, data, further options.
MODELS = [
    ("gpt2", "gpt2_tiny:layers=2,width=32,heads=8,context=16,vocab=61,dropout=10", TOKENS,
     "--optimizer adamw --lr 0.003"),
    ("bert", "bert_tiny:layers=1", TOKENS, "--lr 0.02"),
    ("vit", "vit_tiny:layers=1,heads=8,width=64,mlp=60,dropout=10", IMAGES.format("3x32x32"),
     "--lr 0.01 --momentum 0.9"),
    ("alexnet", "alexnet:width=10,units=50", IMAGES.format("3x63x63"), "--lr 0.01 --momentum 0.9"),
    ("mlp", "mlp", IMAGES.format("1x28x28"), "--lr 0.01 --momentum 0.9"),
    ("lenet", "lenet", IMAGES.format("1x28x28"), "--lr 0.01 --momentum 0.9"),
]
MESHES = ["dp=2", "tp=2", "dp=2,tp=2", "tp=2,dp=2", "tp=3", "tp=4", "dp=2,tp=4", "dp=4,tp=2", "tp=8"]
FIRST, LAST = 1e-5, 1e-3


def train(kolo, model, data, options, steps, mesh):
    """The losses of all steps, or the text of the error."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        command = [kolo, "train", "--model", model, "--data", data, "--global-batch", "16",
                   "--steps", str(steps), "--epochs", str(steps), "--clip", "1", "--no-recipe",
                   "--log-every", "1", "--threads", "1", "--no-eval", "--out", out, *options.split()]
        if mesh:
            command += ["--mesh", mesh]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            return result.stderr.strip().splitlines()[-1]
        with open(os.path.join(out, "metrics.jsonl")) as lines:
            rows = [json.loads(line) for line in lines]
        return [row["loss"] for row in rows if "loss" in row]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kolo")
    parser.add_argument("--models")
    parser.add_argument("--meshes")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    names = args.models.split(",") if args.models else [row[0] for row in MODELS]
    meshes = args.meshes.split(";") if args.meshes else MESHES
    print("| model | mesh | first loss | last loss |\n| --- | --- | --- | --- |")
    failed = 0
    for name, model, data, options in MODELS:
        if name not in names:
            continue
        alone = train(args.kolo, model, data, options, args.steps, None)
        if isinstance(alone, str):
            sys.exit(f"{name}: {alone}")
        for mesh in meshes:
            losses = train(args.kolo, model, data, options, args.steps, mesh)
            if isinstance(losses, str):
                print(f"| {name} | {mesh} | refused: {losses.removeprefix('kolo: ')} | |")
                continue
            first, last = (abs(losses[i] / alone[i] - 1) for i in (0, -1))
            wrong = len(losses) != len(alone) or not (first <= FIRST and last <= LAST)
            failed += wrong
            print(f"| {name} | {mesh} | {first:.1e} | {last:.1e} |{' WRONG' if wrong else ''}",
                  flush=True)
    sys.exit(1 if failed else 0)


main()
