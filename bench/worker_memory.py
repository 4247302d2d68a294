#!/usr/bin/env python3
"""Memory of data-parallel workers on one host, planned and measured: plain, ZeRO, one copy per host.

    bench/worker_memory.py [MODEL [WORKERS [BUILD [MESH]]]]     default: gpt2:context=32 4 build/release

With a mesh, whose workers have equal parts of the model (dp and tp): without and with --zero 1. With reproducible for
MESH: one and two logical shards for each worker, plain and ZeRO.

Planned: what the result of a run states for a worker (parameters and optimizer, exchanged, values of a step), times
the workers; shared parameters count once. Measured: the largest sum over the workers of their proportional set sizes
(Pss: a shared page counts once), of whole runs, sampled ten times a second.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

MESH_CASES = ["--mesh {}", "--mesh {} --zero 1"]
SHARD_CASES = ["--reproducible {0} --no-share", "--reproducible {0} --zero 3 --no-share",
               "--reproducible {1} --no-share", "--reproducible {1} --zero 3 --no-share"]
CASES = ["--no-share", "--zero 1 --no-share", "--zero 2 --no-share", "--zero 3 --no-share", "", "--zero 3"]


def children(pid):
    """The descendants of a process."""
    found = []
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in path.read_text().split()]
        except OSError:
            pass
    return found + [below for child in found for below in children(child)]


def pss(pid):
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(command):
    """The result of a run and the peak of its processes."""
    peak = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        with subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                peak = max(peak, sum(pss(p) for p in children(process.pid)))
                time.sleep(0.1)
        if process.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
        out.seek(0)
        return json.load(out), peak


def main():
    defaults = ["gpt2:context=32", "4", "build/release", ""]
    model, workers, build, mesh = (sys.argv[1:] + defaults[len(sys.argv) - 1:])[:4]
    mib = 1 << 20
    cases = CASES
    if mesh == "reproducible":
        cases = [case.format(int(workers), 2 * int(workers)) for case in SHARD_CASES]
    elif mesh:
        cases = [case.format(mesh) for case in MESH_CASES]
    batch = ["--global-batch", str(2 * int(workers))] if mesh == "reproducible" else ["--batch", "1"]
    print(f"{'options':<38} {'worker':>8} {'shared':>8} {'planned':>8} {'measured':>8} {'ratio':>6}   MiB")
    for options in cases:
        result, peak = run([f"{build}/kolo", "train", "--workers", workers, "--threads", "1", *batch,
                            "--steps", "2", "--optimizer", "adamw", "--lr", "1e-4", "--no-recipe", "--no-eval",
                            "--json", "-", "--model", model, "--data", "synthetic-tokens:N=64,test=4",
                            *options.split()])
        own = result["store_bytes"] + result["exchanged_bytes"] + result["value_bytes"]
        planned = own * int(workers) + result["shared_bytes"]
        print(f"{options or 'one copy per host':<38} {own / mib:8.0f} {result['shared_bytes'] / mib:8.0f} "
              f"{planned / mib:8.0f} {peak / mib:8.0f} {peak / planned:6.3f}", flush=True)


main()
