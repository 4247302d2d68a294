"""Ops with kernels in Python: against built-in ops, finite differences, one rank; exceptions, refusals."""
# needs numpy; ranks 3

import os
import signal
import tempfile
import threading
import time

import kolo
import numpy as np
from kolo import nn, ops

comm = kolo.init()
rank, world = comm.rank, comm.size
random = np.random.default_rng(4)


def expect(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert not text or text in str(error), f"{error!r} has not {text!r}"
        return error
    raise AssertionError(f"{call} did not fail")


class Snake(kolo.Op):
    """x + sin(alpha x)^2 / alpha (Ziyin et al., 2020): x [N,C], alpha [C]."""

    index = "nc,c->nc"

    def forward(self, inputs, outputs):
        x, alpha = inputs
        outputs[0][:] = x + np.sin(alpha * x) ** 2 / alpha

    def backward(self, inputs, d_outputs, d_inputs):
        x, alpha = inputs
        dy, = d_outputs
        d_inputs[0][:] = dy * (1 + np.sin(2 * alpha * x))
        d_inputs[1][:] = (dy * (x * np.sin(2 * alpha * x) / alpha - np.sin(alpha * x) ** 2 / alpha**2)).sum(0)


class MyTanh(kolo.Op):
    """tanh, by arrays; the gradient is made of built-in ops and reads the output."""

    index = "*->*"

    def forward(self, inputs, outputs):
        assert not inputs[0].flags.writeable and inputs[0].flags.c_contiguous
        np.tanh(inputs[0], out=outputs[0])

    def gradient(self, inputs, outputs, d_outputs):
        return [d_outputs[0] * (1 - outputs[0] * outputs[0])]


class Linear(kolo.Op):
    """A matrix product with a scale and a second output, the squares of rows' lengths."""

    name, index = "scaled_linear", "nI,OI->nO,n"
    attributes = ("factor",)

    def shape(self, x, w):
        if x.shape[1] != w.shape[1]:
            raise ValueError(f"x is {x.shape}, w is {w.shape}")
        return x._replace(shape=(x.shape[0], w.shape[0])), x._replace(shape=x.shape[:1])

    def forward(self, inputs, outputs):
        x, w = inputs
        outputs[0][:] = self.factor * x @ w.T
        outputs[1][:] = (x * x).sum(1)

    def backward(self, inputs, d_outputs, d_inputs):
        x, w = inputs
        dy, dz = d_outputs
        d_inputs[0][:] = self.factor * dy @ w + 2 * x * dz[:, None]
        d_inputs[1][:] = self.factor * dy.T @ x


def net(activation, product=None):
    def build(g):
        x, y = g.input("x", (4,)), g.input("y", dtype="i32")
        h = activation(nn.linear(x, 5, "in"), g)
        w = g.param("w", (3, 5))
        logits = product(h, w) if product else 0.5 * ops.linear(h, w)
        g.output(logits=logits, loss=ops.softmax_xent(logits, y), correct=ops.accuracy(logits, y))
    return build


def own_snake(x, g):
    return Snake()(x, g.param("alpha", (5,), "ones"))


def samples(n):
    x = np.random.default_rng(5).normal(size=(n, 4)).astype(np.float32)
    return x, (1 * (x[:, 0] > 0) + (x[:, 1] > 0)).astype(np.int32)


def test_equals_built_in():
    """Bits of a session do not depend on who computes tanh; f64, f32, bf16."""
    x, y = samples(12)
    for options, bound in (({"f64": True}, 1e-14), ({}, 1e-5), ({"precision": "bf16"}, 2e-2)):
        own = kolo.Session(net(lambda v, g: MyTanh()(v), lambda h, w: Linear(factor=0.5)(h, w)[0]), batch=12,
                           lr=0.3, keep_gradients=True, **options)
        other = kolo.Session(net(lambda v, g: ops.tanh(v)), batch=12, lr=0.3, keep_gradients=True, **options)
        for _ in range(3):
            a, b = own.step(x=x, y=y), other.step(x=x, y=y)
            assert abs(a["loss"] - b["loss"]) < bound, (options, a, b)
        for name in ("in.weight", "w"):
            assert np.abs(own.gradient(name) - other.gradient(name)).max() < bound, (options, name)
            assert np.abs(own.get(name) - other.get(name)).max() < bound, (options, name)
        assert np.abs(own.predict("logits", x=x) - other.predict("logits", x=x)).max() < 2 * bound


def test_finite_differences():
    """The gradients of all parameters, in f64, with a second output in the loss."""
    x, y = samples(6)

    def build(g):
        a, labels = g.input("x", (4,)), g.input("y", dtype="i32")
        h = own_snake(nn.linear(a, 5, "in"), g)
        logits, lengths = Linear(factor=0.7)(h, g.param("w", (3, 5)))
        g.output(loss=ops.softmax_xent(logits, labels) + 0.1 * ops.sum(lengths))

    session = kolo.Session(build, batch=6, lr=1e-9, f64=True, keep_gradients=True)
    session.set("alpha", np.linspace(0.5, 1.5, 5))
    session.step(x=x, y=y)
    gradients = {name: session.gradient(name) for name in session.tensors()}
    for name, found in gradients.items():
        value, numeric = session.get(name), np.zeros(0)
        for i in range(value.size):
            losses = []
            for delta in (1e-5, -1e-5):
                moved = value.copy()
                moved.flat[i] += delta
                session.set(name, moved)
                losses.append(session.evaluate(x=x, y=y)["loss"])
            numeric = np.append(numeric, (losses[0] - losses[1]) / 2e-5)
        session.set(name, value)
        assert np.abs(found.ravel() - numeric).max() < 1e-8, (name, found, numeric)


def test_ranks():
    """Several ranks compute what one does; with fit, too."""
    x, y = samples(30)
    alone = kolo.Session(net(own_snake), global_batch=12, lr=0.3)
    together = kolo.Session(net(own_snake), comm, global_batch=12, lr=0.3)
    mine = together.share(12)
    for k in range(2):
        part = slice(12 * k, 12 * k + 12)
        one = alone.step(x=x[part], y=y[part])
        all_ = together.step(x=x[part][mine], y=y[part][mine])
        assert abs(one["loss"] - all_["loss"]) < 1e-6
    results = [s.fit({"x": x, "y": y}, {"x": x, "y": y}, epochs=3) for s in (alone, together)]
    assert abs(results[0].test["loss"] - results[1].test["loss"]) < 1e-5
    for name in alone.tensors():
        assert np.abs(alone.get(name) - together.get(name)).max() < 1e-5, name
    reproducible = kolo.Session(net(own_snake), comm, global_batch=12, reproducible=6, lr=0.3)
    assert np.isfinite(reproducible.fit({"x": x, "y": y}, epochs=1).final["loss"])


def test_memory():
    """Kernels get the memory of the session: nothing is copied on the way."""
    seen = []

    class Address(kolo.Op):
        index = "*->*"

        def forward(self, inputs, outputs):
            seen.append((inputs[0].ctypes.data, outputs[0].ctypes.data, inputs[0].dtype, inputs[0].shape))
            outputs[0][:] = inputs[0]

    def build(g):
        g.output(y=Address()(g.input("x", (3,)) * 2))

    session = kolo.Session(build, batch=2, evaluate_only=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (session.predict("y", x=x) == 2 * x).all() and (session.predict("y", x=x) == 2 * x).all()
    assert len(set(seen)) == 1 and seen[0][2:] == (np.float32, (2, 3)), seen


def test_redefined():
    """A class of the same name, as in a notebook, is another op; sessions keep theirs. Ranks that have
    defined other classes before make the same graph."""
    def make(factor):
        class Times(kolo.Op):
            index = "*->*"
            linear = (0,)

            def forward(self, inputs, outputs):
                np.multiply(inputs[0], factor, out=outputs[0])
        return Times

    def session_of(op):
        return kolo.Session(lambda g: g.output(y=op()(g.input("x", (2,)))), batch=1, evaluate_only=True)

    sessions = [session_of(make(k)) for k in range(300)]  # more than the library takes
    x = np.ones((1, 2), np.float32)
    for k in (0, 1, 299):
        assert (sessions[k].predict("y", x=x) == k).all()


def test_defined_by_some_ranks():
    """What a process has defined before is not part of the graph that ranks compare."""
    def make(notation):
        class Same(kolo.Op):
            index = notation

            def forward(self, inputs, outputs):
                outputs[0][:] = inputs[0]

            def backward(self, inputs, d_outputs, d_inputs):
                d_inputs[0][:] = d_outputs[0]
        return Same

    if rank == 1:
        for notation in ("nc->nc", "*->*"):
            g = kolo.Graph(2)
            make(notation)()(g.input("v", (4,)))
    x, y = samples(12)
    op = make("*->*")
    session = kolo.Session(net(lambda v, g: op()(v)), comm, global_batch=12, lr=0.1)
    mine = session.share(12)
    assert np.isfinite(session.step(x=x[mine], y=y[mine])["loss"])


def test_refused():
    x, y = samples(12)
    g = kolo.Graph(2)
    v = g.input("v", (4,))
    expect(ValueError, "x is (2, 4), w is (3, 5)", Linear(factor=1), v, g.param("w", (3, 5)))
    g = kolo.Graph(2)
    v = g.input("v", (4,))
    expect(TypeError, "Linear takes 2 inputs, not 1", Linear(factor=1), v)
    expect(TypeError, "Linear takes the attributes factor: not none", Linear)
    expect(TypeError, "takes values of a graph", MyTanh(), 3)

    class Relu(MyTanh):
        pass

    class Odd(MyTanh):
        index = "nc"

    class Wide(MyTanh):
        attributes = tuple("abcdefghijkl")

    class Vague(MyTanh):
        index = None

    class Untrained(kolo.Op):
        index = "*->*"

        def forward(self, inputs, outputs):
            outputs[0][:] = inputs[0]

    class Wrong(MyTanh):
        def shape(self, x):
            return x.shape

    class Stateful(MyTanh):
        def __init__(self):
            super().__init__()
            self.table, self.state = np.ones(3), 1

    class Sum(MyTanh):
        index = "n+n->n"

    expect(kolo.ArgumentError, "Relu: there is an op relu: choose another name", Relu(), v)
    expect(kolo.ArgumentError, 'name = "own_relu"', Relu(), v)
    expect(TypeError, "Stateful has the members state, table: kernels get the attributes alone", Stateful(), v)
    expect(ValueError, "Sum.index is 'n+n->n'", Sum(), v)
    expect(ValueError, 'Odd.index is \'nc\': a letter for each dimension, such as "ni,oi->no"', Odd(), v)
    expect(ValueError, "Wide has 12 attributes: at most 11", Wide(**{k: 1 for k in "abcdefghijkl"}), v)
    expect(TypeError, "a kolo.Tensor for each of 1 outputs", Wrong(), v)
    expect(kolo.Error, "untrained", kolo.Session, net(lambda v, g: Untrained()(v)), batch=12)
    expect(kolo.Error, "vague", kolo.Session, net(lambda v, g: Vague()(v)), comm, batch=12)
    session = kolo.Session(net(lambda v, g: MyTanh()(v)), batch=12)
    session.step(x=x, y=y)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.onnx")
        expect(kolo.UnsupportedError, "my_tanh", session.export_onnx, path)
        assert not os.listdir(folder)


class Failing(MyTanh):
    """Fails in the pass that `where` names."""

    where = ""

    def forward(self, inputs, outputs):
        if self.where == "forward":
            raise ZeroDivisionError("division of my own")
        super().forward(inputs, outputs)


class FailingBackward(Failing):
    gradient = kolo.Op.gradient

    def backward(self, inputs, d_outputs, d_inputs):
        if self.where == "backward":
            raise KeyboardInterrupt()
        d_inputs[0][:] = d_outputs[0]


def test_exceptions():
    """An exception ends the call with itself; without a step of several ranks the session goes on."""
    x, y = samples(12)
    session = kolo.Session(net(lambda v, g: FailingBackward()(v)), batch=12, lr=0.1)
    before = session.get("w")
    for where, kind in (("forward", ZeroDivisionError), ("backward", KeyboardInterrupt)):
        Failing.where = where
        expect(kind, "", session.step, x=x, y=y)
        assert session.steps == 0 and (session.get("w") == before).all()
    Failing.where = "forward"
    expect(ZeroDivisionError, "of my own", session.predict, "logits", x=x)
    expect(ZeroDivisionError, "of my own", session.evaluate, x=x, y=y)
    expect(ZeroDivisionError, "of my own", session.fit, {"x": x, "y": y})
    Failing.where = ""
    assert np.isfinite(session.step(x=x, y=y)["loss"])

    class FailingGradient(MyTanh):
        def gradient(self, inputs, outputs, d_outputs):
            raise LookupError("no gradient today")

    expect(LookupError, "no gradient today", kolo.Session, net(lambda v, g: FailingGradient()(v)), batch=12)

    class Unprintable(Exception):
        def __str__(self):
            raise ValueError()

    class Forward(MyTanh):
        what = None

        def forward(self, inputs, outputs):
            return self.what(inputs, outputs)

    def fail(error):
        raise error

    def assign(_, outputs):
        outputs[0] = 3

    for what, kind, text in (
            (lambda i, o: fail(Unprintable()), Unprintable, ""),
            (lambda i, o: fail(LookupError("\ud800")), LookupError, ""),
            (assign, TypeError, "does not support item assignment"),
            (lambda i, o: i[0], TypeError, "Forward.forward returns a value: write it to outputs[i][:]")):
        Forward.what = staticmethod(what)
        session = kolo.Session(net(lambda v, g: Forward()(v)), batch=12)
        expect(kind, text, session.predict, "logits", x=x)

    class Backward(MyTanh):
        gradient = kolo.Op.gradient

        def backward(self, inputs, d_outputs, d_inputs):
            return d_outputs[0]

    session = kolo.Session(net(lambda v, g: Backward()(v)), batch=12)
    expect(TypeError, "Backward.backward returns a value: write it to d_inputs[i][:]", session.step, x=x, y=y)

    def build(g):
        fail(LookupError("\ud800"))

    expect(LookupError, "", kolo.Session, build, batch=12)


def test_interrupted():
    """A signal that arrives while C computes ends the step, also if its handler runs as the kernel of an
    op begins; parameters stay."""
    computing, sent = threading.Event(), threading.Event()

    class First(MyTanh):
        def forward(self, inputs, outputs):
            super().forward(inputs, outputs)
            computing.set()

    class Last(MyTanh):
        def forward(self, inputs, outputs):
            assert sent.wait(20)
            super().forward(inputs, outputs)

    def build(g):
        x = First()(g.input("x", (512,)))
        for i in range(4):
            x = nn.linear(x, 512, f"layer{i}")
        g.output(loss=ops.mean(Last()(x)))

    def send(number):
        assert computing.wait(20)
        time.sleep(0.002)  # the kernel has returned
        os.kill(os.getpid(), number)
        sent.set()

    def raise_timeout(*_):
        raise TimeoutError()

    session = kolo.Session(build, batch=256, lr=0.1, threads=1)
    x, before = np.ones((256, 512), np.float32), session.get("layer0.weight")
    old = [signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGALRM, raise_timeout)]
    for number, kinds in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGALRM, (TimeoutError, kolo.Error))):
        computing.clear()
        sent.clear()
        thread = threading.Thread(target=send, args=(number,))
        thread.start()
        error = expect(kinds, "", session.step, x=x)
        thread.join()
        assert session.steps == 0 and (session.get("layer0.weight") == before).all(), error
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert np.isfinite(session.step(x=x)["loss"])
    signal.signal(signal.SIGINT, old[0])
    signal.signal(signal.SIGALRM, old[1])


def test_exception_of_a_rank():
    """The other ranks get its text and do not wait; the evaluation of a data set stays usable."""
    x, y = samples(12)
    session = kolo.Session(net(lambda v, g: Failing()(v)), comm, global_batch=12, lr=0.1)
    mine, data = session.share(12), kolo.Dataset({"x": x, "y": y})
    session.step(x=x[mine], y=y[mine])
    before = session.get("w")
    text = "rank 1: op failing: ZeroDivisionError: division of my own"
    Failing.where = "forward" if rank == 1 else ""
    if rank == 1:
        expect(ZeroDivisionError, "division of my own", session.evaluate, data)
    else:
        expect(kolo.ArgumentError, text, session.evaluate, data)
    begin = time.monotonic()
    if rank == 1:
        expect(ZeroDivisionError, "division of my own", session.step, x=x[mine], y=y[mine])
    else:
        expect(kolo.PeerError, text, session.step, x=x[mine], y=y[mine])
    assert time.monotonic() - begin < 20 and (session.get("w") == before).all()
    expect(kolo.PeerError, text, comm.barrier)


for test in (test_equals_built_in, test_finite_differences, test_memory, test_redefined, test_exceptions,
             test_interrupted):
    if rank == 0:  # alone
        test()
test_ranks()
test_defined_by_some_ranks()
test_refused()
test_exception_of_a_rank()
