#!/usr/bin/env python3
"""Test accuracies of what changes training: large batches, compressed gradients, and fewer rounds. Markdown and an SVG plot.

    bench/accuracy.py [--studies batches,codecs,rounds,tokens] [--epochs 16] [--batch-epochs 60] [--seeds 0,1,2]
                      [--batch-seeds 0] [--steps 2000] [--policies diloco:50] [--jobs 1] [--folder accuracy] [--out accuracy]
                      [--known docs/accuracy.jsonl] [--kolo build/release/kolo]

batches: resnet20 on Fashion-MNIST with 128, 1024 and 4096 samples in a step, in micro-batches of 128 and bfloat16, the largest
with LARS.
codecs: four workers with 128 samples in a step, gradients whole, topk:0.01 and 1bit. rounds: the same workers, --policies (of
--consistency, with spaces between them). tokens: gpt2_tiny on the documentation of this repository, four workers, whole
gradients and --policies, equal samples; the test loss is that of the last tenth of the text. Workers are threads of one
process; results have the same bits as with processes. --jobs runs are made at the same time, each of one thread (batches) or
four (the others).

The study can be interrupted at any time: with the same --folder it goes on where it was, with equal results. There, runs.jsonl
has a row for each run that has ended, with its command; one that has not ended has a folder with a checkpoint of its latest
epoch; text.txt is the text of tokens, as the study began with it. --known names such rows of another folder, which are not made
again, those of tokens if the text is the same; docs/accuracy.jsonl has those of the documentation. Tables have what is there:
OUT.md and OUT.svg (test accuracy by epoch, batches). --print shows the commands and runs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time

from namespaces import HERE, end_on_signals

SGD = "--optimizer nesterov --momentum 0.9 --lr 0.1 --scale-lr 128 --weight-decay 5e-4 --schedule cosine"
LARS = ("--optimizer lars --momentum 0.9 --lr 0.1 --scale-lr 128 --weight-decay 1e-4 --schedule cosine --trust 0.006 "
        "--scale-matrices-only --decay-matrices-only")
IMAGES = "train --model resnet20 --data fashion-mnist --augment flip,crop=2 --no-recipe --threads 1 --eval-every 1"
WORKERS = "--workers 4 --workers-as threads"
ADAM = "--optimizer adamw --lr 1e-3 --beta2 0.99 --weight-decay 0.1 --decay-matrices-only --clip 1 --schedule cosine --warmup-epochs 1"


def rows_of(o):
    """(study, name, seed, options) of all runs."""
    seeds, few = ([int(s) for s in text.split(",")] for text in (o.seeds, o.batch_seeds))
    policies = {policy: f"--consistency {policy}" for policy in o.policies.split()}
    for study in o.studies.split(","):
        if study == "batches":
            for batch, warm_up, rule in ((128, 1, SGD), (1024, 2, SGD), (4096, 2, LARS)):
                for seed in few:
                    yield study, str(batch), seed, (f"{IMAGES} --precision bf16 --workers 1 --batch 128 --accumulate {batch // 128} {rule} "
                                                    f"--warmup-epochs {warm_up} --epochs {o.batch_epochs} --seed {seed}")
        elif study in ("codecs", "rounds"):
            more = {"codecs": {"topk:0.01": "--compress topk:0.01 --compress-min-bytes 4K",
                               "1bit": "--compress 1bit --compress-min-bytes 4K"},
                    "rounds": policies}[study]
            for name, options in {"whole gradients": "", **more}.items():
                for seed in seeds:
                    yield study, name, seed, (f"{IMAGES} {WORKERS} --batch 32 {SGD} --warmup-epochs 1 --epochs {o.epochs} "
                                              f"--seed {seed} {options}").strip()
        elif study == "tokens":
            for name, options in {"whole gradients": "", **policies}.items():
                for seed in seeds:
                    yield study, name, seed, (f"train --model gpt2_tiny --data text:{{text}} --no-recipe "
                                              f"--threads 1 {WORKERS} --batch 4 {ADAM} --steps {o.steps} --epochs 1000 --seed {seed} "
                                              f"{options}").strip()
        else:
            raise SystemExit(f"accuracy.py: no study named {study}: batches, codecs, rounds or tokens")


def write_text(path):
    """The documentation of this repository in one file, whose last tenth is the test split."""
    names = sorted(n for n in os.listdir(os.path.join(HERE, "docs")) if n.endswith(".md"))
    with open(path + ".part", "wb") as out:
        for name in ["README.md", *(os.path.join("docs", n) for n in names)]:
            with open(os.path.join(HERE, name), "rb") as f:
                out.write(f.read())
    os.replace(path + ".part", path)


def text_of(folder, command):
    """What names the text that a command reads; None: it reads none."""
    if "{text}" not in command:
        return None
    with open(os.path.join(folder, "text.txt"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


def open_folder(folder, known=None):
    """Makes the folder, with the text, or reads the rows that it has, by their commands, and before them those of `known`."""
    os.makedirs(folder, exist_ok=True)
    text, runs = (os.path.join(folder, name) for name in ("text.txt", "runs.jsonl"))
    if not os.path.exists(text):
        write_text(text)
    found = {}
    for path in filter(None, (known, runs if os.path.exists(runs) else None)):
        with open(path, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        found.update({row["command"]: row for row in rows if row.get("text") == text_of(folder, row["command"])})
    return found


class Run:
    """A run that goes on where it was, in a folder of its own."""

    def __init__(self, o, command):
        self.command, self.text = command, text_of(o.folder, command)
        self.place = os.path.join(o.folder, hashlib.sha256(command.encode()).hexdigest()[:16])
        self.result = self.place + ".json"
        words = shlex.split(command.format(text=shlex.quote(os.path.join(o.folder, "text.txt"))))
        with open(self.place + ".log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([o.kolo, *words, "--out", self.place, "--checkpoint-every", "1e", "--resume", "latest",
                                             "--json", self.result, "--quiet"], stdout=subprocess.DEVNULL, stderr=log)

    def row(self):
        """Its row once it has ended; else None."""
        if self.process.poll() is None:
            return None
        if self.process.returncode != 0:
            with open(self.place + ".log", encoding="utf-8") as f:
                raise SystemExit(f"accuracy.py: kolo {self.command}\n{f.read().strip()}")
        with open(self.result, encoding="utf-8") as f:
            found = json.load(f)
        if found.get("preempted"):
            raise SystemExit(f"accuracy.py: kolo {self.command}\nwas ended by a signal: start the study again, it goes on")
        with open(os.path.join(self.place, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        keys = ("test_accuracy", "test_loss", "steps", "samples")
        text = {"text": self.text} if self.text else {}
        return {"command": self.command, **text, **{k: found[k] for k in keys if k in found},
                "curve": [line["test_accuracy"] for line in lines if "test_accuracy" in line]}

    def remove(self):
        shutil.rmtree(self.place)
        os.remove(self.result)
        os.remove(self.place + ".log")

    def interrupt(self):
        """It writes a checkpoint, unless it cannot in time."""
        self.process.terminate()
        self.process.wait()


def study(o, runs, done):
    """Makes the runs that are not done, --jobs at a time."""
    todo, going = [r for r in runs if r[3] not in done], []
    try:
        while todo or going:
            while todo and len(going) < o.jobs:
                names = todo.pop(0)
                if names[3] not in done and names[3] not in (other[3] for other, _ in going):  # studies share runs
                    going.append((names, Run(o, names[3])))
            for names, run in list(going):
                row = run.row()
                if row is None:
                    continue
                going.remove((names, run))
                done[row["command"]] = row
                with open(os.path.join(o.folder, "runs.jsonl"), "a", encoding="utf-8") as f:
                    f.write(json.dumps(row) + "\n")
                run.remove()
                print("{}, {}, seed {}: ".format(*names) + json.dumps(row), file=sys.stderr, flush=True)
                write(o, runs, done)
            time.sleep(0.2)
    finally:
        for _, run in going:
            run.interrupt()


# ---- output ----

def mean(values):
    return sum(values) / len(values)


def table(rows, key, better):
    """Rows (name, {seed: run}): each seed, the mean, and its distance to that of the first row; `better`: in these units."""
    seeds = sorted({s for _, runs in rows for s in runs})
    head = ["", *(f"seed {s}" for s in seeds), "mean", "to the first"]
    out = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    first = None
    for name, runs in rows:
        values = {s: r[key] for s, r in runs.items() if r.get(key) is not None}
        if not values:
            continue
        middle = mean(list(values.values()))
        first = middle if first is None else first
        out.append(f"| {name} | " + " | ".join(f"{values[s]:.4f}" if s in values else "" for s in seeds)
                   + f" | {middle:.4f} | {better * (middle - first):+.2f} |")
    return out


COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def plot(path, lines, low, high):
    """Test accuracy by epoch: lines is a list of (name, [accuracy])."""
    width, height, left, top, right, bottom = 640, 360, 60, 40, 150, 40
    most = max(len(points) for _, points in lines)

    def at(epoch, y):
        x = left + (width - left - right) * (epoch - 1) / max(1, most - 1)
        return f"{x:.1f},{height - bottom - (height - top - bottom) * (min(max(y, low), high) - low) / (high - low):.1f}"

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20">resnet20 on Fashion-MNIST: test accuracy by epoch, by the samples of a step</text>',
           f'<polyline points="{at(1, high)} {at(1, low)} {at(most, low)}" fill="none" stroke="black"/>']
    for k in range(6):
        y = low + (high - low) * k / 5
        x0, y0 = map(float, at(1, y).split(","))
        out.append(f'<text x="{x0 - 45:.1f}" y="{y0 + 4:.1f}">{y:.3f}</text>')
    for epoch in range(1, most + 1, max(1, most // 8)):
        x0, y0 = map(float, at(epoch, low).split(","))
        out.append(f'<text x="{x0 - 3:.1f}" y="{y0 + 16:.1f}">{epoch}</text>')
    for i, (name, points) in enumerate(lines):
        way = " ".join(at(k + 1, y) for k, y in enumerate(points))
        out.append(f'<polyline points="{way}" fill="none" stroke="{COLOURS[i % len(COLOURS)]}" stroke-width="2"/>')
        out.append(f'<text x="{width - right + 12}" y="{top + 16 * i + 12}" fill="{COLOURS[i % len(COLOURS)]}">{name}</text>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n</svg>\n")


TITLES = {"batches": "Batches: test accuracy", "codecs": "Codecs: test accuracy", "rounds": "Rounds, resnet20: test accuracy",
          "tokens": "Rounds, gpt2_tiny: test loss"}


def write(o, runs, done):
    lines, curves = [], []
    for study in o.studies.split(","):
        rows = {}
        for s, name, seed, command in runs:
            if s == study and command in done:
                rows.setdefault(name, {})[seed] = done[command]
        if not rows:
            continue
        tokens = study == "tokens"
        lines += [f"### {TITLES[study]}", "", *table(list(rows.items()), "test_loss" if tokens else "test_accuracy", 1 if tokens else 100),
                  ""]
        lines += ["Differences are of losses." if tokens else "Differences are in points (per cent).", ""]
        if study == "batches":
            curves = [(f"{name} samples", r[min(r)]["curve"]) for name, r in rows.items() if r[min(r)]["curve"]]
    with open(o.out + ".md", "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    if curves:
        best = max(max(points) for _, points in curves)
        plot(o.out + ".svg", curves, best - 0.2, best + 0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", default="batches,codecs,rounds,tokens")
    parser.add_argument("--epochs", type=int, default=16, help="of codecs and rounds")
    parser.add_argument("--batch-epochs", type=int, default=60, help="of batches")
    parser.add_argument("--seeds", default="0,1,2", help="of codecs, rounds and tokens")
    parser.add_argument("--batch-seeds", default="0", help="of batches")
    parser.add_argument("--steps", type=int, default=2000, help="of tokens")
    parser.add_argument("--policies", default="diloco:50", help="of rounds and tokens")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--known", help="rows of runs that are not made again")
    parser.add_argument("--folder", default="accuracy", help="of the runs")
    parser.add_argument("--out", default="accuracy", help="files without their ends")
    parser.add_argument("--kolo", default=os.path.join(HERE, "build/release/kolo"))
    parser.add_argument("--print", action="store_true", dest="show", help="print the commands")
    o = parser.parse_args()
    runs = sorted(rows_of(o), key=lambda row: row[2])  # the first seed of all first
    if o.show:
        print("\n".join("kolo " + command for *_, command in runs))
        return 0
    end_on_signals()
    done = open_folder(o.folder, o.known)
    study(o, runs, done)
    write(o, runs, done)
    print(f"{o.out}.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
