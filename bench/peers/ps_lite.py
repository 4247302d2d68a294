#!/usr/bin/env python3
"""Pushes and pulls of Kolo beside those of ps-lite, with the same workers, servers and sizes, in turns.

    bench/peers/ps_lite.py CHECKOUT [--workers 2] [--servers 1] [--sizes 1K,16K,256K,1M,4M,16M,64M] [--seconds 0.5]
                           [--turns 3] [--transports tcp,local] [--kolo build/release/kolo]

CHECKOUT is a clone of https://github.com/dmlc/ps-lite. Its library and ps_lite.cc are compiled in a temporary folder, with
c++, protoc, libprotobuf and libzmq (libzmq3-dev libprotobuf-dev protobuf-compiler). tcp: both over loopback. local: Kolo in
shared memory, ps-lite over local sockets (DMLC_LOCAL=1). Of ps-lite the faster of two programs counts, one with a key for a
vector and one with keys for pieces of 512 KiB. Printed, medians of the turns: bytes that all workers push and pull in the median
time of the slowest one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def bytes_of(size):
    return int(size[:-1]) * UNITS[size[-1]] if size[-1] in UNITS else int(size)


def run(words, **more):
    found = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, **more)
    if found.returncode != 0:
        raise SystemExit(f"ps_lite.py: {words[0]}: {(found.stderr.strip().splitlines() or ['failed'])[-1]}")
    return found.stdout


def build(checkout, folder):
    """Compiles the peer; its path."""
    program = os.path.join(folder, "ps_lite")
    source = os.path.join(checkout, "src")
    run(["protoc", f"--proto_path={source}", f"--cpp_out={folder}", os.path.join(source, "meta.proto")])
    sources = [os.path.join(source, name) for name in ("customer.cc", "postoffice.cc", "van.cc")]
    run(["c++", "-std=c++14", "-O3", "-march=native", "-w", "-I", os.path.join(checkout, "include"), "-I", folder, "-I", source,
         *sources, os.path.join(folder, "meta.pb.cc"), os.path.join(HERE, "ps_lite.cc"), "-o", program,
         "-lprotobuf", "-lzmq", "-lpthread"])
    return program


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rate(o, size, us):
    """Bytes per second."""
    return 2 * size * o.workers / us * 1e6


def ps_lite(o, program, transport):
    """Bytes per second of each size."""
    env = {**os.environ, "DMLC_NUM_WORKER": str(o.workers), "DMLC_NUM_SERVER": str(o.servers), "DMLC_PS_ROOT_URI": "127.0.0.1",
           "DMLC_PS_ROOT_PORT": str(free_port()), "DMLC_NODE_HOST": "127.0.0.1", "DMLC_LOCAL": str(int(transport == "local"))}
    words = [program, str(o.seconds), *(str(bytes_of(s)) for s in o.sizes.split(","))]
    roles = ["scheduler"] + ["server"] * o.servers + ["worker"] * o.workers
    processes = [subprocess.Popen(words, env={**env, "DMLC_ROLE": role}, stdout=subprocess.PIPE, text=True) for role in roles]
    try:
        outputs = [p.communicate(timeout=600)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    if any(p.returncode for p in processes):
        raise SystemExit("ps_lite.py: the peer failed: see its error")
    slowest = {}
    for line in "".join(outputs).splitlines():
        _, size, pieces, _, _, us = (float(word) for word in line.split())
        slowest[size, pieces] = max(us, slowest.get((size, pieces), 0))
    return {size: rate(o, size, min(us for (s, _), us in slowest.items() if s == size)) for size, _ in slowest}


def kolo(o, transport):
    words = [o.kolo, "bench", "ps", "-n", str(o.workers + o.servers), "--servers", str(o.servers), "--sizes", o.sizes,
             "--seconds", str(o.seconds), "--transport", "tcp" if transport == "tcp" else "shm", "--json", "-"]
    return {row["bytes"]: rate(o, row["bytes"], row["us_median"]) for row in json.loads(run(words))["rows"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--sizes", default="1K,16K,256K,1M,4M,16M,64M")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--transports", default="tcp,local")
    parser.add_argument("--kolo", default=os.path.join(HERE, "..", "..", "build", "release", "kolo"))
    o = parser.parse_args()
    transports, ours, theirs = o.transports.split(","), {}, {}
    with tempfile.TemporaryDirectory() as folder:
        program = build(o.checkout, folder)
        for _ in range(o.turns):
            for transport in transports:
                for found, rates in ((ours, kolo(o, transport)), (theirs, ps_lite(o, program, transport))):
                    for size, reached in rates.items():
                        found.setdefault((transport, size), []).append(reached)
    print("| transport | bytes | Kolo, GB/s | ps-lite, GB/s | Kolo over ps-lite | of each turn |")
    print("| --- | --- | --- | --- | --- | --- |")
    for transport in transports:
        for size in (bytes_of(s) for s in o.sizes.split(",")):
            a, b = ours[transport, size], theirs[transport, size]
            ratio = statistics.median(a) / statistics.median(b)
            each = ", ".join(f"{x / y:.2f}" for x, y in zip(a, b))
            print(f"| {transport} | {size} | {statistics.median(a) / 1e9:.3f} | {statistics.median(b) / 1e9:.3f} | {ratio:.2f} "
                  f"| {each} |")


if __name__ == "__main__":
    main()
