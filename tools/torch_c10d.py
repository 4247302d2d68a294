"""Runs PyTorch's own tests of collectives and DistributedDataParallel against the backend "kolo".

    kolo run -n 2 -- python3 tools/torch_c10d.py [NAME...]       # tests whose names contain NAME

Needs PyPI's torch and expecttest. The tests are those of the file that PyTorch ships
(torch.testing._internal.distributed.distributed_test). Conditions there that name gloo or mpi as the only
backend with a feature also admit kolo, if --widen is given. Every rank runs every test in its one process; a test that fails leaves its
process group broken, so each test has a group of its own. Rank 0 prints a line for each test and the totals.
"""

import contextlib
import importlib.util
import datetime
import io
import os
import re
import sys
import tempfile
import traceback
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.testing._internal import common_utils
from torch.testing._internal.common_distributed import TEST_SKIPS, DistTestCases

import kolo
import kolo.torch

NAME = "torch.testing._internal.distributed.distributed_test"
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ["BACKEND"] = os.environ.get("BACKEND", "kolo")
os.environ.setdefault("TEMP_DIR", "")


def load(widen):
    """The module with the tests."""
    if os.environ["BACKEND"] == "kolo":
        DistTestCases.backend_feature["plugin"].add("kolo")
        for feature in ("ddp", "subgroup"):
            DistTestCases.backend_feature[feature].add("kolo")
    spec = importlib.util.find_spec(NAME)
    with open(spec.origin, encoding="utf-8") as file:
        source = file.read()
    if widen:
        source = re.sub(r'BACKEND != "(gloo|mpi)"', r'BACKEND not in ("\1", "kolo")', source)
        source = re.sub(r'BACKEND == "gloo"', 'BACKEND in ("gloo", "kolo")', source)
        source = source.replace('require_backend_is_available({"gloo"})',
                                'require_backend_is_available({"gloo", "kolo"})')
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)  # pylint: disable=exec-used
    return module


def shared_name(control):
    """The name of a new file, the same on all ranks."""
    name = bytearray(tempfile.mktemp(prefix="kolo-c10d-").encode().ljust(200))
    control.broadcast(name)
    return name.decode().strip()


def main():
    widen = "--widen" in sys.argv
    wanted = [a for a in sys.argv[1:] if a != "--widen"]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    control = kolo.init(timeout_s=600) if world > 1 else None  # agrees on results, beside the groups
    common_utils.set_rng_seed(1234)
    os.environ["INIT_METHOD"] = "file://" + shared_name(control)  # for groups that tests make anew
    module = load(widen)
    if rank == 0:
        module.initialize_temp_directories()
    folder = bytearray(os.environ["TEMP_DIR"].encode().ljust(200))
    control.broadcast(folder)
    os.environ["TEMP_DIR"] = folder.decode().strip()

    class Case(module.TestDistBackend, module.DistributedTest._DistTestBase):  # pylint: disable=protected-access
        """A test in this process."""

        def setUp(self):
            unittest.TestCase.setUp(self)

        def tearDown(self):
            unittest.TestCase.tearDown(self)

    names = sorted(n for n in dir(Case) if n.startswith("test_") and (not wanted or any(w in n for w in wanted)))
    totals = {}
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, rank == 0)
    for number, name in enumerate(names):
        control.barrier()
        if rank == 0:
            module.Barrier.init()  # removes what a failed test has left
        module.Barrier.barrier_id = 0
        control.barrier()
        result, why = run(Case, name, dist.PrefixStore(f"test{number}", store), control)
        code = bytearray([{"passed": 0, "skipped": 1, "failed": 2}[result]])
        control.allreduce(code, op="max")
        result = ("passed", "skipped", "failed")[code[0]]
        totals[result] = totals.get(result, 0) + 1
        if rank == 0 or (why and result == "failed"):
            print(f"{result:8}{name}  {why}", flush=True)
    if rank == 0:
        print(totals)
    control.close()


def run(case, name, store, control):
    """The result of a test, and why."""
    test = case(name)
    test.rank, test.file_name = rank, os.path.join(os.environ["TEMP_DIR"], "shared")
    out = io.StringIO()
    common_utils.set_rng_seed(1234)
    try:
        dist.init_process_group(os.environ["BACKEND"], store=store, rank=rank, world_size=world,
                                timeout=datetime.timedelta(seconds=30))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                method = getattr(test, name)
                if getattr(method, "__unittest_skip__", False):
                    raise unittest.SkipTest(method.__unittest_skip_why__)
                method()
            finally:
                test.doCleanups()
        return "passed", ""
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as end:
        why = [s.message for s in TEST_SKIPS.values() if s.exit_code == end.code]
        return ("skipped", why[0] if why else f"exit status {end.code}") if end.code else ("passed", "")
    except BaseException as error:  # pylint: disable=broad-except
        return "failed", f"{type(error).__name__}: {error}\n" + traceback.format_exc(limit=-5)
    finally:
        control.barrier()  # all ranks have ended the test, whose group may be broken
        with contextlib.suppress(Exception):
            dist.destroy_process_group()


main()
