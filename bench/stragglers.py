#!/usr/bin/env python3
"""How many more samples per second than bsp the policies of parameter servers can reach with slow
steps, by a simulation in virtual time that counts nothing but the steps.

    bench/stragglers.py [--workers 4] [--probability 0.2] [--factor 8] [--steps 20000]
    bench/stragglers.py --measure build/release --steps 300 [--ms 50] [--slower 4]
    bench/stragglers.py --patterns build/release [--steps 1000] [--seeds 5]
    bench/stragglers.py --patterns build/release --measure build/release --steps 150 [--ms 20]
    bench/stragglers.py --accuracy 0.88 --measure build/release [--steps 3000] [--ms 20] [--seeds 5] [--jobs 2]
    bench/stragglers.py --accuracy 0.88 --patterns build/release [--steps 3000] [--ms 20] [--seeds 5] [--jobs 2]
    bench/stragglers.py --accuracy 0.88 --patterns build/release --measure build/release --policies asp,auto
    bench/stragglers.py --measure build/release --balance 13 --slower 4 --steps 40

Every step of a worker takes 1 unit, and with the probability the factor; with --slower, those of
worker 0 always take so many units instead. All policies have the same draws. --measure also trains a
model whose steps sleep so long (bench/slow_model.c), with a server apart, and prints what was reached
of each policy's limit. docs/servers.md has the tables. --balance trains by allreduce, with so many logical
shards in a step, each of which sleeps, with equal shares and with --worker-weights measured; the ideal share
of a worker is in proportion to its speed. --patterns compares `auto` with the fixed policies under six patterns of
delays, in virtual time with the library's owner of parameters (bench/policies.c), or with steps that sleep.
--accuracy trains a small convolutional network on Fashion-MNIST with such steps, and prints the median time to a test
accuracy; policies that update at each push have the learning rate of a batch of one worker. With --patterns that is under
each of the patterns, in virtual time, where the gradients are real and nothing takes time but the steps, or with both
in runs whose steps sleep. A seed may take twice the time of another, so the comparison by pairs of equal draws has its
standard error, and there is one by the mean of 5 evaluations, which scatters less. --jobs run beside each other.
"""
import argparse
import array
import concurrent.futures
import json
import math
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time

from plots import curves

POLICIES = ("ssp:1", "ssp:3", "ssp:10", "asp", "bsp:drop=1", "bsp:drop=1,discard")


# The test accuracy goes up and down from one evaluation to the next, so the first one that is above a bound comes at a
# random time. The mean of several comes later above a lower bound, and scatters less.
MEAN_OF, BELOW = 5, 0.015
FIXED = ("bsp", "ssp:1", "ssp:3", "ssp:10", "asp", "bsp:drop=1")


def steady(draws, worker, step):
    return draws.uniform(0.8, 1.2)


def at_random(draws, worker, step):
    return 8 if draws.random() < 0.2 else 1


def pauses(draws, worker, step):
    return 40 if draws.random() < 0.02 else draws.uniform(0.8, 1.2)


def one_slower(draws, worker, step):
    return (4 if worker == 0 else 1) * draws.uniform(0.8, 1.2)


def stretches(draws, worker, step):
    """A worker is slow for 20 steps together, one of four at a time and then none."""
    return (5 if step // 20 % 5 == worker else 1) * draws.uniform(0.8, 1.2)


def later(draws, worker, step):
    """Slow steps come after 300 equal ones, and end after 600."""
    return 8 if 300 <= step < 600 and draws.random() < 0.2 else 1


PATTERNS = {
    "equal, within 20 %": steady,
    "1 of 5 steps at random takes 8 times as long": at_random,
    "1 of 50 steps at random takes 40 times as long": pauses,
    "one worker is 4 times slower": one_slower,
    "workers are in turns 5 times slower for 20 steps": stretches,
    "none is slow, then 1 of 5 at random 8 times, then none": later,
}


def bounded(units, bound):
    """The time of bsp (bound 0), ssp, and asp (None): a worker begins a step once all others have
    made all steps but the latest `bound`."""
    ends = [[0.0] * len(units[0])]
    for step, row in enumerate(units):
        first = 0 if bound is None or step < bound else max(ends[step - bound])
        ends.append([max(end, first) + unit for end, unit in zip(ends[step], row)])
    return max(ends[-1])


def dropping(units, drop):
    """The time of bsp:drop, and how many gradients came late: see docs/servers.md."""
    workers, steps = len(units[0]), len(units)
    version, now, late = 0, 0.0, 0
    read, made, held = [0] * workers, [1] * workers, [False] * workers
    ends = list(units[0])  # of the steps under way; None: the worker waits, or has made all
    while any(end is not None for end in ends):
        now, worker = min((end, w) for w, end in enumerate(ends) if end is not None)
        ends[worker] = None
        held[worker] = read[worker] == version
        begin = [] if held[worker] else [worker]
        late += not held[worker]
        active = sum(held[w] or ends[w] is not None or made[w] < steps for w in range(workers))
        if sum(held) >= max(1, active - drop):
            version += 1
            begin += [w for w in range(workers) if held[w]]
            held = [False] * workers
        for w in begin:
            read[w] = version
            if made[w] < steps:
                ends[w] = now + units[made[w]][w]
                made[w] += 1
    return now, late


def rate(units, policy):
    """The gradients that are used per unit of time."""
    name, _, rest = policy.partition(":")
    gradients = len(units) * len(units[0])
    if rest.startswith("drop="):
        time, late = dropping(units, int(rest[len("drop="):].split(",")[0]))
        return (gradients - (late if rest.endswith(",discard") else 0)) / time
    bound = {"bsp": 0, "asp": None}.get(name, int(rest or 0))
    return gradients / bounded(units, bound)


def read_lines(path):
    """The whole lines of a metrics.jsonl that may still be written."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def wait(process, metrics, accuracy):
    """Waits for the end of a job, which is asked to end once the test accuracy is reached."""
    asked = False
    while process.poll() is None:
        time.sleep(0.2)
        if not asked and any(line.get("test_accuracy", 0) >= accuracy for line in read_lines(metrics)):
            process.send_signal(signal.SIGTERM)
            asked = True
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(process.args)}: exit status {process.returncode}")


def train(build, units, ms, steps, options, net="linear", accuracy=2):
    """The result of a job whose workers sleep for these units in each step, when they slept, and the lines of
    metrics.jsonl. It ends once a test accuracy is reached."""
    workers = len(units[0])
    with tempfile.TemporaryDirectory() as folder:
        sleeps, slept, result = (os.path.join(folder, name) for name in ("sleeps", "slept", "json"))
        with open(sleeps, "wb") as file:
            array.array("f", [ms * unit for row in units for unit in row]).tofile(file)
        with open(slept, "wb") as file:
            file.write(bytes(16 * workers))
        metrics = os.path.join(folder, "run", "metrics.jsonl")
        process = subprocess.Popen(
            [f"{build}/kolo", "train", "--model", f"{build}/bench/slow-model.so", "--workers",
             str(workers), "--threads", "1", "--steps", str(steps), "--epochs", "1000", "--no-recipe",
             "--autotune", "off", "--quiet", "--json", result, "--out", os.path.join(folder, "run"), *options],
            env=dict(os.environ, KOLO_SLEEPS=sleeps, KOLO_SLEPT=slept, KOLO_SLEEPERS=str(workers), KOLO_SLOW_NET=net))
        wait(process, metrics, accuracy)
        with open(result, encoding="utf-8") as file:
            found = json.load(file)
        times = array.array("d")
        with open(slept, "rb") as file:
            times.fromfile(file, 2 * workers)
        return found, times, read_lines(metrics)


def balance(build, opts):
    """Steps of logical shards on workers of which the first is always slower."""
    slower, steps = opts.slower or 1, opts.steps
    units = [[slower] + [1] * (opts.workers - 1)] * (opts.balance * steps)
    ideal = opts.ms * opts.balance / (1 / slower + opts.workers - 1)
    print("| `--worker-weights` | median step | of the ideal share |\n| --- | --- | --- |")
    for weights in ("equal shares", "measured"):
        options = ["--worker-weights", weights] if weights == "measured" else []
        found, _, _ = train(build, units, opts.ms, steps, [
            "--lr", "0.01", "--no-eval", "--data", f"synthetic:N={8 * opts.balance * steps},test=8", "--global-batch",
            str(8 * opts.balance), "--reproducible", str(opts.balance), *options])
        step = found["step_ms_median"]
        print(f"| {weights} | {step:.0f} ms | {ideal / step:.0%} |", flush=True)


def measure(build, units, policy, ms):
    """The gradients that are used per unit of time by a job, until its last worker has finished."""
    workers, steps = len(units[0]), len(units)
    found, times, _ = train(build, units, ms, steps, [
        "--lr", "0.01", "--no-eval", "--data", f"synthetic:N={8 * workers * steps},test=8", "--batch", "8", "--sync",
        "ps", "--servers", "1", "--consistency", policy])
    seconds = max(times[1::2]) - min(times[::2])
    used = workers * steps
    if policy.endswith(",discard"):
        used -= sum(found["gradients_by_delay"][1:])
    return used / (1000 * seconds / ms)


def draw(pattern, workers, steps, seed):
    draws = random.Random(seed)
    return [[pattern(draws, worker, step) for worker in range(workers)] for step in range(steps)]


def virtual(build, units, policy):
    """Seconds until 7 of 10 gradients are applied, so that no worker has made all its steps, and the bounds that
    `auto` has chosen."""
    workers, steps = len(units[0]), len(units)
    with tempfile.NamedTemporaryFile() as file:
        file.write(array.array("d", [unit for row in units for unit in row]).tobytes())
        file.flush()
        found = json.loads(subprocess.run(
            [f"{build}/bench/policies", policy, str(workers), str(workers * steps * 7 // 10), file.name],
            check=True, stdout=subprocess.PIPE).stdout)
    return found["seconds"], [name for _, name in found["changes"]]


def slept(build, units, policy, ms):
    """Seconds per gradient of a job whose workers sleep, and the bounds that `auto` has chosen."""
    workers, steps = len(units[0]), len(units)
    found, times, _ = train(build, units, ms, steps, [
        "--lr", "0.01", "--no-eval", "--data", f"synthetic:N={8 * workers * steps},test=8", "--batch", "8", "--sync",
        "ps", "--servers", "1", "--consistency", policy])
    chosen = [change.rsplit(" ", 1)[-1] for change in found.get("consistency", "").split(", ")[1:]]
    return max(times[1::2]) - min(times[::2]), chosen


def compare(opts):
    """`auto` beside the fixed policies, under each pattern of delays."""
    print("| slow steps | " + " | ".join(f"`{policy}`" for policy in FIXED) +
          " | `auto` | of the best | chosen |\n|" + " --- |" * (len(FIXED) + 4))
    for what, pattern in PATTERNS.items():
        rows = []
        for seed in range(1, opts.seeds + 1):
            units = draw(pattern, opts.workers, opts.steps, seed)
            run = (lambda policy, u=units: slept(opts.measure, u, policy, opts.ms)) if opts.measure else (
                lambda policy, u=units: virtual(opts.patterns, u, policy))
            rows.append([run(policy) for policy in (*FIXED, "auto")])
        seconds = [statistics.median(row[i][0] for row in rows) for i in range(len(FIXED) + 1)]
        share = statistics.median(min(time for time, _ in row[:-1]) / row[-1][0] for row in rows)
        chosen = ", ".join(rows[0][-1][1][:4]) or "bsp"
        print(f"| {what} | " + " | ".join(f"{seconds[0] / time:.2f}" for time in seconds) +
              f" | {share:.1%} | {chosen} |", flush=True)


def virtual_time_to(build, units, policy, opts, seed):
    """Virtual seconds until a network trained with these steps has the test accuracy, infinite: never; and its evaluations."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(array.array("d", [opts.ms / 1000 * unit for row in units for unit in row]).tobytes())
        file.flush()
        found = json.loads(subprocess.run(
            [f"{build}/bench/policies", policy, str(len(units[0])), f"accuracy={opts.accuracy}", file.name, str(seed)],
            check=True, stdout=subprocess.PIPE).stdout)
    return float("inf") if found["seconds"] is None else found["seconds"], found["evaluations"]


def accuracy_at(evaluations, second):
    """By linear interpolation; after the end as at the end."""
    before = (0, 0)
    for now in evaluations:
        if now[0] >= second:
            return before[1] + (now[1] - before[1]) * (second - before[0]) / (now[0] - before[0])
        before = now
    return before[1]


def plot(path, what, policies, found):
    """The accuracies by time; found: by policy the results of all seeds."""
    most = max(statistics.median(seconds for seconds, _ in found[policy]) for policy in policies)
    every = max(1, round(most / 16))
    times = range(0, int(most) + every, every)
    lines = [(policy, {time: statistics.median(accuracy_at(points, time) for _, points in found[policy]) for time in times})
             for policy in policies]
    curves(path, f"Test accuracy, medians: {what}", "seconds", "accuracy", lines, 1)


def mean_time_to(evaluations, accuracy):
    """Seconds until the mean of MEAN_OF evaluations that follow each other is this accuracy, as the mean of their times;
    infinite: never."""
    before = (0, 0)
    for i in range(MEAN_OF, len(evaluations) + 1):
        now = [statistics.fmean(numbers) for numbers in zip(*evaluations[i - MEAN_OF:i])]
        if now[1] >= accuracy:
            return before[0] + (now[0] - before[0]) * (accuracy - before[1]) / (now[1] - before[1])
        before = now
    return math.inf


def paired(times, policies):
    """How much faster `auto`, the last one, is than the best fixed policy, by the same draws: the geometric mean over
    the seeds and its standard error. The best one has the smallest geometric mean. Times: by policy."""
    logs = {policy: [math.log(seconds) for seconds in times[policy]] for policy in policies}
    best = min(policies[:-1], key=lambda policy: statistics.fmean(logs[policy]))
    ratios = [fixed - auto for fixed, auto in zip(logs[best], logs[policies[-1]])]
    if not all(map(math.isfinite, ratios)):
        return "not always reached"
    error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return f"{math.exp(statistics.fmean(ratios)):.1%} of `{best}`, +- {error:.1%}"


def time_to(build, units, policy, opts, seed):
    """Seconds until a job whose workers sleep has the test accuracy, by linear interpolation between evaluations,
    infinite: never; and its evaluations."""
    workers, at_push = len(units[0]), policy.startswith(("ssp", "asp"))
    _, _, lines = train(build, units, opts.ms, len(units), [
        "--lr", str(0.08 / workers if at_push else 0.08), "--momentum", "0.5", "--seed", str(seed), "--data",
        "fashion-mnist", "--batch", "16", "--sync", "ps", "--servers", "1", "--consistency", policy,
        "--eval-every-steps", "50"], net="cnn", accuracy=opts.accuracy)
    evaluations = [(line["seconds"], line["test_accuracy"]) for line in lines if line.get("test_accuracy", 0) > 0]
    before = (0, 0)
    for now in evaluations:
        if now[1] >= opts.accuracy:
            return before[0] + (now[0] - before[0]) * (opts.accuracy - before[1]) / (now[1] - before[1]), evaluations
        before = now
    return float("inf"), evaluations


def race_under_patterns(opts):
    """The median time to a test accuracy under each pattern, virtual or measured, and that of the last policy beside
    the best of the others."""
    policies, seeds = opts.policies.split(",") if opts.policies else (*FIXED, "auto"), range(1, opts.seeds + 1)
    run, build = (time_to, opts.measure) if opts.measure else (virtual_time_to, opts.patterns)
    with concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        runs = {(what, policy, seed): pool.submit(
            run, build, draw(pattern, opts.workers, opts.steps, seed), policy, opts, seed)
                for what, pattern in PATTERNS.items() for policy in policies for seed in seeds}
        print(f"| slow steps | `{policies[0]}`, s | " + " | ".join(f"`{policy}`" for policy in policies[1:]) +
              f" | of the best | by pairs | to {opts.accuracy - BELOW:g} in the mean, by pairs |\n|" +
              " --- |" * (len(policies) + 4))
        for what in PATTERNS:
            found = {policy: [runs[what, policy, seed].result() for seed in seeds] for policy in policies}
            first = {policy: [time for time, _ in found[policy]] for policy in policies}
            mean = {policy: [mean_time_to(points, opts.accuracy - BELOW) for _, points in found[policy]]
                    for policy in policies}
            seconds = [statistics.median(first[policy]) for policy in policies]
            print(f"| {what} | {seconds[0]:.0f} | " + " | ".join(f"{seconds[0] / time:.2f}" for time in seconds[1:]) +
                  f" | {min(seconds[:-1]) / seconds[-1]:.1%} | {paired(first, policies)} | {paired(mean, policies)} |",
                  flush=True)
            if opts.plot and PATTERNS[what] is at_random:
                plot(opts.plot, what, policies, found)


def race(opts):
    """The median time to a test accuracy."""
    policies, seeds = ("bsp", "bsp:drop=1", "ssp:3", "asp", "auto"), range(opts.seeds)
    with concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        runs = {(policy, seed): pool.submit(
            time_to, opts.measure, draw(at_random, opts.workers, opts.steps, seed), policy, opts, seed)
                for policy in policies for seed in seeds}
        print(f"| `--consistency` | seconds to {opts.accuracy}, median of {opts.seeds} | of each seed | bsp over it |\n"
              "| --- | --- | --- | --- |")
        bsp = None
        for policy in policies:
            seconds = [runs[policy, seed].result()[0] for seed in seeds]
            median = statistics.median(seconds)
            bsp = bsp or median
            each = ", ".join(f"{time:.0f}" for time in seconds)
            print(f"| `{policy}` | {median:.0f} | {each} | {bsp / median:.2f} |", flush=True)


def refuse(parser, opts, names, why):
    """Ends with an error if one of these options, which have no effect, is given."""
    for name in names:
        if getattr(opts, name) is not None:
            parser.error(f"--{name} has no effect: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--probability", type=float, help="of a slow step; 0.2")
    parser.add_argument("--factor", type=float, help="units of a slow step; 8")
    parser.add_argument("--steps", type=int, help="20000; 40 with --balance")
    parser.add_argument("--seed", type=int, help="of the draws; 1")
    parser.add_argument("--slower", type=float, default=0)
    parser.add_argument("--measure", metavar="BUILD")
    parser.add_argument("--ms", type=float, help="a unit, in milliseconds; 50")
    parser.add_argument("--patterns", metavar="BUILD")
    parser.add_argument("--seeds", type=int, help="of --patterns and --accuracy; 1")
    parser.add_argument("--accuracy", type=float)
    parser.add_argument("--policies", help="of --accuracy --patterns, the last one beside the best of the others; all")
    parser.add_argument("--jobs", type=int, default=1, help="of --accuracy")
    parser.add_argument("--plot", metavar="FILE.svg", help="of --accuracy --patterns: accuracies by time, one step of 5 slow")
    parser.add_argument("--balance", type=int, default=0, metavar="SHARDS")
    opts = parser.parse_args()
    if opts.balance and not opts.measure:
        parser.error("--balance needs --measure BUILD")
    if opts.patterns:
        refuse(parser, opts, ("probability", "factor", "seed"), "--patterns has its own")
    elif opts.accuracy:
        refuse(parser, opts, ("probability", "factor", "seed"), "--accuracy has its own")
    else:
        refuse(parser, opts, ("seeds",), "it is for --patterns and --accuracy")
    if opts.accuracy and not opts.measure and not opts.patterns:
        parser.error("--accuracy needs --measure BUILD or --patterns BUILD")
    if not (opts.accuracy and opts.patterns):
        refuse(parser, opts, ("policies",), "it is for --accuracy with --patterns")
    if opts.balance or opts.slower:
        refuse(parser, opts, ("probability", "factor", "seed"), "nothing is drawn")
    if not opts.measure and not opts.accuracy:
        refuse(parser, opts, ("ms",), "it is for --measure and --accuracy")
    steps = 40 if opts.balance else 3000 if opts.accuracy else 1000 if opts.patterns else 20000
    defaults = {"probability": 0.2, "factor": 8, "steps": steps, "seed": 1, "seeds": 1,
                "ms": 20 if opts.accuracy else 50}
    for name, value in defaults.items():
        if getattr(opts, name) is None:
            setattr(opts, name, value)
    if opts.accuracy and opts.patterns:
        race_under_patterns(opts)
        return
    if opts.accuracy:
        race(opts)
        return
    if opts.patterns:
        compare(opts)
        return
    if opts.balance:
        balance(opts.measure, opts)
        return
    draws = random.Random(opts.seed)
    units = [[opts.factor if draws.random() < opts.probability else 1 for _ in range(opts.workers)]
             for _ in range(opts.steps)]
    if opts.slower:
        units = [[opts.slower] + [1] * (opts.workers - 1) for _ in range(opts.steps)]
    if not opts.measure:
        print("| `--consistency` | samples/s over bsp, at most |\n| --- | --- |")
        for policy in POLICIES:
            print(f"| `{policy}` | {rate(units, policy) / rate(units, 'bsp'):.2f} |")
        return
    print("| `--consistency` | samples/s over bsp, at most | measured | of the limit |\n| --- | --- | --- | --- |")
    bsp = measure(opts.measure, units, "bsp", opts.ms)
    print(f"| `bsp` | 1 | 1 | {bsp / rate(units, 'bsp'):.0%} |")
    for policy in POLICIES:
        most, reached = rate(units, policy), measure(opts.measure, units, policy, opts.ms)
        print(f"| `{policy}` | {most / rate(units, 'bsp'):.2f} | {reached / bsp:.2f} | {reached / most:.0%} |",
              flush=True)


main()
