"""The example of a transformer learns a sentence on two ranks, and continues it."""
# needs numpy; ranks 2

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import transformer

with tempfile.NamedTemporaryFile() as file:
    file.write(b"The quick brown fox jumps over the lazy dog. " * 100)
    file.flush()
    loss = transformer.main(file.name, 60)
assert loss < 1, loss
