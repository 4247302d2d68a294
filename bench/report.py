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
Everything is written to OUT.md and to OUT-phases.svg, OUT-weak.svg, OUT-strong.svg and OUT-hosts.svg, which it shows. More
workers than processors measure oversubscription: their rows are marked.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time

import plots
from namespaces import HERE, Failure, Hosts, end_on_signals

sys.path.insert(0, os.path.join(HERE, "tools"))
from wrap_docs import wrap  # noqa: E402  pylint: disable=wrong-import-position

PHASES = ("input", "forward", "backward", "exposed_communication", "update")
OFF = 10  # percent: the error of a step above which its term that is most wrong is named


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


def after_forward(gradients, backward, a, b, o, g, bucket_bytes=BUCKET_BYTES):
    """The backward pass and the sums: those of buckets, one after another, each when it is complete. Kernels hide the waiting in
    a sum, a + b n less its work o + g n; work takes their time (docs/performance.md)."""
    clock = work = size = 0.0
    for i, gradient in enumerate(gradients):
        size += gradient["bytes"]
        if size >= bucket_bytes or i == len(gradients) - 1:
            clock = max(clock, gradient["ready_ms"]) + max(0.0, a + b * size - (o + g * size))
            work, size = work + o + g * size, 0.0
    return max(clock, backward) + work


def hosts_of(text):
    """Numbers of hosts: 8,16; none: no simulation."""
    numbers = [n.strip() for n in text.split(",") if n.strip()]
    if any(not n.isdecimal() or int(n) < 2 for n in numbers):
        raise SystemExit(f"report.py: --simulated {text}: give numbers of hosts, 2 or more each")
    return [int(n) for n in numbers]


def simulated(rows, o, hosts, skipped):
    """Steps of more hosts, from the parts that rows of mode hosts with two workers and the first algorithm have: a list of
    (row, hosts, a, b, ms of communication beside the kernels, ms of the step). The work of a host in a sum grows with the bytes
    that it sends, 2 (N - 1) / N of the sum's, and the rounds, log2 N; the slowest of N is as slow as that of two."""
    first = o.algorithms.split(",")[0]
    parts = [r for r in rows if r["mode"] == "hosts" and r["workers"] == 2 and r["algorithm"] == first
             and r["found"].get("gradients")]
    out = []
    for n in hosts if parts else []:
        try:
            a, b = simulated_sum(o, n)
        except (Failure, subprocess.TimeoutExpired) as e:
            skipped.append(f"simulation of {n} hosts: {e}")
            continue
        for r in parts:
            found = r["found"]
            ms, backward = found["predicted_ms"], found["backward_kernels_ms"]
            alone = found["slowest_over_mean"] * (ms["input"] + ms["forward"] + ms["update"]) + backward
            work = math.ceil(math.log2(n)) * found["work_fixed_us"] / 1e3
            per_byte = 2 * (n - 1) / n * found["work_us_per_mib"] / 1e3 / 2**20
            over = after_forward(found["gradients"], backward, a, b, work, per_byte) - backward
            out.append((r, n, a, b, over, alone + over))
    return out


def simulated_table(steps):
    head = ["net, batch", "hosts", "a, us", "b, us/MiB", "work and exposed communication, ms", "step, ms", "efficiency"]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for r, n, a, b, over, step in steps:
        out.append(f"| {r['net']}, {r['batch']} | {n} | {1e3 * a:.0f} | {1e3 * b * 2**20:.0f} | {over:.2f} | "
                   f"{step:.2f} | {100 * (step - over) / step:.0f} % |")
    return out


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

def name_of(row):
    return f"{row['net']}, {row['mode']}" + ("" if row["algorithm"] == "auto" else f", {row['algorithm']}")


def beside(measured, predicted):
    """12.30 (12.00, -2 %): measured, and predicted with its error; without one where nothing takes time."""
    error = f", {100 * (predicted / measured - 1):+.0f} %" if measured >= 0.005 else ""
    return f"{measured:.2f} ({predicted:.2f}{error})"


def error_of(row):
    """Percent of the median step, of a row with a prediction."""
    return 100 * (row["found"]["predicted_ms"]["step"] / row["found"]["measured_step_ms_median"] - 1)


def mean_error(rows, processors):
    """The sentence that ends a table of phases."""
    predicted = [r for r in rows if "predicted_ms" in r["found"]]
    errors = [abs(error_of(r)) for r in predicted if r["workers"] <= processors]
    marked = [abs(error_of(r)) for r in predicted if r["workers"] > processors]
    mean = f"{sum(errors) / len(errors):.1f} % over {len(errors)} rows, at most {max(errors):.1f} %" if errors else "none predicted"
    mean += f"; of rows with *: {sum(marked) / len(marked):.1f} %" if marked else ""
    return f"Mean of the absolute errors of the step: {mean}."


def phase_table(rows, processors):
    head = ["net, batch of a worker", "workers", "mode", *(p.replace("_", " ") + ", ms" for p in PHASES), "step, median, ms",
            f"term, where the step is off by more than {OFF} %"]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for r in rows:
        ms, model = r["found"]["measured_ms"], r["found"].get("predicted_ms")
        median = r["found"]["measured_step_ms_median"]
        cells = [f"{r['net']}, {r['batch']}", str(r["workers"]) + (" *" if r["workers"] > processors else ""),
                 r["mode"] + ("" if r["algorithm"] == "auto" else f" {r['algorithm']}")]
        if model:
            worst = r["found"]["most_wrong"]
            off = f"{worst.replace('_', ' ')} {model[worst] - ms[worst]:+.2f} ms" if abs(error_of(r)) > OFF else ""
            cells += [*(beside(ms[p], model[p]) for p in PHASES), beside(median, model["step"]), off]
        else:
            cells += [*(f"{ms[p]:.2f}" for p in PHASES), f"{median:.2f}", ""]
        out.append("| " + " | ".join(cells) + " |")
    return out + ["", mean_error(rows, processors)]


def phase_bars(rows):
    """The phases of each row, measured and below it predicted."""
    out = []
    for r in rows:
        label = f"{r['net']}, {r['batch']}, {r['workers']} {r['mode']}"
        out.append((label, [r["found"]["measured_ms"][p] for p in PHASES]))
        if "predicted_ms" in r["found"]:
            out.append(("predicted", [r["found"]["predicted_ms"][p] for p in PHASES]))
    return out


def scaling_table(lines, gustafson, processors):
    """lines: (name, {workers: step ms}, {workers: speed-up}). Fractions are of workers with a processor each."""
    head = ["net, mode", "workers", "step, median, ms", "speed-up", "efficiency", "serial fraction"]
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
    head = ["net, workers, mode", "a, us", "b, us/MiB", "o, us", "g, us/MiB", *(f"{n}, ms" for n in names)]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    for r in with_model:
        f = r["found"]
        cells = [f"{b['step_ms']:.2f} ({b['buckets']})" for b in f["buckets"]]
        out.append(f"| {r['net']}, {r['workers']}, {r['mode']} | {f['sum_fixed_us']:.0f} | {f['sum_us_per_mib']:.0f} | "
                   f"{f['work_fixed_us']:.0f} | {f['work_us_per_mib']:.0f} | " + " | ".join(cells) + " |")
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


def curves_of(rows, weak):
    """Names with the efficiency of the most workers, and speed-ups by the number of workers."""
    return [(f"{name}: {100 * speedups[max(speedups)] / max(speedups):.0f} % of {max(speedups)}", speedups)
            for name, _, speedups in scaling(rows, weak)]


def machine():
    """The processor's name, as Linux has it, or the architecture."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def measure_all(o, workers, skipped):
    """The rows of weak and of strong scaling. What fails is listed."""
    weak, strong, begin = [], [], time.monotonic()
    for net_batch in o.nets.split(","):
        net, batch = net_batch.rsplit(":", 1)
        for n in workers:
            for mode in o.modes.split(",") if n > 1 else ["shm"]:
                for algorithm in o.algorithms.split(",") if n > 1 else ["auto"]:
                    for rows, each in ((weak, int(batch)), (strong, max(1, int(batch) // n))):
                        row = {"net": net, "batch": each, "workers": n, "mode": mode, "algorithm": algorithm}
                        alone = next((r["found"] for r in weak if (r["net"], r["workers"]) == (net, n)), None) if n == 1 else None
                        try:
                            row["found"] = alone or measure(o, net, each, n, mode, algorithm)
                            rows.append(row)
                        except (Failure, subprocess.TimeoutExpired) as e:
                            skipped.append(f"{net}, {n} workers, {mode}, {algorithm}: {e}")
                        print(f"{time.monotonic() - begin:.0f} s: {net} x {each}, {n} workers, {mode}, {algorithm}",
                              file=sys.stderr)
    return weak, strong


def write(o, head, weak, strong, more, skipped):
    processors, base = len(os.sched_getaffinity(0)), os.path.basename(o.out)
    buckets = bucket_table(weak)
    lines = ["# Steps of several workers, measured and predicted", "", head, "",
             "Times are in ms. With several workers: measured (predicted, error); the phases are means over steps and workers, "
             "the step is a median. The model and its terms a, b, o, g are those of [performance.md](performance.md). A row with * "
             "has more workers than processors.", "", f"![phases of the steps]({base}-phases.svg)", "",
             "## Phases, batch of a worker fixed", "", *phase_table(weak, processors), "",
             "## Phases, batch of a step fixed", "", *phase_table(strong, processors), "", "## Weak scaling", "",
             f"The serial fraction s is Gustafson's: speed-up n - s (n - 1), fitted to up to {processors} workers.", "",
             f"![weak scaling]({base}-weak.svg)", "", *scaling_table(scaling(weak, True), True, processors), "",
             "## Strong scaling", "",
             f"The serial fraction s is Amdahl's: step T(1) (s + (1 - s) / n), fitted to up to {processors} workers.", "",
             f"![strong scaling]({base}-strong.svg)", "", *scaling_table(scaling(strong, False), False, processors), ""]
    if buckets:
        lines += ["## Buckets, predicted step (and their number)", "",
                  "A sum of n bytes takes a + b n, of which o + g n is work of the processors that run kernels.", "", *buckets, ""]
    if more:
        lines += [f"## More hosts, by simulation, links of {o.rate}", "",
                  "Sums take the time of the best simulated algorithm of each size. The batch of a worker is fixed.", "",
                  f"![more hosts]({base}-hosts.svg)", "", *simulated_table(more), ""]
    if skipped:
        lines += ["Not measured: " + "; ".join(skipped) + ".", ""]
    with open(o.out + ".md", "w", encoding="utf-8") as f:
        f.write(wrap("\n".join(lines)))


def draw(o, weak, strong, more):
    """Writes the plots and returns their paths."""
    paths = [f"{o.out}-{kind}.svg" for kind in ("phases", "weak", "strong")]
    plots.bars(paths[0], "ms of a step, batch of a worker fixed", [p.replace("_", " ") for p in PHASES], phase_bars(weak))
    for path, rows, kind in ((paths[1], weak, "weak"), (paths[2], strong, "strong")):
        lines = curves_of(rows, kind == "weak")
        most = max((n for _, points in lines for n in points), default=1)
        plots.curves(path, f"{kind} scaling; efficiency in the legend", "workers", "speed-up", lines, 1.2 * most,
                     {n: n for n in range(1, most + 1)})
    if more:
        lines = {}
        for r, n, _, _, over, step in more:
            lines.setdefault(f"{r['net']}, {r['batch']}", {})[n] = 100 * (step - over) / step
        paths.append(f"{o.out}-hosts.svg")
        plots.curves(paths[-1], f"weak scaling by simulation, links of {o.rate}", "hosts", "efficiency, %", list(lines.items()), 100)
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default="alexnet:16,googlenet:8,resnet50:8")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--modes", default="threads,shm,tcp,hosts")
    parser.add_argument("--algorithms", default="auto")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rate", default="1gbit", help="of the links of mode hosts")
    parser.add_argument("--simulated", default="8,16,32,64", help="numbers of hosts of that rate that are predicted")
    parser.add_argument("--out", default="docs/report", help="files without their ends")
    parser.add_argument("--kolo", default=os.path.join(HERE, "build/release/kolo"))
    o = parser.parse_args()
    gbit_of(o.rate)
    hosts = hosts_of(o.simulated)
    end_on_signals()
    skipped, load, begin = [], os.getloadavg()[0], time.monotonic()
    weak, strong = measure_all(o, sorted({int(n) for n in o.workers.split(",")}), skipped)
    more = simulated(weak, o, hosts, skipped)
    head = (f"`bench/report.py {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}, {len(os.sched_getaffinity(0))} processors "
            f"({machine()}), load {load:.1f} before and {os.getloadavg()[0]:.1f} after, {(time.monotonic() - begin) / 60:.0f} min.")
    write(o, head, weak, strong, more, skipped)
    print(", ".join([f"{o.out}.md", *draw(o, weak, strong, more)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
