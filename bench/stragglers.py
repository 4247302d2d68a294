#!/usr/bin/env python3
"""How many more samples per second than bsp the policies of parameter servers can reach with slow
steps, by a simulation in virtual time that counts nothing but the steps.

    bench/stragglers.py [--workers 4] [--probability 0.2] [--factor 8] [--steps 20000]

Every step of a worker takes 1 unit, and with the probability the factor. All policies have the same
draws. docs/servers.md has the table.
"""
import argparse
import random

POLICIES = ("ssp:1", "ssp:3", "ssp:10", "asp", "bsp:drop=1", "bsp:drop=1,discard")


def bounded(units, bound):
    """The time of bsp (bound 0), ssp, and asp (None): a worker begins a step once all others have
    made all steps but the latest `bound`."""
    ends = [[0.0] * len(units[0])]
    for step, row in enumerate(units):
        first = 0 if bound is None or step < bound else max(ends[step - bound])
        ends.append([max(end, first) + unit for end, unit in zip(ends[step], row)])
    return max(ends[-1])


def dropping(units, drop):
    """The time of bsp:drop, and how many gradients came late: see docs/servers.md."""
    workers, steps = len(units[0]), len(units)
    version, now, late = 0, 0.0, 0
    read, made, held = [0] * workers, [1] * workers, [False] * workers
    ends = list(units[0])  # of the steps under way; None: the worker waits, or has made all
    while any(end is not None for end in ends):
        now, worker = min((end, w) for w, end in enumerate(ends) if end is not None)
        ends[worker] = None
        held[worker] = read[worker] == version
        begin = [] if held[worker] else [worker]
        late += not held[worker]
        active = sum(held[w] or ends[w] is not None or made[w] < steps for w in range(workers))
        if sum(held) >= max(1, active - drop):
            version += 1
            begin += [w for w in range(workers) if held[w]]
            held = [False] * workers
        for w in begin:
            read[w] = version
            if made[w] < steps:
                ends[w] = now + units[made[w]][w]
                made[w] += 1
    return now, late


def rate(units, policy):
    """The gradients that are used per unit of time."""
    name, _, rest = policy.partition(":")
    gradients = len(units) * len(units[0])
    if rest.startswith("drop="):
        time, late = dropping(units, int(rest[len("drop="):].split(",")[0]))
        return (gradients - (late if rest.endswith(",discard") else 0)) / time
    bound = {"bsp": 0, "asp": None}.get(name, int(rest or 0))
    return gradients / bounded(units, bound)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--probability", type=float, default=0.2)
    parser.add_argument("--factor", type=float, default=8)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    opts = parser.parse_args()
    draws = random.Random(opts.seed)
    units = [[opts.factor if draws.random() < opts.probability else 1 for _ in range(opts.workers)]
             for _ in range(opts.steps)]
    print("| `--consistency` | samples/s over bsp, at most |\n| --- | --- |")
    for policy in POLICIES:
        print(f"| `{policy}` | {rate(units, policy) / rate(units, 'bsp'):.2f} |")


main()
