#!/usr/bin/env python3
"""What resumable checkpoints cost a run: with the state in one worker, sharded, at servers whose workers make steps on
their own, and with rows of tables.

    bench/saves.py [--runs one,zero,asp,ssp,drop,table] [--steps 60] [--every 10] [--rounds 3] [--kolo build/release/kolo]
                   [--folder DIR]

Each run is made without checkpoints and with one every --every steps, in turns: resnet18, 16 images of 224x224 a worker, one
thread each, and momentum; with `table` dlrm, whose rows are at a server, of 500 times as many steps and 500 times as far
apart. Checkpoints are written to a folder under --folder (the system's for temporary files). Printed, medians over the rounds:

- the median step;
- how much longer than the median step the one behind a checkpoint lasts, which has the wait for it: of the first one, whose
  copy takes new memory, and the mean over the others but that of the end, which also as a share of the steps between two;
- the time of all steps with checkpoints over that without them, by the clock;
- the same of the processor time of all processes, which can be compared on a machine that does other work, too.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TABLE_STEPS = 500  # of a table for one of resnet18
COMMON = ["--threads", "1", "--no-recipe", "--no-eval", "--autotune", "off", "--no-bind", "--log-every", "1", "--quiet"]
IMAGES = ["--model", "resnet18", "--data", "synthetic:N=9600,shape=3x224x224,test=1", "--batch", "16", "--lr", "0.01",
          "--momentum", "0.9"]
CLICKS = ["--model", "dlrm:tables=8,rows=100000,dim=16,dense=4,bottom1=32,bottom2=0,bottom3=0,top1=32,top2=0",
          "--data", "synthetic-clicks:N=2000000,test=10", "--batch", "512", "--optimizer", "adam", "--lr", "0.001",
          "--table", "emb.weight"]
SERVED = ["--sync", "ps", "--servers", "1"]
RUNS = {"one": IMAGES,
        "zero": [*IMAGES, "--workers", "2", "--zero", "1"],
        "asp": [*IMAGES, *SERVED, "--workers", "1", "--consistency", "asp"],
        "ssp": [*IMAGES, *SERVED, "--workers", "1", "--consistency", "ssp:2"],
        "drop": [*IMAGES, *SERVED, "--workers", "2", "--consistency", "bsp:drop=1"],
        "table": [*CLICKS, *SERVED, "--workers", "1", "--consistency", "asp"]}


def train(opts, options, steps, every):
    """The times at which steps have ended, from the first step on, and the processor time of all processes."""
    with tempfile.TemporaryDirectory(dir=opts.folder) as folder:
        saves = ["--checkpoint-every", str(every)] if every else []
        with subprocess.Popen([opts.kolo, "train", *options, *COMMON, "--steps", str(steps), "--out", f"{folder}/run", *saves],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            error = process.stderr.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"saves.py: {' '.join(options)}: {(error.strip().splitlines() or ['no output'])[-1]}")
        with open(f"{folder}/run/metrics.jsonl", encoding="ascii") as file:
            lines = [json.loads(line) for line in file]
    return [line["seconds"] for line in lines if line["event"] == "train"], used.ru_utime + used.ru_stime


def compare(opts, name):
    scale = TABLE_STEPS if name == "table" else 1
    steps, every = opts.steps * scale, opts.every * scale
    plain, plain_processor = train(opts, RUNS[name], steps, 0)
    saved, saved_processor = train(opts, RUNS[name], steps, every)
    gaps = [after - before for before, after in zip(saved, saved[1:])]  # gaps[i]: of step i + 2
    behind = [gap for i, gap in enumerate(gaps) if (i + 1) % every == 0]
    step = statistics.median(gap for i, gap in enumerate(gaps) if (i + 1) % every != 0)
    wait = statistics.mean(behind[1:]) - step
    return (step * 1e3, (behind[0] - step) * 1e3, wait * 1e3, wait / (every * step),
            (saved[-1] - saved[0]) / (plain[-1] - plain[0]), saved_processor / plain_processor)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default=",".join(RUNS))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kolo", default=f"{HERE.parent}/build/release/kolo")
    parser.add_argument("--folder")
    opts = parser.parse_args()
    names = opts.runs.split(",")
    unknown = [name for name in names if name not in RUNS]
    if unknown or opts.steps <= 2 * opts.every:
        parser.error(f"--runs {unknown[0]}: choose of {', '.join(RUNS)}" if unknown else "--steps: more than twice --every")
    found = {name: [] for name in names}
    for _ in range(opts.rounds):
        for name in names:
            found[name].append(compare(opts, name))
    print("| run | step, ms | first wait, ms | wait, ms | of the steps between | time with checkpoints | processor time |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, rows in found.items():
        step, first, wait, share, clock, processor = (statistics.median(column) for column in zip(*rows))
        print(f"| {name} | {step:.1f} | {first:.1f} | {wait:.1f} | {100 * share:.2f} % | {clock:.3f} | {processor:.3f} |")


main()
