"""Runs PyTorch's own examples of FSDP2 and tensor parallelism on CPUs, over gloo and over kolo, and compares.

    git clone https://github.com/pytorch/examples
    PYTHONPATH=python python3 tools/torch_examples.py examples [NAME...]     # rows whose names contain NAME

Needs PyPI's torch. The scripts run as they are: they ask torch.accelerator for a device and for its backend, and
here the answers are the CPU and the backend's name. After each step of an optimizer the values of this rank's
parameters are recorded, and at the end those of both backends are compared, bitwise and by the largest difference.
"""

import hashlib
import os
import runpy
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

TENSOR, FSDP2 = "distributed/tensor_parallelism", "distributed/FSDP2"
# Name, script, ranks, arguments.
ROWS = [("tensor parallel", f"{TENSOR}/tensor_parallel_example.py", 2, []),
        ("sequence parallel", f"{TENSOR}/sequence_parallel_example.py", 2, []),
        ("FSDP2 and tensor parallel", f"{TENSOR}/fsdp_tp_example.py", 4, []),
        ("FSDP2", f"{FSDP2}/example.py", 2, []),
        ("FSDP2, prefetching", f"{FSDP2}/example.py", 2, ["--explicit-prefetching"]),
        ("FSDP2, mixed precision", f"{FSDP2}/example.py", 2, ["--mixed-precision"]),
        ("FSDP2, checkpoint of DCP", f"{FSDP2}/example.py", 2, ["--dcp-api"])]


# ---- a rank ----


def stand_in(backend):
    """The CPU is the accelerator, with the backend."""
    if backend == "kolo":
        import kolo.torch  # pylint: disable=import-outside-toplevel, unused-import
    initialize = dist.init_process_group

    def init_process_group(*given, **options):
        options.pop("device_id", None)  # CPUs have no numbers
        options["backend"] = backend
        return initialize(*given[1:], **options)

    dist.init_process_group = init_process_group
    torch.distributed.device_mesh.init_process_group = init_process_group
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = lambda: 8
    torch.accelerator.current_accelerator = lambda *_args, **_options: torch.device("cpu")
    torch.accelerator.device_index = lambda _index: None


def run_script(backend, result, script, arguments):
    """Runs a script in this process."""
    stand_in(backend)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    record = {"steps": [], "last": None}

    def after_step(optimizer, _arguments, _options):
        values = [p for group in optimizer.param_groups for p in group["params"]]
        flat = torch.cat([getattr(p, "_local_tensor", p).detach().float().reshape(-1) for p in values])
        record["steps"].append(hashlib.sha256(flat.numpy().tobytes()).hexdigest())
        record["last"] = flat

    torch.optim.optimizer.register_optimizer_step_post_hook(after_step)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(script))
    runpy.run_path(script, run_name="__main__")
    torch.save(record, f"{result}.{os.environ['RANK']}")


# ---- the comparison ----


def run_row(checkout, script, ranks, arguments, backend, folder):
    """Runs a row with a backend; returns the records of its ranks."""
    result = os.path.join(folder, backend)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--master-port", "0",
               "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", os.path.abspath(__file__), "--rank", backend,
               result, os.path.join(os.path.abspath(checkout), script), *arguments]
    os.makedirs(f"{result}-work")
    run = subprocess.run(command, cwd=f"{result}-work", capture_output=True, text=True, check=False, timeout=900)
    if run.returncode != 0:
        sys.exit(f"{script} over {backend}: exit status {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-6000:]}")
    return [torch.load(f"{result}.{r}") for r in range(ranks)]


def compare(checkout, row):
    """Prints the comparison of a row."""
    name, script, ranks, arguments = row
    with tempfile.TemporaryDirectory() as folder:
        gloo, kolo = (run_row(checkout, script, ranks, arguments, b, folder) for b in ("gloo", "kolo"))
    steps = [a["steps"] == b["steps"] for a, b in zip(gloo, kolo)]
    off = max(((a["last"] - b["last"]).abs().max() / a["last"].abs().max()).item() for a, b in zip(gloo, kolo))
    moved = len(gloo[0]["steps"]) > 0 and len(set(gloo[0]["steps"])) == len(gloo[0]["steps"])
    if not moved or off > 1e-4:
        sys.exit(f"{name}: {len(gloo[0]['steps'])} steps, relative difference {off:.1e}")
    print(f"| {name} | {ranks} | {len(gloo[0]['steps'])} | {'bitwise equal' if all(steps) else f'{off:.1e}'} |", flush=True)


def main():
    """All rows, or some."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print("| example | ranks | steps | kolo from gloo |\n| --- | --- | --- | --- |", flush=True)
    for row in ROWS:
        if not sys.argv[2:] or any(name in row[0] for name in sys.argv[2:]):
            compare(sys.argv[1], row)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        run_script(sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    else:
        main()
