#!/usr/bin/env python3
"""Phases and scaling of training steps, measured and predicted, as Markdown tables and SVG plots.

    bench/report.py [--nets alexnet:16,googlenet:8,resnet50:8] [--workers 1,2,4] [--modes threads,shm,tcp,hosts]
                    [--algorithms auto,ring] [--steps 10] [--rate 1gbit] [--simulated 8,16,32,64] [--out docs/report]
                    [--kolo build/release/kolo]

A net is NAME:BATCH, the batch of each worker; NAME may have options (resnet50:width=0.5:8). For each net, number of workers,
mode and algorithm `kolo profile --predict` measures the parts of a step and steps, and predicts the step from its parts
(docs/performance.md). Modes: threads of one process; shm, processes on this host in shared memory; tcp, the same over
sockets; hosts, a network namespace per worker with a link of --rate, as root. Weak scaling keeps the batch of a worker,
strong scaling that of the step. Fractions are fitted to as many workers as there are processors; more hosts (--simulated)
are predicted: by the model, from the parts of two workers, with sums as `kolo bench sim` has them on links of --rate.
Everything is written to OUT.md, OUT-weak.svg and OUT-strong.svg. More workers than processors measure oversubscription:
their rows are marked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

from namespaces import HERE, Failure, Hosts

PHASES = ("input", "forward", "backward", "exposed_communication", "update")


def run(command, timeout=1800):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise Failure((done.stderr.strip() or "failed").splitlines()[-1])
    return done.stdout


def measure(o, net, batch, workers, mode, algorithm):
    """The JSON of kolo profile --predict; of one worker, where there is nothing to predict, that of bench train."""
    common = ["--model", net, "--batch", str(batch), "--threads", "1", "--momentum", "0.9", "--steps", str(o.steps)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        if workers == 1:
            run([o.kolo, "bench", "train", *common, "--json", path])
            with open(path, encoding="utf-8") as f:
                found = json.load(f)
            return {"measured_ms": found["ms_per_step"], "measured_step_ms_median": found["step_ms_median"]}
        command = [o.kolo, "profile", "--predict", *common, "--algorithm", algorithm]
        if mode == "hosts":
            with Hosts(workers, o.rate) as hosts:
                return json.loads(hosts.run_ranks([*command, "--json", "-"]))
        if mode == "threads":
            run([*command, "--workers", str(workers), "--workers-as", "threads", "--json", path])
        else:
            run([*command, "--workers", str(workers), "--transport", mode, "--json", path])
        with open(path, encoding="utf-8") as f:
            return json.load(f)


# ---- more workers, by simulation ----

SUMS = ("16K", "256K", "1M", "8M")
BUCKET_BYTES = 1 << 20


def gbit_of(rate):
    """Gbit/s of a rate as tc has it: 1gbit, 100mbit."""
    for unit, scale in (("gbit", 1), ("mbit", 1e-3), ("kbit", 1e-6)):
        if rate.endswith(unit):
            return float(rate[:-len(unit)]) * scale
    raise SystemExit(f"report.py: a rate of {rate}: give it in gbit, mbit or kbit")


def line_through(points):
    """a and b of a + b x with the least squares of relative errors, none below 0."""
    w = [(1 / (y * y), x, y) for x, y in points]
    total, x1, y1 = (sum(row[0] * (1, row[1], row[2])[i] for row in w) for i in range(3))
    x2, xy = (sum(k * x * (x, y)[i] for k, x, y in w) for i in range(2))
    below = total * x2 - x1 * x1
    b = max(0.0, (total * xy - x1 * y1) / below) if below > 0 else 0.0
    return max(0.0, (y1 - b * x1) / total), b


def simulated_sum(o, workers):
    """a and b, in ms, of a sum over hosts with one worker each: the best algorithm of each size."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        run([o.kolo, "bench", "sim", "--ranks", str(workers), "--gbps", str(gbit_of(o.rate)), "--sizes", ",".join(SUMS), "--json",
             path])
        best = {}
        with open(path, encoding="utf-8") as f:
            for r in json.load(f)["rows"]:
                best[r["bytes"]] = min(best.get(r["bytes"], r["us"]), r["us"])
    return line_through([(size, us * 1e-3) for size, us in best.items()])


def exposed(gradients, backward, a, b, bucket_bytes=BUCKET_BYTES):
    """What is left of the sums after the backward pass: those of buckets, one after another, each when it is complete."""
    end = size = 0.0
    for i, g in enumerate(gradients):
        size += g["bytes"]
        if size >= bucket_bytes or i == len(gradients) - 1:
            end, size = max(end, g["ready_ms"]) + a + b * size, 0.0
    return max(0.0, end - backward)


def hosts_of(text):
    """Numbers of hosts: 8,16; none: no simulation."""
    numbers = [n.strip() for n in text.split(",") if n.strip()]
    if any(not n.isdecimal() or int(n) < 2 for n in numbers):
        raise SystemExit(f"report.py: --simulated {text}: give numbers of hosts, 2 or more each")
    return [int(n) for n in numbers]


def simulated_table(rows, o, hosts, skipped):
    """Steps of more hosts, from the parts that rows of mode hosts with two workers and the first algorithm have."""
    head = ["net, batch", "workers", "a, us", "b, us/MiB", "exposed communication", "step", "efficiency"]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    first = o.algorithms.split(",")[0]
    parts = [r for r in rows if r["mode"] == "hosts" and r["workers"] == 2 and r["algorithm"] == first
             and r["found"].get("gradients")]
    for n in hosts if parts else []:
        try:
            a, b = simulated_sum(o, n)
        except (Failure, subprocess.TimeoutExpired) as e:
            skipped.append(f"simulation of {n} hosts: {e}")
            continue
        for r in parts:
            ms = r["found"]["predicted_ms"]
            alone = sum(ms[p] for p in PHASES if p != "exposed_communication")
            over = exposed(r["found"]["gradients"], ms["backward"], a, b)
            out.append(f"| {r['net']}, {r['batch']} | {n} | {1e3 * a:.0f} | {1e3 * b * 2**20:.0f} | {over:.2f} | "
                       f"{alone + over:.2f} | {100 * alone / (alone + over):.0f} % |")
    return out if len(out) > 2 else []


# ---- fits ----

def serial_fraction(times):
    """Amdahl: T(n) = T(1) (s + (1 - s) / n), the s with the least squares of relative errors, within 0 and 1."""
    one = times.get(1)
    over = [(1 - 1 / n, times[n] / one - 1 / n) for n in times if n > 1] if one else []
    below = sum(x * x for x, _ in over)
    return min(1.0, max(0.0, sum(x * y for x, y in over) / below)) if below else None


def scaled_fraction(speedups):
    """Gustafson: S(n) = n - s (n - 1), the s with the least squares, within 0 and 1."""
    over = [(n - 1, n - speedups[n]) for n in speedups if n > 1]
    below = sum(x * x for x, _ in over)
    return min(1.0, max(0.0, sum(x * y for x, y in over) / below)) if below else None


# ---- output ----

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b", "#17becf", "#7f7f7f")


def plot(path, title, lines, most):
    """Speed-ups over the number of workers: lines is a list of (name, {workers: speed-up})."""
    width, height, left, top, right, bottom = 640, 360, 50, 40, 190, 40

    def at(n, s):
        x = left + (width - left - right) * (n - 1) / max(1, most - 1)
        y = height - bottom - (height - top - bottom) * s / most
        return f"{x:.1f},{y:.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
           f'font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20">{title}</text>',
           f'<polyline points="{at(1, 1)} {at(most, most)}" fill="none" stroke="#bbb" stroke-dasharray="4"/>',
           f'<polyline points="{at(1, most)} {at(1, 0)} {at(most, 0)}" fill="none" stroke="black"/>']
    for n in range(1, most + 1):
        for point, dx, dy in ((at(n, 0), -3, 16), (at(1, n), -20, 4)):
            x, y = map(float, point.split(","))
            out.append(f'<text x="{x + dx:.1f}" y="{y + dy:.1f}">{n}</text>')
    for i, (name, points) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        way = " ".join(at(n, s) for n, s in sorted(points.items()))
        out.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - right + 12}" y="{top + 16 * i + 12}" fill="{colour}">{name}</text>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n</svg>\n")


def name_of(row):
    return f"{row['net']}, {row['mode']}" + ("" if row["algorithm"] == "auto" else f", {row['algorithm']}")


def beside(measured, predicted):
    """12.30 (12.00, -2 %): measured, and predicted with its error; without one where nothing takes time."""
    error = f", {100 * (predicted / measured - 1):+.0f} %" if measured >= 0.005 else ""
    return f"{measured:.2f} ({predicted:.2f}{error})"


def phase_table(rows, processors):
    head = ["net, batch", "workers", "mode", *(p.replace("_", " ") for p in PHASES), "step, median", "most wrong"]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    errors, alone = [], []
    for r in rows:
        ms, model = r["found"]["measured_ms"], r["found"].get("predicted_ms")
        median = r["found"]["measured_step_ms_median"]
        over = r["workers"] > processors
        cells = [f"{r['net']}, {r['batch']}", str(r["workers"]) + (" *" if over else ""),
                 r["mode"] + ("" if r["algorithm"] == "auto" else f" {r['algorithm']}")]
        if model:
            (alone if over else errors).append(abs(100 * (model["step"] / median - 1)))
            worst = max(PHASES, key=lambda p: abs(model[p] - ms[p]))
            cells += [*(beside(ms[p], model[p]) for p in PHASES), beside(median, model["step"]),
                      f"{worst.replace('_', ' ')} {model[worst] - ms[worst]:+.2f}"]
        else:
            cells += [*(f"{ms[p]:.2f}" for p in PHASES), f"{median:.2f}", ""]
        out.append("| " + " | ".join(cells) + " |")
    mean = f"{sum(errors) / len(errors):.0f} %" if errors else "none predicted"
    mean += f"; of rows with *: {sum(alone) / len(alone):.0f} %" if alone else ""
    return out + ["", f"Mean of the absolute errors of the step: {mean}."]


def scaling_table(lines, gustafson, processors):
    """lines: (name, {workers: step ms}, {workers: speed-up}). Fractions are of workers with a processor each."""
    head = ["net, mode", "workers", "step, median", "speed-up", "efficiency", "serial fraction"]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for name, times, speedups in lines:
        fitted = [n for n in times if n <= processors]
        s = scaled_fraction({n: speedups[n] for n in fitted}) if gustafson else serial_fraction({n: times[n] for n in fitted})
        for n in sorted(times):
            last = f"{s:.3f}" if s is not None and n == max(fitted) else ""
            mark = " *" if n > processors else ""
            out.append(f"| {name} | {n}{mark} | {times[n]:.2f} | {speedups[n]:.2f} | {100 * speedups[n] / n:.0f} % | {last} |")
    return out


def bucket_table(rows):
    with_model = [r for r in rows if r["found"].get("buckets")]
    if not with_model:
        return []
    names = [b["name"] for b in with_model[0]["found"]["buckets"]]
    head = ["net, workers, mode", "a, us", "b, us/MiB", *names]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for r in with_model:
        f = r["found"]
        cells = [f"{b['step_ms']:.2f} ({b['buckets']})" for b in f["buckets"]]
        out.append(f"| {r['net']}, {r['workers']}, {r['mode']} | {f['sum_fixed_us']:.0f} | {f['sum_us_per_mib']:.0f} | "
                   + " | ".join(cells) + " |")
    return out


def scaling(rows, weak):
    """Steps and speed-ups of rows, by net, mode and algorithm; the step of one worker belongs to every mode."""
    lines, ones = {}, {r["net"]: r["found"]["measured_step_ms_median"] for r in rows if r["workers"] == 1}
    for r in rows:
        if r["workers"] > 1:
            times = lines.setdefault(name_of(r), {1: ones[r["net"]]} if r["net"] in ones else {})
            times[r["workers"]] = r["found"]["measured_step_ms_median"]
    out = []
    for name, times in lines.items():
        if 1 in times:
            speedups = {n: (n if weak else 1) * times[1] / t for n, t in times.items()}
            out.append((name, times, speedups))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default="alexnet:16,googlenet:8,resnet50:8")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--modes", default="threads,shm,tcp,hosts")
    parser.add_argument("--algorithms", default="auto")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rate", default="1gbit", help="of the links of mode hosts")
    parser.add_argument("--simulated", default="8,16,32,64", help="numbers of hosts of that rate that are predicted")
    parser.add_argument("--out", default="report", help="files without their ends")
    parser.add_argument("--kolo", default=os.path.join(HERE, "build/release/kolo"))
    o = parser.parse_args()
    gbit_of(o.rate)
    hosts = hosts_of(o.simulated)
    workers = sorted({int(n) for n in o.workers.split(",")})
    processors = len(os.sched_getaffinity(0))
    weak, strong, skipped = [], [], []
    load, begin = os.getloadavg()[0], time.monotonic()
    for net_batch in o.nets.split(","):
        net, batch = net_batch.rsplit(":", 1)
        for n in workers:
            for mode in o.modes.split(",") if n > 1 else ["shm"]:
                for algorithm in o.algorithms.split(",") if n > 1 else ["auto"]:
                    for rows, each in ((weak, int(batch)), (strong, max(1, int(batch) // n))):
                        row = {"net": net, "batch": each, "workers": n, "mode": mode, "algorithm": algorithm}
                        try:
                            row["found"] = rows is strong and n == 1 and weak[-1]["found"] or \
                                measure(o, net, each, n, mode, algorithm)
                            rows.append(row)
                        except (Failure, subprocess.TimeoutExpired) as e:
                            skipped.append(f"{net}, {n} workers, {mode}, {algorithm}: {e}")
                        print(f"{time.monotonic() - begin:.0f} s: {net} x {each}, {n} workers, {mode}, {algorithm}",
                              file=sys.stderr)
    lines = [f"`bench/report.py {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}, {processors} processors "
             f"({platform.machine()}), load {load:.1f} before and {os.getloadavg()[0]:.1f} after, {(time.monotonic() - begin) / 60:.0f} min. Times "
             "in ms; with several workers: measured (predicted, error). A row with * has more workers than processors.", "", "### Phases, batch of a worker fixed", "", *phase_table(weak, processors), "",
             "### Phases, batch of a step fixed", "", *phase_table(strong, processors), "", "### Weak scaling", "",
             "The serial fraction s is Gustafson's: speed-up n - s (n - 1).", "",
             *scaling_table(scaling(weak, True), True, processors), "",
             "### Strong scaling", "", "The serial fraction s is Amdahl's: step T(1) (s + (1 - s) / n).", "",
             *scaling_table(scaling(strong, False), False, processors), "",
             "### Buckets, predicted step (and their number)", "", *bucket_table(weak)]
    more = simulated_table(weak, o, hosts, skipped)
    if more:
        lines += ["", f"### More hosts, by simulation, links of {o.rate}", "",
                  "Sums have the best algorithm of each size.", "", *more]
    if skipped:
        lines += ["", "Not measured: " + "; ".join(skipped) + "."]
    with open(o.out + ".md", "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    for rows, kind in ((weak, "weak"), (strong, "strong")):
        curves = [(name, speedups) for name, _, speedups in scaling(rows, kind == "weak")]
        plot(f"{o.out}-{kind}.svg", f"speed-up, {kind} scaling", curves, max(workers))
    print(f"{o.out}.md, {o.out}-weak.svg, {o.out}-strong.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
