"""Horovod's calls on numpy arrays: a linear model on three ranks is trained as by one, with the state of rank 0;
arrays by name, values of any kind, ranks with unequal numbers of batches, and what is refused."""
# needs numpy; ranks 3

import collections

import kolo.horovod as hvd
import numpy as np


def expect_error(kind, text, call, *arguments):
    try:
        call(*arguments)
    except kind as error:
        assert text in str(error), f"{error!r} has not {text!r}"
        return
    raise AssertionError(f"{call} did not fail")


expect_error(ValueError, "init() has not been called", hvd.rank)
expect_error(ValueError, "join() without a DistributedOptimizer", hvd.join)
comm = hvd.init()
assert hvd.init() is comm
expect_error(ValueError, "init() with options, but the group exists", lambda: hvd.init(encrypt=True))
rank, size = hvd.rank(), hvd.size()
assert (size, hvd.local_size(), hvd.local_rank()) == (3, 3, rank)

# ---- collectives ----

data = np.full((3, 4), float(rank))
assert (hvd.allreduce(data) == 1).all() and (data == rank).all()
assert hvd.allreduce_(data, hvd.Sum) is data and (data == 3).all()
assert hvd.allreduce(np.float64(rank), hvd.Max) == 2
handles = {n: hvd.allreduce_async(np.full(5, n + rank), str(n), hvd.Sum)
           for n in np.random.default_rng(rank).permutation(6)}
for n, handle in handles.items():
    assert (hvd.synchronize(handle) == 3 * n + 3).all() and hvd.poll(handle)
assert (hvd.broadcast(np.full(3, rank), 2) == 2).all()
value = {"rate": 0.1, "steps": [1, 2, (3, None)], "moments": {"w": np.full((2, 3), rank, np.float32)}, 7: "text",
         "complex": np.array([1j * rank]), "scalar": np.int16(rank), "empty": np.zeros((0, 4))}
found = hvd.broadcast_optimizer_state(value if rank == 1 else None, 1)
assert list(found) == list(value) and found["steps"] == [1, 2, (3, None)] and found[7] == "text"
assert found["moments"]["w"].dtype == np.float32 and (found["moments"]["w"] == 1).all()
assert found["complex"] == [1j] and found["scalar"] == 1 and found["empty"].shape == (0, 4)
value = {"zero": np.float32(rank), "cell": np.array(rank), (1, ("a", None)): (True, [()]), "day": np.datetime64(0, "D"),
         "nan": float("nan"), "big": 2**70, "\ud800": "\0", "columns": np.arange(6).reshape(2, 3).T}
found = hvd.broadcast_object(value if rank == 1 else None, 1)
assert list(found) == list(value) and found[1, ("a", None)] == (True, [()]) and found["big"] == 2**70
assert type(found["zero"]) is np.float32 and type(found["cell"]) is np.ndarray and found["cell"].shape == ()
assert found["zero"] == found["cell"] == 1 and found["day"] == value["day"] and type(found["day"]) is np.datetime64
assert np.isnan(found["nan"]) and found["\ud800"] == "\0" and (found["columns"] == value["columns"]).all()
cyclic = []
cyclic.append(cyclic)
for refused, text in ((object(), "of type object cannot be broadcast"), (cyclic, "recursion"),
                      (collections.namedtuple("Point", "x y")(1, 2), "of type Point"),
                      ({np.int64(1): 2}, "a key of type int64"), ({(np.float64(1),): 2}, "a key of type float64"),
                      ({frozenset(): 2}, "a key of type frozenset"), (np.array([None]), "an array of type object"),
                      (np.ma.array([1, 2], mask=[0, 1]), "an array has masked elements"),
                      (np.zeros(2, [("a", "i4"), ("b", "f8")]), "an array of type [('a'")):
    kind = RecursionError if refused is cyclic and rank == 1 else TypeError
    expect_error(kind, text, hvd.broadcast_object, refused if rank == 1 else None, 1)
    expect_error(kind, "" if rank == 1 else "the value of rank 1 cannot", hvd.broadcast_object,
                 refused if rank == 1 else None, 1)
expect_error(TypeError, "parameter 'a' is no array", hvd.broadcast_parameters, {"a": 1})

# ---- training ----


def gradient(parameters, x, y):
    error = x @ parameters["w"] + parameters["b"] - y
    return {"w": x.T @ error / len(x), "b": error.mean(0)}


def train(parameters, share, of, average):
    velocity = {n: np.zeros_like(p) for n, p in parameters.items()}
    gradients = {n: np.zeros_like(p) for n, p in parameters.items()}

    def update(rate):
        for name, p in parameters.items():
            velocity[name] = 0.9 * velocity[name] + gradients[name]
            p -= rate * velocity[name]

    optimizer = hvd.DistributedOptimizer(update, gradients) if average else None
    for step in range(5):
        x = np.random.default_rng(step).normal(size=(12, 4))[share * 12 // of:(share + 1) * 12 // of]
        for name, g in gradient(parameters, x, x[:, :2] ** 2).items():
            gradients[name][:] = g
            if average and (step != 3 or name == "w"):  # the other at step()
                optimizer.ready(name)
        if average and step == 2:
            optimizer.synchronize()
        (optimizer.step if average else update)(0.1)
    return parameters


def start(seed):
    drawn = np.random.default_rng(seed)
    return {"w": drawn.normal(size=(4, 2)), "b": drawn.normal(size=2)}


alone = train(start(0), 0, 1, False)
mine = start(rank)
hvd.broadcast_parameters(mine)
train(mine, rank, size, True)
for name in mine:
    assert np.allclose(mine[name], alone[name], atol=1e-12), name

# ---- ranks with unequal numbers of batches ----

total, g = np.zeros(2), np.zeros(2)


def add():
    total[:] += g


uneven = hvd.DistributedOptimizer(add, {"g": g}, hvd.Sum)
for step in range([2, 5, 3][rank]):
    g[:] = 1
    uneven.ready("g")
    uneven.step()
assert hvd.join() == 1
hvd.broadcast_parameters({"total": total}, 1)
assert (total == 3 + 3 + 2 + 1 + 1).all(), total
expect_error(ValueError, "no gradient 'h': there are g", uneven.ready, "h")
uneven.ready("g")
expect_error(ValueError, "gradient 'g' is ready twice", uneven.ready, "g")
expect_error(ValueError, "the gradients have not been used", hvd.join)
uneven.step()
expect_error(ValueError, "gradients are averaged or summed", hvd.DistributedOptimizer, add, {"g": g}, "max")
hvd.shutdown()
expect_error(ValueError, "has not been called", hvd.size)
