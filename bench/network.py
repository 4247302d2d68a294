#!/usr/bin/env python3
"""Training steps of two hosts on a slow network, against what the processors and the network allow. As root.

    bench/network.py [--nets resnet50:8,alexnet:16] [--rate 1gbit] [--seconds 6] [--parts steps,buckets,codecs,rounds]
                     [--python venv/bin/python] [--round 20] [--turns 1] [--bytes-only] [--out FILE.md] [--kolo build/release/kolo]

The hosts are network namespaces (tests/hosts/net.sh). For each net (NAME:BATCH, the batch of each host): the goodput of
plain TCP and a step of each host without the other, both at the same time, which is `compute`; then of each row the step
and the bytes that host 1 sends in it, by the counter of its interface, and the bound max(compute, bytes / goodput). Rows:
steps: default buckets, those that --buckets auto chooses, and with --python PyTorch's DistributedDataParallel over Gloo.
buckets: of 1, 4, 25 and 100 MiB, one for each gradient and one for all. codecs: f16, topk:0.01, 1bit. rounds: diloco with
--round steps in each, over two rounds, and the same in two fragments that are exchanged beside a fifth of these steps, since
a round that all wait for takes its time beside that of the steps; their steps are means. Beside the part of the bytes of f32
there is the factor of the codec or of the rounds: small gradients, running statistics and metrics are sent whole. hybrid (give it with --parts): convolutions by samples, classifiers divided. The
rows alternate --turns times, and medians are printed, with PyTorch's step over that of default buckets, and that of
--buckets auto over the best of fixed ones. A row that fails is listed, and the program then exits with 1. --bytes-only
makes few steps and prints the bytes alone, which no load of the machine changes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time

from namespaces import HERE, Failure, Hosts, end_on_signals

PARAMETERS = {"resnet50": 25557032, "alexnet": 61100840, "googlenet": 6624904, "lenet": 61706}
SMALL = ["--compress-min-bytes", "4K"]
FEW = 3  # steps of the run whose bytes are those of the start and the end
DEFAULT = "f32"
PEER = "PyTorch DDP, Gloo"
PLANNED = "the plan of --buckets auto"
HOSTS = 2
HYBRID = f"--mesh tp={HOSTS} --placement owt"
# Bytes of a codec over those of f32, of which a ring moves 2 (N - 1) / N and a gather of codes N - 1 (docs/consistency.md).
FACTORS = {"--compress f16": HOSTS / 4, "--compress topk:0.01": 8 * 0.01 / 4 * HOSTS / 2,
           "--compress 1bit": (1 / 8 + 8 / 2048) / 4 * HOSTS / 2}
PARTS = {
    "steps": {DEFAULT: [], PLANNED: None},
    "buckets": {**{f"--bucket-bytes {n}M": ["--bucket-bytes", f"{n}M"] for n in (1, 4, 25, 100)},
                "a bucket for each gradient": ["--bucket-bytes", "1"], "one bucket": ["--bucket-bytes", "4G"]},
    "codecs": {f"--compress {c}": ["--compress", c, *SMALL] for c in ("f16", "topk:0.01", "1bit")},
    "rounds": {"diloco:{H}": [], "diloco:{H},fragments=2,overlap={T}": []},
    "hybrid": {HYBRID: ["--mesh", f"tp={HOSTS}", "--placement", "owt"]},
}


def train(o, net, batch, steps, more):
    return [o.kolo, "bench", "train", "--model", net, "--batch", str(batch), "--threads", "1", "--momentum", "0.9", "--steps",
            str(steps), "--json", "-", *more]


def compute(o, hosts, net, batch, steps):
    """Median step of a host, while the other one does the same."""
    return json.loads(hosts.run([train(o, net, batch, steps, [])] * 2))["step_ms_median"]


def measure(o, hosts, net, batch, steps, more, few=FEW):
    """Mean and median step, and the bytes that host 1 sends in one: those of few + steps less those of few."""
    sent, found = [hosts.sent(1)], None
    for n in (few, few + steps):
        found = json.loads(hosts.run_ranks(train(o, net, batch, n, more)))
        sent.append(hosts.sent(1))
    each = ((sent[2] - sent[1]) - (sent[1] - sent[0])) / steps
    return found["ms_per_step"]["step"], found["step_ms_median"], each


def plan(o, hosts, net, batch):
    """The buckets that --buckets auto chooses, as options."""
    hosts.run_ranks(train(o, net, batch, 8, ["--buckets", "auto"]))
    sizes = re.search(r"buckets of gradients from step \d+ on: ([0-9,]+)", hosts.errors)
    if not sizes:
        raise Failure("--buckets auto printed no buckets")
    return ["--buckets", sizes.group(1)]


def peer(o, hosts, net, batch, steps, ms):
    """The same of PyTorch's DistributedDataParallel over Gloo, which sends the parameters once, before its steps."""
    script = os.path.join(HERE, "bench", "peers", "torch_train.py")

    def run(seconds):
        before = hosts.sent(1)
        found = json.loads(hosts.run_ranks([o.python, script, net, str(batch), "1", "nchw", str(seconds)]))
        return found, hosts.sent(1) - before

    few, first = run(0)  # its least number of steps
    found, sent = run(max(2 * steps * ms, 4 * few["steps"] * few["step_ms_median"]) / 1e3)
    more = found["steps"] - few["steps"]
    if more <= 0:
        raise Failure(f"PyTorch made {found['steps']} steps of {net}: give more --seconds")
    return None, found["step_ms_median"], (sent - first) / more


def rows_of(o, part):
    """Names of rows and how each is measured: a function of hosts, net, batch, steps, ms of compute, and the planned buckets."""
    def of(more, rounds):
        def run(hosts, net, batch, steps, alone, planned):
            batch *= HOSTS if part == "hybrid" else 1  # the ranks of an axis tp get the same samples
            return measure(o, hosts, net, batch, o.round if rounds else steps, planned if more is None else more,
                           o.round if rounds else FEW)
        return run

    rows = []
    for name, more in PARTS[part].items():
        if part == "rounds":
            policy = name.format(H=o.round, T=max(1, o.round // 5))
            rows.append((f"--consistency {policy}", of(["--consistency", policy], True)))
        elif not (o.bytes_only and name == PLANNED):
            rows.append((name, of(more, False)))
    if part == "steps" and o.python:
        rows.append((PEER, lambda hosts, net, batch, steps, alone, planned: peer(o, hosts, net, batch, steps, alone)))
    return rows


def comparisons(steps):
    """Sentences about the steps, in ms, of (part, row)."""
    out = []
    if ("steps", PEER) in steps and ("steps", DEFAULT) in steps:
        out.append(f"{PEER} over {DEFAULT}: {steps['steps', PEER] / steps['steps', DEFAULT]:.3f}.")
    fixed = {name: ms for (part, name), ms in steps.items() if part == "buckets"}
    if fixed and ("steps", PLANNED) in steps:
        best = min(fixed, key=fixed.get)
        out.append(f"{PLANNED} over the best fixed buckets ({best}): {steps['steps', PLANNED] / fixed[best]:.3f}.")
    if ("hybrid", HYBRID) in steps and ("steps", DEFAULT) in steps:
        out.append(f"Samples/s of {HYBRID} over {DEFAULT}: {steps['steps', DEFAULT] / steps['hybrid', HYBRID]:.3f}.")
    return out


def table(o, found, net, alone, goodput):
    """The lines of a net: found has the runs of (part, row)."""
    whole = found.get(("steps", DEFAULT), [(0, 0, 4 * PARAMETERS.get(net, 0))])[0][2]
    head = ["row", "MB sent in a step", "of f32", "factor", "step, ms", "bound, ms", "step / bound"]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    steps = {}
    for (part, name), runs in found.items():
        means, medians, sent = ([r[k] for r in runs] for k in range(3))
        step = statistics.median(means if part == "rounds" else medians)  # a round's exchange is in one step of many
        each = statistics.median(sent)
        bound = max(alone, 1e3 * each / goodput)
        factor = 1 / o.round if part == "rounds" else FACTORS.get(name)
        share = (f" {each / whole:.4f} |" if whole else " |") + (f" {factor:.4f} |" if factor else " |")
        times = " | | |" if o.bytes_only else f" {step:.1f} | {bound:.1f} | {step / bound:.3f} |"
        out.append(f"| {name} | {each / 1e6:.3f} |{share}{times}")
        steps[part, name] = step
    return out + ["", *([] if o.bytes_only else comparisons(steps))]


def of_net(o, net, batch, failed):
    """The lines of a net."""
    with Hosts(HOSTS, o.rate) as hosts:
        goodput = statistics.median(hosts.goodput() for _ in range(3))
        alone = compute(o, hosts, net, batch, 3)
        steps = 2 if o.bytes_only else max(4, int(o.seconds * 1e3 / max(alone, 1e3 * 4 * PARAMETERS.get(net, 0) / goodput)))
        alone = compute(o, hosts, net, batch, 2 * steps)
        found, planned = {}, []
        if "steps" in o.parts.split(",") and not o.bytes_only:
            planned = plan(o, hosts, net, batch)
        for _ in range(1 if o.bytes_only else o.turns):
            for part in o.parts.split(","):
                for name, run in rows_of(o, part):
                    try:
                        got = run(hosts, net, batch, steps, alone, planned)
                    except Failure as e:
                        failed.append(f"{net}, {name}: {e}")
                        continue
                    found.setdefault((part, name), []).append(got)
                    print(f"{net}: {name}: mean {got[0] or 0:.1f} ms, median {got[1]:.1f} ms, {got[2] / 1e6:.3f} MB",
                          file=sys.stderr, flush=True)
        return [f"{net}, {batch} samples on each host: goodput {goodput / 1e6:.1f} MB/s, compute {alone:.1f} ms", "",
                *table(o, found, net, alone, goodput), ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default="resnet50:8,alexnet:16")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--seconds", type=float, default=6, help="of the steps of a row")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--round", type=int, default=20, help="steps of a round of diloco")
    parser.add_argument("--parts", default="steps,buckets,codecs,rounds")
    parser.add_argument("--python", default="", help="with PyTorch, for DistributedDataParallel")
    parser.add_argument("--bytes-only", action="store_true")
    parser.add_argument("--out", default="")
    parser.add_argument("--kolo", default=os.path.join(HERE, "build/release/kolo"))
    o = parser.parse_args()
    for part in o.parts.split(","):
        if part not in PARTS:
            raise SystemExit(f"network.py: no part named {part}: {', '.join(PARTS)}")
    begin, load = time.monotonic(), os.getloadavg()[0]
    end_on_signals()
    lines, failed = [], []
    for net_batch in o.nets.split(","):
        net, batch = net_batch.rsplit(":", 1)
        try:
            lines += of_net(o, net, int(batch), failed)
        except Failure as e:
            failed.append(f"{net}: {e}")
    lines += [f"Not measured: {'; '.join(failed)}.", ""] if failed else []
    lines.append(f"`bench/network.py {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}, two hosts with links of {o.rate}, load "
                 f"{load:.1f} before and {os.getloadavg()[0]:.1f} after, {(time.monotonic() - begin) / 60:.0f} min.")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if o.out:
        with open(o.out, "w", encoding="utf-8") as f:
            f.write(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
