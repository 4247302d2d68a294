"""The type hints of the module are complete and consistent: mypy --strict."""
# needs mypy numpy; ranks 0

import os
import subprocess
import sys

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python", "kolo")
subprocess.run([sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", os.devnull,
                folder], check=True)
