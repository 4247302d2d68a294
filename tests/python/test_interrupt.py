"""Ctrl-C interrupts a wait and the forming of a group; the other ranks get an error that names it."""
# needs signal; ranks 2

import array
import os
import signal
import threading

import kolo


def interrupt_soon():
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()


def expect(kind, text, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"{call} did not fail")


signal.signal(signal.SIGINT, signal.default_int_handler)
comm = kolo.init()
expect(kolo.Error, "this process has already joined its group", kolo.init)
data = array.array("f", [0])
if comm.rank == 0:
    interrupt_soon()
    expect(KeyboardInterrupt, "", comm.recv, data, 1)
    expect(kolo.PeerError, "interrupted by the user while waiting in receive", comm.barrier)
else:
    expect(kolo.PeerError, "rank 0 reports: interrupted by the user", comm.recv, data, 0)
comm.close()
if comm.rank == 0:
    interrupt_soon()
    expect(KeyboardInterrupt, "", kolo.init, rank=1, world=2, master_port=1, insecure=True)
