#!/usr/bin/env python3
"""Processor time of a training step of Kolo and of PyTorch on one thread, in turns: for a machine that does other work,
too (on an idle one use bench/train.sh).

    bench/turns.py --python venv/bin/python llama:8 vit_tiny:16 mobilenet_v2:16 [--rounds 5] [--steps 3]

Of Kolo, the time of a process with some steps less that of one without them, as user and system time; of PyTorch, the
same, the faster of its two layouts for images. Nets are those of bench/train.sh. Prints the medians, the ratio of the
medians, and the ratios of the rounds.
"""
import argparse
import os
import pathlib
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
OURS = {"gpt": "gpt2:layers=6,width=384,heads=6,context=256,vocab=8192,dropout=0",
        "llama": "llama:layers=6,width=384,heads=6,kv_heads=6,mlp=1024,context=256,vocab=8192"}
# A malloc that keeps its pages: faster than PyTorch's default.
KEEPS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def processor_seconds(command, env=None):
    """User and system time of a command."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})}) as process:
        error = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]}: {error.strip().splitlines()[-1]}")
    return used.ru_utime + used.ru_stime


def kolo(opts, net, batch, steps):
    return processor_seconds([f"{opts.build}/kolo", "bench", "train", "--model", OURS.get(net, net), "--batch", batch,
                              "--threads", "1", "--momentum", "0.9", "--steps", str(steps), "--json", "-"])


def torch(opts, net, batch, layout, steps):
    return processor_seconds([opts.python, str(HERE / "peers/torch_train.py"), net, batch, "1", layout, "0",
                              "--steps", str(steps)], KEEPS)


def step_ms(run, steps):
    few, many = run(1), run(1 + steps)
    return 1e3 * (many - few) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("nets", nargs="+", metavar="NET:BATCH")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    opts = parser.parse_args()
    print("| net, batch | Kolo | PyTorch | ratio | ratios of rounds |")
    print("| --- | --- | --- | --- | --- |")
    for spec in opts.nets:
        net, batch = spec.split(":")
        kolo(opts, net, batch, 1)  # the kernels are timed, once for each machine
        trials = {layout: step_ms(lambda n, at=layout: torch(opts, net, batch, at, n), opts.steps)
                  for layout in ("nchw", "nhwc")}
        layout = min(trials, key=trials.get)
        rounds = [(step_ms(lambda n: kolo(opts, net, batch, n), opts.steps),
                   step_ms(lambda n: torch(opts, net, batch, layout, n), opts.steps)) for _ in range(opts.rounds)]
        ours, theirs = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        print(f"| {net}, {batch} | {ours:.0f} ms | {theirs:.0f} ms, {layout} | {theirs / ours:.2f} | "
              f"{', '.join(f'{t / k:.2f}' for k, t in rounds)} |", flush=True)


main()
