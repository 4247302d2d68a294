#!/usr/bin/env python3
"""Two data-parallel workers against two independent jobs side by side, of one thread each, in pairs of runs.

    bench/two_jobs.py [--pairs 20] [--build build/release] [--models lenet:64:300,alexnet:32:4,resnet50:8:2]

A model is NAME:BATCH:STEPS; the batch is that of each worker and job. Both runs of a pair follow each other, and every
second pair begins with the other one. Each job, and each worker, has a processor of its own. Printed are the medians,
over the pairs, of the samples per second, at the median step, of both jobs together and of the workers; the median of
their ratio with its quartiles and range; and the same ratio of each pair's jobs to those of the pair before, which shows
what the machine alone does.
A synchronous step ends when its slower worker has ended it. If the steps of both took independent times, each
distributed as those of a job of its own, half of the steps would end by the quantile at 70.7 % (the square root of 1/2)
of a job's steps: the column "limit" is the median of that job's samples per second at this quantile over that at its
median, without any cost of communication.
On two idle cores 20 pairs of all three take about 8 minutes; --json FILE keeps all figures.
"""
import argparse
import json
import math
import os
import statistics
import subprocess


def start(opts, model, batch, steps, options, processors):
    """A measurement under way."""
    command = [f"{opts.build}/kolo", "bench", "train", "--model", model, "--batch", batch, "--steps", steps,
               "--threads", "1", "--momentum", "0.9", "--autotune", "off", "--json", "-", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            preexec_fn=lambda: os.sched_setaffinity(0, processors))


def finish(process):
    """The samples per second of its median step, which one that ends first has made while both ran, and how much
    lower those at the quantile 70.7 % are."""
    out, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(process.args)}: exit status {process.returncode}\n{errors}")
    found = json.loads(out)
    steps = found["step_ms_quantiles"]
    place = math.sqrt(0.5) * (len(steps) - 1)
    low = int(place)
    slower = steps[low] + (steps[low + 1] - steps[low]) * (place - low)
    return found["workers"] * found["batch"] * 1000 / found["step_ms_median"], found["step_ms_median"] / slower


def rate(opts, run, options, places):
    """The samples per second of jobs together, each of which has the processors of a place, and the mean of their
    losses at the quantile."""
    processes = []
    try:
        for processors in places:
            processes.append(start(opts, *run, options, processors))
        found = list(map(finish, processes))
        return sum(f[0] for f in found), statistics.mean(f[1] for f in found)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def jobs(opts, run, processors):
    return rate(opts, run, ["--workers", "1"], [{p} for p in processors])


def workers(opts, run, processors):
    return rate(opts, run, ["--workers", "2"], [set(processors)])


def spread(ratios):
    """"median (first quartile to third; least to greatest)"."""
    if len(ratios) < 2:
        return f"{ratios[0]:.3f}" if ratios else "-"
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f} to {high:.3f}; {min(ratios):.3f} to {max(ratios):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--models", default="lenet:64:300,alexnet:32:4,resnet50:8:2")
    parser.add_argument("--json", metavar="FILE")
    opts = parser.parse_args()
    processors = sorted(os.sched_getaffinity(0))[:2]
    if len(processors) < 2:
        parser.error("two processors are needed")
    figures = {}
    print("| | two jobs | 2 workers | workers / jobs | jobs / jobs of the pair before | limit |")
    print("| --- | --- | --- | --- | --- | --- |")
    for text in opts.models.split(","):
        run = text.split(":")
        pairs = []
        for i in range(opts.pairs):
            if i % 2:
                both = workers(opts, run, processors)
                alone = jobs(opts, run, processors)
            else:
                alone = jobs(opts, run, processors)
                both = workers(opts, run, processors)
            pairs.append((alone[0], both[0], alone[1]))
        figures[text] = pairs
        before = [b[0] / a[0] for a, b in zip(pairs, pairs[1:])]
        print(f"| {run[0]}, {run[1]} | {statistics.median(p[0] for p in pairs):.1f} | "
              f"{statistics.median(p[1] for p in pairs):.1f} | {spread([p[1] / p[0] for p in pairs])} | "
              f"{spread(before)} | {statistics.median(p[2] for p in pairs):.3f} |", flush=True)
        if opts.json:
            with open(opts.json, "w", encoding="utf-8") as file:
                json.dump(figures, file)


main()
