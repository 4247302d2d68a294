"""Sessions of own networks: values and gradients against numpy, loops, data sets, files, errors."""
# needs numpy; ranks 0

import copy
import ctypes
import gc
import os
import pickle
import signal
import tempfile
import threading
import traceback
import weakref

import kolo
import numpy as np
from kolo import nn, ops

random = np.random.default_rng(1)


def expect(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), f"{error!r} has not {text!r}"
        return error
    raise AssertionError(f"{call} did not fail")


def two_layers(g):
    x, y = g.input("x", (4,)), g.input("y", dtype="i32")
    assert x.shape == (g.samples, 4) and y.dtype == "i32"
    logits = nn.linear(ops.tanh(nn.linear(x, 5)), 3, "out")
    g.output(logits=logits, loss=ops.softmax_xent(logits, y), correct=ops.accuracy(logits, y))


def reference(parameters, x, y):
    """Loss, gradient of out.weight and logits of two_layers."""
    w1, b1, w2, b2 = parameters
    hidden = np.tanh(x @ w1.T + b1)
    logits = hidden @ w2.T + b2
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    return loss, (p / len(y)).T @ hidden, logits


def samples(n):
    x = random.normal(size=(n, 4))  # float64 and int64, as numpy makes them
    return x, 1 * (x[:, 0] > 0) + (x[:, 1] > 0)


def test_values():
    names = ["linear1.weight", "linear1.bias", "out.weight", "out.bias"]
    x, y = samples(12)
    with kolo.Session(two_layers, batch=12, lr=0.5, keep_gradients=True) as session:
        assert list(session.tensors()) == names
        assert session.tensors()["out.weight"] == ("f32", (3, 5))
        for step in range(3):
            before = [session.get(n) for n in names]
            loss, gradient, logits = reference([b.astype(np.float64) for b in before], x, y)
            assert np.allclose(session.predict("logits", x=x), logits, atol=1e-5)
            assert np.isclose(session.evaluate(x=x, y=y)["loss"], loss, atol=1e-5)
            metrics = session.step(x=x, y=y)
            assert np.isclose(metrics["loss"], loss, atol=1e-5) and 0 <= metrics["accuracy"] <= 1
            assert np.allclose(session.gradient("out.weight"), gradient, atol=1e-5)
            assert np.allclose(session.get("out.weight"), before[2] - 0.5 * gradient, atol=1e-5)
            assert session.steps == step + 1
        session.set("out.bias", [1, 2, 3])
        assert session.get("out.bias").tolist() == [1, 2, 3]
        assert session.lr == 0.5
        session.lr = 0.25
        assert session.lr == 0.25
        mine = np.zeros((12, 3), np.float32)
        assert session.predict("logits", {"x": x}, out=mine) is mine and mine.any()
        assert session.share(12) == slice(0, 12)


def test_f64():
    """Values and gradients to the last digits; the parameters after a step; what there is not."""
    wide, y = samples(6)
    x = wide.astype(np.float32)
    wide[:] = x
    session = kolo.Session(two_layers, batch=6, lr=0.5, f64=True, keep_gradients=True)
    assert all(dtype == "f64" for dtype, _ in session.tensors().values())
    names = ("linear1.weight", "linear1.bias", "out.weight", "out.bias")
    before = [session.get(n) for n in names]
    loss, gradient, logits = reference(before, wide, y)
    assert np.abs(session.predict("logits", x=wide) - logits).max() < 1e-14
    assert abs(session.step(x=x, y=y)["loss"] - loss) < 1e-14  # f32 arrays are converted
    found = session.gradient("out.weight")
    assert found.dtype == np.float64 and np.abs(found - gradient).max() < 1e-15
    assert np.abs(session.get("out.weight") - (before[2] - 0.5 * found)).max() < 1e-15
    value = before[0] + 1e-12
    session.set("linear1.weight", value)
    assert (session.get("linear1.weight") == value).all()
    expect(kolo.ArgumentError, "not finite", session.set, "linear1.weight", value * np.nan)
    text = "a session in f64 has no "
    with tempfile.TemporaryDirectory() as folder, kolo.Session(two_layers, batch=6, f64=True) as other:
        session.save(f"{folder}/wide")
        other.load(f"{folder}/wide")
        assert other.steps == 1 and all((other.get(n) == session.get(n)).all() for n in names)
        with kolo.Session(two_layers, batch=6) as narrow:
            narrow.save(f"{folder}/narrow")
            assert other.load_partial(f"{folder}/narrow") == []
            assert all((other.get(n) == narrow.get(n)).all() for n in names)
    for what, call, *arguments in (("ONNX files", session.export_onnx, "none"),
                                   ("runs", session.fit, {"x": x, "y": y}),
                                   ("loaders", session.loader, {"x": x, "y": y})):
        expect(kolo.UnsupportedError, text + what, call, *arguments)
    expect(kolo.ArgumentError, "u8 [4] for each sample, and the input of model", session.step,
           x=np.zeros((6, 4), np.uint8), y=y)
    expect(kolo.UnsupportedError, "f64 cannot be combined with precision bf16", kolo.Session, two_layers,
           f64=True, precision="bf16")


def test_copies():
    """Arrays of the right type and layout are not copied; others are converted."""
    x = np.zeros((3, 4), np.float32)
    fields = kolo._arrays.Fields(kolo._bindings.c.kolo_batch, {"x": x, "y": np.zeros(3, np.int64)}, {})
    assert fields.value.data[0] == x.ctypes.data and fields.arrays["y"].dtype == np.int32
    turned = kolo._arrays.as_field("x", np.arange(6, dtype=np.float32).reshape(2, 3).T)
    assert turned.flags.c_contiguous and turned.tolist() == [[0, 3], [1, 4], [2, 5]]

    class Tensor:  # of another framework
        def __init__(self, device=(1, 0)):
            self.device = device

        def __dlpack_device__(self):
            return self.device

        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

    assert kolo._arrays.as_field("x", Tensor()).ctypes.data == x.ctypes.data
    expect(TypeError, "not in main memory", kolo._arrays.as_field, "x", Tensor((2, 0)))
    expect(ValueError, "do not fit into 32 bits", kolo._arrays.as_field, "y", np.array([2**40]))
    expect(TypeError, "has elements of type", kolo._arrays.as_field, "x", np.array(["a"]))


def test_byte_order():
    """Arrays of foreign byte order, or that are not aligned, are converted; as outputs they are refused."""
    x, y = samples(6)
    x = x.astype(np.float32)
    swapped = x.astype(x.dtype.newbyteorder()), y.astype(np.int32).astype(np.dtype(np.int32).newbyteorder())
    shifted = np.frombuffer(b"0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    assert kolo._arrays.as_field("x", shifted).flags.aligned
    session = kolo.Session(two_layers, batch=6)
    assert session.evaluate(x=swapped[0], y=swapped[1]) == session.evaluate(x=x, y=y)
    data = kolo.Dataset({"x": swapped[0], "y": swapped[1]}).gather(range(6))
    assert (data["x"] == x).all() and (data["y"] == y).all()
    value = session.get("out.weight")
    session.set("out.weight", (2 * value).astype(swapped[0].dtype))
    assert (session.get("out.weight") == 2 * value).all()
    expect(ValueError, "foreign byte order", session.predict, "logits", x=x, out=swapped[0][:, :3].copy())
    expect(ValueError, "foreign byte order", session.get, "out.weight", out=np.zeros((3, 5), swapped[0].dtype))


def test_masks():
    """Masked elements are refused: the library would compute with the values that they hide."""
    x, y = samples(6)
    hidden = np.ma.masked_greater(x, x.mean())
    session = kolo.Session(two_layers, batch=6)
    for call in (session.evaluate, session.step):
        expect(TypeError, "field 'x' has masked elements", call, x=hidden, y=y)
    expect(TypeError, "masked elements", kolo.Dataset, {"x": hidden, "y": y})
    expect(TypeError, "masked elements", session.set, "out.weight", np.ma.masked_equal(np.zeros((3, 5)), 0))
    assert session.evaluate(x=np.ma.array(x), y=y) == session.evaluate(x=x, y=y)  # nothing is masked


def test_fit():
    x, y = samples(90)
    seen, lines = [], []
    session = kolo.Session(two_layers, batch=10, lr=0.5, momentum=0.9, seed=3)
    result = session.fit({"x": x, "y": y}, {"x": x, "y": y}, epochs=8, eval_every=1,
                         callback=seen.append, progress=lambda p: lines.append(str(p)))
    assert result.steps == 72 and result.epochs == 8 and result.test["accuracy"] > 0.9
    assert [p.epoch for p in seen] == list(range(1, 9)) and seen[-1].test == result.test
    assert lines and "epoch 8  step 72/72  loss" in lines[-1], lines
    assert session.evaluate(kolo.Dataset({"x": x, "y": y})) == result.test
    # the same steps by a loop over a loader, bitwise
    other = kolo.Session(two_layers, batch=10, lr=0.5, momentum=0.9, seed=3)
    data = kolo.Dataset({"x": x, "y": y}, classes=3)
    losses = [other.step(batch)["loss"] for batch in other.loader(data, epochs=8)]
    assert losses[0] == result.first_loss and len(losses) == 72
    assert (other.get("out.weight") == session.get("out.weight")).all()
    # callbacks end a run, by their result or by an exception
    assert session.fit(data, epochs=20, callback=lambda p: p.epoch == 10).epochs == 10

    def bad(_):
        session.predict("logits", x=x)
        raise KeyError("mine")

    expect(KeyError, "mine", session.fit, data, epochs=30, callback=bad)
    expect(KeyError, "mine", session.fit, data, epochs=2000, progress=bad)
    assert session.steps < 1900 * 9


def test_datasets():
    images = np.arange(10 * 4, dtype=np.uint8).reshape(10, 4)
    labels = np.arange(10) % 3
    data = kolo.Dataset({"x": images, "y": labels}, normalize={"x": (0.5, 0.25)}, classes=3)
    assert len(data) == 10 and data.classes == 3
    assert data.fields == {"x": ("u8", (4,)), "y": ("i32", ())}
    some = data.gather([7, 2])
    assert (some["x"] == images[[7, 2]]).all() and some["y"].tolist() == [1, 2]
    session = kolo.Session(two_layers, batch=10)
    plain = session.predict("logits", x=((images / 255 - 0.5) / 0.25))
    assert np.allclose(session.predict("logits", x=images, normalize={"x": (0.5, 0.25)}), plain,
                       atol=1e-5)
    threads = set()

    def gather(indices):
        threads.add(threading.get_ident())
        return {"x": images[indices], "y": labels[indices]}

    fields = {"x": ("u8", (4,)), "y": ("i32", ())}
    lazy = kolo.Dataset.from_function(10, fields, gather, normalize={"x": (0.5, 0.25)})
    one = kolo.Session(two_layers, batch=4, seed=2)
    two = kolo.Session(two_layers, batch=4, seed=2)
    assert one.fit(data, epochs=2).parameter_hash == two.fit(lazy, epochs=2).parameter_hash
    assert threads - {threading.get_ident()}
    seen = sorted(v for batch in kolo.Session(two_layers, batch=4).loader(data) for v in batch["x"][:, 0])
    assert seen == images[:, 0].tolist()

    def fails(indices):
        raise KeyError(f"sample {indices[0] * 0}")

    broken = kolo.Dataset.from_function(10, fields, fails)
    expect(KeyError, "sample 0", one.fit, broken, epochs=9)
    expect(KeyError, "sample 0", broken.gather, [0])
    expect(kolo.FormatError, "label", kolo.Dataset, {"x": images, "y": labels}, classes=2)
    expect(ValueError, "different numbers of samples: x 10, y 9", kolo.Dataset,
           {"x": images, "y": labels[:9]})
    expect(kolo.ArgumentError, "did you mean", kolo.Dataset.open, "fashion-mnits")


def test_conversions():
    """What a function returns, indices and values of tensors are converted like the fields of a batch."""
    x, y = samples(6)
    given = {"x": x.astype(">f8")[::-1], "y": y.astype(">i8")}
    fields = {"x": ("f32", (4,)), "y": ("i32", ())}
    data = kolo.Dataset.from_function(6, fields, lambda i: {n: a[i] for n, a in given.items()})
    assert (data.gather(range(6))["x"] == x[::-1].astype(np.float32)).all()
    assert data.gather(np.arange(6, dtype=np.uint8))["y"].tolist() == y.tolist() and len(data.gather([])["x"]) == 0
    given["y"] = y + 2**32
    expect(ValueError, "field 'y' has integers that do not fit into 32 bits", data.gather, [0])
    expect(ValueError, "field 'y' has integers that do not fit", kolo.Session(two_layers, batch=6).fit, data)
    given["y"] = y + 0.5
    expect(TypeError, "field 'y' has elements of type float64: use integers", data.gather, [0])
    images = kolo.Dataset.from_function(6, {"x": ("u8", ())}, lambda i: {"x": 100 * i})
    assert images.gather([0, 2])["x"].tolist() == [0, 200]
    expect(ValueError, "do not fit into 8 bits without a sign", images.gather, [3])
    expect(TypeError, "use integers", data.gather, [0.5])
    expect(ValueError, "do not fit into 64 bits", data.gather, np.array([2**64 - 1], np.uint64))
    expect(TypeError, "give numbers", data.gather, y > 1)
    session = kolo.Session(two_layers)
    session.set("out.bias", [True, 2, 3.5])
    expect(TypeError, "the value of 'out.bias' has elements of type", session.set, "out.bias", ["1", "2", "3"])


def test_files(folder):
    x, y = samples(10)
    path = os.path.join(folder, "net.safetensors")
    one = kolo.Session(two_layers, batch=10, optimizer="adam", lr=0.01)
    one.step(x=x, y=y)
    one.save(path)
    two = kolo.Session(two_layers, batch=10, optimizer="adam", lr=0.01, seed=9)
    two.load(path)
    one.export_onnx(path + ".onnx")
    assert os.path.getsize(path + ".onnx") > 100
    assert two.steps == 1 and one.step(x=x, y=y) == two.step(x=x, y=y)
    assert "linear1.weight" in kolo.checkpoint.describe(path) and kolo.checkpoint.verify(path)
    assert kolo.checkpoint.compare(path, path)[0] is True

    def wider(g):
        x = g.input("x", (4,))
        g.output(loss=ops.sum(nn.linear(ops.tanh(nn.linear(x, 5)), 7, "out")))

    three = kolo.Session(wider, batch=10)
    assert any("out.weight" in line for line in three.load_partial(path))
    expect(kolo.FileError, "none.safetensors", one.load, os.path.join(folder, "none.safetensors"))
    run = os.path.join(folder, "run")
    result = kolo.Session(two_layers, batch=5, seed=4).fit({"x": x, "y": y}, epochs=4, out_dir=run,
                                                           checkpoint_epochs=2)
    again = kolo.Session(two_layers, batch=5, seed=4)
    assert again.fit({"x": x, "y": y}, epochs=6, out_dir=run, resume=run).steps == 12
    for limit in ({"epochs": 6}, {"epochs": 2}, {"steps": 3}):
        expect(kolo.ArgumentError, "give more epochs or steps, which are counted from step 0", again.fit,
               {"x": x, "y": y}, **limit)
    assert result.steps == 8 and os.path.exists(os.path.join(run, "loss.svg"))


def test_zeros():
    """A 0 that C replaces by its default is passed on, or refused."""
    x, y = samples(6)

    def steps(**options):
        session = kolo.Session(two_layers, batch=6, lr=.1, seed=2, **options)
        before = session.get("out.weight")
        for _ in range(2):
            session.step(x=x, y=y)
        return before, session.get("out.weight"), session

    # Adam without memory is the sign of the gradient; without the first moment's it differs from 0.9.
    before, after, _ = steps(optimizer="adam", beta1=0, beta2=0.0, eps=0)
    moved = np.abs(after - before)
    assert np.all((np.abs(moved - .2) < 1e-5) | (moved < 1e-5)), moved
    _, one, session = steps(optimizer="adam", beta1=0.0)
    assert np.abs(one - steps(optimizer="adam")[1]).max() > 1e-4
    assert np.abs(one - steps(optimizer="adam", beta1=1e-7)[1]).max() < 1e-6
    steps(compress_min_bytes=0)
    for options in ({"lr": 0.0}, {"batch": 0}, {"lr_power": 0}, {"lr_step_factor": 0}, {"threads": 0}, {"trust": 0},
                    {"accumulate": 0}, {"lr_step_every": 0}, {"bucket_bytes": np.int64(0)}):
        name, = options
        expect(ValueError, f"{name} 0: give a number above 0", kolo.Session, two_layers, **options)
    expect(ValueError, "log_every 0: give a number above 0", session.fit, {"x": x, "y": y}, epochs=3, log_every=0)
    expect(kolo.ArgumentError, "choose a number above 0", kolo.Session, two_layers, optimizer="adam", beta1=2)

    def compute(op, values):
        def build(g):
            z = op(g.input("z", (2, 3)))
            g.output(z=z, loss=ops.sum(z))
        with kolo.Session(build, batch=2, evaluate_only=True) as network:
            return network.predict("z", z=values)

    z = random.normal(size=(2, 2, 3)).astype(np.float32)
    sums = (z**2).sum(1, keepdims=True)
    normal = (z - z.mean(2, keepdims=True)) / z.std(2, keepdims=True)
    for op, expected in (
            (lambda v: ops.lrn(v, 3, alpha=0, k=2), z * 2**-.75),
            (lambda v: ops.lrn(v, 3, beta=0), z),
            (lambda v: ops.lrn(v, 3, alpha=3, beta=.5, k=0), z / np.sqrt(sums)),
            (lambda v: ops.layer_norm(1e-6 * v, eps=0), normal),
            (lambda v: ops.instance_norm(1e-6 * v, eps=0), normal)):
        assert np.allclose(compute(op, z), expected, rtol=1e-4, atol=1e-4), (compute(op, z), expected)
    graph = kolo.Graph(2)
    image = graph.input("image", (4, 8))
    expect(ValueError, "stride 0: give", ops.conv1d, image, graph.param("w", (3, 4, 1)), stride=0)
    expect(ValueError, "groups 0: give an integer from 1", nn.conv1d, image, 3, 1, groups=0)
    expect(ValueError, "stride_w 0: give", ops.max_pool2d, graph.input("i", (1, 4, 4)), 2, stride=(1, 0))
    expect(ValueError, "size 0: give", ops.lrn, image, size=0)
    expect(ValueError, "base 0: give", ops.rotary, image, 2, base=0)


def test_batch_norm_momentum():
    """Momentum 0 leaves the running statistics."""
    def build(g):
        x = ops.batch_norm(g.input("x", (4,)), "norm", eps=0, momentum=0)
        g.output(loss=ops.softmax_xent(nn.linear(x, 3), g.input("y", dtype="i32")))

    session = kolo.Session(build, batch=6)
    x, y = samples(6)
    session.step(x=x, y=y)
    assert np.array_equal(session.get("norm.running_mean"), np.zeros(4))
    assert np.array_equal(session.get("norm.running_var"), np.ones(4))


def test_errors():
    def wrong_shapes(g):
        ops.linear(g.input("x", (4,)), g.param("w", (3, 5)))

    error = expect(kolo.ArgumentError, "linear", kolo.Session, wrong_shapes)
    assert error.status == "KOLO_ERR_ARG" and isinstance(error, ValueError)
    assert error.__traceback__.tb_next is not None

    def raises(g):
        raise KeyError("builder")

    expect(KeyError, "builder", kolo.Session, raises)
    expect(TypeError, "did you mean 'momentum'", kolo.Session, two_layers, momentun=0.9)
    expect(ValueError, "choose one of sgd", kolo.Session, two_layers, optimizer="sgdd")
    expect(TypeError, "give an integer", kolo.Session, two_layers, batch=1.5)
    graph, array = kolo.Graph(2), np.ones(4, np.float32)
    x = graph.input("x", (4,))
    for call in (lambda: x + array, lambda: array * x, lambda: x / [1, 2, 3, 4], lambda: x**array,
                 lambda: ops.add(x, array), lambda: ops.relu(array)):
        expect(TypeError, "make it an input, or a constant", call)
    assert (np.float32(2) * x - np.array(1.0)).shape == (2, 4)
    session = kolo.Session(two_layers)
    for call in (session.step, session.evaluate, session.fit):
        expect(TypeError, "give a dictionary", call, array)
        expect(TypeError, "give a dictionary", call, (array, array))
    expect(TypeError, "give a dictionary", session.predict, "logits", array)
    expect(kolo.ArgumentError, "schedule without an end", kolo.Session, two_layers, schedule="cosine")
    session = kolo.Session(two_layers, batch=4)
    x, y = samples(4)
    expect(kolo.ArgumentError, "has no field \"y\"", session.step, x=x)
    expect(kolo.ArgumentError, "label 7", session.step, x=x, y=[0, 1, 2, 7])
    expect(kolo.ArgumentError, "[2] for each sample", session.step, x=x[:, :2], y=y)
    expect(kolo.ArgumentError, "no output \"logit\"", session.predict, "logit", x=x)
    expect(kolo.ArgumentError, "did you mean \"out.weight\"", session.get, "out.weigth")
    expect(ValueError, "must be contiguous", session.get, "out.bias", out=np.zeros(4, np.float32))
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    expect(ValueError, "read-only", session.get, "out.bias", out=frozen)
    kept = []
    kolo.Session(lambda g: (two_layers(g), kept.append(g)))
    expect(ValueError, "the graph is complete", kept[0].input, "z", ())
    loader = session.loader({"x": x, "y": y})
    session.close()
    session.close()
    expect(ValueError, "the session is closed", session.step, x=x, y=y)
    expect(ValueError, "the loader is closed", next, loader)


def test_pickle():
    """Errors pass between processes; what has a handle of the library is neither pickled nor copied."""
    session = kolo.Session(two_layers, batch=4)
    error = expect(kolo.ArgumentError, "no tensor", session.get, "none")
    for kind in [type(error), kolo.Error, *kolo.Error.__subclasses__()]:
        failure = kind(error.status, str(error))
        failure.rank = 3
        for again in (pickle.loads(pickle.dumps(failure)), copy.copy(failure)):
            assert (type(again), again.status, str(again), again.rank) == (kind, error.status, str(error), 3)
    x, y = samples(8)
    data, comm, graph = kolo.Dataset({"x": x, "y": y}), kolo.init(), kolo.Graph(2)
    request = comm.request("allreduce", np.zeros(2, np.float32))
    loader = session.loader(data)
    for owner in (session, data, loader, next(loader), kolo.Model("lenet"), graph, graph.input("x", ()), comm,
                  request):
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            expect(TypeError, f"a kolo.{type(owner).__name__} cannot be copied or pickled", copying, owner)
    result = session.fit(data, epochs=1)
    assert pickle.loads(pickle.dumps(result)) == result


def test_batches():
    """A batch is refused when its memory is another one's, or free."""
    x, y = samples(12)
    session = kolo.Session(two_layers, batch=4)
    loader = session.loader({"x": x, "y": y}, epochs=2)
    first, second = next(loader), next(loader)
    for use in (session.step, session.evaluate, lambda batch: batch["x"],
                lambda batch: session.predict("logits", batch)):
        expect(ValueError, "the batch of step 0 is not valid any more: its loader has gone on", use, first)
    assert (first.count, first.step) == (4, 0) and second["x"].shape == (4, 4)
    session.step(second)
    loader.close()
    expect(ValueError, "the loader of the batch is closed", session.step, second)
    expect(ValueError, "the loader of the batch is closed", second.keys)


def test_nested():
    """Calls in a callback of fit, a builder and an op: those that change or free what is in use are refused."""
    x, y = samples(20)
    calls = {"step": lambda: session.step(x=x, y=y), "fit": lambda: session.fit(data, epochs=99),
             "load": lambda: session.load("none"), "close": lambda: session.close(),
             "serve": lambda: session.serve()}
    inside = []

    def build(g):
        two_layers(g)
        if inside:
            inside.pop()()

    class Nesting(kolo.Op):
        index = "nc->nc"

        def forward(self, inputs, outputs):
            outputs[0][:] = inputs[0]
            if inside:
                inside.pop()()

    session, data = kolo.Session(build, batch=10, lr=0.1), kolo.Dataset({"x": x, "y": y})
    for name, call in calls.items():
        expect(kolo.ArgumentError, f"{name} in a callback of fit: the session is in use until fit returns",
               session.fit, data, epochs=99, callback=lambda _: call())
    session.step(x=x, y=y)
    with tempfile.TemporaryDirectory() as folder:
        def allowed(_):
            session.lr, path = 0.5 * session.lr, f"{folder}/net"
            session.set("out.bias", session.predict("logits", x=x)[0])
            session.save(path)
            session.load_partial(path)
            assert session.evaluate(data)["loss"] > 0 and list(session.loader(data, epochs=99))
            return True

        session.fit(data, epochs=99, callback=allowed)
    calls["predict"] = lambda: session.predict("logits", x=x)
    for samples_of_build, (name, call) in enumerate(calls.items(), 3):
        inside.append(call)
        expect(kolo.ArgumentError, f"{name} in a function that evaluate calls: the session is in use until",
               session.evaluate, x=x[:samples_of_build], y=y[:samples_of_build])
    session = kolo.Session(lambda g: g.output(z=Nesting()(g.input("x", (4,)))), evaluate_only=True)
    inside.append(session.close)
    expect(kolo.ArgumentError, "close in a function that predict calls", session.predict, "z", x=x)
    assert session.predict("z", x=x).shape == x.shape


def test_ranges():
    """Integers that do not fit into the type of the library are refused by name, not taken modulo its size."""
    session = kolo.Session(two_layers)
    fields, g = {"x": ("f32", (4,))}, kolo.Graph(2)
    x, image = g.input("x", (4,)), g.input("image", (3, 8, 8))
    wide = "give an integer from -9223372036854775808 to 9223372036854775807"
    for call in (lambda n: kolo.Session(two_layers, batch=n), session.share,
                 lambda n: kolo.Dataset.from_function(n, fields, dict), lambda n: kolo.Dataset.open("synthetic", rows=n),
                 lambda n: g.param("w", (n,)), lambda n: ops.slice(x, 1, n, 2), lambda n: ops.split(x, 1, [n, 2]),
                 lambda n: nn.conv2d(image, 4, 3, stride=n), lambda n: session.fit({"x": [1]}, epochs=n)):
        for number in (2**64 + 2, 2**70, -2**63 - 1):
            expect(ValueError, f"{number}: {wide}", call, number)
    narrow = "give an integer from -2147483648 to 2147483647"
    expect(ValueError, f"threads 4294967297: {narrow}", kolo.Session, two_layers, threads=2**32 + 1)
    expect(ValueError, f"classes 4294967299: {narrow}", kolo.Dataset, {"x": [1.0]}, classes=2**32 + 3)
    expect(ValueError, f"a dimension 4294967297: {narrow}", ops.mean, x, (2**32 + 1,))
    expect(ValueError, f"axis 4294967297: {narrow}", ops.flip, x, np.int64(2**32 + 1))
    for seed in (2**64, -1):
        expect(ValueError, f"seed {seed}: give an integer from 0 to {2**64 - 1}", kolo.Session, two_layers, seed=seed)
    assert kolo.Session(two_layers, batch=np.int64(4), seed=2**64 - 1).share(np.uint8(4)) == slice(0, 4)
    expect(TypeError, "samples 3.5: give an integer", session.share, 3.5)


def test_names_in_errors():
    """Errors of arrays and options have the name of the field or option."""
    x, y = samples(4)
    session, data = kolo.Session(two_layers, batch=4), {"x": x, "y": y}

    class Tensor:  # of another framework, with elements that numpy does not have
        dtype = "bfloat16"

        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **options):
            raise BufferError("unsupported type")

    expect(TypeError, "field 'x', a Tensor of bfloat16, cannot be read as an array: unsupported type", session.step,
           x=Tensor(), y=y)
    expect(TypeError, "the value of 'out.bias', a Tensor of bfloat16, cannot", session.set, "out.bias", Tensor())
    expect(ValueError, "field 'x', a list, cannot be read as an array: ", session.step, x=[[1, 2], [3]], y=y)
    for normalize, text in ((0.5, "normalize is 0.5: give mean and deviation"),
                            ({"x": 0.5}, "field 'x' is normalized by 0.5: give mean and deviation"),
                            ({"x": ("a", 1)}, "field 'x' is normalized by 'a': give mean and deviation")):
        expect(TypeError, text, session.step, data, normalize=normalize)
        expect(TypeError, text, kolo.Dataset, data, normalize=normalize)
        expect(TypeError, text, kolo.Dataset.from_function, 4, {"x": ("u8", (4,))}, dict, normalize=normalize)
    expect(ValueError, "no field 'z' to normalize", kolo.Dataset.from_function, 4, {"x": ("u8", (4,))}, dict,
           normalize={"z": (0, 1)})
    for option, value, wanted in (("lr", "a", "a number"), ("momentum", [1], "a number"), ("mesh", 2, "a text"),
                                  ("f64", "no", "True or False"), ("batch", "4", "an integer")):
        expect(TypeError, f"option {option!r} is {value!r}: give {wanted}", kolo.Session, two_layers,
               **{option: value})
    expect(TypeError, "algorithm 3: give a name", kolo.Session, two_layers, algorithm=3)
    expect(TypeError, "lr 'a': give a number", setattr, session, "lr", "a")
    g = kolo.Graph(2)
    expect(TypeError, "factor 'a': give a number", ops.scale, g.input("x", ()), "a")


def test_nul():
    """Names with NUL characters are refused, not cut."""
    x, y = samples(4)
    session, g = kolo.Session(two_layers, batch=4), kolo.Graph(2)
    value, nul = g.input("x", (4,)), "has a NUL character"
    expect(ValueError, f"name 'a\\x00b' {nul}", g.param, "a\0b", (3,))
    expect(ValueError, f"name 'a\\x00b' {nul}", kolo.Dataset, {"a\0b": x})
    expect(ValueError, f"output 'logits\\x00' {nul}", session.predict, "logits\0", x=x)
    for call in (lambda: session.get("out.bias\0"), lambda: session.save("net\0"), lambda: g.input("x\0"),
                 lambda: g.output(**{"loss\0": value}), lambda: nn.linear(value, 3, "up\0"),
                 lambda: kolo.Model("lenet\0"), lambda: kolo.Dataset.open("synthetic\0"),
                 lambda: kolo.Session(two_layers, freeze="out*\0"), lambda: kolo.checkpoint.verify("net\0")):
        expect(ValueError, nul, call)


def test_graph():
    g = kolo.Graph(2)
    x = g.input("x", (3, 8, 8))
    y = ops.max_pool2d(ops.relu(nn.conv2d(x, 6, 3, pad=1)), 2)
    assert y.shape == (2, 6, 4, 4) and repr(y) == "<kolo.Value f32 [2, 6, 4, 4]>"
    assert g.parameters == 6 * 3 * 9 + 6
    a, b = ops.split(y, 1, [2, 4])
    assert ops.concat([a, b]).shape == y.shape and ops.reshape(y, (2, -1)).shape == (2, 96)
    assert ops.permute(y, (0, 2, 3, 1)).shape == (2, 4, 4, 6)
    assert ops.mean(y, (2, 3)).shape == (2, 6) and ops.sum(y).shape == ()
    assert ops.max(y, -1, keep=True).shape == (2, 6, 4, 1)
    expect(kolo.ArgumentError, "conv2d", ops.conv2d, y, x)


def test_operators():
    """Operators of values against those of numpy."""
    x = random.normal(size=(5, 3)).astype(np.float32) + 3

    def formula(v, w):
        return (1 - 2 * v) / (v + w) * 3 - (-v) ** 2 + 4 / (w - 0.5) + (v - 1) / 2

    def build(g):
        v, w = g.input("x", (3,)), g.param("w", (3,), "ones")
        g.output(y=formula(v, w), z=ops.clamp(v, max=3.5))

    session = kolo.Session(build, evaluate_only=True)
    assert np.allclose(session.predict("y", x=x), formula(x, 1), atol=1e-4)
    assert np.allclose(session.predict("z", x=x), np.minimum(x, 3.5))


def test_lifetimes():
    """Objects are freed in any order, by the collector too."""
    x, y = samples(8)
    comm = kolo.init()
    session = kolo.Session(two_layers, comm, batch=4)
    data = kolo.Dataset({"x": x, "y": y})
    gone = weakref.ref(data)
    loader = session.loader(data)
    batch = next(loader)
    view = batch["x"]
    del session, data, comm, batch
    gc.collect()
    assert view.shape == (4, 4) and gone() is not None
    del loader, view
    gc.collect()
    assert gone() is None
    comm = kolo.init()  # the process has left its group
    session = kolo.Session(two_layers, comm, batch=4)
    comm.close()
    expect(ValueError, "the session is closed", session.step, x=x, y=y)
    cycle = [kolo.Session(two_layers, batch=4)]
    cycle.append(cycle)
    gone = weakref.ref(cycle[0])
    del cycle
    gc.collect()
    assert gone() is None


def in_child(call):
    """Calls a function in a forked child, whose destructors run."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            call()
        except BaseException:  # pylint: disable=broad-except
            traceback.print_exc()
            raise SystemExit(1) from None
        raise SystemExit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_fork():
    """A child that exits does not free what belongs to its parent, nor use it."""
    x, y = samples(40)
    data = kolo.Dataset({"x": x, "y": y})
    for threads in (1, 2):
        session = kolo.Session(two_layers, batch=4, threads=threads)
        loader = session.loader(data)
        batch = next(loader)
        session.step(batch)

        def child():
            text = "belongs to the parent process, from which this one was forked"
            for call in (lambda: session.step(batch), lambda: session.predict("logits", x=x), lambda: session.steps,
                         lambda: session.fit(data), lambda: next(loader)):
                expect(kolo.ArgumentError, text, call)
            if threads == 2:
                expect(kolo.UnsupportedError, "a session of 2 threads in a process that was forked", kolo.Session,
                       two_layers, threads=2)
            assert kolo.Session(two_layers, batch=4).fit(data, epochs=1).steps == 10
            session.close()

        in_child(child)
        in_child(lambda: None)
        assert len(list(loader)) == 9 and session.steps == 1


def test_threads():
    """Sessions of several threads, and one that they share."""
    x, y = samples(16)
    shared, failures, losses = kolo.Session(two_layers, batch=16), [], []

    def work():
        try:
            own = kolo.Session(two_layers, batch=16, seed=1)
            losses.append([own.step(x=x, y=y)["loss"] for _ in range(20)])
            for _ in range(20):
                shared.step(x=x, y=y)
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert losses == losses[:1] * 4 and shared.steps == 80


def test_models():
    assert "lenet" in kolo.models()
    data = kolo.Dataset.open("synthetic:N=40,test=20,shape=1x28x28,classes=7")
    clicks = kolo.Dataset.open("synthetic-clicks:N=9,test=5", "test", numbers=3, categories=2,
                               rows=9)
    assert clicks.fields["x"][1] == (3,) and clicks.fields["ids"][1] == (2,)
    model = kolo.Model("lenet", data=data)
    assert (model.sample, model.classes) == ((1, 28, 28), 7)
    assert kolo.Session(model, batch=20).fit(data, epochs=1).steps == 2
    own = kolo.Model(os.path.join(os.path.dirname(os.environ["KOLO_LIBRARY"]), "examples", "mine.so"),
                     data=data, options="hidden=8")
    assert kolo.Session(own, batch=20).fit(data, epochs=1).steps == 2
    expect(kolo.ArgumentError, "did you mean", kolo.Model, "lenett")
    expect(kolo.ArgumentError, "", kolo.Session, kolo.Model("lenet", sample=(1, 2, 2)))


def test_signal_handlers():
    """A handler must not run on the stack of a kernel, which may be a buffer on the heap."""
    stack = (ctypes.c_void_p * 3)()  # stack_t: memory, flags, bytes
    kolo.Session(two_layers, batch=2)
    assert ctypes.CDLL(None).sigaltstack(None, stack) == 0
    assert stack[0] and not stack[1] and stack[2] >= 1 << 15


for name, check in list(globals().items()):
    if name.startswith("test_"):
        if name == "test_files":
            with tempfile.TemporaryDirectory() as temporary:
                check(temporary)
        else:
            check()
