"""The module without a launcher and without numpy: one process is a group."""
# needs array; ranks 0

import array
import gc
import math

import kolo

with kolo.init() as comm:
    assert (comm.rank, comm.size, comm.transport) == (0, 1, "self")
    data = array.array("f", [1, 2, 3])
    assert comm.allreduce(data, op="mean").tolist() == [1, 2, 3]
    view = comm.alloc(4, "i32")
    view[2] = 7
    assert comm.allreduce(view).tolist() == [0, 0, 7, 0]
    assert comm.allreduce_async("x", data).wait() is data

# Garbage that is collected together, the parents of sub-groups first.
garbage = [kolo.init()]
garbage += [garbage[0].split(0)]
garbage += [garbage[1].split(0)]
garbage += [g.request("allreduce", data) for g in garbage]
garbage += [kolo.Reducer(g, [data]) for g in garbage[:3]]
garbage.append(garbage)
del garbage
gc.collect()

codec = kolo.Codec("topk:0.25")
values, residual = array.array("f", [1, -8, 2, 3]), array.array("f", [0, 0, 0, 2])
code = codec.encode(values, residual)
assert len(code) == codec.bytes(4) == 8
assert residual.tolist() == [1, 0, 2, 5]
total = array.array("f", [1, 1, 1, 1])
assert codec.add(code, total, 0.5).tolist() == [1, -3, 1, 1]
assert codec.decode(bytes(code), total).tolist() == [0, -8, 0, 0]
try:
    codec.decode(b"\xff" * 8, total)
    raise AssertionError("a hostile code was accepted")
except kolo.Error as error:
    assert error.status == "KOLO_ERR_FORMAT" and "index" in str(error)
assert total.tolist() == [0, -8, 0, 0]
half = kolo.Codec("f16").encode(array.array("f", [math.pi]))
assert kolo.Codec("f16").decode(half, array.array("f", [0]))[0] == 3.140625
