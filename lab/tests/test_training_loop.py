"""Training: it resumes bit by bit, refuses what does not belong together, learns, and leaves a model that loads."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import dgmark
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.errors import ResumeMismatch, SettingsError
from dgmark_lab.training.config import Schedule
from dgmark_lab.training.corpus import Corpus, prepare_corpus, read_documents
from dgmark_lab.training.networks import Network, llada_state, load_network
from dgmark_lab.training.objective import held_out_rows, nelbo
from dgmark_lab.training.run import load_state, read_log, trapezoid
from dgmark_lab.training.trainer import Trainer, averaged, split_parameters
from support.training_setup import same_tensors, tiny, trainer, write_tales


def final(out: Path) -> dict[str, Any]:
    return load_state(out / "state.pt").tensors


def take_steps(piece: Trainer, steps: int) -> None:
    """Train for some steps, and save, without a row in the log."""
    for _ in range(steps):
        piece.update(piece.batch(piece.step))
        piece.step += 1
    piece.save()


# ---- resuming ----


@pytest.mark.parametrize("kind", ["storyteller", "judge"])
def test_a_run_in_pieces_ends_bit_equal_to_one_in_one_go(corpus: Corpus, tmp_path: Path, kind: str) -> None:
    schedule = {"steps": 5, "warmup_steps": 2, "decay_steps": 2}
    config = tiny(kind, rows={"short_share": 0.3, "short_lengths": [24]}, schedule=schedule)
    trainer(config, corpus, tmp_path / "whole").train()
    for step in range(1, 6):  # one step a piece: inside warm-up, the flat part and the decay
        piece = trainer(config, corpus, tmp_path / "pieces")
        piece.train(max_seconds=0)
        assert (piece.step, piece.done) == (step, step == 5)
    assert same_tensors(final(tmp_path / "whole"), final(tmp_path / "pieces"))
    module, average = (final(tmp_path / "whole")[name] for name in ("module", "average"))
    assert set(average) == {"n_averaged"} | {f"module.{name}" for name in module}
    assert not any(torch.equal(tensor, average[f"module.{name}"]) for name, tensor in module.items())
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("whole", "pieces")]
    for row in [row for log in logs for row in log]:
        row.pop("seconds")
    assert logs[0] == logs[1]


def test_work_lost_in_a_crash_is_done_again_the_same(corpus: Corpus, tmp_path: Path) -> None:
    config = tiny()
    trainer(config, corpus, tmp_path / "whole").train()
    piece = trainer(config, corpus, tmp_path / "crashed")
    take_steps(piece, 3)
    with open(tmp_path / "crashed/log.jsonl", "a") as log:  # rows of steps that no state holds, the last one torn
        log.write('{"step": 3, "loss": 1.0, "tokens": 1}\n{"step": 4, "loss": 1.0, "tokens": 1}\n{"step": 5, "lo')
    resumed = trainer(config, corpus, tmp_path / "crashed")
    assert [row["step"] for row in read_log(tmp_path / "crashed/log.jsonl")] == [3]
    resumed.train()
    assert same_tensors(final(tmp_path / "whole"), final(tmp_path / "crashed"))


def test_the_end_may_move_before_the_decay_begins(corpus: Corpus, tmp_path: Path) -> None:
    short, long = tiny(), tiny(schedule={"steps": 16, "decay_steps": 6})
    trainer(long, corpus, tmp_path / "long").train()
    piece = trainer(short, corpus, tmp_path / "moved")
    take_steps(piece, 5)
    trainer(long, corpus, tmp_path / "moved").train()
    assert same_tensors(final(tmp_path / "long"), final(tmp_path / "moved"))
    with pytest.raises(ResumeMismatch, match=r"schedule\.steps \(the end may move only before the decay begins"):
        trainer(tiny(schedule={"steps": 20, "decay_steps": 6}), corpus, tmp_path / "moved")


def test_other_settings_or_data_are_refused_by_name(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path / "run").train(max_seconds=0)
    other = tiny(seed=1, optimizer={"muon_lr": 0.1}, masking={"prefix_max": 20})
    with pytest.raises(ResumeMismatch, match=r"another seed, masking\.prefix_max, optimizer\.muon_lr; undo the change"):
        trainer(other, corpus, tmp_path / "run")
    (tmp_path / "other").mkdir()
    write_tales(tmp_path / "other/tales.jsonl", 7)
    others = prepare_corpus(tmp_path / "other/tales.jsonl", tmp_path / "other/tokens", tokenizer=corpus.tokenizer)
    with pytest.raises(ResumeMismatch, match="other data, tokenizer or base"):
        trainer(tiny(), others, tmp_path / "run")
    # what changes the speed alone is no other run
    assert trainer(tiny(speed={"micro_rows": 4}, record={"log_steps": 5}), corpus, tmp_path / "run").step == 1


def test_a_damaged_state_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path).train(max_seconds=0)
    whole = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ResumeMismatch, match="delete it to start again"):
        trainer(tiny(), corpus, tmp_path)


def test_parts_of_a_batch_train_as_the_whole(corpus: Corpus, tmp_path: Path) -> None:
    for name, rows in (("whole", None), ("parts", 2)):
        trainer(tiny(speed={"micro_rows": rows}), corpus, tmp_path / name).train(max_seconds=0)
    whole, parts = (read_log(tmp_path / name / "log.jsonl")[0] for name in ("whole", "parts"))
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-5)
    assert parts["cross_entropy"] == pytest.approx(whole["cross_entropy"], rel=1e-5)


def test_a_compiled_trunk_trains_as_the_plain_one(corpus: Corpus, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))  # needs no C++ compiler
    rows = {"short_share": 0.5, "short_lengths": [24]}
    for name, compiled in (("plain", False), ("compiled", True)):
        trainer(tiny(speed={"compile": compiled}, rows=rows), corpus, tmp_path / name).train()
    assert same_tensors(final(tmp_path / "plain"), final(tmp_path / "compiled"))


# ---- log, rates, optimizers ----


def test_the_log_has_a_row_for_each_step(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path).train()
    rows = read_log(tmp_path / "log.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert set(rows[0]) == {"step", "loss", "cross_entropy", "rate", "tokens", "seconds"}
    assert [row["tokens"] for row in rows] == [8 * 48 * step for step in range(1, 13)]
    assert [rows[at]["rate"] for at in (0, 5, -1)] == [0.5, 1, 0.25]
    assert sorted(row["seconds"] for row in rows) == [row["seconds"] for row in rows]


def test_the_trapezoid_rises_stays_and_falls() -> None:
    shape = [trapezoid(step, Schedule(steps=10, warmup_steps=4, decay_steps=4)) for step in range(10)]
    assert shape == [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    assert trapezoid(9, Schedule(steps=10, warmup_steps=1, decay_steps=1)) == 1


def test_muon_takes_only_the_matrices_of_the_blocks(corpus: Corpus, tmp_path: Path) -> None:
    piece = trainer(tiny(), corpus, tmp_path)
    names = {id(param): name for name, param in piece.network.module.named_parameters()}
    matrices, others = ([names[id(one)] for one in part] for part in split_parameters(piece.network.module))
    assert len(matrices) == 2 * 7
    assert all(".layers." in name and "norm" not in name for name in matrices)
    assert {name for name in others if "norm" not in name} == {"model.embed_tokens.weight"}
    piece.update(piece.batch(0))
    assert [one.param_groups[0]["lr"] for one in piece.optimizers] == [0.02 / 2, 2e-3 / 2]  # of two steps of warm-up


def test_the_average_follows_its_definition() -> None:
    module = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        average = averaged(module, 0.5)
        expected = 0.0
        for step, value in enumerate([1.0, 2.0, 5.0, 4.0, 8.0, 2.0, 1.0, 0.0, 7.0, 3.0]):
            module.weight.fill_(value)
            average.update_parameters(module)
            decay = min(0.5, (1 + step) / (10 + step))
            expected = value if step == 0 else decay * expected + (1 - decay) * value
    assert float(next(average.module.parameters()).detach()) == pytest.approx(expected)


# ---- learning ----


@pytest.mark.parametrize("kind", ["storyteller", "judge"])
def test_the_loss_falls_on_a_small_corpus(corpus: Corpus, tmp_path: Path, kind: str) -> None:
    longer = {"steps": 60, "warmup_steps": 5, "decay_steps": 30}
    rates = {"muon_lr": 0.05, "adamw_lr": 0.02}
    piece = trainer(tiny(kind, rows={"batch": 16}, schedule=longer, optimizer=rates), corpus, tmp_path)
    targets = np.concatenate([piece.batch(step).targets for step in range(60)])
    piece.train()
    losses = [row["cross_entropy"] for row in read_log(tmp_path / "log.jsonl") if "loss" in row]
    assert losses[0] == pytest.approx(np.log(320), rel=0.05)  # it begins knowing nothing
    shares = np.unique(targets, return_counts=True)[1] / len(targets)
    frequencies_alone = -(shares * np.log(shares)).sum()
    assert np.mean(losses[-10:]) < frequencies_alone - (0.15 if kind == "storyteller" else 2.0)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_state(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path).train(max_seconds=0)
    before = (tmp_path / "state.pt").read_bytes()
    piece = trainer(tiny(), corpus, tmp_path)
    with torch.no_grad():
        next(piece.network.module.parameters()).fill_(float("nan"))
    with pytest.raises(SettingsError, match="lower the learning rates"):
        piece.train()
    assert (tmp_path / "state.pt").read_bytes() == before


def test_held_out_rows_are_measured_with_the_averaged_weights(corpus: Corpus, tmp_path: Path) -> None:
    documents = list(read_documents(corpus.folder.parent / "tales.jsonl"))
    held_out = held_out_rows(documents, corpus.tokenizer, 48, 4)
    piece = trainer(tiny(speed={"autocast": "off"}), corpus, tmp_path, held_out=held_out)
    piece.train()
    rows = [row for row in read_log(tmp_path / "log.jsonl") if "heldout" in row]
    assert [row["step"] for row in rows] == [0, 4, 8, 12]
    again = nelbo(Network("llada", piece.average.module), held_out, 2, repeats=2)
    assert rows[-1]["heldout"] == again.per_token
    assert rows[-1]["heldout_per_character"] == again.per_character


# ---- the model that it leaves ----


def test_the_model_folder_loads_and_computes_the_averaged_network(corpus: Corpus, tmp_path: Path) -> None:
    piece = trainer(tiny(), corpus, tmp_path)
    piece.train()
    model = dgmark.load_model(str(tmp_path / "model"), device="cpu", dtype="fp32")
    averaged = Network("llada", piece.average.module.to(torch.bfloat16).float())
    ids = torch.from_numpy(piece.batch(0).inputs)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), averaged.logits(averaged.hidden(ids)), rtol=0, atol=1e-5)
    assert (model.mask_id, model.end_ids, model.context_length) == (2, (0,), 48)
    assert dgmark.generate(model, "The fox", key=None, length=8, block_length=4)[0].token_ids


def test_llada_layout_survives_a_round_trip() -> None:
    """The shipped weights, loaded and written again, are the shipped file's tensors."""
    from dgmark.checkpoint.folder import find_checkpoint

    folder = find_checkpoint("storyteller").folder
    written = llada_state(load_network(folder).module)
    assert same_tensors(written, load_file(folder / "model.safetensors"))


def test_a_judge_is_saved_as_transformers_saves_it(corpus: Corpus, tmp_path: Path) -> None:
    piece = trainer(tiny("judge"), corpus, tmp_path)
    piece.train()
    loaded = load_network(tmp_path / "model")
    assert loaded.family == "llama"
    assert same_tensors(
        dict(loaded.module.state_dict()), dict(piece.average.module.to(torch.bfloat16).float().state_dict())
    )
    assert load_tokenizer(str(tmp_path / "model")).fingerprint == corpus.tokenizer.fingerprint


def test_a_run_starts_from_another_model_s_weights(corpus: Corpus, tmp_path: Path) -> None:
    trainer(tiny(), corpus, tmp_path / "first").train()
    second = trainer(tiny(seed=5), corpus, tmp_path / "second", init=tmp_path / "first/model")
    first = load_network(tmp_path / "first/model").module
    assert same_tensors(dict(second.network.module.state_dict()), dict(first.state_dict()))
    with pytest.raises(SettingsError, match=r"does not have the sizes in \[network\]"):
        trainer(tiny(network={"width": 48}), corpus, tmp_path / "third", init=tmp_path / "first/model")
