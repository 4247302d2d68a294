"""bench/report.py: fits, and a small report."""
# needs json; ranks 0

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(HERE, "bench", "report.py")
KOLO = os.path.join(os.path.dirname(os.environ["KOLO_LIBRARY"]), "kolo")

sys.path.insert(0, os.path.dirname(SCRIPT))
spec = importlib.util.spec_from_file_location("report", SCRIPT)
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)

# Times and speed-ups that follow the laws give their fractions back.
for s in (0.0, 0.05, 0.5, 1.0):
    times = {n: 80 * (s + (1 - s) / n) for n in (1, 2, 4, 8)}
    assert abs(report.serial_fraction(times) - s) < 1e-12
    assert abs(report.scaled_fraction({n: n - s * (n - 1) for n in (1, 2, 4)}) - s) < 1e-12
assert report.serial_fraction({1: 3.0}) is None and report.scaled_fraction({}) is None
assert report.serial_fraction({1: 10.0, 2: 2.0}) == 0 and report.serial_fraction({1: 1.0, 2: 9.0}) == 1

# A line is found again; sums that are ready one after another wait for each other.
a, b = report.line_through([(n, 0.5 + 3 * n) for n in (1, 8, 100)])
assert abs(a - 0.5) < 1e-9 and abs(b - 3) < 1e-9
assert report.gbit_of("1gbit") == 1 and abs(report.gbit_of("250mbit") - 0.25) < 1e-12
grads = [{"bytes": 10, "ready_ms": 1}, {"bytes": 10, "ready_ms": 2}, {"bytes": 5, "ready_ms": 9}]
assert report.after_forward(grads, 10, 1, 0.5, 0, 0, 10) == 13 + 3.5 and report.after_forward(grads, 10, 0, 0.01, 0, 0, 1) == 10
assert report.after_forward(grads, 10, 1, 0.5, 0, 0, 1000) == 9 + 1 + 12.5
# Work is not hidden: half of each sum, waits 1 to 4, 4 to 7 and 9 to 10.75; then all of it and more.
assert report.after_forward(grads, 10, 1, 0.5, 0.5, 0.25, 10) == 10.75 + 3 + 3 + 1.75
assert report.after_forward(grads, 10, 1, 0.5, 1, 1, 10) == 10 + 11 + 11 + 6

# More hosts: one row each, of the first algorithm; a simulation that fails is listed, and only numbers of hosts are taken.
found = {"gradients": [{"bytes": 1 << 20, "ready_ms": 4.0}, {"bytes": 1 << 20, "ready_ms": 8.0}],
         "predicted_ms": {"input": 1, "forward": 4, "backward": 9, "exposed_communication": 2, "update": 1},
         "slowest_over_mean": 1.5, "backward_kernels_ms": 8, "work_fixed_us": 100, "work_us_per_mib": 1000}
rows = [{"net": "net", "batch": 4, "workers": n, "mode": mode, "algorithm": algorithm, "found": found}
        for n, mode, algorithm in ((2, "hosts", "ring"), (2, "hosts", "auto"), (4, "hosts", "ring"), (2, "shm", "ring"))]
options = argparse.Namespace(algorithms="ring,auto", rate="1gbit", kolo=KOLO)
skipped = []
head, rule, *body = report.simulated_table(report.simulated(rows, options, [8, 16], skipped))
assert [line.split(" | ")[:2] for line in body] == [["| net, 4", "8"], ["| net, 4", "16"]] and not skipped, (body, skipped)
for line in body:
    n, a_us, b_us, over, step = (float(cell) for cell in line.split(" | ")[1:6])
    work = (3 if n == 8 else 4) * 0.1 + 2 * (n - 1) / n
    wait = (a_us + b_us) / 1e3 - work
    assert wait > 0 and abs(over - (max(4 + wait, 8) + wait - 8 + 2 * work)) < 0.02 and abs(step - 17 - over) < 0.02, line
options.kolo = "false"
assert report.simulated(rows, options, [8], skipped) == [] and skipped == ["simulation of 8 hosts: failed"], skipped
assert report.hosts_of("8, 16") == [8, 16] and report.hosts_of("") == []
for wrong in ("1", "8,x", "-2", "2.5"):
    try:
        report.hosts_of(wrong)
    except SystemExit as e:
        assert "--simulated " + wrong in str(e)
    else:
        raise AssertionError(wrong)

# Only a step that is off by more than 10 % has a term beside it.
ms = {"input": 1, "forward": 30, "backward": 60, "exposed_communication": 8, "update": 1}
for step, cell in ((109, ""), (90, ""), (111, "backward -5.00 ms"), (89, "backward -5.00 ms")):
    found = {"measured_ms": ms, "predicted_ms": {**ms, "backward": 55, "step": step}, "measured_step_ms_median": 100, "most_wrong": "backward"}
    table = report.phase_table([{"net": "net", "batch": 4, "workers": 2, "mode": "tcp", "algorithm": "auto", "found": found}], 2)
    assert table[2].split("|")[-2].strip() == cell, table
    assert table[-1] == f"Mean of the absolute errors of the step: {abs(step - 100)}.0 % over 1 rows, at most {abs(step - 100)}.0 %.", table

with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "r")
    subprocess.run([sys.executable, SCRIPT, "--kolo", KOLO, "--nets", "mlp:4,nonsense:4", "--workers", "1,2", "--modes", "threads,shm",
                    "--steps", "2", "--out", out], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(out + ".md", encoding="utf-8") as f:
        text = f.read()
    for line in ("| mlp, 4 | 1 | shm |", "| mlp, 4 | 2 | shm |", "| mlp, 2 | 2 | shm |", "| mlp, 4 | 2 | threads |", "## Weak scaling", "](r-weak.svg)", "| mlp, shm | 2 |",
                 "Mean of the absolute errors", "Not measured: nonsense, 1 workers, shm, auto: "):
        assert line in text, (line, text)
    assert report.wrap(text) == text, text
    for kind in ("phases", "weak", "strong"):
        svg = xml.etree.ElementTree.parse(f"{out}-{kind}.svg")
        assert any("mlp" in (e.text or "") for e in svg.iter()), kind
print("ok")
