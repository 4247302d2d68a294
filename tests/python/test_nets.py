"""Networks of bench/nets/builders.py in f64 against stored numbers of PyTorch (bench/nets.py --golden): loss, logits
and the gradients of all parameters."""
# needs numpy; ranks 0

import json
import sys
from pathlib import Path

import kolo
import numpy as np

root = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "bench/nets"))
import builders  # noqa: E402
import golden  # noqa: E402


def check(what, name, got, want):
    got = golden.summary(name, got)
    limit = 1e-9 * want[0] + 1e-14
    assert all(abs(g - w) <= limit for g, w in zip(got, want)), f"{what}: {name} is {got}, not {want}"


stored = json.loads((root / "tests/golden/nets.json").read_text())
assert set(stored) == set(golden.NAMES)
for net, want in stored.items():
    batch = {n: np.array(a, np.int32) for n, a in want["batch"].items()}
    with kolo.Session(getattr(builders, net), batch=golden.SAMPLES, f64=True, keep_gradients=True, lr=0.1) as session:
        shapes = {n: shape for n, (dtype, shape) in session.tensors().items()}
        assert all(dtype == "f64" for dtype, _ in session.tensors().values())
        assert set(shapes) == set(want["gradients"])
        for name, value in golden.weights(shapes).items():
            session.set(name, value)
        logits = session.predict("logits", batch)
        assert logits.dtype == np.float64
        check(net, "logits", logits, want["logits"])
        loss = session.step(batch)["loss"]
        assert abs(loss - want["loss"]) <= 1e-12 * want["loss"], f"{net}: loss {loss}, not {want['loss']}"
        for name, numbers in want["gradients"].items():
            gradient = session.gradient(name)
            assert gradient.dtype == np.float64
            check(net, name, gradient, numbers)
print("ok")
