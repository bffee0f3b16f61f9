"""Whatever the arguments of a public function are, it gives a result or one of dgmark's own errors."""

import inspect
import itertools
import os
import warnings
from contextlib import suppress
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dgmark
from dgmark.errors import DgmarkError, SettingsError
from dgmark.watermark.position import tables_of
from support.odd_values import ODD
from support.public_calls import CALLS
from support.unchecked import unchecked

# of the public names, what has nothing to call: a protocol, errors, warnings, and a union whose members are called
NOT_CALLED = {"Denoiser", "DgmarkError", "KeyFilePermissionWarning", "MarkWarning", "WatermarkSpec", "__version__"}

plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=4)
    | st.binary(max_size=4)
)
values = st.recursive(
    plain, lambda some: st.lists(some, max_size=3) | st.dictionaries(plain, some, max_size=2), max_leaves=4
)
EACH = int(os.environ.get("DGMARK_ODD_VALUES_EACH", "8"))
odd = st.sampled_from(sorted(ODD))
drawn = odd.map(lambda name: ODD[name]()) | values

WRONG: list[Any] = [
    *(5.5, float("nan"), b"x", ["a", "b"], [1.5], [[1]], [None], {"a": 1}, object(), True, (1, 2, 3)),
    *(np.zeros((2, 2)), None, 10**30, -1),
]
# the arguments of a call of which the values above are of a wrong type, and those of them that are right
TYPED: dict[str, dict[str, list[Any]]] = {
    "Detector": {"key": [], "fpr": [], "tokenizer": [None], "normalise": []},
    "Detector, rotating": {"phase": [], "max_crop": [10**30]},
    "Detector.detect": {"only": [None]},
    "Detector.detect, whole": {"text_or_ids": [(1, 2, 3)]},
    "Detector.detect_many, raising": {"texts_or_ids": [["a", "b"], [[1]]]},
    "Detector.tokens": {"detection": []},
    "Keyring": {"keys": [], "fpr": []},
    "WatermarkKey": {"spec": [], "secret": []},
    "WatermarkKey.generate": {"model": [], "rule": [None], "farthest": [None]},
    "WatermarkKey.generate, positions": {
        "modulus": [None], "rotation": [None], "grouping": [None], "code_length": [None],
    },
    "WatermarkKey.load": {"path": []},
    "WatermarkKey.save": {"path": []},
    "detect_file": {"scorer": [], "inputs": [["a", "b"]], "out": [], "only": []},
    "load_keys": {"folder": []},
    "load_tokenizer": {"name_or_path": []},
}  # fmt: skip


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder of its own, with the file that calls name."""
    folder = tmp_path_factory.mktemp("calls")
    (folder / "in.txt").write_text("The king went.")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def _gives_a_result_or_an_error_of_dgmark(name: str, replaced: dict[str, Any]) -> None:
    call, makers = CALLS[name]
    with unchecked(), suppress(DgmarkError), warnings.catch_warnings(action="ignore", category=dgmark.MarkWarning):
        call(**{argument: make() for argument, make in makers.items()} | replaced)


@pytest.mark.usefixtures("_folder")
@settings(max_examples=400, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_arguments_give_a_result_or_an_error_of_dgmark(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name, (_, makers) in CALLS.items() if makers]))
    names = st.sampled_from(sorted(CALLS[name][1]))
    _gives_a_result_or_an_error_of_dgmark(name, data.draw(st.dictionaries(names, drawn, max_size=3)))


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize("name", CALLS)
def test_one_odd_argument_gives_a_result_or_an_error_of_dgmark(name: str) -> None:
    """Each argument with every eighth value; `make soak` tries all of them."""
    for place, argument in enumerate(CALLS[name][1]):
        for value in itertools.islice(ODD.values(), place % EACH, None, EACH):
            _gives_a_result_or_an_error_of_dgmark(name, {argument: value()})


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_are_right_as_they_stand(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("The king went.")
    call, makers = CALLS[name]
    wanted: Any = ()
    if {"path", "folder", "name_or_path"} & makers.keys() and name not in ("read_document", "write_report"):
        wanted = DgmarkError  # of a file that is none of its kind, or is none
    with unchecked():
        try:
            call(**{argument: make() for argument, make in makers.items()})
        except wanted:
            pass
        else:
            assert not wanted


@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize(("name", "argument"), [(name, argument) for name in TYPED for argument in TYPED[name]])
def test_a_wrong_type_is_an_error_of_the_settings(
    name: str, argument: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("The king.")
    call, makers = CALLS[name]
    arguments = {other: make() for other, make in makers.items()} | {argument: value}
    if not isinstance(value, np.ndarray) and value in TYPED[name][argument]:
        call(**arguments)
        return
    with unchecked(), pytest.raises(SettingsError):
        call(**arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_numbers_of_numpy_are_numbers() -> None:
    with unchecked():
        numbers: Any = {"max_crop": np.int64(5), "fpr": np.float64(0.01)}
        detector = dgmark.Detector(CALLS["Detector, rotating"][1]["key"](), **numbers)
        assert detector.detect("The king went.").verdict == "uncertain"
        assert tables_of(dgmark.WatermarkKey.generate(modulus=np.int32(3))).spec.modulus == 3


def _methods(kind: type) -> set[str]:
    """The public methods that a class defines itself."""
    defined = {name for base in kind.__mro__ if base.__module__[:6] == "dgmark" for name in vars(base)}
    return {
        name
        for name in defined
        if isinstance(getattr(kind, name), FunctionType | MethodType) and not name.startswith("_")
    }


def test_every_public_function_class_and_method_is_called() -> None:
    called = {name.partition(",")[0] for name in CALLS}
    wanted = set(dgmark.__all__) - NOT_CALLED
    classes = {name for name in wanted if inspect.isclass(getattr(dgmark, name))}
    wanted |= {f"{name}.{method}" for name in classes for method in _methods(getattr(dgmark, name))}
    assert wanted <= called


@pytest.mark.parametrize("keys_tested", [1e-9, 0, -1, 0.5, 1.0, True, "2", None, 10**30])
def test_a_p_value_is_never_multiplied_by_less_than_the_keys(keys_tested: Any) -> None:
    with unchecked(), pytest.raises(DgmarkError, match=r"keys tested|keys and sub-keys"):
        dgmark.Detector(CALLS["Detector"][1]["key"](), keys_tested=keys_tested)


def test_a_path_is_one_that_a_file_can_have() -> None:
    for bad in ("", "a\0b", "a\ud800b", Path("a\0b"), b"in.txt", 5):
        for name, argument in (
            *((name, "path") for name in CALLS if "path" in CALLS[name][1]),
            *(("detect_file", "inputs"), ("detect_file", "out"), ("load_keys", "folder")),
            *(("load_tokenizer", "name_or_path"), ("load_model", "name_or_path"), ("Detector", "tokenizer")),
        ):
            call, makers = CALLS[name]
            arguments = {other: make() for other, make in makers.items()} | {argument: bad}
            with unchecked(), pytest.raises(DgmarkError):
                call(**arguments)
