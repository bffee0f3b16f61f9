"""Measure whether a model that is trained on marked text carries the mark (radioactivity; Sander et al., 2024).

The storyteller is trained further on as many texts each time, of which a share is marked and the rest human. Then it
writes without a key, and its texts are tested together with the key of the marked ones. A pair of tokens counts in each
text that holds it, once. Over random keys a pair matches in all of them or in none, with equal chance; so the number of
matches has an exact law given the texts, whatever a model that never saw the key's texts has written. Run

    python lab/benchmarks/radioactivity.py --marked marked.jsonl --key key.json --human books.jsonl.xz

with rows of `dgmark generate --key key.json` and documents as `dgmark-lab train` reads them; run it again to continue.
Prompts are the built-in ones; `--prompts` gives others, which the marked texts should not have had.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import numpy as np
import torch

from dgmark import Detector, WatermarkKey
from dgmark.checkpoint.folder import BUILTIN, builtin_folder
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.files.outputs import atomic_write
from dgmark.rows.jsonl import read_good_rows
from dgmark.watermark.bigram import matching_pairs, pair_key
from dgmark_lab.evaluate.estimates import share
from dgmark_lab.evaluate.pooled import pairs_in, pooled_p
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS
from dgmark_lab.experiments.tables import with_interval
from dgmark_lab.training.config import FOLDER, TrainingConfig, read_config
from dgmark_lab.training.corpus import read_documents
from dgmark_lab.training.trainer import train
from shared import RUNS, arguments, print_header, print_made_with, print_row, random_key

SHARES = (0, 0.01, 0.03, 0.1, 0.3, 1)
TEXTS_OF_A_DOCUMENT = 20  # texts follow each other, so that few rows end early and the model does not learn to
COUNTS = (10, 30, 60)
LENGTH = 256
OTHER_KEYS = 200


def main() -> None:
    """Train, generate, and print the table."""
    parser = arguments()
    parser.add_argument("--marked", type=Path, nargs="+", required=True, help="rows of marked texts")
    parser.add_argument("--key", type=Path, required=True, help="the key of the marked texts")
    parser.add_argument("--human", type=Path, required=True, help="documents, as `dgmark-lab train` reads them")
    parser.add_argument("--prompts", type=Path, default=BUILTIN_PROMPTS, help="prompts of the trained models")
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES, help="marked shares of the training texts")
    parser.add_argument("--texts", type=int, default=600, help="training texts, marked and human")
    parser.add_argument("--steps", type=int, default=60, help="training steps of 24 rows of 320 tokens")
    parser.add_argument("--out", type=Path, default=RUNS / "radioactivity", help="folder of models and texts")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    prompts = write_prompts(args.prompts, args.out / "prompts.jsonl")
    rows = [row for path in args.marked for row in read_good_rows(str(path))]
    marked = [row["prompt"] + row["text"] for row in rows][: args.texts]
    if len(marked) < max(args.shares) * args.texts:
        sys.exit(f"there are {len(marked)} marked texts, and {max(args.shares):.0%} of {args.texts} are needed")
    key = WatermarkKey.load(args.key)
    titles = ["marked", "distinct pairs", "that match", *(f"p of {count} texts" for count in COUNTS)]
    print_header([*titles, f"smallest of {OTHER_KEYS} other keys", "median p of one text", "smallest"])
    human = human_texts(args.human, args.texts, len(marked[0]))
    for part in args.shares:
        folder, count = args.out / f"{100 * part:g}-percent", round(part * args.texts)
        folder.mkdir(exist_ok=True)
        data = write_documents(folder / "texts.jsonl", [*marked[:count], *human[: args.texts - count]])
        run = train(settings(args.steps), data, folder, init=builtin_folder(BUILTIN), device=torch.device("cpu"))
        if not run.done:
            sys.exit(
                f"stopped at step {run.step} of {args.steps} at {100 * part:g} %: run the same command to continue"
            )
        texts = generate(folder, prompts)
        print_row([f"{100 * part:g} %", *figures(key, texts)])
    print_made_with("decoding", key.spec.rule, "storyteller")


def write_prompts(source: Path, path: Path) -> Path:
    """Keep the first prompts that leave room for a text in the rows that the models are trained on."""
    tokenizer, room = load_tokenizer(), settings(steps=10).rows.length - LENGTH
    lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
    short = [line for line in lines if len(tokenizer.encode(json.loads(line)["prompt"])) < room]
    if len(short) < max(COUNTS):
        sys.exit(f"{source} has {len(short)} prompts of fewer than {room} tokens; {max(COUNTS)} are needed")
    path.write_text("".join(short[: max(COUNTS)]), encoding="utf-8")
    return path


def settings(steps: int) -> TrainingConfig:
    """The shipped storyteller's settings, at a tenth of its rates and for fewer steps."""
    config = read_config(FOLDER / "storyteller-cpu.toml", "storyteller")
    optimizer = {"muon_lr": config.optimizer.muon_lr / 10, "adamw_lr": config.optimizer.adamw_lr / 10, "ema_decay": 0.9}
    schedule = {"steps": steps, "warmup_steps": steps // 10, "decay_steps": steps // 2}
    return config.model_copy(
        update={
            "optimizer": config.optimizer.model_copy(update=optimizer),
            "schedule": config.schedule.model_copy(update=schedule),
        }
    )


def human_texts(path: Path, count: int, characters: int) -> list[str]:
    """One passage from the middle of each document, as long as a marked text; documents are read again if too few."""
    rng = np.random.default_rng(0)
    documents = [document.text for document in read_documents(path) if len(document.text) > 4 * characters]
    if not documents:
        sys.exit(f"{path} has no document of more than {4 * characters} characters")
    found = []
    for text in islice(cycle(documents), count):
        start = int(rng.integers(characters, len(text) - 2 * characters))
        found.append(text[start : start + characters])
    return found


def write_documents(path: Path, texts: Sequence[str]) -> Path:
    """Write texts as training documents; a run refuses to go on with other documents than it began with."""
    parts, lines = iter(texts), list[str]()
    while part := list(islice(parts, TEXTS_OF_A_DOCUMENT)):
        lines.append(json.dumps({"id": str(len(lines)), "paragraphs": part}) + "\n")
    atomic_write(path, "".join(lines))
    return path


def generate(folder: Path, prompts: Path) -> list[list[int]]:
    """Let the trained model write without a key, by confidence at T = 1; return the token ids of its texts."""
    out = folder / "outputs.jsonl"
    command = [sys.executable, "-m", "dgmark", "generate", "--model", str(folder / "model"), "--no-watermark"]
    command += ["--prompts", str(prompts), "--out", str(out), "--temperature", "1"]
    command += ["--length", str(LENGTH), "--cache", "dual", "--batch-size", "20"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return [row["token_ids"] for row in read_good_rows(str(out))]


def figures(key: WatermarkKey, texts: Sequence[Sequence[int]]) -> list[str]:
    """The share of distinct pairs that match, p-values of the first texts together, and the smallest of other keys."""
    pairs, _ = pairs_in(key, texts)
    matched = matching_pairs(pairs, pair_key(key))
    single = [one.p_value for one in Detector(key).detect_many(texts)]
    others = [pooled_p(random_key(key.spec, number), texts) for number in range(OTHER_KEYS)]
    return [
        f"{len(pairs):,}",
        with_interval(share(int(matched.sum()), len(pairs)), 4),
        *(f"{pooled_p(key, texts[:count]):.1e}" for count in COUNTS),
        f"{min(others):.1e}",
        f"{median(single):.2f}",
        f"{min(single):.1e}",
    ]


if __name__ == "__main__":
    main()
