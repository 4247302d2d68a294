"""Completes futures of PyTorch when what they stand for is complete, without a wait of the program."""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Optional, Tuple

_Job = Tuple[Callable[[], Any], Any, Any]


def _outcome(wait: Callable[[], Any]) -> Optional[BaseException]:
    try:
        wait()
    except BaseException as failure:  # pylint: disable=broad-except
        return failure
    return None


def _complete(future: Any, result: Any, failure: Optional[BaseException]) -> None:
    """Completes the future, if there is one; this runs its callbacks."""
    if future is not None and failure is not None:
        future.set_exception(failure)
    elif future is not None:
        future.set_result(result)


def settle(wait: Callable[[], Any], result: Any, future: Any) -> None:
    """Calls ``wait``, then completes the future, which may be None."""
    _complete(future, result, _outcome(wait))


class Settler:
    """Waits for jobs in their order, in a thread. A callback of a future may wait for a later job: when all threads
    run callbacks, another one goes on."""

    def __init__(self) -> None:
        self.waiting = threading.Lock()  # held in the wait of a job
        self._jobs: queue.SimpleQueue[Optional[_Job]] = queue.SimpleQueue()
        self._first = threading.Lock()  # held by the thread that takes the next job
        self._counting = threading.Lock()
        self._free = 0  # threads that run no callbacks

    def put(self, wait: Callable[[], Any], result: Any, future: Any) -> None:
        """Like settle, in a thread."""
        self._jobs.put((wait, result, future))
        self._count(0)

    def close(self) -> None:
        """Ends the threads after the jobs so far."""
        self._jobs.put(None)

    def _count(self, more: int) -> None:
        with self._counting:
            self._free += more
            if self._free == 0:
                threading.Thread(target=self._run, daemon=True).start()
                self._free = 1

    def _run(self) -> None:
        while True:
            with self._first:
                job = self._jobs.get()
                if job is None:
                    self._jobs.put(None)  # for the other threads
                    return
                wait, result, future = job
                with self.waiting:
                    failure = _outcome(wait)
            del job, wait  # before the program goes on, which may close the communicator
            self._count(-1)
            _complete(future, result, failure)
            del result, future, failure
            self._count(1)
