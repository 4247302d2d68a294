"""TensorBoard's own reader reads the event file of a run."""
# needs tensorboard; ranks 0

import glob
import os
import subprocess
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

KOLO = os.path.join(os.path.dirname(os.environ["KOLO_LIBRARY"]), "kolo")

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([KOLO, "train", "--model", "mlp", "--data", "synthetic:N=64,test=9", "--batch", "8", "--workers", "2",
                    "--threads", "1", "--steps", "8", "--log-every", "4", "--tensorboard", folder, "--quiet"],
                   check=True)
    assert len(glob.glob(folder + "/events.out.tfevents.*")) == 1
    events = EventAccumulator(folder)
    events.Reload()
    tags = events.Tags()["scalars"]
    for tag in ("train/loss", "train/accuracy", "test/loss", "epoch/loss", "progress/lr", "ms_per_step/forward",
                "ms_per_step/exposed_communication", "workers/slowest_rank", "workers/idle_ms_rank_1"):
        assert tag in tags, (tag, tags)
    losses = events.Scalars("train/loss")
    assert [e.step for e in losses] == [4, 8] and all(0 < e.value < 10 for e in losses), losses
    assert events.Scalars("epoch/loss")[-1].step == 8
print("ok")
