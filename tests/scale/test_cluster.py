"""Ray runs on a cluster of several nodes on this machine."""

import json
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest

import dgmark
from dgmark.checkpoint.folder import BUILTIN
from dgmark.errors import DgmarkError, InputError, ModelNotFound, NoTexts, ResumeMismatch, SettingsError
from dgmark.rows.jsonl import Row
from dgmark.rows.row_file import lock
from dgmark.scale import detect as detecting
from dgmark.scale import detect_files, generate_files
from dgmark.scale.cluster import connect
from support.known_keys import known_key

ray = pytest.importorskip("ray")
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


@pytest.fixture(scope="module")
def found(nodes: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the output of a run over good and bad rows and files."""
    folder = tmp_path_factory.mktemp("found")
    write_rows(
        folder / "in" / "a.jsonl", range(20), "not JSON", '{"id": "no text"}', '{"id": "half", "text": "\\ud800 a"}'
    )
    table = pyarrow.table({"id": ["p0", "p1"], "text": [text(30), None], "token_ids": [None, [5, 6, 7, 8]]})
    pyarrow.parquet.write_table(table, folder / "in" / "b.parquet")
    (folder / "in" / "c.parquet").write_bytes(b"not Parquet")
    (folder / "in" / "notes.txt").write_text("mine")
    tally = detect_files(KEY, str(folder / "in"), str(folder / "out"), address="auto", workers=1)
    assert (tally.scored, tally.unusable) == (23, 3)
    return folder


def test_rows_equal_those_of_one_process(found: Path) -> None:
    files = [found / "in" / name for name in ("a.jsonl", "b.parquet", "c.parquet")]
    dgmark.detect_file(KEY, files, found / "local.jsonl")
    expected = {row["id"]: row for row in map(json.loads, (found / "local.jsonl").read_text().splitlines())}
    rows = {row["id"]: row for row in rows_in(found / "out")}
    assert rows.keys() == expected.keys()
    for row_id, row in rows.items():
        assert row["kind"] == ("error" if row["error"] else "done")
        same = {"error"} if "error" in expected[row_id] else expected[row_id].keys()
        assert {name: row[name] for name in same} == {name: expected[row_id][name] for name in same}


def test_a_second_run_scores_what_is_missing_and_what_had_errors(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in" / "a.jsonl", range(4), json.dumps({"id": "long", "text": text(0) * 2}), "not JSON")
    first = detect_files(KEY, str(tmp_path / "in"), str(tmp_path / "out"), max_chars=len(text(0)) + 9, workers=1)
    assert (first.resumed, first.scored, first.unusable) == (0, 4, 2)
    before = {row["id"]: row["row"] for row in rows_in(tmp_path / "out") if row["kind"] == "done"}
    write_rows(tmp_path / "in" / "b.jsonl", range(10, 15))
    monkeypatch.chdir(tmp_path)  # the same folder under another name
    second = detect_files(KEY, "in", str(tmp_path / "out"), workers=1)
    assert (second.resumed, second.scored, second.unusable) == (4, 10, 1)
    counts = Counter((row["id"], row["kind"]) for row in rows_in(tmp_path / "out"))
    done = [*before, "long", *(f"row-{number}" for number in range(10, 15))]
    assert counts == {(f"{tmp_path}/in/a.jsonl:6", "error"): 1} | {(name, "done"): 1 for name in done}
    assert before.items() <= {row["id"]: row["row"] for row in rows_in(tmp_path / "out")}.items()


def test_a_lost_node_loses_and_doubles_no_row(nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detecting, "FILE_ROWS", 64)  # so that some rows are finished long before the last
    write_rows(tmp_path / "in" / "large.jsonl", range(1600))  # one file is spread over both workers
    lost = nodes.add_node(num_cpus=4)  # Ray spreads the processes; the head alone has room for all five
    nodes.wait_for_nodes()
    scored: list[int] = []
    run = threading.Thread(
        target=lambda: scored.append(detect_files(KEY, str(tmp_path / "in"), str(tmp_path / "out"), workers=2).scored)
    )
    run.start()
    deadline = time.monotonic() + 120
    places: list[str] = []
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
    assert Counter(row["id"] for row in rows_in(tmp_path / "out")) == {f"row-{number}": 1 for number in range(1600)}
    assert scored == [1600]


def test_texts_equal_those_of_one_process(nodes: Any, tmp_path: Path) -> None:
    prompts, out = str(tmp_path / "prompts.jsonl"), str(tmp_path / "out")
    rows: list[Row] = [{"id": "a", "prompt": "Once upon a time"}, {"id": "b", "prompt": "The old ship"}, {"id": "c"}]
    rows.append({"id": "d", "prompt": [10**20]})
    Path(prompts).write_text("\n".join(map(json.dumps, rows)))
    settings: dict[str, Any] = {"length": 16, "block_length": 16}
    tally = generate_files(KEY, prompts, out, address="auto", seed=7, **settings)
    assert (tally.scored, tally.unusable) == (2, 2)
    made = {row["id"]: row for row in rows_in(tmp_path / "out")}
    expected = dgmark.generate(dgmark.load_model(), ["Once upon a time", "The old ship"], key=KEY, seed=7, **settings)
    assert [made[name]["token_ids"] for name in "ab"] == [row.token_ids for row in expected]
    assert (made["b"]["seed"], made["b"]["key_fingerprint"], made["b"]["kind"]) == (8, KEY.fingerprint, "done")
    assert json.loads(made["a"]["settings"]) == expected[0].settings
    assert 'no "prompt"' in made["c"]["error"]
    with pytest.raises(ResumeMismatch, match="differs in seed"):
        generate_files(KEY, prompts, out, seed=8, loading={"name_or_path": BUILTIN}, **settings)
    with pytest.raises(ModelNotFound, match="no-such-model"):  # as the worker raised it
        generate_files(KEY, prompts, f"{out}2", loading={"name_or_path": "no-such-model"}, **settings)


def test_no_log_holds_a_secret(found: Path, nodes: Any) -> None:
    assert KEY.secret is not None
    forms = (KEY.secret, KEY.secret.hex().encode(), repr(bytes(KEY.secret)).encode(), b64encode(KEY.secret))
    session = Path(nodes.head_node.get_session_dir_path())
    files = [file for folder in (session, found / "out") for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 10
    for file in files:
        content = file.read_bytes()
        assert not any(form in content for form in forms), file


@pytest.mark.parametrize("name", ["letter.txt", "run.json"])
@pytest.mark.parametrize("content", ['{"name": "my run"}', "my notes", "[1]", "\n", "\udcff"])
def test_folders_of_others_are_refused(found: Path, tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, errors="surrogateescape")
    with pytest.raises(ResumeMismatch, match="holds files, but no run" if name == "letter.txt" else "another run"):
        detect_files(KEY, str(found / "in"), str(tmp_path))
    assert (tmp_path / name).read_text(errors="surrogateescape") == content
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_run_that_differs_or_is_going_on_is_refused(found: Path) -> None:
    inputs, out = str(found / "in"), found / "out"
    with pytest.raises(InputError, match="cannot be written"):
        detect_files(KEY, inputs, str(out / "run.json" / "out"))
    with pytest.raises(ResumeMismatch, match="differs in settings"):
        detect_files(dgmark.Detector(KEY, phase="start"), inputs, str(out))
    with open(out / "run.json", "r+b", buffering=0) as file:
        lock(file, out / "run.json")
        with pytest.raises(InputError, match="another process"):
            detect_files(KEY, inputs, str(out))


@pytest.mark.parametrize(
    ("inputs", "out", "error", "says"),
    [
        (["none.jsonl"], "out", NoTexts, "cannot be read"),
        (["empty"], "out", NoTexts, "give files that end in"),
        (["a.docx"], "out", NoTexts, "give files that end in"),
        (["nothing://bucket/a.jsonl"], "out", InputError, "cannot be read"),
        (["in", "in/a.jsonl"], "out", SettingsError, "named twice"),
        (["in"], "nothing://bucket", InputError, "cannot be reached"),
        (["in"], "in/out", SettingsError, "lies in the other"),
        (["in"], "in", SettingsError, "lies in the other"),
        (["in/a.jsonl"], ".", SettingsError, "lies in the other"),
    ],
)
def test_bad_inputs(
    nodes: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inputs: list[str],
    out: str,
    error: type[DgmarkError],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.docx").write_bytes(b"")
    write_rows(tmp_path / "in" / "a.jsonl", range(3))
    with pytest.raises(error, match=says):
        detect_files(KEY, inputs, out)
    assert not (tmp_path / "out").exists()


def test_more_workers_than_the_cluster_has_room_for_are_refused(found: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not for 9"):
        detect_files(KEY, str(found / "in"), str(tmp_path / "out"), workers=9)


def test_columns_are_the_fields_of_a_row() -> None:
    row = dgmark.Detector(KEY).detect("A text.").to_row("a", payload=True)
    assert row.keys() <= detecting.COLUMNS.keys()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "no such:place"])
def test_a_wrong_address_is_an_error(address: str) -> None:
    with pytest.raises(SettingsError, match="no Ray cluster answers"):
        connect(address)
