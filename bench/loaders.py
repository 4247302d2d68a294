#!/usr/bin/env python3
"""Kolo's loader against those of other projects, on one thread: JPEGs to normalized samples of 3x224x224, the recipe of
ImageNet.

    tools/make_jpegs.py /tmp/jpegs
    bench/loaders.py /tmp/jpegs [--rounds 5] [--seconds 4] [--build build/release] [--python venv/bin/python]
                     [--peers pil,torchvision,spdl,ffcv] [--json FILE]

All are measured in turns. A figure is the samples of a second of processor time, of all threads of a process, so that it
can be taken on a machine that does other work, too; and by the clock. "whole" is what libjpeg-turbo alone takes to
decode the images, with nothing else, and "codes" their Huffman codes alone, without any pixel. "seekable" are the same
images in a pack of `kolo data pack --seekable`. Printed are medians over the rounds, and the median of the ratios to Kolo
in the same round. --python runs those of other projects
(bench/peers/loader_peers.py names the packages of each); one that cannot be measured is named with the reason. --scaling
also compares loaders of one and of two threads, and two processes of one thread each at a time: what the machine allows,
as its cores share caches, memory and frequency.
"""
import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def output(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return done.stdout


def kolo(opts, keys, threads="0", data=None):
    found = json.loads(output([f"{opts.build}/kolo", "bench", "loader", "--data", f"{data or 'folder:' + opts.folder}{keys}",
                               "--augment",
                               "resized-crop,flip", "--seconds", str(opts.seconds / 2), "--loader-threads", threads,
                               "--json", "-"]))
    stages = {row["stage"]: row["samples_per_second_per_core"] for row in found["stages"]}
    return stages["all"], found["loader_samples_per_second"]


def whole(opts, *kind):
    return float(output([f"{opts.build}/bench/jpeg-decode", f"{opts.folder}/train", str(opts.seconds), *kind])), None


def pack(opts, folder):
    """A pack of the images, made seekable."""
    path = f"{folder}/seekable.pack"
    output([f"{opts.build}/kolo", "data", "pack", f"folder:{opts.folder}", "--seekable", "--out", path])
    return f"pack:{path}"


def peer(opts, name, seen):
    found = json.loads(output([opts.python, str(HERE / "peers/loader_peers.py"), name, f"{opts.folder}/train",
                               str(opts.seconds)]).splitlines()[-1])
    seen.update(found["versions"])
    return found["samples"] / found["processor"], found["samples"] / found["wall"]


def scale(opts):
    """Samples/s by the clock of a loader of one thread, of one of two, and of two of one at the same time."""
    def samples(threads):
        return kolo(opts, "", threads)[1]

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return samples("1"), samples("2"), sum(pool.map(samples, ("1", "1")))


def measure(contenders, rounds):
    """[(by processor time, by the clock)] of each; one that fails is left out from then on."""
    figures = {name: [] for name in contenders}
    for turn in range(rounds):
        names = list(contenders)
        for name in names if turn % 2 == 0 else reversed(names):
            if figures[name] is None:
                continue
            try:
                figures[name].append(contenders[name]())
            except RuntimeError as error:
                print(f"{name}: not measured: {error}", flush=True)
                figures[name] = None
    return {name: rows for name, rows in figures.items() if rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--peers", default="pil,torchvision,spdl,ffcv")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    opts = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(opts, pack(opts, folder))


def report(opts, seekable):
    seen = {}
    contenders = {"kolo": lambda: kolo(opts, ""), "kolo, decode=scaled": lambda: kolo(opts, ",decode=scaled"),
                  "kolo, seekable": lambda: kolo(opts, "", data=seekable),
                  "kolo, seekable, decode=scaled": lambda: kolo(opts, ",decode=scaled", data=seekable),
                  "whole": lambda: whole(opts), "codes": lambda: whole(opts, "codes"),
                  "whole, seekable": lambda: whole(opts, "seekable")}
    for name in filter(None, opts.peers.split(",")):
        contenders[name] = lambda name=name: peer(opts, name, seen)
    figures = measure(contenders, opts.rounds)
    print("| | samples/s of processor time | by the clock | kolo, in the same round |")
    print("| --- | --- | --- | --- |")
    for name, rows in figures.items():
        ratio = statistics.median(k[0] / r[0] for k, r in zip(figures["kolo"], rows))
        clock = [r[1] for r in rows if r[1]]
        print(f"| {name} | {statistics.median(r[0] for r in rows):.0f} | "
              f"{f'{statistics.median(clock):.0f}' if clock else '-'} | {ratio:.2f}x |", flush=True)
    if seen:
        print(", ".join(f"{name} {version}" for name, version in sorted(seen.items())))
    if opts.scaling:
        rows = [scale(opts) for _ in range(opts.rounds)]
        for i, what in (1, "two threads"), (2, "two processes"):
            ratios = [row[i] / row[0] for row in rows]
            print(f"{what}, by the clock: {statistics.median(ratios):.2f}x one ({', '.join(f'{r:.2f}' for r in ratios)})")
    if opts.json:
        with open(opts.json, "w", encoding="utf-8") as file:
            json.dump({"figures": figures, "versions": seen}, file)


main()
