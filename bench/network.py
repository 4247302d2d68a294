#!/usr/bin/env python3
"""Training steps of two hosts on a slow network, against what the processors and the network allow. As root.

    bench/network.py [--nets resnet50:8,alexnet:16] [--rate 1gbit] [--seconds 10] [--parts steps,buckets,codecs,rounds]
                     [--python venv/bin/python] [--bytes-only] [--out FILE.md] [--kolo build/release/kolo]

The hosts are network namespaces (tests/hosts/net.sh). For each net (NAME:BATCH, the batch of each host): the goodput of plain
TCP and a step of each host without the other, both at the same time, which is `compute`; then of each row the step and the
bytes that host 1 sends in it, by the counter of its interface, and the bound max(compute, bytes / goodput). Rows:
steps: default buckets, those that --buckets auto chooses, and with --python PyTorch's DistributedDataParallel over Gloo. buckets: of 1, 4, 25 and
100 MB, one for each gradient and one for all. codecs: f16, topk:0.01, 1bit. rounds: diloco:50, over two rounds. The parts
alternate --turns times, and medians are printed. --bytes-only makes few steps and prints the bytes alone, which no load of
the machine changes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time

from namespaces import HERE, Failure, Hosts

PARAMETERS = {"resnet50": 25557032, "alexnet": 61100840, "googlenet": 6624904, "lenet": 61706}
SMALL = ["--compress-min-bytes", "4K"]
ROUND = 50
PLANNED = "the plan of --buckets auto"
PARTS = {
    "steps": {"f32": [], PLANNED: None},
    "buckets": {**{f"--bucket-bytes {n}M": ["--bucket-bytes", f"{n}M"] for n in (1, 4, 25, 100)},
                "a bucket for each gradient": ["--bucket-bytes", "1"], "one bucket": ["--bucket-bytes", "4G"]},
    "codecs": {f"--compress {c}": ["--compress", c, *SMALL] for c in ("f16", "topk:0.01", "1bit")},
    "rounds": {f"--consistency diloco:{ROUND}": ["--consistency", f"diloco:{ROUND}"]},
}


def train(o, net, batch, steps, more):
    return [o.kolo, "bench", "train", "--model", net, "--batch", str(batch), "--threads", "1", "--momentum", "0.9", "--steps",
            str(steps), "--json", "-", *more]


def compute(o, hosts, net, batch, steps):
    """Median step of a host, while the other one does the same."""
    return json.loads(hosts.run([train(o, net, batch, steps, [])] * 2))["step_ms_median"]


def measure(o, hosts, net, batch, steps, more):
    """Mean and median step, and the bytes that host 1 sends in one: those of twice the steps less those of so many."""
    sent, found = [hosts.sent(1)], None
    for n in (steps, 2 * steps):
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
    rows = [(name, more, None) for name, more in PARTS[part].items() if not (o.bytes_only and name == PLANNED)]
    return rows + ([("PyTorch DDP, Gloo", None, "peer")] if part == "steps" and o.python else [])


def of_net(o, net, batch, lines):
    with Hosts(2, o.rate) as hosts:
        goodput = statistics.median(hosts.goodput() for _ in range(3))
        alone = compute(o, hosts, net, batch, 3)
        steps = 2 if o.bytes_only else max(3, int(o.seconds * 1e3 / max(alone, 1e3 * 4 * PARAMETERS.get(net, 0) / goodput)))
        alone = compute(o, hosts, net, batch, 2 * steps)
        lines += [f"{net}, {batch} samples on each host: goodput {goodput / 1e6:.1f} MB/s, compute {alone:.1f} ms", "",
                  "| | MB sent in a step | of f32 | step, ms | bound, ms | step / bound |", "| --- | --- | --- | --- | --- | --- |"]
        found, planned = {}, [] if o.bytes_only else plan(o, hosts, net, batch)
        for _ in range(1 if o.bytes_only else o.turns):
            for part in o.parts.split(","):
                for name, more, kind in rows_of(o, part):
                    n = ROUND if part == "rounds" else steps
                    got = peer(o, hosts, net, batch, n, alone) if kind else measure(o, hosts, net, batch, n,
                                                                                             planned if more is None else more)
                    found.setdefault((part, name), []).append(got)
                    print(f"{net}: {name}: {got}", file=sys.stderr, flush=True)
        whole = found.get(("steps", "f32"), [(0, 0, 4 * PARAMETERS.get(net, 0))])[0][2]
        for (part, name), runs in found.items():
            means, medians, sent = ([r[k] for r in runs] for k in range(3))
            step = statistics.median(means if part == "rounds" else medians)  # a round's exchange is in one step of many
            each = statistics.median(sent)
            bound = max(alone, 1e3 * each / goodput)
            share = f" {each / whole:.4f} |" if whole else " |"
            times = " | |" if o.bytes_only else f" {step:.1f} | {bound:.1f} | {step / bound:.3f} |"
            lines.append(f"| {name} | {each / 1e6:.3f} |{share}{times}")
        lines.append("")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default="resnet50:8,alexnet:16")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--seconds", type=float, default=6, help="of the shorter of the two runs of a row")
    parser.add_argument("--turns", type=int, default=1)
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
    lines = []
    try:
        for net_batch in o.nets.split(","):
            net, batch = net_batch.rsplit(":", 1)
            of_net(o, net, int(batch), lines)
    except Failure as e:
        raise SystemExit(f"network.py: {e}") from e
    lines.append(f"`bench/network.py {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}, two hosts with links of {o.rate}, load "
                 f"{load:.1f} before and {os.getloadavg()[0]:.1f} after, {(time.monotonic() - begin) / 60:.0f} min.")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if o.out:
        with open(o.out, "w", encoding="utf-8") as f:
            f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
