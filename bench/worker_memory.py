#!/usr/bin/env python3
"""Memory of data-parallel workers on one host, planned and measured: plain, ZeRO, one copy per host.

    bench/worker_memory.py [MODEL [WORKERS [BUILD [MESH]]]] [--options TEXT ...]   default: gpt2:context=32 4 build/release

With a mesh, whose workers have equal parts of the model (dp and tp): without and with --zero 1. With reproducible for
MESH: one and two logical shards for each worker, plain and ZeRO. --options replaces these cases. A case that fails is
printed with the error, and the program then exits with 1.

Planned: what the result of a run states for each worker (parameters and optimizer, exchanged, values of a step); shared
parameters count once. Measured: the largest sum over the workers of their proportional set sizes (Pss: a shared page counts
once), of whole runs, sampled ten times a second. Where nothing is shared also measured/planned of each worker.
"""
import argparse
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


def run(command, workers):
    """The result of a run, the peak of its processes together, and the peak of each worker, in the order of ranks."""
    together, peaks = 0, {}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        with subprocess.Popen(command, stdout=out, stderr=err) as process:
            while process.poll() is None:
                now = {p: pss(p) for p in children(process.pid)}
                together = max(together, sum(now.values()))
                for p, bytes_of in now.items():
                    peaks[p] = max(peaks.get(p, 0), bytes_of)
                time.sleep(0.1)
        if process.returncode != 0:
            err.seek(0)
            errors = err.read().strip().splitlines()
            return None, errors[-1] if errors else f"exit status {process.returncode}", []
        out.seek(0)
        largest = sorted(peaks, key=peaks.get)[-workers:]
        return json.load(out), together, [peaks[p] for p in sorted(largest)]


def bytes_of_row(row):
    return row["store_bytes"] + row["exchanged_bytes"] + row["value_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="gpt2:context=32")
    parser.add_argument("workers", nargs="?", type=int, default=4)
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("mesh", nargs="?", default="")
    parser.add_argument("--options", action="append", metavar="TEXT", help="a case, such as '--mesh pp=4 --accumulate 4'")
    o = parser.parse_args()
    mib = 1 << 20
    cases = CASES
    if o.options:
        cases = o.options
    elif o.mesh == "reproducible":
        cases = [case.format(o.workers, 2 * o.workers) for case in SHARD_CASES]
    elif o.mesh:
        cases = [case.format(o.mesh) for case in MESH_CASES]
    batch = ["--global-batch", str(2 * o.workers)] if o.mesh == "reproducible" else ["--batch", "1"]
    print(f"{'options':<38} {'shared':>8} {'planned':>8} {'measured':>8} {'ratio':>6}   MiB; worker by worker")
    failed = False
    for options in cases:
        result, peak, each = run([f"{o.build}/kolo", "train", "--workers", str(o.workers), "--threads", "1", *batch,
                                  "--steps", "2", "--optimizer", "adamw", "--lr", "1e-4", "--no-recipe", "--no-eval",
                                  "--json", "-", "--model", o.model, "--data", "synthetic-tokens:N=64,test=4",
                                  *options.split()], o.workers)
        if not result:
            print(f"{options:<38} {peak}", flush=True)
            failed = True
            continue
        rows = [bytes_of_row(row) for row in result.get("memory_by_rank", [result])]
        planned = sum(rows) + result["shared_bytes"]
        ranks = " ".join(f"{m / mib:.0f}/{p / mib:.0f}={m / p:.3f}" for p, m in zip(rows, each)) if result["shared_bytes"] == 0 else ""
        print(f"{options or 'one copy per host':<38} {result['shared_bytes'] / mib:8.0f} {planned / mib:8.0f} "
              f"{peak / mib:8.0f} {peak / planned:6.3f}   {ranks}", flush=True)
    return failed


sys.exit(main())
