"""Measure what an adversary learns about a key from marked texts, and how well this serves to forge and scrub the mark.

Run `python lab/benchmarks/stealing.py MARKED.jsonl ... --unmarked UNMARKED.jsonl --human HUMAN.jsonl`. The first table
uses real texts of the built-in model, read as text; the others are SIMULATED: tokens drawn from the law of human text,
where each position matches a real key with a fixed probability. With `--steer N` the model also writes N texts with
stolen groups.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.decode import DecodeConfig, Matching
from dgmark.decode import decode as run
from dgmark.detection.detector import Detector
from dgmark.models.load import load_model
from dgmark.watermark.groups import SECRET_BYTES, WatermarkSpec
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.attacks import edits
from dgmark_lab.attacks.simulation import simulate_counts, simulate_texts
from dgmark_lab.attacks.stealing import Estimate, beliefs, find_code, forge, recovered_mass, scrub, steal
from dgmark_lab.attacks.text_edits import decode, ordinary_ids
from keys_and_tables import RUNS, builtin_prompts, print_header, print_row

LENGTH = 256
MIN_TOKENS = 100
FORGED, SCRUBBED = (0.1, 0.2, 0.3), (0.2, 0.3, 0.4)
REAL = (1, 3, 10, 30, 100)
SIMULATED = (1, 10, 100, 1_000, 10_000, 100_000)
TABLES = ("real", "recovery", "simulated", "steered")
ROTATION, CODE, SAMPLES = 16, 32, 5
Ids = Int[np.ndarray, " n"]
Law = Float[np.ndarray, " vocab"]
Dice = np.random.Generator
Edit = Callable[[Ids, float, Dice], Ids]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("marked", type=Path, nargs="+")
    parser.add_argument("--unmarked", type=Path, required=True, help="unmarked texts of the same model")
    parser.add_argument("--human", type=Path, required=True, help="JSON Lines of human text, for hosts and the law")
    parser.add_argument("--key", type=Path, default=RUNS / "key.json")
    parser.add_argument("--tests", type=int, default=40, help="texts per cell")
    parser.add_argument("--steer", type=int, default=0, help="texts to write with stolen groups")
    parser.add_argument("--table", choices=TABLES, action="append", help="only these tables")
    args = parser.parse_args()
    key, tokenizer = WatermarkKey.load(args.key), load_tokenizer()
    first, *more = (_texts(path, tokenizer) for path in args.marked)
    unmarked = _texts(args.unmarked, tokenizer)
    human = human_texts(args.human, tokenizer)
    # the first file's last prompts are in no other file
    train, test = first[: -args.tests] + [text for texts in more for text in texts], first[-args.tests :]
    train = [train[i] for i in np.random.default_rng(0).permutation(len(train))]
    own_law, law = law_of(unmarked), law_of(human[1::2])
    hosts = [ids[:LENGTH] for ids in human[::2] if len(ids) >= LENGTH][: args.tests]
    print(f"{len(train)} real marked texts to learn from, {len(test)} to scrub, {len(hosts)} human texts to forge on\n")
    tables = args.table or TABLES
    if "real" in tables:
        real_table(key, tokenizer, train, test, hosts, unmarked, own_law, law)
    if "recovery" in tables:
        recovery_table(key.spec, law, law_of(human[::2]))
    for match in (0.94, 0.75) if "simulated" in tables else ():
        simulated_table(key.spec, law, hosts, match)
    if args.steer and "steered" in tables:
        steered_table(key, train, args.steer)


def _texts(path: Path, tokenizer: Tokenizer) -> list[Ids]:
    """Read the texts of rows, encoded from text as an adversary would."""
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    encoded = tokenizer.encode_batch([row["text"] for row in rows if "text" in row])
    return [np.array(ids[:LENGTH]) for ids in encoded if len(ids) >= MIN_TOKENS]


def human_texts(path: Path, tokenizer: Tokenizer) -> list[Ids]:
    """Read the longer English passages of a file of human text, encoded."""
    rows = (json.loads(line) for line in path.read_bytes().splitlines())
    passages = [row["text"] for row in rows if row["lang"] == "en" and len(row["text"]) > 1000]
    return [np.array(ids) for ids in tokenizer.encode_batch(passages[:2000])]


def law_of(texts: Sequence[Ids]) -> Law:
    """Return the share of each ordinary token in texts."""
    counts = np.bincount(np.concatenate(list(texts)), minlength=8192).astype(float)
    special = np.ones(8192, dtype=bool)
    special[ordinary_ids(load_tokenizer())] = False
    counts[special] = 0
    law: Law = counts / counts.sum()
    return law


# --- real texts ---


def real_table(
    key: WatermarkKey,
    tokenizer: Tokenizer,
    train: list[Ids],
    test: list[Ids],
    hosts: list[Ids],
    unmarked: list[Ids],
    own_law: Law,
    law: Law,
) -> None:
    """Print recovered mass, forging and scrubbing by the number of real texts; scored from text.

    Forging and scrubbing use the estimate from cut texts; text i uses the estimate from sample i % 5.
    """
    detector = Detector(key)
    detects = partial(_is_detected, detector, tokenizer)
    words = _whole_words(tokenizer)
    table = key.tables.table()[None]
    print_header(["texts", "mass", "mass, cut", *_titles("forged", FORGED), *_titles("scrubbed", SCRUBBED)])
    anything = partial(_replace_any, law=law)
    forged = _rates(detects, [anything], hosts, FORGED, True)
    print_row(["random edits", "", "", *forged, *_rates(detects, [anything], test, SCRUBBED, False)])
    joinable = _joinable(tokenizer)
    for number in (*REAL, len(train)):
        known, blind = [], []
        for sample in range(SAMPLES):
            rng = np.random.default_rng([1, sample])
            some = [train[place] for place in rng.permutation(len(train))[:number]]
            known.append(steal(some, key.spec.table_size))
            cut = [ids[int(rng.integers(0, 32)) :] for ids in some]
            blind.append(steal(cut, key.spec.table_size, phases_known=False))
        forged = _rates(detects, [partial(_forge, each, law * words, joinable) for each in blind], hosts, FORGED, True)
        scrubbed = _rates(detects, [partial(_scrub, each, law) for each in blind], test, SCRUBBED, False)
        masses = [np.mean([recovered_mass(each, table, own_law) for each in estimates]) for estimates in (known, blind)]
        print_row([f"{number:,}", *(f"{mass:.3f}" for mass in masses), *forged, *scrubbed])
    keys = [_key(key.spec, 0, 0, seed).tables.table()[None] for seed in range(50)]
    control = steal(unmarked[::2], key.spec.table_size)
    controls = [recovered_mass(control, other, law_of(unmarked[1::2])) for other in keys]
    shown = f"mass {np.mean(controls):.3f}, standard deviation {np.std(controls):.3f}"
    print(f"\n{len(unmarked[::2])} unmarked texts instead, 50 random keys: {shown}\n")


def _is_detected(detector: Detector, tokenizer: Tokenizer, ids: Ids) -> bool:
    return detector.detect(decode(tokenizer, ids.tolist())).verdict == "watermarked"


def _replace_any(ids: Ids, budget: float, rng: Dice, law: Law) -> Ids:
    pool = rng.choice(len(law), 4096, p=law).tolist()
    return np.array(edits.substitute(ids.tolist(), budget, pool, rng))


def _forge(
    estimate: Estimate, law: Law, joinable: Callable[[Ids], Bool[np.ndarray, " n"]], ids: Ids, budget: float, rng: Dice
) -> Ids:
    return forge(ids, estimate, budget, law, rng, joinable(ids))


def _scrub(estimate: Estimate, law: Law, ids: Ids, budget: float, rng: Dice) -> Ids:
    return scrub(ids, estimate, budget, law, rng)


def _whole_words(tokenizer: Tokenizer) -> Bool[np.ndarray, " vocab"]:
    """Return which tokens are a space and letters: if one replaces another, the text survives re-tokenization."""
    texts = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
    return np.array([text[:1] == " " and len(text) > 2 and text[1:].isalpha() for text in texts])


def _joinable(tokenizer: Tokenizer) -> Callable[[Ids], Bool[np.ndarray, " n"]]:
    """Return a function that finds places beside no letter, where a space and a word survive re-tokenization."""
    apart = np.array([not tokenizer.decode([token])[:1].isalpha() for token in range(tokenizer.vocab_size)])
    return lambda ids: apart[ids] & np.append(apart[ids[1:]], True)


def _rates(
    detects: Callable[[Ids], bool], ways: Sequence[Edit], texts: Sequence[Ids], budgets: Sequence[float], detected: bool
) -> list[str]:
    """Return, for each budget, the share of edited texts that are (or are not) `detected`; the `ways` take turns."""
    shares = []
    for budget in budgets:
        dice = (np.random.default_rng([number, 7]) for number in range(len(texts)))
        edited = [ways[n % len(ways)](ids, budget, rng) for n, (ids, rng) in enumerate(zip(texts, dice, strict=True))]
        shares.append(f"{np.mean([detects(ids) is detected for ids in edited]):.2f}")
    return shares


# --- simulated texts ---


def recovery_table(spec: WatermarkSpec, law: Law, held_out: Law) -> None:
    """Print recovered mass by the number of simulated texts, for four kinds of keys and two strengths of the mark."""
    turns = f"rotation {ROTATION}"
    kinds = [
        ("plain", 0, 0),
        (f"{turns}, known", ROTATION, 0),
        (f"{turns}, ignored", ROTATION, 0),
        (f"code {CODE}", 0, CODE),
    ]
    print(f"SIMULATED, {LENGTH} tokens a text, mean of 3 keys; code: in brackets, share of the code's residues found\n")
    print_header(["texts", *(f"{name}, q = {match}" for match in (0.94, 0.75) for name, _, _ in kinds)])
    for number in SIMULATED:
        cells = []
        for match in (0.94, 0.75):
            for name, rotation, code in kinds:
                keys = [_key(spec, rotation, code, seed) for seed in range(3)]
                ignore = name.endswith("ignored")
                results = [_recovery(key, law, held_out, number, match, ignore) for key in keys]
                shown = f"{np.mean([mass for mass, _ in results]):.3f}"
                cells.append(shown + (f" ({np.mean([share for _, share in results]):.2f})" if code else ""))
        print_row([f"{number:,}", *cells])
    print()


def _key(spec: WatermarkSpec, rotation: int, code: int, seed: int) -> WatermarkKey:
    secret = np.random.default_rng([8, seed]).bytes(SECRET_BYTES)
    return WatermarkKey(replace(spec, rotation=rotation, code_length=code), f"steal-{seed}", secret)


def _recovery(
    key: WatermarkKey, law: Law, held_out: Law, number: int, match: float, ignore: bool
) -> tuple[float, float]:
    """Measure recovered mass, and the share of the code's residues that are right."""
    at = simulate_counts(key, law, number, LENGTH, match, np.random.default_rng([9, number]))
    segments = LENGTH // key.spec.rotation if key.spec.rotation else 1
    tables = np.stack([key.tables.table(segment) for segment in range(segments)])
    estimate = _estimate(key, at, 0 if ignore else key.spec.rotation)
    right = float(np.mean(estimate.residues == key.tables.code)) if key.spec.code_length else 1.0
    return recovered_mass(estimate, tables, held_out), max(right, 1 - right)


def _estimate(key: WatermarkKey, at: Int[np.ndarray, "length vocab"], rotation: int) -> Estimate:
    """Estimate a key from counts by position; the code of a key that has one is estimated first."""
    if key.spec.code_length:
        period = at.reshape(-1, key.spec.code_length, at.shape[1]).sum(axis=0)
        residues = find_code(period, key.spec.modulus)
    else:
        period, residues = at, np.arange(2)
    residue = np.resize(residues, len(period))
    segment = np.arange(len(period)) // rotation if rotation else np.zeros(len(period), dtype=np.int64)
    counts = np.zeros((int(segment.max()) + 1, at.shape[1], 2), dtype=np.int64)
    for place, row in enumerate(period):
        counts[segment[place], :, residue[place]] += row
    return Estimate(beliefs(counts), residues, rotation, names_known=not key.spec.code_length)


def simulated_table(
    spec: WatermarkSpec, law: Law, hosts: list[Ids], match: float, rotations: Sequence[int] = (0, ROTATION)
) -> None:
    """Print forging on human texts and scrubbing of simulated ones, with and without rotation; scored as ids."""
    hosts = hosts[:20]
    print(f"SIMULATED, q = {match}: {len(hosts)} human texts to forge on, as many simulated to scrub; scored as ids\n")
    print_header(["texts", "key", *_titles("forged", FORGED[::2]), *_titles("scrubbed", SCRUBBED[::2])])
    for rotation in rotations:
        key = _key(spec, rotation, 0, 0)
        # tokens are only replaced; without rotation a forger takes the closest phase
        detector = Detector(key, phase="start" if rotation else "any")
        test = list(simulate_texts(key, law, len(hosts), LENGTH, match, np.random.default_rng([4, rotation])))
        kind = f"rotation {rotation}" if rotation else "plain"

        def detects(ids: Ids, detector: Detector = detector) -> bool:
            return detector.detect(ids).verdict == "watermarked"

        anything = [partial(_replace_any, law=law)]
        forged = _rates(detects, anything, hosts, FORGED[::2], True)
        print_row(["random edits", kind, *forged, *_rates(detects, anything, test, SCRUBBED[::2], False)])
        for number in SIMULATED[2:-1]:
            at = simulate_counts(key, law, number, LENGTH, match, np.random.default_rng([3, number]))
            estimate = _estimate(key, at, rotation)
            forging: list[Edit] = [partial(_forge, estimate, law, _everywhere)]
            forged = _rates(detects, forging, hosts, FORGED[::2], True)
            scrubbed = _rates(detects, [partial(_scrub, estimate, law)], test, SCRUBBED[::2], False)
            print_row([f"{number:,}", kind, *forged, *scrubbed])
    print()


def _everywhere(ids: Ids) -> Bool[np.ndarray, " n"]:
    return np.ones(len(ids), dtype=bool)


# --- a model steered by stolen groups ---


def steered_table(key: WatermarkKey, train: list[Ids], texts: int) -> None:
    """Print whether texts that the built-in model decodes with groups stolen from real texts pass as the key's."""
    model = load_model()
    ids = [model.tokenizer.encode(prompt)[-16:] for prompt in builtin_prompts()]
    batch = torch.tensor([each for each in ids if len(each) == 16][:texts])
    config = DecodeConfig.of(model, length=LENGTH, cache="dual")
    detector = Detector(key)
    print_header(["texts", "match ratio", "watermarked"])
    for number in (1, 10, 100):
        estimate = steal(train[:number], key.spec.table_size)
        responses = run(model, batch, config, believed(estimate), list(range(texts)))
        detections = [detector.detect(model.tokenizer.decode(response.token_ids)) for response in responses]
        ratio = np.mean([each.green_fraction for each in detections])
        passed = sum(each.verdict == "watermarked" for each in detections)
        print_row([f"{number}", f"{ratio:.3f}", f"{passed} of {len(detections)}"])


def believed(estimate: Estimate) -> Matching:
    """The matching set of a forger: the tokens that by the estimate match a position."""
    likelier = torch.tensor(estimate.belief[0].argmax(axis=-1))
    sure = torch.tensor(estimate.belief[0].max(axis=-1) > 0.5 + 1e-6)
    return lambda tokens, at: (likelier[tokens] == at % 2) & sure[tokens]


def _titles(name: str, budgets: Sequence[float]) -> list[str]:
    return [f"{name} {budget:g}" for budget in budgets]


if __name__ == "__main__":
    main()
