"""Columns in, columns out: the same values from batches of every library, whatever one row holds."""

import datetime
import json
import pickle
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgmark import DetectColumns, Detector, GenerateColumns, Keyring, MarkWarning, WatermarkKey, generate, subkey_of
from dgmark.columns.row_schema import GENERATE_FIELDS
from dgmark.decode.texts.requests import seed_of
from dgmark.detection.results.detection import DETECT_FIELDS
from dgmark.errors import DgmarkError, InputError, KeyFileError, KeyFileFormat, KeyFileNotFound, SettingsError
from dgmark.models.toy import ToyDenoiser
from support.fresh_process import run_fresh
from support.known_keys import bound_key, builtin_tokenizer, known_key
from support.marked_texts import marked_ids, marked_text
from support.surprisal_models import HASHED
from support.unchecked import unchecked
from support.unmarked_texts import PROSE

KEY = known_key("columns", subkeys=16)
DETECTOR = Detector(KEY, tokenizer=builtin_tokenizer())
MARKED = builtin_tokenizer().decode(marked_ids(KEY.subkey(3), 120).tolist())
TEXTS: list[Any] = ["The king went to the sea.", MARKED, "", "é ☃ \U0001f600"]
IDS = ["a", "b", "c", "d"]

# a batch of a text column and an id column, in each library
KINDS: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "lists": lambda texts, ids: {"id": ids, "text": texts},
    "arrays": lambda texts, ids: {"id": np.array(ids, dtype=object), "text": _objects(texts)},
    "pandas": lambda texts, ids: pd.DataFrame({"id": ids, "text": pd.Series(texts, dtype="object")}).set_index(
        np.arange(len(ids)) * 2
    ),
    "pandas strings": lambda texts, ids: pd.DataFrame({"id": ids, "text": pd.array(texts, dtype="string")}),
    "arrow": lambda texts, ids: pa.table({"id": ids, "text": pa.array(texts, pa.string())}),
    "chunks": lambda texts, ids: pa.concat_tables(
        [pa.table({"id": [one], "text": pa.array([text], pa.string())}) for one, text in zip(ids, texts, strict=True)]
    ),
    "record batch": lambda texts, ids: pa.record_batch({"id": ids, "text": pa.array(texts, pa.large_string())}),
    "polars": lambda texts, ids: pl.DataFrame({"id": ids, "text": pl.Series(texts, dtype=pl.String)}),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def _objects(values: list[Any]) -> np.ndarray:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def values_of(batch: Any, name: str) -> list[Any]:
    """The values of a column as plain Python values, with None for nulls."""
    column = batch[name] if not isinstance(batch, pa.RecordBatch) else batch.column(name)
    values = column.to_pylist() if isinstance(column, pa.ChunkedArray | pa.Array) else list(column)
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return None
    return [*value] if isinstance(value, pl.Series | tuple | np.ndarray) else value


# ---- detection ----


@each_kind
def test_the_columns_hold_the_detections_and_the_rest_stays(kind: str) -> None:
    batch = KINDS[kind](TEXTS, IDS)
    made = DetectColumns(KEY)(batch)
    assert type(made) is type(batch)
    assert values_of(made, "id") == IDS
    assert values_of(made, "text") == TEXTS
    found = [DETECTOR.detect(text) for text in TEXTS]
    assert [one.verdict for one in found] == ["uncertain", "watermarked", "uncertain", "uncertain"]
    for name in DETECT_FIELDS:
        wanted = [None] * 4 if name == "error" else [_plain(getattr(one, name)) for one in found]
        assert values_of(made, name) == wanted, name
    assert "verdict" not in batch
    if kind == "pandas":
        assert made.index.tolist() == [0, 2, 4, 6]


@each_kind
def test_spans_and_hidden_marks_are_told_if_asked(kind: str, tmp_path: Path) -> None:
    key, other = known_key("spans of columns", rule="bigram"), known_key("another column", rule="bigram")
    for one in (key, other):
        one.save(tmp_path / f"{one.fingerprint}.json")
    marked, prose = marked_text(key, 150), (PROSE / "willows.txt").read_text(encoding="utf-8")[:1500]
    texts = [f"{prose} {marked} {prose[:600]}", prose, marked.replace(" ", "\u00a0"), None]
    made = DetectColumns(tmp_path, spans=True)(KINDS[kind](texts, IDS))
    (span,) = Detector(key, keys_tested=2).spans(texts[0])
    wanted = {name: value for name, value in asdict(span).items() if name != "subkey"}
    assert values_of(made, "spans") == [[wanted], [], [], None]
    first, *shares = values_of(made, "marked_share")
    assert 0.2 < first < 0.8
    assert shares == [0, 0, None]
    assert values_of(made, "normalise_would_change") == [[], [], ["whitespace"], None]
    with pytest.raises(SettingsError, match="spans finds nothing"):
        DetectColumns(known_key("position column"), spans=True)


BAD: dict[str, Any] = {
    "None": None,
    "NaN": float("nan"),
    "bytes": b"text",
    "a number": 5,
    "a date": datetime.date(2026, 1, 1),
    "a foreign id": [5, 10**6],
    "a negative id": [-1],
    "a list of texts": ["a", "b"],
    "too long": "a" * 5_000_001,
}


@pytest.mark.parametrize("kind", ["lists", "arrays", "pandas"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_has_nulls_and_its_error_and_leaves_the_others(kind: str, name: str) -> None:
    texts = [TEXTS[0], BAD[name], MARKED]
    with unchecked():
        made = DetectColumns(KEY)(KINDS[kind](texts, IDS[:3]))
    good = DetectColumns(KEY)(KINDS[kind]([TEXTS[0], MARKED], ["a", "c"]))
    for field in DETECT_FIELDS:
        first, bad, last = values_of(made, field)
        assert [first, last] == values_of(good, field)
        assert (bad is None) == (field != "error")
    assert "counted from" not in str(values_of(made, "error")[1])  # as another batch would count otherwise


def test_a_column_of_several_types_is_read_row_by_row() -> None:
    places, kinds = pa.array([0, 0, 1], pa.int32()), pa.array([0, 1, 0], pa.int8())
    several = pa.UnionArray.from_dense(kinds, places, [pa.array([TEXTS[0], MARKED]), pa.array([{"a": 1}])])
    made = DetectColumns(KEY)(pa.table({"text": several}))
    assert values_of(made, "verdict")[1:] == [None, "watermarked"]
    assert "this is a mapping" in values_of(made, "error")[1]


@each_kind
def test_missing_texts_are_errors_of_their_rows_even_if_all_are(kind: str) -> None:
    for texts in ([None, TEXTS[0], None, None], [None] * 4):
        errors = values_of(DetectColumns(KEY)(KINDS[kind](texts, IDS)), "error")
        assert errors == [None if text else "there is no text: the value is missing" for text in texts]


def test_a_column_of_the_type_null_is_a_column_of_missing_texts() -> None:
    for batch in (pa.table({"text": pa.nulls(2)}), pd.DataFrame({"text": [np.nan, np.nan]}), {"text": [None, None]}):
        assert values_of(DetectColumns(KEY)(batch), "verdict") == [None, None]


@each_kind
def test_a_batch_without_rows_gets_its_columns(kind: str) -> None:
    if kind != "chunks":
        made = DetectColumns(KEY)(KINDS[kind]([], []))
        assert values_of(made, "verdict") == []


@pytest.mark.parametrize("kind", ["arrow", "record batch"])
@pytest.mark.parametrize("texts", [TEXTS, [None] * 4, []], ids=["texts", "nulls", "empty"])
def test_types_are_the_same_whatever_the_values(kind: str, texts: list[Any]) -> None:
    made = DetectColumns(KEY, prefix="m_")(KINDS[kind](texts, IDS[: len(texts)]))
    added = pa.schema([field for field in made.schema if field.name.startswith("m_")])
    assert added == DetectColumns(KEY, prefix="m_").schema
    assert [field.name for field in added] == ["m_" + name for name in DetectColumns.schema.names]


def test_types_of_other_libraries_are_the_same_whatever_the_values() -> None:
    for kind in ("pandas", "polars"):
        full, empty = (DetectColumns(KEY)(KINDS[kind](texts, IDS)) for texts in (TEXTS, [None] * 4))
        dtypes = [[str(made[name].dtype) for name in DETECT_FIELDS] for made in (full, empty)]
        assert dtypes[0] == dtypes[1]


def test_a_row_of_a_detection_has_the_types_of_the_schema(tmp_path: Path) -> None:
    rows = [[DETECTOR.detect(text).to_row(str(n), payload=True)] for n, text in enumerate(TEXTS)]
    for number, one in enumerate(rows):
        pq.write_table(pa.Table.from_pylist(one, schema=DetectColumns.schema), tmp_path / f"{number}.parquet")
    together = pq.read_table(tmp_path).to_pylist()
    names = [name for name in DETECT_FIELDS if name != "error"]
    assert [{name: row[name] for name in names} for row in together] == [
        {name: row[name] for name in names} for (row,) in rows
    ]


def test_without_pyarrow_the_schema_is_a_mapping() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None; from dgmark import DetectColumns; print(dict(DetectColumns.schema))"
    )
    assert run_fresh(code).strip() == str(dict(DETECT_FIELDS))


def test_no_library_is_imported_for_another_ones_batch() -> None:
    code = (
        "import sys; from dgmark import DetectColumns, WatermarkKey\n"
        "DetectColumns(WatermarkKey.generate('storyteller'))({'text': ['a', None]})\n"
        "print([name for name in ('pandas', 'polars', 'pyarrow', 'ray', 'torch') if name in sys.modules])"
    )
    assert run_fresh(code).strip() == "[]"


def test_batches_are_not_written_into() -> None:
    texts, ids = _objects(TEXTS), np.array([1, 2, 3, 4])
    for array in (texts, ids):
        array.flags.writeable = False
    batch = {"text": texts, "id": ids}
    made = DetectColumns(KEY, id_column="id")(batch)
    assert list(batch) == ["text", "id"]
    assert made["text"] is texts


def test_lists_of_ids_are_scored_as_ids() -> None:
    ids = marked_ids(KEY.subkey(3), 120).tolist()
    wanted = DETECTOR.detect(ids).p_value
    for column in (pa.array([ids], pa.list_(pa.int32())), [ids], _objects([np.array(ids)])):
        assert values_of(DetectColumns(KEY, "ids")({"ids": column}), "p_value") == [wanted]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"a": ["x"], "b": ["y"]}, "no column 'text': the columns are 'a', 'b'"),
        (pa.table({"text": [1, 2]}), "column 'text' holds int64"),
        (pd.DataFrame({"text": [1.5, 2.5]}), "column 'text' holds float64"),
        (pl.DataFrame({"text": [True]}), "column 'text' holds boolean"),
        ({"text": np.array([1, 2])}, "column 'text' holds int64"),
        ({"text": ["a"], "error": ["b"]}, "there are columns 'error' already, .* prefix"),
        ({"text": "hello"}, "'text' holds a str, not a list or an array .* of datasets, give map"),
        ({"text": {"a": "b"}}, "'text' holds a dict"),
        ({"text": None}, "'text' holds a NoneType"),
        ({"text": b"hello"}, "'text' holds a bytes"),
        ({"text": {"a", "b"}}, "'text' holds a set"),
        ({"text": iter(["a"])}, "'text' holds a list_iterator"),
        ({"text": ["a"], "n": 3}, "'n' holds a int"),
        ({"text": np.array("a")}, "'text' holds a ndarray"),
        ({"text": pd.DataFrame({"a": ["b"]})}, "'text' holds a DataFrame"),
        ({"text": ["a"], "n": [1, 2]}, "not equally long: 'text' has 1, 'n' has 2"),
        (pa.table([["a"], ["b"]], names=["text", "text"]), "2 columns of the name 'text'"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "2 columns of the name 'text'"),
        (pl.LazyFrame({"text": ["a"]}), r"a LazyFrame has not read its rows: call its collect\(\)"),
        (pa.table({"text": ["a"]}).to_reader(), r"a RecordBatchReader has not read .* call its read_all\(\)"),
        (["a", "b"], "a batch is a dict of arrays or lists"),
        ("text", "a batch is a dict of arrays or lists"),
    ],
)
def test_a_batch_that_cannot_be_read_is_refused(batch: Any, message: str) -> None:
    with pytest.raises(DgmarkError, match=message):
        DetectColumns(KEY)(batch)


def test_datasets_say_what_is_missing_where_rows_come_one_by_one() -> None:
    dataset = pytest.importorskip("datasets").Dataset.from_dict({"text": ["a", "b"]})
    with pytest.raises(SettingsError, match=r"not a batch of rows: .* give map\(\.\.\., batched=True\)"):
        dataset.map(DetectColumns(KEY))


def test_rows_without_an_id_of_their_own_are_errors() -> None:
    batch = {"text": ["a", "b", "c", "d", "e"], "id": ["1", None, 1, 2.5, "x"]}
    made = DetectColumns(KEY, id_column="id")(batch)
    assert [error is None for error in made["error"]] == [False, False, False, False, True]
    assert made["error"][0] == "2 rows have the id '1': give each row its own id"


# ---- keys that travel ----


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    KEY.save(path := tmp_path / "key.json")
    return path


def test_keys_come_from_a_file_a_folder_or_the_environment(key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known_key("other", subkeys=16).save(key_file.with_name("other.json"))
    monkeypatch.setenv("DGMARK_TEST_KEY", key_file.read_text())
    batch = {"text": [MARKED]}
    wanted = DETECTOR.detect(MARKED).p_value
    assert DetectColumns(key_file)(batch)["p_value"] == [wanted]
    assert DetectColumns("env:DGMARK_TEST_KEY")(batch)["p_value"] == [wanted]
    ring = Keyring([KEY, known_key("other", subkeys=16)], tokenizer=builtin_tokenizer())
    found = DetectColumns(str(key_file.parent))(batch)
    assert found["p_value"] == [ring.detect(MARKED).p_value] == [2 * wanted]
    assert found["key_fingerprint"] == [KEY.fingerprint]


def test_a_callable_is_small_and_holds_no_secret(key_file: Path) -> None:
    detect = DetectColumns(key_file, fpr=1e-6)
    write = GenerateColumns("storyteller", str(key_file), id_column="id", length=64)
    assert KEY.secret is not None
    secret = json.loads(key_file.read_text())["secret"]
    detect({"text": ["a"]})  # also after it has read the key
    assert write.key == KEY
    for one in (detect, write):
        pickled = pickle.dumps(one)
        assert len(pickled) < 1000
        assert KEY.secret not in pickled
        assert secret.encode() not in pickled
    again = pickle.loads(pickle.dumps(detect))
    assert again({"text": TEXTS}) == detect({"text": TEXTS})


@pytest.mark.parametrize(
    "one",
    [
        DetectColumns(KEY),
        DetectColumns("key.json", tokenizer=builtin_tokenizer()),
        GenerateColumns("storyteller", KEY, id_column="id"),
        GenerateColumns(ToyDenoiser(), None, id_column="id"),
    ],
    ids=["key", "tokenizer", "key to mark with", "model"],
)
def test_a_loaded_part_does_not_travel_and_says_what_does(one: Any) -> None:
    with pytest.raises(SettingsError, match=r"give (the path of the key file, or env:NAME|its name or path)") as error:
        pickle.dumps(one)
    assert str(KEY.secret) not in str(error.value)


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        ("env:NO_SUCH_VARIABLE", KeyFileNotFound, "NO_SUCH_VARIABLE is not set"),
        ("env:DGMARK_BAD_KEY", KeyFileFormat, "DGMARK_BAD_KEY is not a key file"),
        ("no such file.json", KeyFileError, "cannot be read"),
    ],
)
def test_a_key_that_is_not_there_is_an_error_of_the_job(
    key: str, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DGMARK_BAD_KEY", '{"secret": "hidden"}')
    with pytest.raises(error, match=message) as raised:
        DetectColumns(key)({"text": ["a"]})
    assert "hidden" not in str(raised.value)


def test_options_are_checked_where_the_callable_is_made(key_file: Path) -> None:
    other: Any = known_key("position columns", rule="position")
    other.save(key_file.with_name("position.json"))
    for key, options, message in (
        (key_file, {"fpr": 2}, "fpr 2 is not between 0 and 1"),
        (key_file, {"phase": "start"}, "phase"),
        (key_file, {"lenght": 3}, "there is no setting lenght; the settings are fpr, phase"),
        ("env:NO_SUCH_VARIABLE", {"lenght": 3}, "there is no setting lenght"),
        (key_file, {"key_column": "tenant"}, "a column of keys names files of a folder"),
        (key_file.parent, {"keys_tested": 2}, "a folder of keys takes no keys_tested"),
        (key_file.parent, {"fpr": 0}, "fpr 0 is not between 0 and 1"),
        (key_file.with_name("position.json"), {"surprisal_model": "narrator-base"}, "position"),
    ):
        with pytest.raises(SettingsError, match=message):
            DetectColumns(key, **options)


def test_each_row_is_tested_with_the_key_that_it_names(tmp_path: Path) -> None:
    beta = known_key("beta", subkeys=16)
    KEY.save(tmp_path / "acme.json")
    beta.save(tmp_path / "beta.json")
    names = ["acme", "beta", beta.fingerprint, "nobody", None, "acme"]
    batch = {"text": [MARKED, MARKED, TEXTS[0], TEXTS[0], TEXTS[0], None], "tenant": names}
    made = DetectColumns(str(tmp_path), key_column="tenant")(batch)
    found = [Detector(key).detect(text) for key, text in ((KEY, MARKED), (beta, MARKED), (beta, TEXTS[0]))]
    assert made["p_value"] == [*(one.p_value for one in found), None, None, None]  # no search is paid for
    assert made["key_fingerprint"][:3] == [KEY.fingerprint, beta.fingerprint, beta.fingerprint]
    assert made["verdict"][:2] == ["watermarked", "not_detected"]
    assert made["error"][3] == "there is no key 'nobody': the keys are acme, beta; name one of them, or its fingerprint"
    assert "there is no key None" in made["error"][4]
    assert "missing" in made["error"][5]


# ---- generation ----

TOY = ToyDenoiser(context_length=40, end_ids=())
TOY_KEY = bound_key("columns", TOY, subkeys=16)
PROMPTS: list[Any] = ["w1 w2", "w3", "w4 w5", "w6"]
SHORT: dict[str, Any] = {"length": 8, "block_length": 4}


def writer(key: WatermarkKey | None = TOY_KEY, **options: Any) -> GenerateColumns:
    return GenerateColumns(TOY, key, "text", **{"id_column": "id", "prefix": "m_", **SHORT, **options})


@each_kind
def test_texts_follow_from_ids_whatever_the_batch(kind: str) -> None:
    made = writer(seed=5)(KINDS[kind](PROMPTS, IDS))
    rows = generate(TOY, PROMPTS, key=TOY_KEY, ids=IDS, seed=5, **SHORT)
    for name in GENERATE_FIELDS:
        assert values_of(made, "m_" + name) == [None if name == "error" else getattr(row, name) for row in rows]
    assert values_of(made, "m_seed") == [seed_of(5, one) for one in IDS]
    assert values_of(made, "m_subkey") == [subkey_of(TOY_KEY, one) for one in IDS]
    backwards = writer(seed=5, batch_size=1)(KINDS[kind](PROMPTS[::-1], IDS[::-1]))
    assert values_of(backwards, "m_token_ids")[::-1] == values_of(made, "m_token_ids")


def test_a_row_that_cannot_be_written_has_its_error() -> None:
    prompts: list[Any] = ["w1", None, "", "w1 " * 40, [3, 10**6], "w2", "w3"]
    ids = ["a", "b", "c", "d", "e", None, "f"]
    with unchecked():
        made = writer()({"text": prompts, "id": ids})
    assert [error is None for error in made["m_error"]] == [True, False, False, False, False, False, True]
    good = writer()({"text": ["w1", "w3"], "id": ["a", "f"]})
    for name in GENERATE_FIELDS:
        assert [made["m_" + name][0], made["m_" + name][6]] == good["m_" + name]
        if name != "error":
            assert made["m_" + name][1:6] == [None] * 5


@pytest.mark.parametrize("prompts", [PROMPTS, [None] * 4], ids=["texts", "nulls"])
def test_types_of_texts_are_the_same_whatever_the_values(prompts: list[Any]) -> None:
    made = writer(key=None)(KINDS["arrow"](prompts, IDS))
    assert pa.schema([field for field in made.schema if field.name.startswith("m_")]) == writer().schema


@each_kind
def test_a_check_of_texts_is_two_columns_more(kind: str) -> None:
    long: dict[str, Any] = {"length": 32, "block_length": 8, "id_column": "id", "prefix": "m_"}
    write = GenerateColumns(TOY, TOY_KEY, "text", check=True, **long)
    prompts: list[Any] = ["w1 w2", None, "w4 w5", "w6"]
    with warnings.catch_warnings(action="ignore", category=MarkWarning):
        made = write(KINDS[kind](prompts, IDS))
    detector = Detector(TOY_KEY, tokenizer=TOY.tokenizer)
    texts = values_of(made, "m_text")
    found = [None if text is None else detector.detect(text) for text in texts]
    assert [text is None for text in texts] == [False, True, False, False]
    assert values_of(made, "m_verdict") == [one and one.verdict for one in found]
    assert values_of(made, "m_p_value") == [one and one.p_value for one in found]
    added = [name for name in write.schema.names if name not in writer().schema.names]
    assert added == ["m_verdict", "m_p_value"]
    if kind == "arrow":
        assert pa.schema([field for field in made.schema if field.name.startswith("m_")]) == write.schema
    sent = pickle.dumps(GenerateColumns("storyteller", "key.json", id_column="id", check=True))
    assert pickle.loads(sent).fields == write.fields
    with pytest.raises(SettingsError, match="a check looks for the mark of a key"):
        writer(key=None, check=True)


def test_generation_needs_a_column_of_ids_and_settings_that_are() -> None:
    with pytest.raises(SettingsError, match=r"no column of ids: .* a task that is tried again would write other texts"):
        GenerateColumns("storyteller", None)
    with pytest.raises(SettingsError, match="there is no setting lenght; the settings are length"):
        GenerateColumns("storyteller", None, id_column="id", lenght=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="no column 'id'"):
        writer()({"text": ["w1"]})


def test_texts_are_marked_with_one_key(key_file: Path) -> None:
    with pytest.raises(SettingsError, match="is a folder, and texts are marked with one key"):
        GenerateColumns("storyteller", key_file.parent, id_column="id")({"prompt": ["a"], "id": ["a"]})


def test_a_language_model_reads_along_in_each_process() -> None:
    key = known_key("weighed columns", rule="bigram")
    detect = DetectColumns(key, surprisal_model=HASHED)
    found = detect({"text": TEXTS})
    expected = [Detector(key, surprisal_model=HASHED).detect(text) for text in TEXTS]
    assert found["p_value"] == [one.p_value for one in expected]
    assert set(found["test"]) == {"weighted"}


def test_each_text_is_marked_with_the_key_that_its_row_names(tmp_path: Path) -> None:
    keys = {name: bound_key(name, TOY, subkeys=16) for name in ("acme", "beta")}
    for name, key in keys.items():
        key.save(tmp_path / f"{name}.json")
    names = ["acme", "beta", keys["beta"].fingerprint, "nobody"]
    write = GenerateColumns(TOY, str(tmp_path), "text", id_column="id", key_column="tenant", prefix="m_", **SHORT)
    made = write({"text": PROMPTS, "id": IDS, "tenant": names})
    by_row = [keys["acme"], keys["beta"], keys["beta"]]
    wanted = generate(TOY, PROMPTS[:3], key=by_row, ids=IDS[:3], **SHORT)
    assert made["m_token_ids"] == [*(one.token_ids for one in wanted), None]
    assert made["m_key_fingerprint"] == [*(key.fingerprint for key in by_row), None]
    assert "there is no key 'nobody'" in made["m_error"][3]


def test_a_language_model_travels_by_its_name(key_file: Path) -> None:
    detect = pickle.loads(pickle.dumps(DetectColumns(key_file, surprisal_model="builtin")))
    assert detect({"text": [TEXTS[0]]})["test"] == ["weighted"]
    with pytest.raises(SettingsError, match="does not travel"):
        pickle.dumps(DetectColumns(key_file, surprisal_model=HASHED))


def test_large_whole_numbers_survive_pandas(tmp_path: Path) -> None:
    texts = ["w1", None, "w4", "w6"]
    made = writer()(pd.DataFrame({"id": IDS, "text": texts}))
    seeds = [None if text is None else seed_of(0, one) for one, text in zip(IDS, texts, strict=True)]
    assert max(seed or 0 for seed in seeds) > 2**53
    assert values_of(made, "m_seed") == seeds
    made.to_parquet(tmp_path / "made.parquet")
    again = pd.read_parquet(tmp_path / "made.parquet", dtype_backend="numpy_nullable")
    assert values_of(again, "m_seed") == seeds
