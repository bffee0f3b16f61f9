"""What the tests of runs on Ray send to its processes, which load it by its name."""

import os
import signal
from pathlib import Path
from typing import Any

from dgmark import GenerateColumns


class KilledOnce(GenerateColumns):
    """Writes texts; its process is killed when it is given the row `row`, unless `marker` is there."""

    row: str
    marker: Path

    def __call__(self, batch: Any) -> Any:
        """The batch with the added columns."""
        if self.row in batch.column(self.id_column).to_pylist() and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)
