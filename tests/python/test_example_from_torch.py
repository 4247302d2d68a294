"""The example that trains a PyTorch module through ONNX learns on two ranks."""
# needs numpy torch onnx onnxscript; ranks 2

import os
import runpy
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.argv[1:] = ["6"]
left = runpy.run_path(os.path.join(here, "..", "..", "examples", "python", "from_torch.py"))
assert left["accuracy"] > 0.9, left["accuracy"]
