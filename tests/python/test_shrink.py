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
    """The parameter counts the ranks of each step; the dead are left out from their step on."""
    comm = kolo.init()
    comm.allow_shrink()
    me, group, parameter, step = comm.rank, comm, np.zeros(1000), 0
    while step < STEPS:
        if (me, step) in ((0, 4), (2, 8)):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            group.allreduce(counted := np.full(1000, 1.0))
        except kolo.PeerError:
            group = group.shrink()
            steps = np.array([step])
            group.allreduce(steps, op="min")
            assert steps[0] == step  # nobody is ahead: a step needs all
            assert group.agree(0b110 if me == 1 else 0b011) == (0b010, 0)
            continue
        parameter += counted
        step += 1
    flags, lost = comm.agree()
    assert lost == 2 and flags == 2**64 - 1
    assert group.size == 2 and group.rank == (1, 3).index(me)
    assert (parameter == 4 * 4 + 4 * 3 + 4 * 2).all(), parameter[0]
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
