"""Weights and inputs by formulas, for nets whose PyTorch numbers are stored in tests/golden/nets.json."""
import numpy as np

NAMES = ("gru", "t5_encoder", "distilbert")
SAMPLES = 4


def weights(shapes):
    """An array for each name of `shapes`; of normalizations around 1."""
    drawn = {}
    for p, name in enumerate(sorted(shapes)):
        size = int(np.prod(shapes[name]))
        values = 0.3 * np.sin(1 + p + 0.7 * np.arange(size) + 0.01 * np.arange(size) ** 2)
        norm = name.lower().endswith(("norm.weight",))
        drawn[name] = (1 + values if norm else values).reshape(shapes[name])
    return drawn


def batch(fields, limits):
    """i32 fields {name: shape of a sample} with numbers below limits[name]."""
    drawn = {}
    for k, (name, shape) in enumerate(fields.items()):
        i = np.arange(SAMPLES * int(np.prod(shape)), dtype=np.int64)
        drawn[name] = ((7 * i * i + 3 * i + k) % 101 % limits[name]).astype(np.int32).reshape(SAMPLES, *shape)
    return drawn


def summary(name, values):
    """Norm, and sum under a probe."""
    values = np.asarray(values, np.float64).ravel()
    return [float(np.linalg.norm(values)), float(values @ np.cos(len(name) + 0.3 * np.arange(values.size)))]


FIELDS = {"gru": ({"x": (12,), "y": ()}, {"x": 50, "y": 10}),
          "t5_encoder": ({"x": (12,), "y": ()}, {"x": 60, "y": 10}),
          "distilbert": ({"x": (12,), "y": ()}, {"x": 60, "y": 10})}
