"""Compare position codes under edits: how many marked texts are found, and by which p-value.

Run `python benchmarks/position_codes.py`. Every code marks the same prompts at the temperature at which marked text is
about as diverse as unmarked text; the texts are edited by words and scored from the text alone, with the detector's
defaults. Texts are stored under runs/ and reused.
"""

import argparse
import json
from pathlib import Path

import numpy as np

import dgmark
from corpus import RUNS
from dgmark.lab.attacks import Attack, attack
from dgmark.lab.experiments.prompt_sets import BUILTIN_PROMPTS
from dgmark.watermark.groups import SECRET_BYTES

RATE = 1e-4
EDITS: dict[str, tuple[str, float]] = {
    "none": ("deletion", 0.0),
    **{f"deletion {share:g}": ("deletion", share) for share in (0.05, 0.1, 0.2)},
    **{f"insertion {share:g}": ("insertion", share) for share in (0.1, 0.2)},
    **{f"substitution {share:g}": ("substitution", share) for share in (0.1, 0.2, 0.4)},
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--codes", type=int, nargs="*", default=[0, 4, 8, 16, 32])
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    prompts = [json.loads(line)["prompt"] for line in BUILTIN_PROMPTS.read_text().splitlines()[: args.texts]]
    print("| code | match ratio | " + " | ".join(EDITS) + " |\n|---|---|" + "---|" * len(EDITS))
    for code in args.codes:
        key = _key(code)
        store = RUNS / f"codes-{code}-{args.texts}-{args.length}-{args.temperature:g}.json"
        texts = _texts(store, key, prompts, args)
        detector = dgmark.Detector(key, fpr=RATE)
        intact = [detector.detect(text).green_fraction for text in texts]
        cells = [_cell(detector, texts, attack(name, budget=share, unit="word")) for name, share in EDITS.values()]
        print(f"| {code or 'i mod 2'} | {np.mean(intact):.3f} | " + " | ".join(cells) + " |", flush=True)


def _key(code: int) -> dgmark.WatermarkKey:
    spec = dgmark.WatermarkKey.generate("storyteller", code_length=code).spec
    return dgmark.WatermarkKey(spec, f"codes-{code}", np.random.default_rng([18, code]).bytes(SECRET_BYTES))


def _texts(store: Path, key: dgmark.WatermarkKey, prompts: list[str], args: argparse.Namespace) -> list[str]:
    texts: list[str] = json.loads(store.read_text()) if store.exists() else []
    model = dgmark.load_model("storyteller")
    while len(texts) < len(prompts):
        first = len(texts)
        made = dgmark.generate(
            model,
            prompts[first : first + args.batch],
            key=key,
            length=args.length,
            temperature=args.temperature,
            cache="dual",
            pad=True,
            seed=first,
        )
        texts += [one.text for one in made]
        store.parent.mkdir(exist_ok=True)
        store.write_text(json.dumps(texts))
    return texts


def _cell(detector: dgmark.Detector, texts: list[str], edit: Attack) -> str:
    p = np.array([detector.detect(edit(text, np.random.default_rng([1, n]))).p_value for n, text in enumerate(texts)])
    return f"{np.count_nonzero(p <= RATE)} ({np.median(p):.0e})"


if __name__ == "__main__":
    main()
