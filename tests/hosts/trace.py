"""trace.py TRACE RANKS: a sum ends on no rank before it has begun on all, by the times of the trace, whose hosts have clocks
that are far apart."""
import json
import sys

NEAR_US = 1e6  # far less than between the clocks, far more than an offset can be wrong

path, ranks = sys.argv[1], int(sys.argv[2])
with open(path, encoding="utf-8") as f:
    events = json.load(f)["traceEvents"]
flights, kernels = {}, [0] * ranks
for e in events:
    kernels[e["pid"]] += e["ph"] == "X"
    if e["ph"] in "be":
        flights.setdefault((e["ph"], e["name"]), [[] for _ in range(ranks)])[e["pid"]].append(e["ts"])
assert all(kernels), kernels
names = sorted({name for _, name in flights})
assert names, "no sums"
for name in names:
    begins, ends = flights["b", name], flights["e", name]
    steps = {len(of) for of in begins + ends}
    assert len(steps) == 1, (name, begins, ends)
    for k in range(steps.pop()):
        begin, end = max(of[k] for of in begins), min(of[k] for of in ends)
        assert begin < end + NEAR_US, f"{name}, {k}: ends {(begin - end) / 1e6:.3f} s before it has begun everywhere"
