"""Ranks of `kolo run --survive` that go on after the death of two others, one of them rank 0."""
# needs numpy; ranks 0

import os
import signal
import subprocess
import sys

import numpy as np

import kolo

STEPS = 12


def train():
    """The parameters count the ranks of each step. Ranks that have missed the result of a step redo it, with the others,
    who keep the parameters of earlier steps."""
    comm = kolo.init()
    comm.allow_shrink()
    me, group, step = comm.rank, comm, 0
    parameters = [np.zeros(1000)]  # before each step
    while step < STEPS:
        if (me, step) in ((0, 4), (2, 8)):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            group.allreduce(counted := np.full(1000, 1.0))
        except kolo.PeerError:
            group = group.shrink()
            steps = np.array([step])
            group.allreduce(steps, op="min")
            assert step - 1 <= steps[0] <= step  # a step needs all
            step = int(steps[0])
            del parameters[step + 1:]
            assert group.agree(0b110 if me == 1 else 0b011) == (0b010, 0)
            continue
        parameters.append(parameters[-1] + counted)
        step += 1
    flags, lost = comm.agree()
    assert lost == 2 and flags == 2**64 - 1
    assert group.size == 2 and group.rank == (1, 3).index(me)
    counts = np.array([after - before for before, after in zip(parameters, parameters[1:])])
    assert (counts == counts[:, :1]).all() and len(counts) == STEPS
    seen = counts[:, 0].tolist()
    assert seen[:3] + seen[4:7] + seen[8:] == 3 * [4] + 3 * [3] + 4 * [2] and seen[3] in (4, 3) and seen[7] in (3, 2)
    most = parameters[-1].copy()
    group.allreduce(most, op="max")
    assert (most == parameters[-1]).all()
    print(f"rank {me} went on", flush=True)
    comm.close()


if "train" in sys.argv:
    train()
else:
    kolo_command = os.path.join(os.path.dirname(os.environ["KOLO_LIBRARY"]), "kolo")
    run = [kolo_command, "run", "-n", "4"]
    program = ["--", sys.executable, __file__, "train"]
    done = subprocess.run([*run, "--survive", *program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done
    assert all(f"rank {r} went on" in done.stdout for r in (1, 3)), done
    assert all(f"rank {r} (pid " in done.stderr for r in (0, 2)), done
    ended = subprocess.run([*run, *program], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0 and "the job ends" in ended.stderr, ended
    killed = subprocess.run([*run, "--survive", "--", "sh", "-c", "kill -9 $$"], capture_output=True, text=True,
                            timeout=120, check=False)
    assert killed.returncode != 0, killed  # nobody is left
