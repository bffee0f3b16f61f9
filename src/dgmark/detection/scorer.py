"""`Scorer`: what `Detector` and `Keyring` share, the way from texts to detections."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, overload

from dgmark.arguments.checks import Errors, returns_errors
from dgmark.arguments.contents import Content, TextOrIds, content_of, contents_or_errors
from dgmark.detection.reading.disguises.normalise import disguises_in
from dgmark.detection.reading.disguises.readings import TextReading, readings
from dgmark.detection.reading.reader import Reader, ScoredIds
from dgmark.detection.results.detection import Detection
from dgmark.errors import DgmarkError, each, together, without_errors

# the tokens of a text, and its share of the false-positive rate
ReadText = tuple[ScoredIds, float]


class Scorer(ABC):
    """Scores texts: `Detector` and `Keyring`.

    Attributes:
        reader: reads texts and ids.
        normalise: steps that undo disguises.
    """

    reader: Reader
    normalise: Sequence[str] = ()

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text, as plain JSON values.

        Every scorer has the fields keys (fingerprints), fpr and normalise, and the options of the keys' rules.
        """

    @abstractmethod
    def _detections(self, contents: list[Content]) -> list[Detection | DgmarkError]:
        """The detection of each text, or its error."""

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response; see `Detector.detect`."""
        return self.detect_many([content_of(text_or_ids)])[0]

    @overload
    def detect_many(
        self, texts_or_ids: Iterable[TextOrIds], *, errors: Literal["raise"] = "raise"
    ) -> list[Detection]: ...

    @overload
    def detect_many(
        self, texts_or_ids: Iterable[TextOrIds], *, errors: Literal["return"]
    ) -> list[Detection | DgmarkError]: ...

    def detect_many(self, texts_or_ids: Iterable[TextOrIds], *, errors: Errors = "raise") -> Sequence[Any]:
        """Score several texts or responses, encoding the texts together; the detections equal those of `detect`.

        The readings of a text share the rate.

        Args:
            texts_or_ids: what `detect` takes, several times: a list, an iterator, or one column of a table (an array or
                series of numpy, pandas, Arrow or polars); ids also as an array of two dimensions.
            errors: "return" gives the error of a text that cannot be scored in the place of its detection, and the
                detections of all others.

        Raises:
            InputError: the tokenizer cannot encode a text, because it has no unknown token.
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is one text instead of several, a mapping or a table, an item is neither a text
                nor ids, or `errors` is neither "raise" nor "return".
        """
        kept: Callable[[Iterable[Any]], list[Any]] = list if returns_errors(errors) else without_errors
        return kept(together(self._detections, kept(contents_or_errors(texts_or_ids))))


def detections_of(
    contents: list[Content],
    reader: Reader,
    score: Callable[[list[ReadText]], list[Detection | DgmarkError]],
    *,
    steps: Sequence[str] = (),
    layout: bool,
) -> list[Detection | DgmarkError]:
    """The detection of each text by its likeliest reading, or its error; all are encoded and scored together.

    Texts are read once more with the steps applied and, if `layout` is set, without markup and wrapped lines. `score`
    gives the detection of each text that was read, at its share of the rate, or its error.
    """
    # 1. collect the readings of all texts, of which those of one text share the rate
    if layout or steps:
        tried = [readings(content, steps) for content in contents]
    else:
        tried = [[TextReading(content)] for content in contents]
    every = [(reading, 1 / len(of_text)) for of_text in tried for reading in of_text]
    # 2. encode and score them together
    read = reader.read_many([reading.content for reading, _ in every])
    shared = [
        tokens if isinstance(tokens, DgmarkError) else (tokens, share)
        for tokens, (_, share) in zip(read, every, strict=True)
    ]
    scored = iter(together(score, shared))
    # 3. give each text its likeliest
    of_texts = [(text, of_text, [next(scored) for _ in of_text]) for text, of_text in zip(contents, tried, strict=True)]
    return each(lambda of: _likeliest(*of, steps), of_texts)


def _likeliest(
    text: Content, tried: Sequence[TextReading], found: Sequence[Detection | DgmarkError], steps: Sequence[str]
) -> Detection:
    """The detection of the likeliest reading of a text, or the error of one that cannot be scored.

    If no mark was found, it names what the steps that were not applied would undo.
    """
    detections = [
        replace(detection, normalised=reading.undone) if reading.undone else detection
        for reading, detection in zip(tried, without_errors(found), strict=True)
    ]
    best = min(detections, key=lambda detection: detection.p_value)
    if best.verdict == "watermarked" or not isinstance(text, str):
        return best
    left = tuple(step for step in disguises_in(text) if step not in steps)
    return replace(best, normalise_would_change=left) if left else best
