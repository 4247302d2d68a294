"""The example of an own op learns on two ranks."""
# needs numpy; ranks 2

import os
import runpy
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.argv[1:] = ["synthetic:N=640,test=64,shape=1x28x28,classes=10"]
left = runpy.run_path(os.path.join(here, "..", "..", "examples", "python", "own_op.py"))
accuracy = left["session"].evaluate(left["test"])["accuracy"]
assert accuracy > 0.5, accuracy
