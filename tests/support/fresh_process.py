"""Code run in a fresh Python process, as a user's script: nothing imported before, no type checks at run time."""

import os
import subprocess
import sys


def run_fresh(code: str) -> str:
    """Run `code` and return its standard output; an exception in it fails the test."""
    environment = {**os.environ, "PYTHONWARNINGS": "error", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
