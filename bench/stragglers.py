#!/usr/bin/env python3
"""How many more samples per second than bsp the policies of parameter servers can reach with slow
steps, by a simulation in virtual time that counts nothing but the steps.

    bench/stragglers.py [--workers 4] [--probability 0.2] [--factor 8] [--steps 20000]
    bench/stragglers.py --measure build/release --steps 300 [--ms 50] [--slower 4]
    bench/stragglers.py --patterns build/release [--steps 1000] [--seeds 5]
    bench/stragglers.py --patterns build/release --measure build/release --steps 150 [--ms 20] [--only slower]
    bench/stragglers.py --accuracy 0.88 --measure build/release [--steps 3000] [--ms 20] [--seeds 5] [--jobs 2]
    bench/stragglers.py --accuracy 0.88 --patterns build/release [--until first] [--steps 3000] [--ms 20] [--seeds 5]
                        [--jobs 2] [--folder stragglers]
    bench/stragglers.py --accuracy 0.88 --patterns build/release --measure build/release --policies asp,auto
    bench/stragglers.py --measure build/release --balance 13 --slower 4 --steps 40

Every step of a worker takes 1 unit, and with the probability the factor; with --slower, those of
worker 0 always take so many units instead. All policies have the same draws. --measure also trains a
model whose steps sleep so long (bench/slow_model.c), with a server apart, and prints what was reached
of each policy's limit. docs/servers.md has the tables. --balance trains by allreduce, with so many logical
shards in a step, each of which sleeps, with equal shares and with --worker-weights measured; the ideal share
of a worker is in proportion to its speed. --patterns compares `auto` with the fixed policies under six patterns of
delays, or those whose names have the words of --only, in virtual time with the library's owner of parameters
(bench/policies.c): the times until 7 of 10 gradients are applied, so that no worker has made all its steps. With --measure
steps sleep, and the limits are those of virtual time. Then the times are those of the backward passes, so bsp:drop, which
keeps gradients that are late, is left out.
--accuracy trains a small convolutional network on Fashion-MNIST with such steps, and prints the median time to a test
accuracy; policies that update at each push have the learning rate of a batch of one worker. With --patterns that is under
each of the patterns, in virtual time, where the gradients are real and nothing takes time but the steps, or with both
in runs whose steps sleep. A seed may take twice the time of another, so the comparison by pairs of equal draws has its
standard error, and there is one by the mean of 5 evaluations, which scatters less; with --until mean runs end once this mean
has the accuracy, and all is by it. --jobs run beside each other. With --folder a study with --patterns can be interrupted, and
goes on where it was: runs.jsonl there has a row for each run that has ended. Tables have the seeds that are there.
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

from namespaces import end_on_signals
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


def evaluations_of(lines):
    """(seconds, test accuracy) of those that are in these lines of metrics.jsonl."""
    return [(line["seconds"], line["test_accuracy"]) for line in lines if line.get("test_accuracy", 0) > 0]


def wait(process, metrics, time_of):
    """Waits for the end of a job, which is asked to end once the evaluations have a time."""
    asked = False
    while process.poll() is None:
        time.sleep(0.2)
        if not asked and time_of and math.isfinite(time_of(evaluations_of(read_lines(metrics)))):
            process.send_signal(signal.SIGTERM)
            asked = True
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(process.args)}: exit status {process.returncode}")


def train(build, units, ms, steps, options, net="linear", time_of=None):
    """The result of a job whose workers sleep for these units in each step, the seconds from the first sleep until each
    sleep has ended, in order, and the lines of metrics.jsonl. It ends once its evaluations have a time."""
    workers = len(units[0])
    with tempfile.TemporaryDirectory() as folder:
        sleeps, slept, result = (os.path.join(folder, name) for name in ("sleeps", "slept", "json"))
        with open(sleeps, "wb") as file:
            array.array("f", [ms * unit for row in units for unit in row]).tofile(file)
        with open(slept, "wb") as file:
            file.write(bytes(8 * workers * (1 + len(units))))
        metrics = os.path.join(folder, "run", "metrics.jsonl")
        process = subprocess.Popen(
            [f"{build}/kolo", "train", "--model", f"{build}/bench/slow-model.so", "--workers",
             str(workers), "--threads", "1", "--steps", str(steps), "--epochs", "1000", "--no-recipe",
             "--autotune", "off", "--quiet", "--json", result, "--out", os.path.join(folder, "run"), *options],
            env=dict(os.environ, KOLO_SLEEPS=sleeps, KOLO_SLEPT=slept, KOLO_SLEEPERS=str(workers), KOLO_SLOW_NET=net))
        wait(process, metrics, time_of)
        with open(result, encoding="utf-8") as file:
            found = json.load(file)
        times = array.array("d")
        with open(slept, "rb") as file:
            times.fromfile(file, workers * (1 + len(units)))
        begin = min(times[:workers])
        return found, sorted(time - begin for time in times[workers:] if time > 0), read_lines(metrics)


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
    used = workers * steps
    if policy.endswith(",discard"):
        used -= sum(found["gradients_by_delay"][1:])
    return used / (1000 * times[-1] / ms)


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
    """Seconds until a job whose workers sleep has computed 7 of 10 gradients, and the bounds that `auto` has chosen."""
    workers, steps = len(units[0]), len(units)
    found, times, _ = train(build, units, ms, steps, [
        "--lr", "0.01", "--no-eval", "--data", f"synthetic:N={8 * workers * steps},test=8", "--batch", "8", "--sync",
        "ps", "--servers", "1", "--consistency", policy])
    chosen = [change.rsplit(" ", 1)[-1] for change in found.get("consistency", "").split(", ")[1:]]
    return times[workers * steps * 7 // 10 - 1], chosen


def compare(opts):
    """`auto` beside the fixed policies, under each pattern of delays."""
    policies = [policy for policy in (*FIXED, "auto") if not (opts.measure and "drop" in policy)]
    print("| slow steps | " + " | ".join(f"`{policy}`" for policy in policies) + " | of the best | chosen |\n|" +
          " --- |" * (len(policies) + 3))
    for what in opts.patterns_named:
        rows, limits = [], []
        for seed in range(1, opts.seeds + 1):
            units = draw(PATTERNS[what], opts.workers, opts.steps, seed)
            limits.append([virtual(opts.patterns, units, policy) for policy in policies])
            rows.append([slept(opts.measure, units, policy, opts.ms) for policy in policies] if opts.measure else limits[-1])
        seconds, most = ([statistics.median(row[i][0] for row in table) for i in range(len(policies))]
                         for table in (rows, limits))
        cells = [f"{seconds[0] / time:.2f}" + (f" of {most[0] / limit:.2f}" if opts.measure else "")
                 for time, limit in zip(seconds, most)]
        if opts.measure:
            cells[0] = f"1, {opts.ms / 1000 * most[0] / seconds[0]:.0%} of its limit"
        share = statistics.median(min(time for time, _ in row[:-1]) / row[-1][0] for row in rows)
        chosen = ", ".join(rows[0][-1][1][:4]) or "bsp"
        print(f"| {what} | " + " | ".join(cells) + f" | {share:.1%} | {chosen} |", flush=True)


def trained_virtually(opts, units, policy, seed):
    """The evaluations of a network trained with these steps, in virtual seconds."""
    target = ("mean" if opts.until == "mean" else "accuracy") + f"={opts.accuracy}"
    with tempfile.NamedTemporaryFile() as file:
        file.write(array.array("d", [opts.ms / 1000 * unit for row in units for unit in row]).tobytes())
        file.flush()
        return json.loads(subprocess.run(
            [f"{opts.patterns}/bench/policies", policy, str(len(units[0])), target, file.name, str(seed)],
            check=True, stdout=subprocess.PIPE).stdout)["evaluations"]


def accuracy_at(evaluations, second):
    """By linear interpolation; after the end as at the end."""
    before = (0, 0)
    for now in evaluations:
        if now[0] >= second:
            return before[1] + (now[1] - before[1]) * (second - before[0]) / (now[0] - before[0])
        before = now
    return before[1]


def plot(path, what, policies, found):
    """The accuracies by time; found: by policy the evaluations of all seeds."""
    most = max(statistics.median(points[-1][0] for points in found[policy]) for policy in policies)
    every = max(1, round(most / 16))
    times = range(0, int(most) + every, every)
    lines = [(policy, {time: statistics.median(accuracy_at(points, time) for points in found[policy]) for time in times})
             for policy in policies]
    curves(path, f"Test accuracy, medians: {what}", "seconds", "accuracy", lines, 1)


def first_time_to(evaluations, accuracy):
    """Seconds until an evaluation has this accuracy, by linear interpolation; infinite: never."""
    before = (0, 0)
    for now in evaluations:
        if now[1] >= accuracy:
            return before[0] + (now[0] - before[0]) * (accuracy - before[1]) / (now[1] - before[1])
        before = now
    return math.inf


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


def trained_asleep(opts, units, policy, seed, time_of):
    """The evaluations of a job whose workers sleep."""
    workers, at_push = len(units[0]), policy.startswith(("ssp", "asp"))
    _, _, lines = train(opts.measure, units, opts.ms, len(units), [
        "--lr", str(0.08 / workers if at_push else 0.08), "--momentum", "0.5", "--seed", str(seed), "--data",
        "fashion-mnist", "--batch", "16", "--sync", "ps", "--servers", "1", "--consistency", policy,
        "--eval-every-steps", "50"], net="cnn", time_of=time_of)
    return evaluations_of(lines)


class Study:
    """Trainings under patterns, by (pattern, policy, seed). Virtual steps of bsp have one order under all patterns, so there
    each seed is trained once, with steps of 1 unit."""

    def __init__(self, opts):
        self.opts, self.rows = opts, {}
        self.record = os.path.join(opts.folder, "runs.jsonl") if opts.folder else None
        if opts.folder:
            os.makedirs(opts.folder, exist_ok=True)
        for row in read_lines(self.record or ""):
            self.rows[json.dumps(row["run"])] = row["evaluations"]

    def is_shared(self, policy):
        return policy == "bsp" and not self.opts.measure

    def key(self, what, policy, seed):
        o = self.opts
        return json.dumps([what if not self.is_shared(policy) else "any", policy, seed, "asleep" if o.measure else "virtual",
                           o.workers, o.steps, o.ms, o.accuracy, o.until])

    def units(self, what, seed):
        return draw(PATTERNS[what], self.opts.workers, self.opts.steps, seed)

    def train(self, key):
        what, policy, seed = json.loads(key)[:3]
        if self.is_shared(policy):
            return trained_virtually(self.opts, [[1] * self.opts.workers] * self.opts.steps, policy, seed)
        if self.opts.measure:
            return trained_asleep(self.opts, self.units(what, seed), policy, seed, self.time_of)
        return trained_virtually(self.opts, self.units(what, seed), policy, seed)

    def time_of(self, evaluations):
        return (mean_time_to if self.opts.until == "mean" else first_time_to)(evaluations, self.opts.accuracy)

    def make(self, names):
        """Makes the runs that are not recorded, and records them."""
        todo = list(dict.fromkeys(key for key in (self.key(*n) for n in names) if key not in self.rows))
        pool = concurrent.futures.ThreadPoolExecutor(self.opts.jobs)
        try:
            going = {pool.submit(self.train, key): key for key in todo}
            for done in concurrent.futures.as_completed(going):
                key = going[done]
                self.rows[key] = done.result()
                if self.record:
                    with open(self.record, "a", encoding="utf-8") as file:
                        file.write(json.dumps({"run": json.loads(key), "evaluations": self.rows[key]}) + "\n")
        finally:
            pool.shutdown(cancel_futures=True)

    def has(self, what, policy, seed):
        return self.key(what, policy, seed) in self.rows

    def evaluations(self, what, policy, seed):
        """(seconds, accuracy) of each."""
        found = self.rows[self.key(what, policy, seed)]
        if not self.is_shared(policy):
            return found
        ends = [0.0]
        for row in self.units(what, seed):
            ends.append(ends[-1] + self.opts.ms / 1000 * max(row))
        return [(ends[round(seconds * 1000 / self.opts.ms)], accuracy) for seconds, accuracy in found]


def print_race(opts, study, policies):
    """The median time to a test accuracy under each pattern, virtual or measured, and that of the last policy beside
    the best of the others, of the seeds that are there."""
    also = opts.until == "first"  # by the mean, too
    print(f"| slow steps | seeds | `{policies[0]}`, s | " + " | ".join(f"`{policy}`" for policy in policies[1:]) +
          " | of the best | by pairs |" + (f" to {opts.accuracy - BELOW:g} in the mean, by pairs |" if also else "") +
          "\n|" + " --- |" * (len(policies) + 4 + also))
    for what in opts.patterns_named:
        seeds = [seed for seed in range(1, opts.seeds + 1) if all(study.has(what, policy, seed) for policy in policies)]
        if not seeds:
            continue
        found = {policy: [study.evaluations(what, policy, seed) for seed in seeds] for policy in policies}
        times = {policy: [study.time_of(points) for points in found[policy]] for policy in policies}
        seconds = [statistics.median(times[policy]) for policy in policies]
        cells = [f"{seconds[0] / time:.2f}" for time in seconds[1:]]
        line = (f"| {what} | {len(seeds)} | {seconds[0]:.0f} | " + " | ".join(cells) +
                f" | {min(seconds[:-1]) / seconds[-1]:.1%} | {paired(times, policies)} |")
        if also:
            mean = {policy: [mean_time_to(points, opts.accuracy - BELOW) for points in found[policy]] for policy in policies}
            line += f" {paired(mean, policies)} |"
        print(line, flush=True)
        if opts.plot and PATTERNS[what] is at_random:
            plot(opts.plot, what, policies, found)


def race_under_patterns(opts):
    policies, study = opts.policies.split(",") if opts.policies else (*FIXED, "auto"), Study(opts)
    end_on_signals()
    try:
        study.make([(what, policy, seed) for seed in range(1, opts.seeds + 1) for what in opts.patterns_named
                    for policy in policies])
    finally:
        print_race(opts, study, policies)


def race(opts):
    """The median time to a test accuracy."""
    policies, seeds = ("bsp", "bsp:drop=1", "ssp:3", "asp", "auto"), range(opts.seeds)

    def time_of(evaluations):
        return first_time_to(evaluations, opts.accuracy)

    with concurrent.futures.ThreadPoolExecutor(opts.jobs) as pool:
        runs = {(policy, seed): pool.submit(
            trained_asleep, opts, draw(at_random, opts.workers, opts.steps, seed), policy, seed, time_of)
                for policy in policies for seed in seeds}
        print(f"| `--consistency` | seconds to {opts.accuracy}, median of {opts.seeds} | of each seed | bsp over it |\n"
              "| --- | --- | --- | --- |")
        bsp = None
        for policy in policies:
            seconds = [time_of(runs[policy, seed].result()) for seed in seeds]
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
    parser.add_argument("--only", metavar="WORDS", help="of --patterns: those whose names have these words")
    parser.add_argument("--until", choices=("first", "mean"),
                        help=f"of --accuracy --patterns: an evaluation has it, or the mean of {MEAN_OF} that follow each other")
    parser.add_argument("--folder", help="of --accuracy --patterns: of the runs that have ended, where it goes on")
    parser.add_argument("--jobs", type=int, default=1, help="of --accuracy")
    parser.add_argument("--plot", metavar="FILE.svg", help="of --accuracy --patterns: accuracies by time, one step of 5 slow")
    parser.add_argument("--balance", type=int, default=0, metavar="SHARDS")
    opts = parser.parse_args()
    if opts.balance and not opts.measure:
        parser.error("--balance needs --measure BUILD")
    if opts.patterns:
        refuse(parser, opts, ("probability", "factor", "seed"), "--patterns has its own")
        opts.patterns_named = [what for what in PATTERNS if (opts.only or "") in what]
        if not opts.patterns_named:
            parser.error(f"--only {opts.only}: no pattern has these words in its name")
    elif opts.accuracy:
        refuse(parser, opts, ("probability", "factor", "seed"), "--accuracy has its own")
    else:
        refuse(parser, opts, ("seeds",), "it is for --patterns and --accuracy")
    if opts.accuracy and not opts.measure and not opts.patterns:
        parser.error("--accuracy needs --measure BUILD or --patterns BUILD")
    if not opts.patterns:
        refuse(parser, opts, ("only",), "it is for --patterns")
    if not (opts.accuracy and opts.patterns):
        refuse(parser, opts, ("policies", "until", "folder"), "it is for --accuracy with --patterns")
    if opts.balance or opts.slower:
        refuse(parser, opts, ("probability", "factor", "seed"), "nothing is drawn")
    if not opts.measure and not opts.accuracy:
        refuse(parser, opts, ("ms",), "it is for --measure and --accuracy")
    steps = 40 if opts.balance else 3000 if opts.accuracy else 1000 if opts.patterns else 20000
    defaults = {"probability": 0.2, "factor": 8, "steps": steps, "seed": 1, "seeds": 1, "until": "first",
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
