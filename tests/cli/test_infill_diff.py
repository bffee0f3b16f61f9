"""What `dgmark infill --share` says of a text on the terminal."""

import io
from importlib import import_module

import pytest
from rich.console import Console
from rich.text import Text

from dgmark.decode.texts.remasking import Remasking


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_each_old_word_beside_the_new_one(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    command = import_module("dgmark.cli.infill")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=200)
    monkeypatch.setattr(command, "stderr", lambda: console)
    done = Remasking("The sea was calm.", 0.5, None, None, masked=0.5, changed=0.25, expected_p=1e-3, p_value=2e-5)
    command._tell(done, "The sky was calm.")
    shown = Text.from_ansi(screen.getvalue()).plain
    assert ("The sea sky was calm." in shown) is terminal
    assert "50% of the tokens masked, 25% changed; p-value 2e-05 (expected 0.001)" in shown
