#!/usr/bin/env python3
"""A table of many rows at a server beside the same embedding in the memory of the workers: test losses, and the memory
of the rows.

    bench/tables.py [--rows 10000000] [--samples 3500000] [--batch 512] [--lr 0.002] [--seeds 1] [--bytes 2280000000]
                    [--kolo build/release/kolo]

dlrm with 26 categories and small layers trains one epoch of synthetic-clicks, with Adam, on two workers. First the embedding
is a parameter of all workers, which sum the gradients of the rows that a step has touched (--sync allreduce
--sparse-embedding). Then its rows, of 16 floats and two states, are at a server apart (--table), which has room for --bytes,
10 million rows: dense parameters are synchronous, and the rows in turn bsp, asp, and asp read ahead.
The memory is that of the server's process which no other one shares (RssAnon of the kernel), the most within the run; what the
server has without any rows, from a run of a step, is stated beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CATEGORIES, WIDTH = 26, 16


def children(pid):
    """The processes that descend from one."""
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
        except FileNotFoundError:
            continue
    return found + [below for child in found for below in children(child)] if found else []


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        names = dict(pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair)
    return int(names.get(b"RANK", -1))


def memory_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def watch(process, rank):
    """Waits for a job; the most memory that its rank had."""
    most, pid = 0, None
    while process.poll() is None:
        time.sleep(0.1)
        try:
            if pid is None:
                pid = next((child for child in children(process.pid) if rank_of(child) == rank), None)
            if pid is not None:
                most = max(most, memory_of(pid))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return most


def train(o, seed, steps, options, rank=None):
    """The result of a job, and the most memory of one of its ranks."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "json")
        command = [o.kolo, "train", "--model", f"dlrm:tables={CATEGORIES},rows={-(-o.rows // CATEGORIES)},dim={WIDTH},dense=4,"
                   "bottom1=32,bottom2=0,bottom3=0,top1=32,top2=0", "--data",
                   f"synthetic-clicks:N={o.samples},test=131072,seed={seed}", "--no-recipe", "--workers", "2", "--threads", "1",
                   "--batch", str(o.batch // 2), "--optimizer", "adam", "--lr", str(o.lr), "--seed", str(seed), "--quiet",
                   "--json", path, *(["--steps", str(steps)] if steps else ["--epochs", "1"]), *options]
        if o.show:
            print(" ".join(command), file=sys.stderr)
        process = subprocess.Popen(command, cwd=folder)
        most = watch(process, rank)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
        with open(path, encoding="utf-8") as file:
            return json.load(file), most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10000000)
    parser.add_argument("--samples", type=int, default=3500000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=2280000000)
    parser.add_argument("--show", action="store_true", help="the commands")
    parser.add_argument("--kolo", default=f"{HERE}/build/release/kolo")
    o = parser.parse_args()
    o.kolo = os.path.abspath(o.kolo)
    at_server = ["--sync", "ps", "--servers", "1", "--table", "emb.weight", "--table-bytes", str(o.bytes)]
    runs = {"bsp": [], "asp": ["--table-consistency", "asp"],
            "asp, read ahead": ["--table-consistency", "asp", "--table-prefetch"]}
    print("| seed | rows | test loss | of the parameter's | rows at the end | memory of the rows, MB | of the bound |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    _, empty = train(o, 0, 1, at_server, 2)
    for seed in range(o.seeds):
        dense, _ = train(o, seed, 0, ["--sparse-embedding"])
        print(f"| {seed} | a parameter | {dense['test_loss']:.5f} | | | | |", flush=True)
        for name, options in runs.items():
            found, most = train(o, seed, 0, at_server + options, 2)
            print(f"| {seed} | {name} | {found['test_loss']:.5f} | {found['test_loss'] / dense['test_loss'] - 1:+.3%} | "
                  f"{found['table_rows']} | {(most - empty) / 1e6:.1f} | {(most - empty) / o.bytes:.4f} |", flush=True)


main()
