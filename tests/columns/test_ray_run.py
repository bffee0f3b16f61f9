"""Tables on Ray Data, with real Ray: the rows of one process, killed processes, bad rows, and what is refused.

One small cluster of this machine is started for all tests.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

ray = pytest.importorskip("ray", reason="runs on Ray need Ray")

from dgmark import DetectColumns, GenerateColumns  # noqa: E402
from dgmark.cli.ray_command import Places, app  # noqa: E402
from dgmark.cli.row_output import MarkedTally  # noqa: E402
from dgmark.columns.ray_run import OF_ONE_MACHINE, RayRun, _plain_errors  # noqa: E402
from dgmark.decode.texts.written import MarkWarning  # noqa: E402
from dgmark.errors import DgmarkError, InputError, ModelNotFound, SettingsError  # noqa: E402
from support.command_line import invoke  # noqa: E402
from support.known_keys import key_file_of, known_key  # noqa: E402
from support.marked_texts import marked_text  # noqa: E402
from support.ray_workers import KilledOnce  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # Ray's own: of its settings to come, and of sockets and processes that it leaves to the end of the process
    pytest.mark.filterwarnings(
        "ignore::FutureWarning:ray", "ignore::DeprecationWarning:ray", "ignore::ResourceWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KEY = known_key("ray", subkeys=4)
key_file = key_file_of(KEY)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[str]:
    """The address of the cluster that a run of one actor starts where there is none, of four logical processors."""
    alone = RayRun(DetectColumns(KEY, id_column="id"), "", "", {}, 1, 1, actors=1)
    terminate = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        for name in OF_ONE_MACHINE:
            patch.setenv(name, "")  # so that what the run sets is undone
            patch.delenv(name)
        for name in ("num_workers_soft_limit", "idle_worker_killing_time_threshold_ms"):
            patch.setenv(f"RAY_{name}", "12" if "limit" in name else "60000")  # idle processes wait for the next test
        patch.setenv("RAY_worker_niceness", "0")  # with Ray's own, 15, they wait for all other tests
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # each process of Ray would compile what it imports
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        with alone._cluster() as actors:
            assert (actors, int(ray.cluster_resources()["CPU"])) == (1, max(4, os.cpu_count() or 1))
            assert signal.getsignal(signal.SIGTERM) is terminate
            yield ray.get_runtime_context().gcs_address
        assert not ray.is_initialized()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder, as Spark writes it, of two files of 60 rows each: one of each is marked, and one has no text."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    for number in range(2):
        texts: list[str | None] = [f"This is text {n} of file {number}." for n in range(60)]
        ids = [f"{number}-{n}" for n in range(60)]
        texts[7] = marked_text(KEY.subkey(2), 120)
        if number:
            texts[9] = None
        pq.write_table(pa.table({"id": ids, "n": range(60), "text": texts}), folder / f"{number}.parquet")
    return folder


def dgmark_ray(command: str, source: Any, target: Any, *options: Any, code: int | None = None) -> Result:
    return invoke(app, command, source, target, *options, code=code)


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def in_one_process(source: Path, **options: Any) -> list[dict[str, Any]]:
    return sorted_rows(DetectColumns(KEY, id_column="id", **options)(pq.read_table(source)))


# ---- rows ----


@pytest.fixture
def pickled(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Everything that this process pickles for Ray."""
    made: list[bytes] = []
    real = ray.cloudpickle.dumps

    def dumps(*arguments: Any, **options: Any) -> bytes:
        made.append(real(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(ray.cloudpickle, "dumps", dumps)
    return made


def holds_secret(content: bytes) -> bool:
    assert KEY.secret is not None
    spelled = (
        KEY.secret,
        KEY.secret.hex().encode(),
        base64.b64encode(KEY.secret),
        base64.urlsafe_b64encode(KEY.secret),
    )
    return any(one.rstrip(b"=") in content for one in spelled)


def test_the_rows_are_those_of_one_process(source: Path, tmp_path: Path, key_file: Path, pickled: list[bytes]) -> None:
    before = {file.name: file.read_bytes() for file in source.iterdir()}
    target, options = tmp_path / "found", ("--key", key_file, "--rows-per-file", 32)
    first = dgmark_ray("detect", source, target, *options, code=0)
    assert "119 scored (117 uncertain, 2 watermarked), 1 cannot be used\n" in first.stderr
    assert sorted_rows(pq.read_table(target)) == in_one_process(source, payload=False)
    assert pq.read_table(target).schema.equals(
        pa.schema([*pq.read_table(source).schema, *DetectColumns.schema]), check_metadata=False
    )
    assert len(list(target.iterdir())) >= 4  # rows are finished before all are
    assert {file.name: file.read_bytes() for file in source.iterdir()} == before

    # no task, actor or log holds the secret, which the key file does
    assert holds_secret(key_file.read_bytes())
    assert any(str(key_file).encode() in content for content in pickled)
    assert not any(map(holds_secret, pickled))
    logs = Path(ray.worker._global_node.get_logs_dir_path())
    assert not any(holds_secret(file.read_bytes()) for file in logs.rglob("*") if file.is_file())

    again = dgmark_ray("detect", source, target, *options)
    assert "119 scored (117 uncertain, 2 watermarked), 1 cannot be used; of these, 120 there already" in again.stderr
    assert sorted_rows(pq.read_table(target)) == in_one_process(source, payload=False)

    # a target of other settings stays as it is
    files = {file.name: file.read_bytes() for file in target.iterdir()}
    known_key("other", subkeys=4).save(tmp_path / "other.json")
    for changed, named in (
        (("--fpr", 0.5), "settings"),
        (("--key", tmp_path / "other.json"), "key, settings"),
        (("--prefix", "dgmark_"), "prefix"),
        (("--payload",), "settings"),
    ):
        other = dgmark_ray("detect", source, target, *options, *changed, code=4)
        assert f"was made by another run, which differs in {named};" in other.stderr
    assert {file.name: file.read_bytes() for file in target.iterdir()} == files

    # and so does one of a source that changed
    read = os.stat(source / "1.parquet")
    os.utime(source / "1.parquet", (1, 1))
    moved = dgmark_ray("detect", source, target, *options, code=4)
    assert "was made by another run, which differs in source;" in moved.stderr
    assert {file.name: file.read_bytes() for file in target.iterdir()} == files

    # somebody deletes a file of it, and then cuts its state
    os.utime(source / "1.parquet", ns=(read.st_atime_ns, read.st_mtime_ns))
    sorted(target.glob("*.parquet"))[0].unlink()
    fewer = dgmark_ray("detect", source, target, *options, code=4)
    assert "rows, and the source 120, as where somebody deleted a file of the target" in fewer.stderr
    (tmp_path / "found.dgmark" / "state.json").write_text('{"cut')
    assert "found.dgmark is missing or damaged" in dgmark_ray("detect", source, target, *options, code=4).stderr


@pytest.mark.parametrize("batch_format", ["pyarrow", "pandas", "numpy"])
def test_batches_of_every_format_are_scored_and_not_written_into(
    batch_format: str, source: Path, key_file: Path
) -> None:
    table = pq.read_table(source).slice(60, 20)
    table = table.append_column("ids", pa.array(np.arange(20 * 4).reshape(20, 4).tolist()))
    dataset = ray.data.from_arrow(table).materialize()
    made = dataset
    for column in ("text", "ids"):
        made = made.map_batches(DetectColumns(str(key_file), column, prefix=f"{column}_"), batch_format=batch_format)
    rows = made.take_all()
    for column in ("text", "ids"):
        wanted = DetectColumns(KEY, column)(table).to_pylist()
        for row, expected in zip(rows, wanted, strict=True):
            for name in DetectColumns.schema.names:
                found, value = row[f"{column}_{name}"], expected[name]
                found = found.tolist() if hasattr(found, "tolist") else found
                assert found == value or (value is None and found != found), name  # NaN is numpy's null
    assert pa.concat_tables(ray.get(dataset.to_arrow_refs())).equals(table)


# ---- what ends in the middle ----


@pytest.mark.soak
def test_texts_are_the_same_when_an_actor_is_killed(tmp_path: Path, key_file: Path) -> None:
    prompts = pa.table({"id": [f"p{n}" for n in range(8)], "prompt": ["The sea was", "A king", "", None] * 2})
    pq.write_table(prompts, source := tmp_path / "prompts.parquet")
    settings: dict[str, Any] = {"id_column": "id", "seed": 3, "length": 8, "block_length": 8, "dtype": "fp32"}
    settings |= {"check": True, "prefix": "my_"}
    work = KilledOnce("storyteller", str(key_file), **settings)
    work.row, work.marker = "p5", tmp_path / "killed"
    assert RayRun(work, str(source), str(tmp_path / "written"), {}, batch_size=2, part_rows=2, actors=1).write() == 0
    assert work.marker.exists()
    made = pq.read_table(tmp_path / "written")
    with pytest.warns(MarkWarning):  # as the texts are too short
        wanted = GenerateColumns("storyteller", KEY, **settings)(prompts)
    assert sorted_rows(made) == sorted_rows(wanted)
    assert sum(text is not None for text in made.column("my_text").to_pylist()) == 4
    places = Places(str(source), str(tmp_path / "written"), prefix="my_")
    tally = MarkedTally()
    places.count(tally, [*work.fields], finished=0)
    assert (tally.scored, tally.unusable) == (4, 4)
    assert (tally.marks.marked, tally.marks.checked, tally.marks.found) == (4, 4, 0)


@pytest.mark.soak
def test_a_run_goes_on_after_its_driver_was_killed(cluster: str, tmp_path: Path, key_file: Path) -> None:
    count, source, target = 400, tmp_path / "texts.parquet", tmp_path / "found"
    texts = [None if n % 200 == 0 else f"This is text {n}, which says little. " * 8 for n in range(count)]
    pq.write_table(pa.table({"id": range(count), "text": texts}), source)
    options = ["--key", str(key_file), "--rows-per-file", "25"]
    command = [sys.executable, "-m", "dgmark.cli.ray_command", "detect", str(source), str(target), *options]
    checkpoint = tmp_path / "found.dgmark" / "checkpoint"
    driver = subprocess.Popen([*command, "--address", cluster], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not [file for file in checkpoint.glob("*.parquet") if ".pending" not in file.name]:
        assert driver.poll() is None, "the run ended before it could be stopped"
        time.sleep(0.01)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    time.sleep(2)  # Ray stops its actors
    there = sum(pq.read_metadata(file).num_rows for file in target.glob("*.parquet"))
    assert 0 < there < count
    again = dgmark_ray("detect", source, target, *options, code=0)
    assert f"{count - 2} scored ({count - 2} uncertain), 2 cannot be used; " in again.stderr
    rows = sorted(pq.read_table(target).to_pylist(), key=lambda row: row["id"])
    assert rows == DetectColumns(KEY, id_column="id", payload=False)(pq.read_table(source)).to_pylist()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            (),
            70,
            "Ray did not start: The current node timed out during startup; try again when the machine is less busy",
        ),
        (
            ("--address", "ray.example:1"),
            2,
            "ray.example:1 is not a Ray cluster that can be reached: The current node timed out",
        ),
    ],
    ids=["on this machine", "elsewhere"],
)
def test_a_cluster_that_does_not_start_is_an_error(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], code: int, message: str
) -> None:
    def init(*_: Any, **__: Any) -> None:
        raise Exception("The current node timed out during startup.\nThis could happen.")

    source = tmp_path / "texts.jsonl"
    source.write_text(json.dumps({"id": 1, "text": "A text."}) + "\n")
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    stopped = dgmark_ray("detect", source, tmp_path / "found", "--key", key_file, *options, code=code)
    assert message in stopped.stderr
    assert "bug" not in stopped.stderr


@pytest.mark.soak
def test_a_full_disk_leaves_the_finished_rows(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "texts.jsonl", tmp_path / "found"
    rows = [{"id": n, "text": f"This is text {n}."} for n in range(90)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("--key", key_file, "--rows-per-file", 30)
    real = ray.data.Dataset.write_parquet

    def full(folder: Path = target) -> dict[str, Any]:
        if any(folder.glob("*.parquet")):
            raise OSError(28, "No space left on device")
        return {}

    def write_parquet(dataset: Any, place: str) -> None:
        real(dataset, place, arrow_parquet_args_fn=full, concurrency=1)

    with monkeypatch.context() as patch:
        patch.setattr(ray.data.Dataset, "write_parquet", write_parquet)
        stopped = dgmark_ray("detect", source, target, *options)
    assert stopped.exit_code == 4, stopped.stderr
    assert "No space left on device" in stopped.stderr
    assert "the files that are finished are kept" in stopped.stderr
    kept = {file.name: file.read_bytes() for file in target.glob("*.parquet")}
    assert kept
    again = dgmark_ray("detect", source, target, *options, code=0)
    assert "90 scored (90 uncertain), 0 cannot be used; " in again.stderr
    assert sorted(row["id"] for row in pq.read_table(target).to_pylist()) == list(range(90))
    assert kept.items() <= {file.name: file.read_bytes() for file in target.glob("*.parquet")}.items()


# ---- what is refused ----


def test_a_table_that_cannot_be_used_is_refused_before_the_work(source: Path, tmp_path: Path, key_file: Path) -> None:
    (tmp_path / "file.parquet").write_bytes((source / "0.parquet").read_bytes())
    (tmp_path / "foreign").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no table")
    (tmp_path / "foreign" / "a.parquet").write_bytes((source / "0.parquet").read_bytes())
    scored = DetectColumns(KEY)(pq.read_table(source))
    pq.write_table(scored, tmp_path / "scored.parquet")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "_a.parquet").write_bytes((source / "0.parquet").read_bytes())
    rows = [{"id": "a", "text": "One.", "source": 1}, {"id": "b", "text": "Two.", "source": "web"}]
    (tmp_path / "types.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "a.parquet").write_bytes((source / "0.parquet").read_bytes())
    (tmp_path / "both" / "b.jsonl").write_text(json.dumps(rows[1]) + "\n")
    (tmp_path / "types").mkdir()
    for name, column in (("a", pa.array(["x"])), ("b", pa.array([1]))):
        pq.write_table(pa.table({"id": [name], "text": ["One."], "k": column}), tmp_path / "types" / f"{name}.parquet")
    target = tmp_path / "found"
    for code, message, arguments in (
        (4, "_a.parquet has a name that begins with _", (tmp_path / "hidden", target)),
        (4, "holds Parquet and JSON Lines", (tmp_path / "both", target)),
        (4, "'source' is a number in row a", (tmp_path / "types.jsonl", target)),
        (4, "Field k has incompatible types: string vs int64", (tmp_path / "types", target)),
        (4, "is not there, or holds no file", (tmp_path / "none", target)),
        (4, "holds no file that ends in .parquet", (tmp_path / "empty", target)),
        (4, "no column 'body': the columns are 'id', 'n', 'text'", (source, target, "--text-column", "body")),
        (4, "no column 'key'", (source, target, "--id-column", "key")),
        (4, "column 'n' holds int64, neither texts", (source, target, "--text-column", "n")),
        (4, "'verdict', 'p_value'", (tmp_path / "scored.parquet", target)),
        (4, "column 'p_value' holds double", (tmp_path / "scored.parquet", target, "--id-column", "p_value")),
        (4, "exists, and dgmark-ray did not write it", (source, tmp_path / "foreign")),
        (4, "is a file: give a folder", (source, tmp_path / "file.parquet")),
        (2, "is the source", (source, source)),
        (2, "leaving out finished rows, need 5 of CPU", (source, target, "--actors", 2)),
        (5, "none.json cannot be read", (source, target, "--key", tmp_path / "none.json")),
        (5, "DGMARK_NO_SUCH_KEY", (source, target, "--key", "env:DGMARK_NO_SUCH_KEY")),
    ):
        result = dgmark_ray("detect", *arguments[:2], "--key", key_file, *arguments[2:], code=code)
        assert message in result.stderr
        assert "bug" not in result.stderr
    assert not target.exists()


def test_a_column_in_a_dictionary_in_one_file_is_read_with_that_of_another(tmp_path: Path, key_file: Path) -> None:
    source = tmp_path / "texts"
    source.mkdir()
    marked = marked_text(KEY.subkey(2), 120)
    texts = pa.array([marked, "A text.", None])
    pq.write_table(pa.table({"id": ["a", "b", "c"], "text": texts.dictionary_encode()}), source / "0.parquet")
    pq.write_table(pa.table({"id": ["d", "e", "f"], "text": texts}), source / "1.parquet")
    dgmark_ray("detect", source, tmp_path / "found", "--key", key_file, code=0)
    rows = sorted_rows(pq.read_table(tmp_path / "found"))
    assert [row["verdict"] for row in rows] == ["watermarked", "uncertain", None] * 2
    assert [row["text"] for row in rows] == texts.to_pylist() * 2


def test_two_rows_of_one_id_are_refused(tmp_path: Path, key_file: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(2):
        table = pa.table({"id": [f"{number}", "twice"], "text": ["a", "b"]})
        pq.write_table(table, folder / f"{number}.parquet")
    result = dgmark_ray("detect", folder, tmp_path / "found", "--key", key_file, code=4)
    assert "2 rows have the id 'twice': give each row its own id" in result.stderr
    assert not (tmp_path / "found").exists()
    pq.write_table(pa.table({"id": ["a", None], "text": ["a", "b"]}), tmp_path / "none.parquet")
    result = dgmark_ray("detect", tmp_path / "none.parquet", tmp_path / "found", "--key", key_file, code=4)
    assert "1 rows have no id in column 'id'" in result.stderr


def test_prompts_need_gpus_that_are_there_and_settings_that_mark(source: Path, tmp_path: Path, key_file: Path) -> None:
    options = ("--prompt-column", "text", "--key", key_file)
    for code, message, more in (
        (2, "need 1 of GPU, and the cluster has 0", ("--gpus-per-actor", 1)),
        (2, "--gpus-per-actor is a whole number, or below 1", ("--gpus-per-actor", 1.5)),
        (2, "give --key FILE", ("--no-watermark",)),
        (2, "--temperature", ("--temperature", -1)),
        (6, "no-such-model", ("--model", "no-such-model")),
    ):
        result = dgmark_ray("generate", source, tmp_path / "written", *options, *more, code=code)
        assert message in result.stderr


@pytest.mark.parametrize("error", [InputError("no"), SettingsError("is wrong", "top_k"), ModelNotFound("none")])
def test_an_error_of_dgmark_in_a_process_of_ray_is_that_error_here(error: DgmarkError) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised, _plain_errors("target", []):
        ray.get(ray.remote(fail).remote())
    assert type(raised.value) is type(error)
    assert str(raised.value) == str(error)
