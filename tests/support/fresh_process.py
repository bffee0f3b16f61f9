"""Code run by a Python of its own, as a user's script: nothing imported before, and no type checks at run time."""

import os
import subprocess
import sys


def run_fresh(code: str) -> str:
    """Standard output of `code`; what it raises fails the test."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
