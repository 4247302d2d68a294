"""Every collective of the Python module between processes, on arrays of several types and kinds."""
# needs numpy; ranks 3

import array
import time

import kolo
import numpy as np


def expect_error(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), f"{error!r} has not {text!r}"
        return error
    raise AssertionError(f"{call} did not fail")


def check_allreduce(comm):
    n, rank = comm.size, comm.rank
    for dtype in (np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64):
        for count in (0, 1, 7, 5000):
            data = (np.arange(count) % 5 + rank).astype(dtype)
            result = comm.allreduce(data)
            assert result is data
            assert (data == (np.arange(count) % 5 * n + n * (n - 1) // 2).astype(dtype)).all()
    data = np.full((3, 4), rank, np.float32)
    assert (comm.allreduce(data, op="mean") == (n - 1) / 2).all()
    assert (comm.allreduce(np.full(2, rank, np.int32), op="max") == n - 1).all()
    assert (comm.allreduce(np.full(2, rank + 1, np.int32), op="min") == 1).all()
    assert comm.allreduce(array.array("d", [2.0]), op="prod")[0] == 2.0**n
    third = np.array([-5, 5]) if rank == 0 else np.zeros(2, int)
    assert comm.allreduce(third, op="mean").tolist() == [-(5 // n), 5 // n]  # towards zero
    assert bytes(comm.allreduce(bytearray(b"\1\2"))) == bytes([n, 2 * n])


def check_hook(comm):
    events, before = [], time.monotonic_ns()
    comm.set_hook(events.append)
    comm.allreduce(np.ones(5, np.float32), site="hooked")
    comm.barrier()
    begin, end = events[:2]
    assert (begin.kind, begin.name, begin.bytes, begin.peer, begin.algorithm) == ("allreduce", "hooked", 20, -1, "")
    assert begin.id == end.id and before <= begin.ns <= end.ns <= time.monotonic_ns()
    assert not begin.ends and end.ends and not end.failed and end.algorithm and "5 x f32" in end.title
    assert [e.kind for e in events[2:]] == ["barrier", "barrier"]
    comm.set_hook(None)
    comm.barrier()
    assert len(events) == 4


def check_booleans(comm):
    n, rank = comm.size, comm.rank
    mine = np.array([True, False, rank == 1])
    assert comm.allreduce(mine.copy(), op="max").tolist() == [True, False, True]
    assert comm.allreduce(mine.copy(), op="min").tolist() == [True, False, False]
    all_of = np.zeros((n, 3), bool)
    assert comm.allgather(mine, all_of)[:, 2].tolist() == [r == 1 for r in range(n)]
    assert comm.broadcast(mine, root=1).tolist() == [True, False, True]
    for call, arguments in ((comm.allreduce, ()), (comm.reduce, ()), (kolo.combine, (mine,)),
                            (comm.reduce_scatter, (np.zeros(1, bool),)),
                            (lambda b: comm.allreduce_async("b", b), ()),
                            (lambda b: kolo.Reducer(comm, [b]), ())):
        expect_error(TypeError, "on booleans: use 'max'", call, mine, *arguments)
    assert mine.tolist() == [True, False, True]


def check_numbers(comm):
    """Values that are not numbers, or out of range, are rejected before the library is called."""
    expect_error(TypeError, "colour 'a': give an integer", comm.split, "a")
    expect_error(TypeError, "key 0.5: give an integer", comm.split, 0, key=0.5)
    expect_error(ValueError, "colour 4294967296: give an integer from", comm.split, 2**32)
    expect_error(ValueError, "count -5: give an integer from 0 to", comm.alloc, -5)
    expect_error(TypeError, "count 1.5: give", comm.alloc, 1.5)
    expect_error(ValueError, "shards -1: give an integer from 1 to", comm.tree_nodes, -1)
    expect_error(kolo.Error, "unknown transport 'shm_ucx': did you mean 'shm+ucx'?", kolo.init,
                 transport="shm_ucx")


def check_registered(comm):
    memory = comm.alloc(1000)
    values = np.asarray(memory)
    assert values.dtype == np.float32 and not values.any()
    values[:] = comm.rank + 1
    comm.allreduce(values)
    assert (values == comm.size * (comm.size + 1) / 2).all()
    half = np.asarray(comm.alloc(4, "bf16"))  # 1.0 is 0x3f80
    half[:] = 0x3F80
    comm.allreduce(kolo.Buffer(half.ctypes.data, 4, "bf16", half))
    sums = {1: 0x3F80, 2: 0x4000, 3: 0x4040, 4: 0x4080}
    assert (half == sums[comm.size]).all()
    view = comm.alloc(3, "bf16")  # as bf16, though its format is that of u16; so are slices
    view[0] = view[1] = view[2] = 0x3F80
    comm.allreduce(view[1:])
    assert view.tolist() == [0x3F80] + 2 * [sums[comm.size]]


def check_types(comm):
    """Types that only communication has."""
    n, rank = comm.size, comm.rank
    for dtype in (np.int16, np.uint16, np.uint32, np.uint64):
        top = np.iinfo(dtype).max
        data = np.array([top - rank, rank + 1], dtype)
        comm.allreduce(data, op="max")
        assert data.tolist() == [top, n], (dtype, data)
        data = np.array([top, 2 * rank + 1], dtype)
        comm.allreduce(data, op="mean")
        assert data[1] == n and (n > 1 or data[0] == top), (dtype, data)
    for dtype in (np.complex64, np.complex128):
        data = np.array([1j, 1 + rank * 1j], dtype)
        assert (comm.allreduce(data.copy()) == [n * 1j, n + n * (n - 1) / 2 * 1j]).all()
        assert (comm.allreduce(data.copy(), op="mean") == [1j, 1 + (n - 1) / 2 * 1j]).all()
        assert (comm.allreduce(data.copy(), op="prod") == [1j**n, np.prod([1 + r * 1j for r in range(n)])]).all()


def check_others(comm):
    n, rank = comm.size, comm.rank
    data = np.full(10, rank, np.float32)
    assert (comm.broadcast(data, root=1) == 1).all()
    gathered = np.zeros((n, 4), np.int64)
    comm.allgather(np.full(4, rank * 3), gathered)
    assert (gathered == np.arange(n)[:, None] * 3).all()
    share = np.zeros(5, np.float64)
    comm.reduce_scatter(np.repeat(np.arange(n, dtype=np.float64), 5), share)
    assert (share == rank * n).all()
    output = np.zeros(n, np.int32)
    comm.alltoall(np.arange(n, dtype=np.int32) + 10 * rank, output)
    assert (output == 10 * np.arange(n) + rank).all()
    total = np.full(3, 2.0)
    comm.reduce(total, root=n - 1)
    assert rank != n - 1 or (total == 2 * n).all()
    readonly = np.full(4, rank)
    readonly.setflags(write=False)
    assert (comm.allgather(readonly, gathered) == np.arange(n)[:, None]).all()
    comm.barrier()
    assert f"rank {rank} of {n} waits for no rank" in comm.report()
    assert comm.probe(tag=77) is None
    assert comm.peer_traffic((rank + 1) % n)["received_bytes"] > 0


def check_slices(comm):
    n, rank = comm.size, comm.rank
    whole = np.zeros((n, 3), np.float32)
    comm.gather(np.full(3, rank, np.float32), whole if rank == 1 else None, root=1)
    assert rank != 1 or (whole == np.arange(n)[:, None]).all()
    mine = comm.scatter(np.arange(2 * n) if rank == 2 else None, np.zeros(2, np.int64), root=2)
    assert mine.tolist() == [2 * rank, 2 * rank + 1]
    counts = [1, 0, 4]
    uneven = comm.allgather(np.full(counts[rank], rank, np.uint8), np.zeros(5, np.uint8), counts)
    assert uneven.tolist() == [0, 2, 2, 2, 2]
    uneven[:] = 9
    comm.gather(np.full(counts[rank], rank, np.uint8), uneven, counts=counts)
    assert uneven.tolist() == ([0, 2, 2, 2, 2] if rank == 0 else [9] * 5)
    part = np.zeros(counts[rank])
    assert (comm.reduce_scatter(np.ones(5), part, counts=counts) == n).all()
    assert (comm.scatter(np.arange(5.0), part, counts=counts) == np.arange(5)[
        sum(counts[:rank]):][:counts[rank]]).all()
    output = np.zeros(n * (rank + 1), np.int32)  # rank r gets r + 1 from each
    comm.alltoall(np.full(n * (n + 1) // 2, rank, np.int32), output,
                  counts=[r + 1 for r in range(n)], output_counts=[rank + 1] * n)
    assert output.tolist() == [r for r in range(n) for _ in range(rank + 1)]


def check_messages(comm):
    n, rank = comm.size, comm.rank
    data = np.full(70000, rank, np.int16).view(np.uint8)
    come = np.zeros_like(data)
    if rank == 0:
        comm.send(data, 1, tag=4)
    comm.recv(come, (rank - 1) % n, tag=4)
    assert (come.view(np.int16) == (rank - 1) % n).all()
    if rank != 0:
        comm.send(data, (rank + 1) % n, tag=4)
    # Both at once, the receives in another order than the sends.
    more = np.zeros(2), np.ones(2)
    requests = [comm.request("recv", more[1 - i], root=(rank - 1) % n, tag=1 - i) for i in (0, 1)]
    requests += [comm.request("send", None, np.full(2, 10 * i + rank, float), root=(rank + 1) % n,
                              tag=i) for i in (0, 1)]
    for request in requests:
        request.start()
    for request in reversed(requests):
        request.wait(timeout_s=10)
    assert [m[0] for m in more] == [(rank - 1) % n, 10 + (rank - 1) % n]


def check_requests(comm):
    n = comm.size
    data = [np.zeros(1000, np.float32) for _ in range(4)]
    requests = [comm.request("allreduce", d, op="mean", priority=i, postscale=2,
                             algorithm="ring", site=f"layer {i}") for i, d in enumerate(data)]
    for step in range(3):
        for i, request in enumerate(requests):
            data[i][:] = i + step + comm.rank
            assert request.start() is request
        for i, request in enumerate(requests):
            while not request.test():
                comm.progress()
            assert (data[i] == 2 * (i + step) + n - 1).all()
    expect_error(kolo.Error, "unknown algorithm 'rin': did you mean 'ring'", comm.request,
                 "allreduce", data[0], algorithm="rin")
    expect_error(ValueError, "choose one of allreduce", comm.request, "reduce-all", data[0])
    requests[0].close()
    expect_error(ValueError, "the request is closed", requests[0].start)


def check_groups(comm):
    n, rank = comm.size, comm.rank
    group = comm.split(rank % 2, key=-rank)
    assert (group.size, group.rank) == (2, 1 - rank // 2) if rank % 2 == 0 else (1, 0)
    assert comm.split(-1) is None
    assert comm.hosts == [0] * n and group.hosts == [0] * group.size
    want = sum(r for r in range(n) if r % 2 == rank % 2)
    assert (group.allreduce(np.full(500, rank)) == want).all()
    inner = group.split(0)
    inner.barrier()
    group.close()
    expect_error(ValueError, "is closed", inner.barrier)
    if n > 1 and rank < 2:
        pair = comm.create_group([1, 0], tag=9)
        assert pair.rank == 1 - rank and (pair.allreduce(np.ones(2)) == 2).all()
        if rank == 1:
            comm.send(np.ones(1), 0)  # it has completed
        else:
            comm.recv(np.ones(1), 1)
            pair.revoke("no longer needed")
        expect_error(kolo.PeerError, "no longer needed", pair.barrier)
        pair.close()
    expect_error(kolo.Error, "is twice in the list", comm.create_group, [rank, rank])
    with comm.split(0) as other:
        assert other.size == n


def check_reproducible(comm):
    shards = [np.random.default_rng(s).normal(size=100).astype(np.float32) for s in range(5)]

    def value(node):  # 5 shards are the leaves 8 to 12
        if node >= 8:
            return shards[node - 8].copy() if node < 13 else None
        left, right = value(2 * node), value(2 * node + 1)
        return left if right is None else kolo.combine(left, right)

    values = [value(node) for node in comm.tree_nodes(5)]
    result = comm.allreduce_shards(values, np.zeros(100, np.float32), 5)
    assert (result == value(1)).all()
    expect_error(ValueError, "values of f32 are needed", comm.allreduce_shards, [], result, 5)


def check_named(comm):
    names = [f"tensor {i}" for i in range(20)]
    for step in range(3):
        order = np.random.default_rng(100 * step + comm.rank).permutation(len(names))
        handles = {i: comm.allreduce_async(names[i], np.full(10 * i, i + step, np.float32))
                   for i in order}
        for i, handle in handles.items():
            assert (handle.wait() == (i + step) * comm.size).all()
            assert handle.test()


def check_reducer(comm):
    gradients = [np.zeros((i, 3), np.float32) for i in range(1, 30)]
    for codec, error in (("none", 1e-6), ("f16", 2e-3), ("int8", 0.05)):
        with_codec = kolo.Reducer(comm, gradients, bucket_bytes=600, codec=codec)
        for step in range(3):
            for i in reversed(range(len(gradients))):
                gradients[i][:] = i + step + comm.rank
                with_codec.ready(i)
            with_codec.wait()
            for i, gradient in enumerate(gradients):
                want = i + step + (comm.size - 1) / 2
                assert np.abs(gradient - want).max() <= error * 40, (codec, i, gradient, want)
        if codec == "none":
            expect_error(kolo.Error, "buffer 0 of 29 is not ready: call kolo_reducer_ready", with_codec.wait)
        with_codec.close()
    reducer = kolo.Reducer(comm, gradients)
    state = [np.full(3, comm.rank, np.int64), np.arange(4) + comm.rank]
    reducer.broadcast(state, comm.size - 1)
    assert (state[0] == comm.size - 1).all() and state[1].tolist() == [comm.size - 1 + i for i in range(4)]
    gradients[0][:] = comm.rank
    reducer.ready(0, len(gradients))
    reducer.wait()
    assert (gradients[0] == (comm.size - 1) / 2).all()
    expect_error(kolo.Error, "create the reducer with the option join", reducer.join)
    reducer.close()
    reducer = kolo.Reducer(comm, gradients[:3], join=True)
    for step in range(1 + comm.rank):  # the last rank has the most batches
        for gradient in gradients[:3]:
            gradient[:] = 1
        reducer.ready(0, 3)
        reducer.wait()
        assert np.allclose(gradients[1], (comm.size - step) / comm.size)
    assert reducer.join() == comm.size - 1
    reducer.close()


def check_errors(comm):
    expect_error(ValueError, "not contiguous", comm.allreduce, np.zeros((4, 4))[:, 1])
    expect_error(TypeError, "cannot be reduced", comm.allreduce, np.zeros(4, np.longdouble))
    expect_error(kolo.Error, "operation min needs real numbers, not c64", comm.allreduce,
                 np.zeros(4, np.complex64), op="min")
    expect_error(kolo.Error, "operation and needs integers, not c128", comm.allreduce, np.zeros(4, complex), op="and")
    expect_error(TypeError, "foreign byte order", comm.allreduce, np.zeros(4, ">f4"))
    expect_error(ValueError, "read-only", comm.allreduce, b"1234")
    expect_error(TypeError, "allreduce: there is no array: it is None", comm.allreduce, None)
    expect_error(TypeError, "a list is not an array", comm.allreduce, [1.0, 2.0])
    expect_error(ValueError, "choose one of sum, min", comm.allreduce, np.zeros(4), op="avg")
    expect_error(ValueError, "are not 3 times", comm.allgather, np.zeros(4), np.zeros(4))
    few = np.zeros(9, np.float32)[:3]
    expect_error(ValueError, "output has 3 elements, not 9", comm.allreduce, few, count=9)
    expect_error(ValueError, "output has 3 elements, not 9", comm.request, "allgather", few, few)
    expect_error(ValueError, "data has 3 elements, not 4", comm.request, "send", None, few, count=4)
    expect_error(ValueError, "not -1", comm.request, "broadcast", few, count=-1)
    expect_error(ValueError, "timeout of -1 s", comm.allreduce, few, timeout_s=-1)
    error = expect_error(kolo.Error, "root 9 outside", comm.broadcast, np.zeros(4), root=9)
    assert error.status == "KOLO_ERR_ARG"
    # Last: a mismatch between ranks breaks the group, and all ranks report both sides. main() has left
    # them time to come out of the collective before it.
    expect_error(kolo.Error, "ranks disagree", comm.allreduce, np.zeros(4 + comm.rank))
    expect_error(kolo.Error, "ranks disagree", comm.barrier)


def main():
    comm = kolo.init()
    assert comm.size == 3 and comm.transport == "shm", (comm.size, comm.transport)
    check_allreduce(comm)
    check_booleans(comm)
    check_hook(comm)
    check_numbers(comm)
    check_registered(comm)
    check_types(comm)
    check_others(comm)
    check_slices(comm)
    check_messages(comm)
    check_requests(comm)
    check_groups(comm)
    check_reproducible(comm)
    check_named(comm)
    check_reducer(comm)
    comm.barrier()
    time.sleep(0.1)
    check_errors(comm)
    comm.close()
    expect_error(ValueError, "closed", comm.barrier)


main()
