"""bench/accuracy.py: a study that is interrupted goes on where it was, with equal results."""
# needs json; ranks 0

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(HERE, "bench", "accuracy.py")
KOLO = os.path.join(os.path.dirname(os.environ["KOLO_LIBRARY"]), "kolo")
SECONDS = 120  # which no run takes

sys.path.insert(0, os.path.dirname(SCRIPT))
spec = importlib.util.spec_from_file_location("accuracy", SCRIPT)
accuracy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(accuracy)

SMALL = ("train --model mlp:hidden=8 --data synthetic:N=64,test=9,shape=1x8x8 --no-recipe --threads 1 --batch 8 --lr 0.1 "
         "--momentum 0.9 --epochs 60 --eval-every 1 --seed ")
RUNS = [("batches", "8", seed, SMALL + str(seed)) for seed in (0, 1, 2)]


# Policies have rows of their own, beside whole gradients.
studies = argparse.Namespace(studies="rounds,tokens", seeds="0,1", batch_seeds="0", epochs=1, steps=9, policies="local:2 bmuf:2,lr=1")
found = {(study, name, seed): command for study, name, seed, command in accuracy.rows_of(studies)}
assert sorted({name for _, name, _ in found}) == ["bmuf:2,lr=1", "local:2", "whole gradients"] and len(found) == 12
assert found["tokens", "bmuf:2,lr=1", 1].endswith("--steps 9 --epochs 1000 --seed 1 --consistency bmuf:2,lr=1")
assert "--consistency" not in found["rounds", "whole gradients", 0]


def options(folder):
    return argparse.Namespace(folder=folder, out=os.path.join(folder, "table"), kolo=KOLO, jobs=2, studies="batches")


def stopped(o, command, stop):
    """A run that `stop` ends behind its first checkpoint; one that ends before is made again."""
    end = time.monotonic() + SECONDS
    while True:
        run = accuracy.Run(o, command)
        while not os.path.exists(os.path.join(run.place, "latest")) and run.process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.001)
        stop(run)
        if not os.path.exists(run.result):
            return None
        with open(run.result, encoding="utf-8") as f:
            result = json.load(f)
        if result.get("preempted"):
            return result
        run.remove()


def kill(run):
    run.process.kill()
    run.process.wait()


with tempfile.TemporaryDirectory() as folder:
    whole, parts = options(os.path.join(folder, "whole")), options(os.path.join(folder, "parts"))
    done = accuracy.open_folder(whole.folder)
    accuracy.study(whole, RUNS, done)
    assert set(done) == {command for *_, command in RUNS}
    for row in done.values():
        assert row["steps"] == 480 and row["samples"] == 3840 and len(row["curve"]) == 60, row
        assert row["curve"][-1] == row["test_accuracy"] and row["test_loss"] > 0
    assert sorted(os.listdir(whole.folder)) == ["runs.jsonl", "table.md", "table.svg", "text.txt"]

    # One run is asked to end, another one is killed, both within their epochs; the third one is not begun.
    assert accuracy.open_folder(parts.folder) == {}
    assert 0 < stopped(parts, RUNS[0][3], accuracy.Run.interrupt)["steps"] < 480
    assert stopped(parts, RUNS[1][3], kill) is None
    again = accuracy.open_folder(parts.folder)
    accuracy.study(parts, RUNS, again)
    assert again == done
    with open(parts.out + ".md", encoding="utf-8") as f:
        assert "| 8 | " in f.read()

    # What has ended is not run again, and the text stays as it was.
    with open(os.path.join(parts.folder, "text.txt"), "w", encoding="utf-8") as f:
        f.write("another text")
    parts.kolo = "false"
    assert accuracy.open_folder(parts.folder) == done
    accuracy.study(parts, RUNS, accuracy.open_folder(parts.folder))
    with open(os.path.join(parts.folder, "text.txt"), encoding="utf-8") as f:
        assert f.read() == "another text"

    # Rows of another folder count, those of a text only for the same one.
    rows = os.path.join(whole.folder, "runs.jsonl")
    assert accuracy.open_folder(os.path.join(folder, "other"), rows) == done
    command = "train --data text:{text}"
    with open(rows, "a", encoding="utf-8") as f:
        f.write(json.dumps({"command": command, "text": accuracy.text_of(whole.folder, command)}) + "\n")
    assert command in accuracy.open_folder(whole.folder) and command not in accuracy.open_folder(parts.folder, rows)

    # A run that fails ends the study with its cause.
    wrong = options(os.path.join(folder, "wrong"))
    wrong.jobs = 1
    accuracy.open_folder(wrong.folder)
    try:
        accuracy.study(wrong, [("batches", "8", 0, "train --model nonsense")], {})
    except SystemExit as e:
        assert "nonsense" in str(e), e
    else:
        raise AssertionError
print("ok")
