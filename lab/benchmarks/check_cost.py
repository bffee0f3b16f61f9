"""Measure what checking texts as they are written costs beside decoding them, and compare the verdicts with detect's.

Each built-in model writes a text for each prompt with a key of 256 sub-keys; the same texts are then checked
as `check=True` does it, and by a detector of their own. Times are CPU seconds of this process, with one thread.
"""

import time

import torch

from dgmark import Detector, WatermarkKey, generate, load_model
from dgmark.checkpoint.folder import BUILTIN, NARRATOR
from dgmark.decode.texts.own_check import TextChecker
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from shared import arguments, print_header, print_row

LENGTHS = {BUILTIN: 128, NARRATOR: 64}


def main() -> None:
    """Print the table."""
    parser = arguments()
    parser.add_argument("--prompts", type=int, default=32)
    prompts = builtin_prompts()[: parser.parse_args().prompts]
    torch.set_num_threads(1)
    print_header(["model", "texts", "tokens", "decoding, s", "checks, s", "share", "as detect says", "found"])
    for name, length in LENGTHS.items():
        _measure(name, prompts, length)


def _measure(name: str, prompts: list[str], length: int) -> None:
    model = load_model(name)
    key = WatermarkKey.generate(model, subkeys=256)
    begin = time.process_time()
    texts = [one.text for one in generate(model, prompts, key=key, length=length)]
    decoding, begin = time.process_time() - begin, time.process_time()
    checker = TextChecker(model.tokenizer)  # which makes its detector at the first text, as in each run
    checked = [checker(key, text) for text in texts]
    checking = time.process_time() - begin
    detector = Detector(key, tokenizer=model.tokenizer)
    found = [detector.detect(text) for text in texts]
    same = sum(
        one is not None and (one.verdict, one.p_value) == (other.verdict, other.p_value)
        for one, other in zip(checked, found, strict=True)
    )
    seen = sum(one.verdict == "watermarked" for one in found)
    cells = [name, len(texts), length, f"{decoding:.1f}", f"{checking:.3f}", f"{checking / decoding:.2%}"]
    print_row([*cells, f"{same} of {len(texts)}", seen])


if __name__ == "__main__":
    main()
