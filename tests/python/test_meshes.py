"""Sessions whose network two ranks divide: values, gradients, predictions, files and runs of one rank."""
# needs numpy; ranks 2

import os
import shutil

import kolo
import numpy as np
from small_net import X, Y, net

RULES = "up.weight 0\ndown.weight 1\n"


def values(session):
    """What a session computes, with all ranks of its mesh."""
    share = session.share(24)
    losses = [session.step(x=X[share], y=Y[share])["loss"] for _ in range(4)]
    found = [np.array(losses), session.gradient("up.weight"), session.get("down.weight"), session.get("up.bias"),
             session.predict("logits", x=X[share])]
    return found + [np.array(session.evaluate(x=X[share], y=Y[share])["loss"])]


def fitted(session, **options):
    result = session.fit({"x": X, "y": Y}, {"x": X[:9], "y": Y[:9]}, **options)
    return np.array([result.final["loss"], result.test["loss"]])


OPTIONS = {"global_batch": 24, "optimizer": "adamw", "lr": 0.05, "clip": 0.5, "seed": 2, "keep_gradients": True}
with kolo.init() as comm:
    assert comm.size == 2
    with kolo.Session(net, **OPTIONS) as alone:
        want = values(alone)
        longer = fitted(alone, epochs=12)
    for options in ({"mesh": "tp=2", "placement": RULES}, {"mesh": "pp=2", "accumulate": 3, "pipeline": "gpipe"}):
        with kolo.Session(net, comm, **OPTIONS, **options) as session:
            for a, b in zip(values(session), want):
                assert a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-6), (options, a, b)
            assert session.share(24) == slice(0, 24)
            comm.barrier()
            if comm.rank == 0:
                shutil.rmtree("mesh_run", ignore_errors=True)
            comm.barrier()
            fitted(session, epochs=8, out_dir="mesh_run", checkpoint_epochs=4)
        assert os.path.exists("mesh_run/latest")
        with kolo.Session(net, comm, **OPTIONS, mesh="dp=2", zero=1) as session:  # on another mesh
            assert np.allclose(fitted(session, epochs=12, resume="mesh_run"), longer, rtol=1e-3), options
    try:
        with kolo.Session(net, comm, **OPTIONS, mesh="tp=2", placement=RULES) as session:
            session.step(x=X + comm.rank, y=Y)
    except kolo.ArgumentError as error:
        assert "rank 1 gave other samples than rank 0" in str(error), error
    else:
        raise AssertionError("other samples are not refused")
