"""What a detection means, in sentences for people who do not know statistics."""

import math

from dgmark.detection.result import Detection, Verdict

FEW_TOKENS = 200
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))
_RAREST = 10**15
_HEADINGS: dict[Verdict, str] = {
    "watermarked": "Watermark found",
    "not_detected": "No watermark found",
    "uncertain": "No statement possible",
}
_SYMBOLS: dict[Verdict, str] = {"watermarked": "✓", "not_detected": "–", "uncertain": "?"}


def heading(verdict: Verdict, *, partly: bool = False) -> str:
    """The verdict as a heading; `partly`: passages carry the mark though the text as a whole does not show it."""
    return "Watermark found in part" if partly else _HEADINGS[verdict]


def symbol(verdict: Verdict, *, partly: bool = False) -> str:
    """A sign for the verdict, so that its colour is not all that tells it."""
    return "◐" if partly else _SYMBOLS[verdict]


def rarity(p_value: float) -> str:
    """How rarely something of this probability happens, rounded so as to claim less: "once in 7 million times".

    Args:
        p_value: a probability in (0, 1].
    """
    times = min(_RAREST, math.floor(1 / p_value * (1 + 1e-9)))
    digits = 10 ** (len(str(times)) - 1)
    times = times // digits * digits
    if times == 1:
        return "almost every time"
    for scale, name in _SCALES:
        if times >= scale:
            return f"once in {'a' if times == scale else f'{times // scale:,}'} {name} times"
    return f"once in {times:,} times"


def verdict_sentence(detection: Detection, *, passages: int = 0, public: bool = False) -> str:
    """The verdict in one or two sentences.

    Args:
        detection: the detection.
        passages: number of passages that carry the mark by themselves.
        public: leave out how rare the match is, which helps those who remove the mark.
    """
    key = f"key {detection.key_fingerprint}"
    if detection.verdict == "watermarked":
        chance = detection.fpr if public else min(detection.p_value, detection.fpr)
        return (
            f"This text carries the watermark of {key}. "
            f"A text written without the key would look like this at most {rarity(chance)}."
        )
    if passages:
        some = "A passage" if passages == 1 else f"{passages} passages"
        carry = "carries" if passages == 1 else "carry"
        return (
            f"{some} of this text {carry} the watermark of {key}. "
            f"In a text written without the key, such a passage would be found at most {rarity(detection.fpr)}."
        )
    if detection.verdict == "not_detected":
        if detection.keys_tested > 1:
            return f"The watermarks of {detection.keys_tested} keys were looked for, and none was found in this text."
        return f"The watermark of {key} was not found in this text."
    return f"This text does not allow a statement: {_too_little(detection)}"


def meaning(detection: Detection, *, passages: int = 0) -> list[str]:
    """What the verdict means and what it does not, one sentence each."""
    sentences = []
    if detection.verdict == "watermarked" or passages:
        sentences.append(
            "The watermark shows that the words, or most of those marked here, were chosen by a language model that "
            "used this key."
        )
        sentences.append("It does not show who asked for the text, or that its contents are true or false.")
    else:
        sentences.append("A text without this watermark may come from any other language model or from a person.")
        sentences.append("A watermark fades when a text is paraphrased, translated or heavily edited.")
    if not detection.guaranteed:
        sentences.append(
            "This key has no secret: anybody can make or remove its mark, and the stated rarity is not guaranteed."
        )
    if 0 < detection.num_tokens_scored < FEW_TOKENS:
        sentences.append(
            f"The text is very short ({detection.num_tokens_scored} tokens, which are words or parts of words); "
            f"below {FEW_TOKENS} tokens even a marked text is often missed."
        )
    if detection.normalised:
        sentences.append(f"The text was cleaned of disguises before it was tested: {', '.join(detection.normalised)}.")
    return sentences


def _too_little(detection: Detection) -> str:
    scored = detection.num_tokens_scored
    if not scored:
        return "it holds nothing that can be tested."
    if scored < FEW_TOKENS:
        return f"with {scored} tokens (words or parts of words) it is too short."
    return f"its {scored} tokens (words or parts of words) repeat each other too much."
