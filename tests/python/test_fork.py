"""Children of a rank, forked, spawned or started, do not disturb its group; in a forked one the
communicator is inert."""
# needs multiprocessing; ranks 2

import array
import multiprocessing
import os
import subprocess
import sys

import kolo


def fails_in_child(comm, named):
    try:
        comm.allreduce(array.array("f", [1]))
    except kolo.Error as error:
        assert "belongs to the parent process" in str(error), error
        named.close()
        return
    raise AssertionError("a forked child has used the communicator")


def plain(_comm, _named):
    pass


def check(comm):
    total = comm.allreduce(array.array("f", [1]))
    assert total[0] == comm.size


def main(transport):
    comm = kolo.init(transport=transport)
    group = comm.split(0)
    check(group)
    child = os.fork()
    if child == 0:  # ends as a Python program does, with its destructors
        fails_in_child(group, comm)
        comm.close()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    check(group)
    forked = multiprocessing.get_context("fork").Process(target=fails_in_child, args=(comm, group))
    spawned = multiprocessing.get_context("spawn").Process(target=plain, args=(None, None))
    for process in (forked, spawned):
        process.start()
        process.join()
        assert process.exitcode == 0
        check(comm)
    subprocess.run([sys.executable, "-c", "pass"], check=True, close_fds=False)
    os.system("true")
    check(group)
    comm.barrier()
    comm.close()


if __name__ == "__main__":
    main("auto")
