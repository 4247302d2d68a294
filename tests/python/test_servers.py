"""Sessions whose parameters are at servers: bits of an allreduce, asynchronous workers, files, runs and errors."""
# needs numpy; ranks 3

import os

import kolo
import numpy as np
from small_net import X, Y, net


def train(session):
    """Steps, a rate, a value and a file of the program, and a run."""
    share = session.share(24)
    losses = [session.step(x=X[share], y=Y[share])["loss"] for _ in range(3)]
    session.lr = 0.02
    session.set("up.bias", np.ones(8))
    losses += [session.step(x=X[share], y=Y[share])["loss"] for _ in range(2)]
    session.save("servers.safetensors")
    result = session.fit({"x": X, "y": Y}, {"x": X, "y": Y}, steps=8)
    session.load("servers.safetensors")
    assert session.steps == 5
    found = [session.get(name) for name in session.tensors()]
    return [np.array(losses), np.array([result.final["loss"], result.test["loss"]]),
            session.predict("logits", x=X)] + found


OPTIONS = {"global_batch": 24, "optimizer": "adam", "lr": 0.05, "seed": 2, "algorithm": "direct"}


def asynchronous(comm):
    """Workers make different numbers of steps, and then have the same parameters."""
    with kolo.Session(net, comm, **OPTIONS, sync="ps", servers=1, consistency="asp") as session:
        assert session.is_server == (comm.rank == 2)
        if session.is_server:
            return session.serve()
        part = session.share(24)
        if comm.rank == 1:
            try:
                session.step(x=X[part], y=Y[part] + 3)
            except kolo.ArgumentError as error:
                assert "outside" in str(error), error
            else:
                raise AssertionError("a label outside the classes is accepted")
        order = np.random.default_rng(comm.rank)
        for _ in range(40 + 30 * comm.rank):  # of samples of both, as one worker may come long before the other
            some = order.permutation(24)[:12]
            session.step(x=X[some], y=Y[some])
        metrics = session.evaluate(kolo.Dataset({"x": X, "y": Y}))
        assert metrics["accuracy"] > 0.8, metrics
        session.save("asynchronous.safetensors")
        return session.get("up.weight")


with kolo.init() as comm:
    assert comm.size == 3
    workers = comm.split(0 if comm.rank < 2 else 1)
    if comm.rank < 2:
        with kolo.Session(net, workers, **OPTIONS) as session:
            want = train(session)
    with kolo.Session(net, comm, **OPTIONS, sync="ps", servers=1) as session:
        if session.is_server:
            session.serve()
            try:
                session.get("up.weight")
            except kolo.ArgumentError as error:
                assert "this rank is a server" in str(error), error
            else:
                raise AssertionError("a server has parameters")
        else:
            for a, b in zip(train(session), want):
                assert a.shape == b.shape and np.array_equal(a, b), (a, b)
    got = asynchronous(comm)
    if comm.rank < 2:
        both = np.empty((2, *got.shape), np.float32)
        workers.allgather(got, both)
        assert np.array_equal(both[0], both[1])
    workers.close()
    comm.barrier()
    try:
        kolo.Session(net, comm, sync="ring")
    except ValueError as error:
        assert "allreduce, ps, mesh" in str(error), error
    assert comm.rank > 0 or os.path.exists("asynchronous.safetensors")
