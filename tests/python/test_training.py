"""lenet through the module has the bits of `kolo train`, alone and on two ranks; errors of one rank;
Ctrl-C ends a run."""
# needs numpy; ranks 0

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

import kolo
import numpy as np
from kolo import nn, ops

DATA = "synthetic:N=320,test=64,shape=1x28x28,classes=10"
COMMAND = os.path.join(os.path.dirname(os.environ["KOLO_LIBRARY"]), "kolo")


def train(folder, **exchange):
    """As rank of a job or alone: the run of `kolo train`, then faults."""
    with kolo.init() as comm:
        data, test = kolo.Dataset.open(DATA), kolo.Dataset.open(DATA, "test")
        session = kolo.Session(kolo.Model("lenet", data=data), comm, batch=16, lr=0.05,
                               momentum=0.9, seed=5, **exchange)
        result = session.fit(data, test, steps=15, out_dir=folder, log_every=1)
        assert result.steps == 15 and result.test["accuracy"] >= 0
        # each rank with its share of arrays of the program
        own = kolo.Session(small, comm, global_batch=12, lr=0.1)
        x = np.arange(24, dtype=np.float32).reshape(12, 2) / 24
        mine = own.share(12)
        losses = [own.step(x=x[mine])["loss"] for _ in range(5)]
        assert losses == sorted(losses, reverse=True)
        whole = kolo.Session(small, None, global_batch=12, lr=0.1)
        assert np.allclose(losses, [whole.step(x=x)["loss"] for _ in range(5)], rtol=1e-5)
        if comm.size == 1:
            return

        def breaks(g):
            if comm.rank == 1:
                raise KeyError("mine")
            small(g)

        try:
            kolo.Session(breaks, comm)
            raise AssertionError("the builder of rank 1 failed")
        except KeyError:
            assert comm.rank == 1
        except kolo.ArgumentError as error:
            assert comm.rank == 0 and "rank 1: KeyError: 'mine'" in str(error), error
        assert comm.allreduce(np.ones(1, np.float32))[0] == 2  # the group goes on
        assert own.fit({"x": x}, epochs=50, callback=lambda p: p.epoch == 7).epochs == 7


def small(g):
    x = g.input("x", (2,))
    g.output(loss=ops.sum(ops.square(nn.linear(x, 1) - 1)))


def interrupt():
    """Ctrl-C raises KeyboardInterrupt out of a run that would take hours."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    session = kolo.Session(small, batch=1)
    data = kolo.Dataset({"x": np.ones((1000, 2), np.float32)})
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        session.fit(data, epochs=10**6)
        raise AssertionError("the run was not interrupted")
    except KeyboardInterrupt:
        assert session.steps > 0


def preempt(folder):
    """A run that is preempted goes on with the bits of one that was not."""
    data, hashes = kolo.Dataset({"x": np.ones((1000, 2), np.float32)}), []
    for out in (None, folder):
        session = kolo.Session(small, batch=10, momentum=0.9)
        asked = []
        if out:
            first = session.fit(data, epochs=30, out_dir=out, preempted=lambda: asked.append(1) or len(asked) > 3)
            assert first.preempted and 0 < first.steps < 3000, first
            session = kolo.Session(small, batch=10, momentum=0.9)
        result = session.fit(data, epochs=30, resume=out)
        assert result.steps == 3000 and not result.preempted
        hashes.append(result.parameter_hash)
    assert hashes[0] == hashes[1]


def compare(folder, ranks, **exchange):
    """The files of a job of the command and of this program."""
    names = [os.path.join(folder, "_".join([kind, str(ranks), *exchange])) for kind in ("command", "module")]
    given = [text for name, value in exchange.items() for text in ("--" + name, value)]
    subprocess.run([COMMAND, "train", "--model", "lenet", "--data", DATA, "--batch", "16", "--lr",
                    "0.05", "--momentum", "0.9", "--seed", "5", "--steps", "15", "--log-every", "1",
                    "--no-recipe", "--autotune", "off", "--threads", "1", "--workers", str(ranks), "--out", names[0],
                    *given],
                   check=True, capture_output=True)
    program = [sys.executable, os.path.abspath(__file__), names[1], json.dumps(exchange)]
    subprocess.run([COMMAND, "run", "-n", str(ranks), "--", *program] if ranks > 1 else program,
                   check=True)
    losses = []
    for name in names:
        with open(os.path.join(name, "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        losses.append([(l["step"], l["loss"]) for l in lines if l.get("event") == "train"])
    assert losses[0] == losses[1] and len(losses[0]) == 15, losses
    weights = [os.path.join(name, "checkpoint-final.safetensors") for name in names]
    equal, text = kolo.checkpoint.compare(*weights)
    assert equal, text


if len(sys.argv) > 1:
    train(sys.argv[1], **json.loads(sys.argv[2]))
else:
    with tempfile.TemporaryDirectory() as temporary:
        compare(temporary, 1)
        compare(temporary, 2)
        compare(temporary, 2, consistency="diloco:4", compress="int8")
        preempt(os.path.join(temporary, "preempted"))
    interrupt()
