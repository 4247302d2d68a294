#!/usr/bin/env python3
"""Steps between a ring and parameter servers, against the formula of docs/servers.md. As root.

    bench/servers.py [--workers 3] [--servers 0,1,2,3] [--rate 1gbit] [--size 32M] [--seconds 5] [--turns 3]
                     [--step-buckets 64] [--kolo build/release/kolo]
    bench/servers.py --vectors 1M,16M [--workers 2] [--servers 1] ...

Each rank is on a host of its own: a network namespace whose link has this rate in both directions (tests/hosts/net.sh). B is
the goodput of plain TCP over such a link, M the size. A step is a push of M by each worker, the update, and a pull
(kolo bench ps --bsp). Printed, medians of --turns runs: the median step in M/B, that of the formula, their ratio, and
the most bytes that a rank sends and receives in a step over those of the formula, as the service counts them.

With --vectors each worker pushes a vector of such a size and then pulls it back, repeatedly, without waiting for others
(kolo bench ps). Printed: the bytes per second that all servers together receive and send, over B times the servers: 2 at most,
since a link carries both directions at the same time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

from namespaces import HERE, Failure, Hosts, end_on_signals


def formula(n, k):
    """The step in M/B; what the busiest link carries, in M."""
    return 1 if k >= n else 2 * n * (n - 1) / (n * n + k * n - 2 * k)


def run(o, k):
    with Hosts(o.workers + k, o.rate, both=True) as hosts:
        goodput = hosts.goodput()
        more = ["--servers", str(k)] if k else []
        command = [o.kolo, "bench", "ps", "--bsp", "--sizes", o.size, "--seconds", str(o.seconds), "--step-buckets",
                   str(o.step_buckets), "--json", "-", *more]
        row = json.loads(hosts.run_ranks(command))["rows"][0]
    return row["us_median"] * 1e-6 * goodput / row["bytes"], row["sent"] / row["bytes"], row["received"] / row["bytes"], goodput


def run_vectors(o, k):
    with Hosts(o.workers + k, o.rate, both=True) as hosts:
        goodput = hosts.goodput()
        command = [o.kolo, "bench", "ps", "--servers", str(k), "--sizes", o.vectors, "--seconds", str(o.seconds), "--json", "-"]
        rows = json.loads(hosts.run_ranks(command))["rows"]
    return {row["bytes"]: row["gigabytes_per_s"] * 1e9 / goodput / k for row in rows}, goodput


def vectors(o, counts):
    print(f"{o.workers} workers, {o.rate}\n")
    print("| servers | bytes | of the goodput | TCP, MB/s |")
    print("| --- | --- | --- | --- |")
    for k in counts:
        found = [run_vectors(o, k) for _ in range(o.turns)]
        for size in found[0][0]:
            share = statistics.median(shares[size] for shares, _ in found)
            print(f"| {k} | {size} | {share:.3f} | {statistics.median(b for _, b in found) / 1e6:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--servers", default="0,1,2,3")
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--size", default="32M")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--step-buckets", type=int, default=64)
    parser.add_argument("--vectors")
    parser.add_argument("--kolo", default=f"{HERE}/build/release/kolo")
    o = parser.parse_args()
    end_on_signals()
    counts = [int(k) for k in o.servers.split(",")]
    if o.vectors:
        if 0 in counts:
            parser.error("--vectors needs servers: give --servers without 0")
        vectors(o, counts)
        return
    found = {k: [] for k in counts}
    for _ in range(o.turns):
        for k in counts:
            found[k].append(run(o, k))
    print(f"{o.workers} workers, {o.size}, {o.rate}, {o.step_buckets} buckets\n")
    print("| servers | formula, M/B | step, M/B | of the formula | sent, of the formula | received, of the formula | TCP, MB/s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for k in counts:
        step, sent, received, goodput = (statistics.median(column) for column in zip(*found[k]))
        due = formula(o.workers, k)
        print(f"| {k} | {due:.3f} | {step:.3f} | {step / due:.3f} | {sent / due:.4f} | {received / due:.4f} | {goodput / 1e6:.1f} |")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"servers.py: {failure}")
