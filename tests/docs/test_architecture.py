"""The loop of docs/architecture.md as it stands there, against the real one."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import dgmark
from dgmark.decode import DecodeConfig, decode, side_of_rows
from dgmark.models.toy import ToyDenoiser
from support.cases import cases
from support.known_keys import bound_key
from support.unchecked import unchecked

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
TOY = ToyDenoiser(words=60, end_ids=(), end_bias=-60.0)


@pytest.mark.parametrize("settings", cases(__file__, "settings"))
@pytest.mark.parametrize("rule", [None, "bigram", "position"])
def test_the_loop_of_the_page_writes_what_the_real_one_does(rule: str | None, settings: dict[str, Any]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    key = None if rule is None else bound_key("by hand", TOY, rule=rule)
    config, side, prompt = DecodeConfig(24, 8, **settings), side_of_rows([key], "cpu"), [2, 7, 5]
    with unchecked():
        by_hand = names["decode_by_hand"](TOY, prompt, config, side, 3)
        (real,) = decode(TOY, torch.tensor([prompt]), config, side, [3])
    assert by_hand == real.token_ids


# what is one concept in several packages, as docs/architecture.md says
ON_SEVERAL_FLOORS = {"__init__.py", "bigram.py", "gguf.py", "policy.py", "position.py", "rules.py"}


def test_each_file_name_stands_once_in_the_package() -> None:
    names = Counter(path.name for path in Path(dgmark.__file__).parent.rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} == ON_SEVERAL_FLOORS
