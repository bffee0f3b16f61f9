"""Measure forging under a key with sub-keys: the built-in model writes with groups stolen from texts of its own.

Run `python lab/benchmarks/subkey_forging.py texts 100`, which makes so many of the responses to steal from and resumes
where it stopped, then `forge`, or `forge` with 100, 1000, `together` or `told` for one row; `found` prints how often
the marks of these responses are found. Of 1,000 responses under 4,096 sub-keys only some of those are made whose
sub-key was drawn more than once: from the others a thief learns no more than from any one response, and he can only
confuse them with these. `texts 64 shared` makes responses of one sub-key; `shared` forges from some of these, by
their number, and scores each forged text under keys of several N.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int

from dgmark import load_model
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.decode import DecodeConfig, decode
from dgmark.decode.generation import generations
from dgmark.decode.prompts import Prepared, Request
from dgmark.detection.detector import DEFAULT_FPR, Detector, KeyTest
from dgmark.detection.reader import ScoredIds
from dgmark.watermark.groups import SECRET_BYTES
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.attacks.clustering import Thief, leanings
from dgmark_lab.attacks.stealing import Estimate, steal
from keys_and_tables import RUNS, builtin_prompts, print_header, print_row
from stealing import believed

MODEL, BATCH, SIZE = "storyteller", 32, 8192
SUBKEYS, DRAWN, FIRST = 4096, 1000, 100
STOLEN_LENGTH, FORGED_LENGTH = 128, 256
FORGED, TARGETS = 16, 4
FEWER, SCORED = (1, 16, 256, 1024), (16, 32, 48, 64, 96, 128)
STORE, SHARED = RUNS / "subkey-texts.jsonl", RUNS / "subkey-shared-texts.jsonl"
# responses of one sub-key that a thief has, and the numbers of sub-keys under which his texts are scored
GROUPS, SCORED_UNDER = (3, 5, 10, 16), (1, 64, 1024, 4096)
Ids = Int[np.ndarray, " _"]


def main() -> None:
    """Do what the first word on the command line says."""
    if sys.argv[1] == "texts" and sys.argv[3:] == ["shared"]:
        make_texts(SHARED, [(n, 0) for n in range(int(sys.argv[2]))], STOLEN_LENGTH)
    elif sys.argv[1] == "texts":
        subkeys = drawn()
        make_texts(STORE, [(n, subkeys[n]) for n in wanted()[: int(sys.argv[2])]], STOLEN_LENGTH)
    elif sys.argv[1] == "shared":
        shared_table()
    elif sys.argv[1] == "found":
        found_table()
    else:
        forging_table(sys.argv[2:] or [str(FIRST), str(DRAWN), "together", "told"])


def drawn() -> list[int]:
    """The sub-keys of the responses."""
    return [int(number) for number in np.random.default_rng([20, 0]).integers(0, SUBKEYS, DRAWN)]


def wanted() -> list[int]:
    """The responses to make: those of repeated sub-keys; first those repeated early, then the commonest."""
    subkeys = drawn()
    times, early = Counter(subkeys), Counter(subkeys[:FIRST])
    repeated = [n for n in range(DRAWN) if times[subkeys[n]] > 1]
    return sorted(repeated, key=lambda n: (early[subkeys[n]] < 2, -times[subkeys[n]], subkeys[n], n))


def public_key(subkeys: int) -> WatermarkKey:
    """A key from a public seed: it protects nothing. All such keys have one secret.

    The sub-keys of a smaller N are the first of a larger one, so texts of them are texts of both.
    """
    secret = np.random.default_rng([20, 1]).bytes(SECRET_BYTES)
    return replace(WatermarkKey.generate(MODEL, code_length=0, subkeys=subkeys), key_id="forging", secret=secret)


def make_texts(store: Path, subkeys: Sequence[tuple[int, int]], length: int) -> None:
    """Make the texts that are missing, at the model's default settings with `cache="dual"`.

    Args:
        store: the file of texts.
        subkeys: number of each text, which is its seed too, and its sub-key.
        length: tokens of each text.
    """
    loaded, key, prompted, before = load_model(MODEL), public_key(65_536), builtin_prompts(), stored(store)
    config = DecodeConfig.of(loaded, length=length, cache="dual")
    missing = [each for each in subkeys if each[0] not in before]
    store.parent.mkdir(exist_ok=True)
    for begin in range(0, len(missing), BATCH):
        some = missing[begin : begin + BATCH]
        requests = [Request(prompted[n % len(prompted)], n, key.subkey(subkey)) for n, subkey in some]
        prepared = Prepared.of(loaded, requests, config, pad=True, batch_size=BATCH)
        with store.open("a") as file:
            for (n, subkey), made in zip(some, generations(prepared, range(len(some))), strict=True):
                file.write(json.dumps({"response": n, "subkey": subkey, "text": made.text}) + "\n")
        print(f"{store.name}: {begin + len(some)} of {len(missing)}", flush=True)


def stored(store: Path) -> dict[int, Ids]:
    """The texts made so far, by number, as token ids read back from them, of one length."""
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    tokenizer = load_tokenizer(MODEL)
    return {row["response"]: np.array(tokenizer.encode(row["text"]))[:STOLEN_LENGTH] for row in rows}


def forging_table(rows: list[str]) -> None:
    """Print whether texts that the model decodes with stolen groups pass as the key's, by what the thief saw."""
    texts, subkeys = stored(STORE), drawn()
    detector = Detector(public_key(SUBKEYS))
    print_header(["responses", "thief", "his groups", "match ratio", "called watermarked"])
    for row in rows:
        kind, groups = groups_of(row, texts)
        right = sum(len({subkeys[n] for n in group}) == 1 for group in groups)
        sizes = f"{', '.join(str(len(group)) for group in groups)} ({right} of one sub-key)"
        estimates = [steal([texts[n] for n in group], SIZE) for group in groups]
        found = [detector.detect(text) for text in forged(estimates)]
        passed = sum(each.verdict == "watermarked" for each in found)
        ratio = np.mean([each.green_fraction for each in found])
        print_row([row, kind, sizes, f"{ratio:.3f}", f"{passed} of {len(found)}"])


def shared_table() -> None:
    """Print how many forged texts pass under keys of several N, by how many responses of one sub-key the thief has.

    Up to four groups of so many responses, disjoint, each for as many of the forged texts.
    """
    texts = list(stored(SHARED).values())
    keys = [public_key(number) for number in SCORED_UNDER[1:]]
    detectors = [Detector(keys[0].subkey(0)), *(Detector(key) for key in keys)]
    print_header(["responses of one sub-key", "match ratio", *(f"N = {number:,}" for number in SCORED_UNDER)])
    for size in GROUPS:
        groups = [texts[begin : begin + size] for begin in range(0, TARGETS * size, size)]
        written = forged([steal(group, SIZE) for group in groups if len(group) == size])
        ratio = np.mean([detectors[0].detect(text).green_fraction for text in written])
        passed = [sum(each.detect(text).verdict == "watermarked" for text in written) for each in detectors]
        print_row([f"{size}", f"{ratio:.3f}", *(f"{count} of {len(written)}" for count in passed)])


def groups_of(row: str, texts: dict[int, Ids]) -> tuple[str, list[list[int]]]:
    """The thief of a row of the table, and the groups of responses that he learns from, the largest first."""
    subkeys = drawn()
    if row == "together":
        one_of_each = {subkeys[n]: n for n in texts}
        return "does not cluster", [list(one_of_each.values())[:FIRST]]
    if row == "told":
        early = [n for n in texts if n < FIRST]
        same = [[n for n in early if subkeys[n] == number] for number in dict.fromkeys(subkeys[n] for n in early)]
        return f"told the pairs among {FIRST}", [group for group in same if len(group) > 1]
    some = [n for n in texts if n < int(row)]
    thief = Thief(leanings([texts[n] for n in some], SIZE), SUBKEYS)
    return "clusters", [[some[place] for place in group] for group in thief.groups()[:TARGETS]]


def found_table() -> None:
    """Print the share of the responses found, by how many of their tokens are scored, for fewer sub-keys too.

    For fewer sub-keys the p-value of the response's own one is multiplied by their number.
    """
    key, texts, subkeys = public_key(SUBKEYS), stored(STORE), drawn()
    print_header(["tokens", *(f"N = {number:,}" for number in (*FEWER, SUBKEYS)), "payload right"])
    for tokens in SCORED:
        some = {n: ScoredIds(ids[:tokens], np.arange(tokens)) for n, ids in texts.items() if len(ids) >= tokens}
        alone = np.array([KeyTest(key.subkey(subkeys[n])).score(scored).p_value for n, scored in some.items()])
        scanned = {n: KeyTest(key).score(scored) for n, scored in some.items()}
        marked = {n: one for n, one in scanned.items() if one.verdict == "watermarked"}
        right = sum(one.subkey == subkeys[n] for n, one in marked.items())
        shares = [f"{np.mean(alone * number <= DEFAULT_FPR):.2f}" for number in FEWER]
        cells = [*shares, f"{len(marked) / len(some):.2f}", f"{right} of {len(marked)}"]
        print_row([f"{tokens} ({len(some)} texts)", *cells])


def forged(estimates: list[Estimate]) -> list[str]:
    """Texts that the model writes with these estimates in turn."""
    model = load_model(MODEL)
    ids = [model.tokenizer.encode(prompt)[-16:] for prompt in builtin_prompts()]
    batch = torch.tensor([each for each in ids if len(each) == 16][:FORGED])
    config = DecodeConfig.of(model, length=FORGED_LENGTH, cache="dual")
    written = []
    for place, estimate in enumerate(estimates):
        rows = list(range(place, FORGED, len(estimates)))
        responses = decode(model, batch[rows], config, believed(estimate), rows)
        written += [model.tokenizer.decode(response.token_ids) for response in responses]
    return written


if __name__ == "__main__":
    main()
