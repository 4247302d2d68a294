#!/usr/bin/env python3
"""What feeds a fast network: the samples per second that a loader of one thread gives, those that lenet takes, and the
part of a step that waits for them. Of tokens a sample is a window of 256.

    tools/make_jpegs.py /tmp/j28 --size 28x28 --images 2048 --only plain
    tools/make_jpegs.py /tmp/j256 --size 256x256 --images 512 --only plain
    bench/feeds.py fashion-mnist folder:/tmp/j28,size=28 folder:/tmp/j256,size=28 [--build build/release] [--rounds 3]
                   [--cifar] [--tokens] [--slowed MS]

For each data set: fed, by one core (`kolo bench loader`); needed, by lenet of one thread on samples of the same shape in
memory (`kolo bench train`); the input part of a step in training (`kolo train`), where another core reads ahead; and how
near the statement of `kolo bench loader --rate` comes: its cores, and those that training used more than on samples in
memory, by processor time. --cifar adds a data set in the format of CIFAR-10, and --tokens one of tokens in two bytes,
whose network is gpt2_tiny. Medians of the rounds, which take all in turns. The waits need an idle machine with a core more
than the training.

--slowed MS compares that statement where it can be tried exactly: steps that sleep MS (bench/slow_model.c) take hardly
any processor time of their own, and the loader feeds them at the rate that they have.
"""
import argparse
import array
import json
import os
import pathlib
import random
import resource
import statistics
import subprocess
import tempfile

BATCH, STEPS = 64, 600
TOKENS = "tokens:"


def run(command, env=None):
    """What a command prints, and the processor time that it takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def has_tokens(data):
    return data.startswith((TOKENS, "synthetic-tokens:"))


def network(data):
    """The options of the network that is fed, with its batch."""
    return ["--model", "gpt2_tiny:context=256" if has_tokens(data) else "lenet", "--batch", str(batch_of(data))]


def batch_of(data):
    return 4 if has_tokens(data) else BATCH


def steps_of(data):
    return STEPS // 40 if has_tokens(data) else STEPS  # its steps are that much longer


def train(opts, data, augment, steps):
    return run([f"{opts.build}/kolo", "train", *network(data), "--data", data, "--steps",
                str(steps), "--threads", "1", "--no-eval", "--no-recipe", "--lr", "0.001", "--autotune", "off",
                "--quiet", "--json", "-", *augment])


def state(opts, data, augment, rate):
    return run([f"{opts.build}/kolo", "bench", "loader", "--data", data, "--loader-threads", "1", "--seconds", "2",
                "--rate", str(rate), "--json", "-", *augment])[0]


def kinds(data):
    """The augmentation of a data set, and one in memory of the same shape."""
    if data.startswith(TOKENS):
        return [], "synthetic-tokens:N=4096,test=1"
    shape = "1x28x28" if "mnist" in data else "3x32x32" if "cifar" in data else "3x28x28"
    augment = ["--augment", "resized-crop,flip"] if data.startswith("folder") else []
    return augment, f"synthetic:N=4096,test=1,shape={shape}"


def sleep(opts, data, augment, steps):
    """Processor seconds of steps that sleep, and the time of one."""
    with tempfile.TemporaryDirectory() as folder:
        sleeps, slept = os.path.join(folder, "sleeps"), os.path.join(folder, "slept")
        with open(sleeps, "wb") as file:
            array.array("f", [opts.slowed] * (steps + 1)).tofile(file)
        with open(slept, "wb") as file:
            file.write(bytes(16))
        found, processor = run(
            [f"{opts.build}/kolo", "train", "--model", f"{opts.build}/bench/slow-model.so", "--data", data, "--batch",
             str(BATCH), "--steps", str(steps), "--epochs", "100000", "--threads", "1", "--loader-threads", "1",
             "--no-eval", "--no-recipe", "--lr", "0.0001", "--autotune", "off", "--quiet", "--json", "-", *augment],
            {"KOLO_SLEEPS": sleeps, "KOLO_SLEPT": slept, "KOLO_SLEEPERS": "1"})
    return processor, found["step_ms_median"] / 1000


def compare(opts, data):
    """Cores that are stated and used while steps sleep."""
    augment, memory = kinds(data)
    few, many = opts.slowed_steps, 2 * opts.slowed_steps
    seconds = [sleep(opts, source, extra, steps)[0]
               for source, extra in ((data, augment), (memory, [])) for steps in (few, many)]
    _, step = sleep(opts, data, augment, few)
    used = (seconds[1] - seconds[0] - seconds[3] + seconds[2]) / (many - few) / step
    stated = state(opts, data, augment, BATCH / step)["cores"]
    return {"rate": BATCH / step, "stated": stated, "used": used}


def measure(opts, data):
    augment, memory = kinds(data)
    loader = state(opts, data, augment, 1000)
    batch, steps = batch_of(data), steps_of(data)
    needed, _ = run([f"{opts.build}/kolo", "bench", "train", *network(data), "--data", memory, "--steps",
                     str(steps * 2 // 3), "--threads", "1", "--autotune", "off", "--json", "-"])
    long, processor = train(opts, data, augment, 2 * steps)
    _, start = train(opts, data, augment, steps)
    _, other = train(opts, memory, [], 2 * steps)
    _, start_other = train(opts, memory, [], steps)
    used = (processor - start - other + start_other) * 1000 / (steps * batch)
    step = long["ms_per_step"]
    return {"fed": 1000 / loader["cores"], "needed": batch * 1000 / needed["step_ms_median"],
            "wait": step["input"] / step["step"], "cores": loader["cores"] / used if used > 0 else float("nan")}


def make_cifar(folder):
    rng = random.Random(0)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        samples = (bytes([rng.randrange(10)]) + rng.randbytes(3072) for _ in range(10000))
        (folder / name).write_bytes(b"".join(samples))
    return f"cifar10:{folder}"


def make_tokens(folder):
    rng = random.Random(0)
    path = folder / "random.u16"
    path.write_bytes(b"".join(rng.randrange(256).to_bytes(2, "little") for _ in range(1 << 20)))
    return f"{TOKENS}{path}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("data", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--cifar", action="store_true")
    parser.add_argument("--tokens", action="store_true")
    parser.add_argument("--slowed", type=float, metavar="MS")
    parser.add_argument("--slowed-steps", type=int, default=60)
    opts = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if opts.cifar:
            os.mkdir(f"{folder}/cifar")
            opts.data.append(make_cifar(pathlib.Path(folder) / "cifar"))
        if opts.tokens:
            opts.data.append(make_tokens(pathlib.Path(folder)))
        one = compare if opts.slowed else measure
        rounds = [{data: one(opts, data) for data in opts.data} for _ in range(opts.rounds)]
    if opts.slowed:
        print(f"| data, steps that sleep {opts.slowed:g} ms | samples/s | cores stated | used | ratio |")
        print("| --- | --- | --- | --- | --- |")
        for data in opts.data:
            rate, stated, used = (statistics.median(r[data][key] for r in rounds) for key in ("rate", "stated", "used"))
            ratio = f"{stated / used:.2f}" if used > 0.01 else "too little: let steps sleep less"
            print(f"| {data} | {rate:.0f} | {stated:.3f} | {used:.3f} | {ratio} |")
        return
    print("| data | fed by a core | needed by the network | input, of a step | stated / used cores |")
    print("| --- | --- | --- | --- | --- |")
    for data in opts.data:
        fed, needed, wait, cores = (statistics.median(r[data][key] for r in rounds)
                                    for key in ("fed", "needed", "wait", "cores"))
        print(f"| {data} | {fed:.0f} | {needed:.0f} | {100 * wait:.1f} % | {cores:.2f} |")


main()
