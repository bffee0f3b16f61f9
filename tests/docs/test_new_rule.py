"""The rule of docs/new-rule.md as it stands there: a package of its own that marks and is found."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgmark import Detector, WatermarkKey, generate
from dgmark.errors import KeyFileError, SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark import rules
from dgmark_lab.experiments.report import to_page
from dgmark_lab.experiments.spec import Experiment
from dgmark_lab.toml_files import parse_toml
from support.command_line import run
from support.installed import install
from support.toy_experiments import report_toy, run_toy
from support.unchecked import unchecked

PAGE = (Path(__file__).parents[2] / "docs" / "new-rule.md").read_text(encoding="utf-8")
TOY = ToyDenoiser(words=300, padding=0, spread=6.0, end_bias=-60.0, end_ids=())


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def forget() -> None:
    rules._added.cache_clear()
    rules._loaded.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package as pip would install it: the file of its entry points."""
    for name, code in zip(("green_rule", "green_decode"), blocks("python"), strict=True):
        (tmp_path / f"{name}.py").write_text(code)
    points = blocks("toml")[0].partition('[project.entry-points."dgmark.rules"]')[2].replace('"', "")
    about = install(tmp_path, "green-watermark", rules.GROUP, points)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield about
    forget()
    for name in ("green_rule", "green_decode"):
        sys.modules.pop(name, None)


def test_the_rule_of_the_page_marks_and_is_found(installed: Path, tmp_path: Path) -> None:
    with unchecked():
        key = WatermarkKey.generate(TOY, rule="green", delta=4.0)
        key.save(tmp_path / "key.json")
        texts = generate(TOY, ["w1 w2", "w3"], key=key, length=96, block_length=32)
        plain = generate(TOY, "w1 w2", key=None, length=96, block_length=32)[0]
        detector = Detector(WatermarkKey.load(tmp_path / "key.json"), tokenizer=TOY.tokenizer)
        found = [detector.detect(text.token_ids) for text in texts]
        assert [one.verdict for one in found] == ["watermarked", "watermarked"]
        assert found[0].summary.startswith("The green-list watermark of key ")
        assert detector.detect(plain.token_ids).verdict != "watermarked"
        shown = [one.matched for one in detector.tokens(texts[0].text, found[0])]
        assert shown.count(True) / len(shown) > 0.6
        with pytest.raises(SettingsError, match="rule green has no sub-keys"):
            WatermarkKey.generate(TOY, rule="green", subkeys=4)
        with pytest.raises(SettingsError, match="tests whole texts only"):
            detector.spans(texts[0].text)


def test_the_commands_of_the_page_take_its_keys(installed: Path, tmp_path: Path) -> None:
    key, text = tmp_path / "green.json", tmp_path / "text.txt"
    run("keygen", "--rule", "green", "--delta", 3, key, code=0)
    written = run("generate", "--key", key, "--prompt", "Once upon a time", "--length", 64)
    text.write_text(written.stdout)
    run("detect", "--key", key, text, code=0)


def test_a_key_whose_package_is_not_installed_names_it(installed: Path, tmp_path: Path) -> None:
    key = WatermarkKey.generate(TOY, rule="green")
    key.save(tmp_path / "key.json")
    installed.write_text("")
    forget()
    with pytest.raises(
        KeyFileError,
        match=r"key\.json cannot be used here: rule green is added by the package green-watermark, which is not",
    ):
        WatermarkKey.load(tmp_path / "key.json")


def test_the_experiment_of_the_page_is_a_table_and_a_picture(installed: Path, tmp_path: Path) -> None:
    experiment = parse_toml(blocks("toml")[1], Experiment, "the page")
    store = run_toy(experiment, tmp_path / "runs", length=32)
    made, section = report_toy(experiment, store)
    found = {(q.cell, q.name): q.ours for q in section.quantities}
    for cell in ("green, delta 3", "dgmark, one key"):
        one = found[f"{cell}, T = 0.9", "found, deletion 0.1"]
        assert one is not None
        assert one.count == 2
    page = to_page(made, section)
    assert "| green, delta 3, T = 0.9 | " in page
    assert re.search(r"Made with dgmark: green [0-9a-f]{8}, bigram [0-9a-f]{8}", page)
    # without a judge no perplexity is known, over which the picture would be drawn
    assert section.figures == {}
    assert "No picture: it is drawn over the perplexity" in page
    row_ids = [row["id"] for cell in made.present for row in cell.rows]
    nats = {row_id: {"nats": 20.0, "tokens": 10} for row_id in row_ids}
    store.complete("perplexity", "made-up", {"judge": "x"}, nats, list)
    store.write_plan("green", {**store.read_plan("green"), "judge": {"hash": "made-up"}})
    _, section = report_toy(experiment, store)
    (picture,) = section.figures.values()
    names = {text.get_text() for axes in picture.axes for text in axes.texts}
    assert {"green, delta 3", "dgmark, one key", "unmarked, T = 0.9"} <= names
