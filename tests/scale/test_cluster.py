"""Ray runs on a cluster of several nodes on this machine."""

import json
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

import dgmark
from dgmark.checkpoint.folder import BUILTIN
from dgmark.detection.detect_files import Tally
from dgmark.errors import InputError, NoTexts, ResumeMismatch, SettingsError
from dgmark.rows.jsonl import Row
from dgmark.rows.row_file import lock
from dgmark.rows.texts import item_of
from dgmark.scale import detect as detecting
from dgmark.scale.cluster import cluster, connect, error_of
from dgmark.scale.detect import BLOCK_BYTES, COLUMNS, detect_files
from dgmark.scale.folder import Folder
from dgmark.scale.generate import generate_files
from dgmark.scale.source import TextSource, sources_of, tables_of
from support.known_keys import known_key

ray = pytest.importorskip("ray")
RayError = ray.exceptions.RayError
Cluster = pytest.importorskip("ray.cluster_utils").Cluster
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
KEY = known_key("cluster")
SENTENCE = "the sea was calm and a small ship went out to look for an island where nobody had ever been before"
WORDS = SENTENCE.split()


def text(number: int) -> str:
    turned = WORDS[number % len(WORDS) :] + WORDS[: number % len(WORDS)]
    return f"Text {number}: {' '.join(turned)}."


def write_rows(path: Path, numbers: range, *more: str) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"id": f"row-{number}", "text": text(number)}) for number in numbers]
    path.write_text("\n".join([*lines, *more]) + "\n")


def rows_in(folder: Path) -> list[Row]:
    rows: list[Row] = pyarrow.dataset.dataset(folder / "rows", partitioning="hive").to_table().to_pylist()
    return rows


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A cluster with one node; nodes that a test adds go with it. A dead node is noticed after two seconds."""
    config = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 400, "health_check_failure_threshold": 5}
    head = {"num_cpus": 5, "object_store_memory": 10**8, "include_dashboard": False, "no_monitor": True}
    made = Cluster(
        initialize_head=True, head_node_args={**head, "include_log_monitor": False, "_system_config": config}
    )
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


class Run(NamedTuple):
    """What `detect_files` read, wrote and counted."""

    inputs: Path
    out: Path
    tally: Tally


@pytest.fixture(scope="module")
def found(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run over good and bad rows and files."""
    folder = tmp_path_factory.mktemp("found")
    write_rows(
        folder / "in" / "a.jsonl", range(20), "not JSON", '{"id": "no text"}', '{"id": "half", "text": "\\ud800"}'
    )
    table = pyarrow.table({"id": ["p0", "p1"], "text": [text(30), None], "token_ids": [None, [5, 6, 7, 8]]})
    pyarrow.parquet.write_table(table, folder / "in" / "b.parquet")
    (folder / "in" / "c.parquet").write_bytes(b"not Parquet")
    (folder / "in" / "notes.txt").write_text("mine")
    tally = detect_files(KEY, str(folder / "in"), str(folder / "out"), address="auto", workers=1)
    return Run(folder / "in", folder / "out", tally)


def test_rows_equal_those_of_one_process(found: Run, tmp_path: Path) -> None:
    files = [found.inputs / name for name in ("a.jsonl", "b.parquet", "c.parquet")]
    dgmark.detect_file(KEY, files, tmp_path / "local.jsonl")
    expected = {row["id"]: row for row in map(json.loads, (tmp_path / "local.jsonl").read_text().splitlines())}
    rows = {row["id"]: row for row in rows_in(found.out)}
    assert rows.keys() == expected.keys()
    for row_id, row in rows.items():
        assert row["kind"] == ("error" if row["error"] else "done")
        if row_id == "half":
            assert "half of a surrogate pair" in row["error"]
        elif "error" in expected[row_id]:
            assert row["error"] == expected[row_id]["error"]
        else:
            assert {name: row[name] for name in expected[row_id]} == expected[row_id]
    assert Counter(row["kind"] for row in rows.values()) == {"done": 22, "error": 4}
    assert (found.tally.scored, found.tally.unusable) == (22, 4)
    assert found.tally.skipped == [str(found.inputs / "notes.txt")]


def test_a_second_run_scores_what_is_missing_and_what_had_errors(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in" / "a.jsonl", range(4), json.dumps({"id": "long", "text": text(0) * 2}), "not JSON")
    (tmp_path / "in" / "notes.txt").write_text("mine")
    first = detect_files(KEY, str(tmp_path / "in"), str(tmp_path / "out"), max_chars=len(text(0)) + 9, workers=1)
    assert (first.scored, first.unusable, first.skipped) == (4, 2, [str(tmp_path / "in" / "notes.txt")])
    before = {row["id"]: row["row"] for row in rows_in(tmp_path / "out") if row["kind"] == "done"}
    write_rows(tmp_path / "in" / "b.jsonl", range(10, 15))
    monkeypatch.chdir(tmp_path)  # the same folder under another name
    resumed: list[int] = []
    again = ["in", "in/a.jsonl"]  # a file that is named twice is read once
    second = detect_files(KEY, again, str(tmp_path / "out"), on_resume=resumed.append, workers=1)
    assert (resumed, second.scored, second.unusable) == ([4], 10, 1)
    counts = Counter((row["id"], row["kind"]) for row in rows_in(tmp_path / "out"))
    done = [*before, "long", *(f"row-{number}" for number in range(10, 15))]
    assert counts == {("in/a.jsonl:6", "error"): 1} | {(name, "done"): 1 for name in done}
    assert before.items() <= {row["id"]: row["row"] for row in rows_in(tmp_path / "out")}.items()


def test_one_file_is_spread_over_workers(nodes: Any, tmp_path: Path) -> None:
    import ray.data

    write_rows(tmp_path / "in" / "a.jsonl", range(3000))
    sources = sources_of([str(tmp_path / "in")], str(tmp_path / "out"), print)
    item = partial(item_of, prefer_ids=False, text_column="text", max_chars=999)
    read = partial(tables_of, item=item, settings="", column="text", max_chars=999)
    checkpoint = Folder(str(tmp_path / "out"), {}).checkpoint()
    with cluster("auto", checkpoint, BLOCK_BYTES):
        assert ray.data.read_datasource(TextSource(sources, read)).materialize().num_blocks() >= 3


def test_a_lost_node_loses_and_doubles_no_row(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "FILE_ROWS", 64)  # so that some rows are finished long before the last
    for part in range(8):
        write_rows(tmp_path / "in" / f"{part}.jsonl", range(part * 200, part * 200 + 200))
    lost = nodes.add_node(num_cpus=4)  # Ray spreads the processes; the head alone has room for all five
    nodes.wait_for_nodes()
    tallies: list[Tally] = []
    run = threading.Thread(
        target=lambda: tallies.append(detect_files(KEY, str(tmp_path / "in"), str(tmp_path / "out"), workers=2))
    )
    run.start()
    deadline = time.monotonic() + 120
    while run.is_alive() and time.monotonic() < deadline:
        actors = ray._private.state.actors().values()
        places = [actor["Address"]["NodeID"] for actor in actors if actor["State"] == "ALIVE"]
        if lost.node_id in places and [*(tmp_path / "out").glob("finished/*")]:
            break
        time.sleep(0.02)
    assert run.is_alive()
    assert lost.node_id in places
    nodes.remove_node(lost, allow_graceful=False)
    run.join(300)
    assert not run.is_alive()
    counts = Counter(row["id"] for row in rows_in(tmp_path / "out"))
    assert counts == {f"row-{number}": 1 for number in range(1600)}
    assert tallies[0].scored == 1600


def test_texts_equal_those_of_one_process(nodes: Any, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    rows: list[Row] = [{"id": "a", "prompt": "Once upon a time"}, {"id": "b", "prompt": "The old ship"}, {"id": "c"}]
    rows.append({"id": "d", "prompt": [10**20]})
    prompts.write_text("\n".join(map(json.dumps, rows)))
    settings: dict[str, Any] = {"length": 16, "block_length": 16}
    tally = generate_files(KEY, str(prompts), str(tmp_path / "out"), address="auto", seed=7, **settings)
    assert (tally.scored, tally.unusable) == (2, 2)
    made = {row["id"]: row for row in rows_in(tmp_path / "out")}
    expected = dgmark.generate(dgmark.load_model(), ["Once upon a time", "The old ship"], key=KEY, seed=7, **settings)
    assert [made[name]["token_ids"] for name in "ab"] == [row.token_ids for row in expected]
    assert (made["b"]["seed"], made["b"]["key_fingerprint"], made["b"]["kind"]) == (8, KEY.fingerprint, "done")
    assert json.loads(made["a"]["settings"]) == expected[0].settings
    assert 'no "prompt"' in made["c"]["error"]
    with pytest.raises(ResumeMismatch, match="differs in seed"):
        generate_files(KEY, str(prompts), str(tmp_path / "out"), seed=8, loading={"name_or_path": BUILTIN}, **settings)


def test_an_error_of_a_worker_is_raised_as_what_it_is() -> None:
    said = "ray::MapWorker() (pid=1)\n\x1b[36mdgmark.errors.NoTexts: 17 is no multiple\x1b[39m\n\nThe above"
    error = error_of(RayError(said))
    assert (type(error), str(error)) == (NoTexts, "17 is no multiple")
    assert "the run ended early (OverflowError: too large)" in str(
        error_of(RayError("Trace\nOverflowError: too large\n"))
    )


def test_no_log_holds_a_secret(found: Run, nodes: Any) -> None:
    assert KEY.secret is not None
    forms = (KEY.secret, KEY.secret.hex().encode(), repr(bytes(KEY.secret)).encode(), b64encode(KEY.secret))
    session = Path(nodes.head_node.get_session_dir_path())
    files = [file for folder in (session, found.out) for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 10
    for file in files:
        content = file.read_bytes()
        assert not any(form in content for form in forms), file


def test_folders_of_others_are_refused(found: Run, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("mine")
    with pytest.raises(ResumeMismatch, match="no run of dgmark"):
        detect_files(KEY, str(found.inputs), str(foreign))
    assert [file.name for file in foreign.iterdir()] == ["letter.txt"]
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError):
        detect_files(KEY, str(found.inputs), str(tmp_path / "file" / "out"))
    with pytest.raises(ResumeMismatch, match="differs in settings"):
        detect_files(dgmark.Detector(KEY, phase="start"), str(found.inputs), str(found.out))
    with open(found.out / "run.json", "r+b", buffering=0) as file:
        lock(file, found.out / "run.json")
        with pytest.raises(InputError):
            detect_files(KEY, str(found.inputs), str(found.out))


def test_bad_inputs(nodes: Any, tmp_path: Path) -> None:
    with pytest.raises(NoTexts, match="does not exist"):
        detect_files(KEY, str(tmp_path / "none.jsonl"), str(tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoTexts, match="holds no"):
        detect_files(KEY, str(tmp_path / "empty"), str(tmp_path / "out"))
    (tmp_path / "a.docx").write_bytes(b"")
    with pytest.raises(SettingsError, match="which a run on a cluster reads"):
        detect_files(KEY, str(tmp_path / "a.docx"), str(tmp_path / "out"))
    write_rows(tmp_path / "in" / "a.jsonl", range(3))
    for inputs in ("nothing://bucket/a.jsonl", ["nothing://bucket/a.jsonl"]):
        with pytest.raises(InputError, match=r"nothing://bucket/a\.jsonl cannot be reached"):
            detect_files(KEY, inputs, str(tmp_path / "out"))
    with pytest.raises(SettingsError, match="9 workers"):
        detect_files(KEY, str(tmp_path / "in"), str(tmp_path / "out"), workers=9)
    for place in (tmp_path / "in" / "out", tmp_path / "in", tmp_path):
        with pytest.raises(SettingsError, match="lies in the other"):
            detect_files(
                KEY, str(tmp_path / "in" / "a.jsonl") if place == tmp_path else str(tmp_path / "in"), str(place)
            )
    assert not (tmp_path / "out" / "rows").exists()


def test_columns_are_the_fields_of_a_row() -> None:
    row = dgmark.Detector(KEY).detect("A text.").to_row("a")
    beside = {"source_sha256", "settings", "subkeys_tested", "subkey", "subkey_confidence", "row", "kind", "error"}
    assert {*row} | beside == {*COLUMNS.names}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "no such:place"])
def test_a_wrong_address_is_an_error(address: str) -> None:
    with pytest.raises(SettingsError, match="no Ray cluster answers"):
        connect(address)
