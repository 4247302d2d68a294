"""Operations of a program in reductions, on plain and structured arrays, and an exception in one."""
# needs numpy; ranks 3

import time

import kolo
import numpy as np

KIND = np.dtype([("m", np.int64, (2, 2)), ("at", np.int32)], align=True)


def expect_error(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), f"{error!r} has not {text!r}"
        return
    raise AssertionError(f"{call} did not fail")


def product(to, other):
    """Of 2 x 2 matrices: not commutative."""
    to["m"] = to["m"] @ other["m"]


def longest(to, other):
    np.hypot(to, other, out=to)


def keep(to, other):
    """The first of equal values."""
    assert (to == other).all()


def check_order(comm):
    n, rank = comm.size, comm.rank
    data = np.zeros(50, KIND)
    data["m"] = [[[1, rank + i], [rank, 1]] for i in range(50)]
    want = [np.linalg.multi_dot([np.array([[1, r + i], [r, 1]]) for r in range(n)]) for i in range(50)]
    mine, part = data.copy(), np.zeros(10, KIND)
    assert comm.allreduce(mine, op=kolo.Operation(product)) is mine
    assert (mine["m"] == want).all()
    comm.reduce_scatter(data[:10 * n], part, op=kolo.Operation(product))
    assert (part["m"] == want[10 * rank:10 * rank + 10]).all()
    mine = data.copy()
    comm.reduce(mine, op=kolo.Operation(product), root=2)
    assert rank != 2 or (mine["m"] == want).all()


def check_plain(comm):
    n = comm.size
    total = comm.allreduce(np.full(9000, 2.0), kolo.Operation(longest, "length", commutative=True))
    assert np.allclose(total, 2 * n**0.5)
    halves = np.asarray(comm.alloc(100))
    request = comm.request("allreduce", halves, op=kolo.Operation(lambda a, b: longest(a, b), "length"))
    for _ in range(3):  # only the request refers to the function
        halves[:] = 3
        request.start().wait()
        assert np.allclose(halves, 3 * n**0.5)


def check_elements(comm):
    """Data and output of different types are refused before anything is written; bytes are numbers."""
    n, own = comm.size, kolo.Operation(keep)
    packed = np.dtype([("m", np.int64, (2, 2)), ("at", np.int32)])
    records = np.zeros(4 * n, KIND)
    for other in (np.float32, packed, np.dtype([("m", np.int64, (2, 2)), ("to", np.int32)], align=True)):
        for given, output in ((records, np.ones(4, other)), (np.ones(4 * n, other), records[:4])):
            before = output.copy()
            expect_error(TypeError, "reduce_scatter: input is ", comm.reduce_scatter, given, output, op=own)
            assert (output == before).all()
    expect_error(TypeError, "cannot be reduced or sent", comm.allreduce, np.zeros(2, [("o", object)]), own)
    for shift in range(8):  # formats of the same type differ with the address
        memory = np.zeros(packed.itemsize + 8, np.uint8)[shift:shift + packed.itemsize].view(packed)
        comm.reduce_scatter(np.ones(n, packed), memory, op=own)
        assert (memory["m"] == 1).all() and memory["at"] == 1
    output = bytearray(4)
    comm.reduce_scatter(bytes(range(4 * n)), output, op=own)
    assert output == bytes(range(4 * comm.rank, 4 * comm.rank + 4))
    memory = np.zeros(4, np.uint16)
    expect_error(TypeError, "operation 'keep' of the program on bf16", comm.allreduce,
                 kolo.Buffer(memory.ctypes.data, 4, "bf16", memory), own)


def check_refused(comm):
    own, data = kolo.Operation(longest), np.ones(4)
    text = "operation 'longest' of the program: use allreduce, reduce"
    expect_error(TypeError, text, kolo.combine, data, data, own)
    expect_error(TypeError, text, comm.allreduce_async, "x", data, own)
    expect_error(TypeError, text, comm.allreduce_shards, [data], data, comm.size, own)
    expect_error(TypeError, "cannot be reduced or sent", comm.allreduce, np.zeros(3, KIND))
    expect_error(kolo.ArgumentError, "algorithm ring does not combine in the order of the ranks",
                 comm.allreduce, data, own, algorithm="ring")
    expect_error(kolo.ArgumentError, "a name of 1 to 24 characters", comm.allreduce, data,
                 kolo.Operation(longest, "x" * 25))


def check_exception(comm):
    """Last: it breaks the group."""
    def fails(to, _other):
        if comm.rank == 1:
            raise ZeroDivisionError("no inverse")
        return to

    comm.barrier()
    time.sleep(0.1)
    try:
        comm.allreduce(np.ones(5000), kolo.Operation(fails))
    except kolo.ArgumentError as error:
        text = str(error)
    assert "ZeroDivisionError: no inverse" in text or "returns a value" in text, text
    assert "allreduce (5000 x f64, fails, " in text, text


def main():
    comm = kolo.init()
    check_order(comm)
    check_plain(comm)
    check_elements(comm)
    check_refused(comm)
    check_exception(comm)
    comm.close()


main()
