"""Remasking: mark a text that exists already, by masking some of its words and filling them in again.

Which words are masked, in which turns, and what came of it. Knows neither files nor how a marked token is drawn.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from dgmark.arguments.checks import is_of, number, shown
from dgmark.checkpoint.tokenizer import EncodedText, Tokenizer
from dgmark.decode.config import DecodeConfig
from dgmark.decode.steps.canvas import Canvas, Trace, collect_steps, extend_trace, mapped
from dgmark.decode.steps.draws import seeds_within
from dgmark.decode.steps.selection import blocks_to_fill
from dgmark.decode.texts.prepared import Prepared
from dgmark.decode.texts.requests import Request
from dgmark.detection.detector import Detector
from dgmark.detection.statistics.expected import expected_p
from dgmark.errors import InputError, SettingsError
from dgmark.models.denoiser import Denoiser, open_session, text_tokenizer, traits_of
from dgmark.watermark.key import WatermarkKey

# of that many neighbouring tokens one is masked at a time, so that the model sees the others
TURNS = 4
# quoted text within a paragraph, fenced text, code, headings, quoted lines, addresses of pages and of people
_ALWAYS_KEPT = re.compile(
    r"```.*?```|`[^`\n]+`|^#[^\n]*|^>[^\n]*|\b\w+://\S+|(?<!\S)\S*@\S+"
    r"|(?<!\w)\"(?=\S)(?:[^\"\n]|\n(?!\n))*\"|“(?:[^”\n]|\n(?!\n))*”|„(?:[^“”\n]|\n(?!\n))*[“”]|«(?:[^»\n]|\n(?!\n))*»",
    re.S | re.M,
)
_WORD = re.compile(r" [^\W\d_]+")


@dataclass(frozen=True)
class Remasking:
    """What was done to a text.

    Attributes:
        original: the text as it was given.
        share: share of its tokens that was to be masked.
        keep: the regular expression of what was to stay; None for none.
        target: the p-value at which to stop; None for none.
        masked: share that was masked: less if too few words may be replaced, or if the target was reached.
        changed: share that is another token than before.
        expected_p: p-value that was expected of so many masked tokens; None without a mark, and where the key's rule
            does not say what to expect.
        p_value: p-value of the text as it is now, under the whole key; None without a mark.
    """

    original: str
    share: float
    keep: str | None
    target: float | None
    masked: float
    changed: float
    expected_p: float | None
    p_value: float | None


def changes(old: str, new: str) -> list[tuple[str, str]]:
    """The words of a text before and after remasking, which replaces words between spaces by words."""
    return list(zip(old.split(" "), new.split(" "), strict=True))


class RemaskStep(NamedTuple):
    """One step of a remasking, which first weighs the words that may be replaced and then fills those it chose.

    Attributes:
        committed: the tokens that it committed; 0 while words are weighed.
        done: the tokens that were weighed or committed so far.
        of: the tokens to weigh and to commit; fewer are committed if a target is reached.
    """

    committed: int
    done: int
    of: int


class Remasker:
    """Masks and fills texts with one model.

    Args:
        model: a loaded model.
        key: the key as the detector will have it, of which `Request` may take a sub-key; None for no mark.
        config: the decoding settings.
        share: the share of a text's tokens to mask, in (0, 1].
        keep: a regular expression (dot matches line ends); what it matches stays as it is.
        target: stop after the turn that reaches this p-value; None masks the whole share.
    """

    def __init__(
        self,
        model: Denoiser,
        key: WatermarkKey | None,
        config: DecodeConfig,
        share: float,
        keep: str | None,
        target: float | None,
    ) -> None:
        if not 0 < number("share", share) <= 1:
            raise SettingsError(f"share {shown(share)} is not above 0 and at most 1: give the share of tokens to mask")
        _check_expression(keep)
        if target is not None and not 0 < number("target", target) < 1:
            raise SettingsError(f"target {shown(target)} is not a p-value between 0 and 1")
        if target is not None and key is None:
            raise SettingsError("a text without a mark reaches no p-value: leave the target out")
        self.model, self.config, self._share, self._keep, self._target = model, config, share, keep, target
        self._key, self._detector = key, None if key is None else Detector(key, tokenizer=model.tokenizer)
        self._words = word_ids(model.tokenizer)
        self._others = frozenset(range(model.vocab_size)) - self._words

    def steps(
        self, text: str, request: Request
    ) -> Generator[RemaskStep, None, tuple[list[int], list[int], Trace, Remasking]]:
        """Fill the words of a text in turns, each with the text as it is then; of the request, the prompt is not read.

        Yields:
            After each step, what it did.

        Returns:
            The ids of the whole text, the places that were masked, the commits, and what was done.
        """
        encoded = encode_exactly(text_tokenizer(self.model, text), text)
        old, ids, trace = encoded.ids, list(encoded.ids), Trace()
        places = replaceable(text, encoded, self._words, self._keep)
        wanted = min(len(places), max(1, round(self._share * len(ids))))
        done_tokens, of = 0, wanted + (len(places) if len(places) > wanted else 0)

        def step(tokens: int, committed: int) -> RemaskStep:
            nonlocal done_tokens
            done_tokens += tokens
            return RemaskStep(committed, done_tokens, of)

        chosen = yield from mapped(self._choose(old, places, wanted), lambda weighed: step(weighed, 0))
        seeds = seeds_within(request.seed)
        done: list[int] = []
        p_value = None
        for turn in range(TURNS):
            in_turn = [place for place in chosen if place % TURNS == turn]
            for start, stop, own in windows(len(ids), self.model.context_length, in_turn):
                window = replace(request, prompt=self._canvas(ids[start:stop], own, start), seed=next(seeds))
                filling = self._filled(window, ids[start:stop])
                ids[start:stop], steps = yield from mapped(filling, lambda committed: step(committed, committed))
                extend_trace(trace, steps, after=trace.step[-1] + 1 if trace.step else 0)
            done += in_turn
            if self._detector is not None and (self._target is not None or turn == TURNS - 1):
                p_value = self._detector.detect(self.model.tokenizer.decode(ids)).p_value
                if self._target is not None and p_value <= self._target:
                    break
        masked = len(done) / len(ids)
        changed = sum(ids[place] != old[place] for place in done) / len(ids)
        expected = None if self._key is None else expected_p(self._key.spec, len(ids), refilled=masked)
        remasking = Remasking(text, self._share, self._keep, self._target, masked, changed, expected, p_value)
        return ids, sorted(done), trace, remasking

    def _choose(self, ids: list[int], places: list[int], wanted: int) -> Generator[int, None, list[int]]:
        """The places of which the model is least sure, as many as are wanted; yields how many each step weighed."""
        if len(places) <= wanted:
            return places
        entropies: dict[int, float] = {}
        for turn in range(TURNS):
            for start, stop, own in windows(
                len(ids), self.model.context_length, [place for place in places if place % TURNS == turn]
            ):
                entropies |= yield from self._entropies(ids[start:stop], own, start)
        return sorted(sorted(places, key=lambda place: -entropies[place])[:wanted])

    def _entropies(self, ids: list[int], places: list[int], start: int) -> Generator[int, None, dict[int, float]]:
        """The entropy of the model over words, in nats, at each of these places of the text, all masked at once.

        Each block is seen as it will be when it is filled: with the text before it.
        """
        traits = traits_of(self.model)
        canvas = self._canvas(ids, places, start).to(traits.device)
        row, old = canvas.ids.clone(), canvas.ids.new_tensor([ids])
        session = open_session(self.model, self.config.cache)
        entropies: dict[int, float] = {}
        others = torch.tensor(sorted(self._others), device=row.device)
        for first, last in blocks_to_fill(canvas, self.config.block_length, traits.block_origin):
            low, high = canvas.start + first, canvas.start + last
            masked = canvas.masked[first:last].nonzero()[:, 0]
            with torch.inference_mode():  # left at each step, as by a decode
                logits = session.begin(row, low, high)[0, masked].float().index_fill(-1, others, -torch.inf)
                entropy = torch.special.entr(torch.softmax(logits, -1)).sum(-1)
            entropies |= dict(zip((masked + low + start).tolist(), entropy.tolist(), strict=True))
            row[:, low:high] = old[:, low:high]
            yield len(masked)
        return entropies

    def _canvas(self, ids: list[int], places: list[int], start: int) -> Canvas:
        """The canvas of a window that begins at token `start` of the text, with these places of the text masked."""
        canvas = Canvas.with_holes(ids, [place - start for place in places], self.model.mask_id)
        return replace(canvas, positions=canvas.positions + start, forbidden=self._others)

    def _filled(self, request: Request, ids: list[int]) -> Generator[int, None, tuple[list[int], Trace]]:
        canvas: Canvas = request.prompt
        prepared = Prepared.of(self.model, [request], self.config, encode=lambda prompt: prompt)
        (batch,) = prepared.batches([0])
        (response,) = yield from collect_steps(self.model, batch.canvas, prepared.steps(batch))
        end = canvas.start + len(response.token_ids)
        return ids[: canvas.start] + response.token_ids + ids[end:], response.trace


def _check_expression(keep: str | None) -> None:
    if keep is None:
        return
    if not is_of(keep, str):
        raise SettingsError(f"keep is a regular expression as a text, not a {type(keep).__name__}")
    try:
        re.compile(keep)
    except (re.error, OverflowError, RecursionError) as error:
        raise SettingsError(f"keep {shown(keep)} is not a regular expression: {error}") from None


def word_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that are a space and a word in small letters, wherever they follow another token."""
    first = tokenizer.encode("a")[0]
    pairs = [[first, token] for token in range(tokenizer.vocab_size)]
    before = tokenizer.decode([first])
    texts = tokenizer.backend.decode_batch(pairs, skip_special_tokens=True)
    added = [text.removeprefix(before) for text in texts]
    return frozenset(token for token, text in enumerate(added) if _WORD.fullmatch(text) and text.islower())


def encode_exactly(tokenizer: Tokenizer, text: str) -> EncodedText:
    """Encode a text that must come back from its tokens character by character; else an InputError names the place."""
    encoded = tokenizer.encode_with_offsets(text)
    back = tokenizer.decode(encoded.ids)
    if back != text:
        pairs = enumerate(zip(text, back, strict=False))
        place = next((index for index, (old, new) in pairs if old != new), min(len(text), len(back)))
        raise InputError(
            f"the model's tokenizer does not give this text back from character {place} on "
            f"({text[place : place + 20]!r} becomes {back[place : place + 20]!r}), so the text would change where no "
            "word is replaced: change that place, or use another model"
        )
    return encoded


def replaceable(text: str, encoded: EncodedText, words: frozenset[int], keep: str | None) -> list[int]:
    """The places of tokens that may be replaced: whole words in small letters that nothing keeps, or an InputError."""
    kept = bytearray(len(text))
    for pattern in (_ALWAYS_KEPT, re.compile(r"(?!)" if keep is None else keep, re.S | re.M)):
        for match in pattern.finditer(text):
            kept[slice(*match.span())] = b"\1" * len(match.group())
    places = [
        place
        for place, (token, (start, end)) in enumerate(zip(encoded.ids, encoded.offsets, strict=True))
        if token in words and not any(kept[start:end]) and not re.match(r"[\w'’-]", text[end : end + 1])
    ]
    if not places:
        raise InputError(
            "no word of this text may be replaced: words in small letters between spaces are, unless they are quoted, "
            "in code, in a heading, or kept by your own rule"
        )
    return places


def windows(tokens: int, context_length: int, places: list[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Windows of a text that fit a model's context: [start, stop), and those of the places that each fills.

    A text that does not fit is read in windows which each fill their middle half.
    """
    middle = tokens if tokens <= context_length else max(1, context_length // 2)
    for low in range(0, tokens, middle):
        own = [place for place in places if low <= place < low + middle]
        if own:
            around = (context_length - middle) // 2 if middle < tokens else 0
            yield max(0, low - around), min(tokens, low + middle + around), own
