"""A PyTorch module, trained by Kolo on any number of workers: it goes there as an ONNX file, and the
trained weights come back into the module.

    kolo run -n 2 -- python3 from_torch.py [EPOCHS]
"""

import sys
import tempfile

import kolo
import numpy as np
import torch
from torch import nn

module = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 4 * 4, 10))


def samples(count, seed):
    """Images of noise with a brighter row, whose number is the label."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 10, count)
    x = random.normal(size=(count, 1, 16, 16)).astype(np.float32)
    x[np.arange(count), 0, y + 3] += 1.5
    return {"x": x, "y": y}


with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
    torch.onnx.export(module.eval(), (torch.zeros(1, 1, 16, 16),), file.name, input_names=["x"], external_data=False,
                      verbose=False)
    net = kolo.Model(file.name)
comm = kolo.init()
session = kolo.Session(net, comm, global_batch=64, optimizer="adam", lr=2e-3)

train, test = samples(2000, 1), samples(500, 2)
session.fit(train, test, epochs=int(sys.argv[1]) if len(sys.argv) > 1 else 6, callback=print)
module.load_state_dict({name: torch.from_dlpack(session.get(name)) for name in module.state_dict()})
with torch.no_grad():
    guesses = module(torch.from_dlpack(test["x"])).argmax(1)
accuracy = float((guesses.numpy() == test["y"]).mean())
if comm.rank == 0:
    print(f"accuracy of the PyTorch module on the test samples: {accuracy:.3f}")
