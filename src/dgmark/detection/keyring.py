"""Which of many keys, if any, a text is marked with; their number is paid for in the p-value.

Each key's groups of this text's tokens are computed and kept, its whole table is not. Every key gets the exact test
and its alignment ratio (many keys of one spec in one pass); the e-value is computed for the few keys of each spec whose
ratio stands out, which can only make the smallest p-value larger.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.alignment import Alignment
from dgmark.detection.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, INTACT_WEIGHT, Detector, TextOrIds
from dgmark.detection.edited import aligned_tokens
from dgmark.detection.evalue import log_e_value
from dgmark.detection.intact import IntactTest, Phase
from dgmark.detection.result import Detection, summary
from dgmark.errors import KeyFileNotFound, SettingsError, TokenizerMismatch
from dgmark.watermark.groups import GroupTables, WatermarkSpec
from dgmark.watermark.key import WatermarkKey

# keys of a spec whose alignment is worth an e-value
_ALIGNED = 3
# residues held at once: as many keys are scored in one pass
_HELD = 2**22


class Keyring:
    """Detects the mark of any of several keys of one tokenizer.

    Args:
        keys: the keys, at least one.
        tokenizer: the model's tokenizer, or where to find it; by default the one the first key names.
        fpr: false-positive rate to hold over all keys together.
        phase: as of `Detector`.
        max_crop: as of `Detector`.

    Raises:
        SettingsError: no key.
        TokenizerMismatch: the keys are bound to different tokenizers.
    """

    def __init__(
        self,
        keys: Sequence[WatermarkKey],
        *,
        tokenizer: Tokenizer | str | None = None,
        fpr: float = DEFAULT_FPR,
        phase: Phase = "any",
        max_crop: int = DEFAULT_MAX_CROP,
    ) -> None:
        if not keys:
            raise SettingsError("there is no key to look for; give at least one")
        self.keys = list(keys)
        self.fpr = fpr
        self.phase = phase
        self.max_crop = max_crop
        first = Detector(keys[0], tokenizer=tokenizer, fpr=fpr, phase=phase, max_crop=max_crop)
        self.tokenizer = first.tokenizer
        self._reader = first
        for key in self.keys:
            if (key.spec.tokenizer_fingerprint, key.spec.table_size) != (
                keys[0].spec.tokenizer_fingerprint,
                keys[0].spec.table_size,
            ):
                raise TokenizerMismatch(
                    f"keys {keys[0].fingerprint} and {key.fingerprint} are bound to different tokenizers or "
                    "vocabularies: look for the keys of one model at a time"
                )

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response, against every key.

        Returns:
            The detection by the likeliest key, with the p-value times the number of keys.

        Raises:
            VocabularyMismatch: an id lies outside the keys' vocabulary.
        """
        tokens = self._reader.scored_tokens(text_or_ids)
        likeliest = self.keys[int(self._p_values(tokens.ids, tokens.positions).argmin())]
        best = Detector(
            likeliest,
            tokenizer=self.tokenizer,
            fpr=self.fpr / len(self.keys),
            phase=self.phase,
            max_crop=self.max_crop,
        ).detect(text_or_ids)
        p_value = min(1.0, len(self.keys) * best.p_value)
        return replace(
            best,
            p_value=p_value,
            fpr=self.fpr,
            keys_tested=len(self.keys),
            summary=summary(
                best.verdict,
                p_value=p_value,
                fpr=self.fpr,
                scored=best.num_tokens_scored,
                key=best.key_fingerprint,
                keyless=likeliest.keyless,
                keys=len(self.keys),
            ),
        )

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score many, one by one."""
        return [self.detect(item) for item in texts_or_ids]

    def _p_values(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> Float[np.ndarray, " keys"]:
        """Each key's p-value by itself."""
        p_values = np.ones(len(self.keys))
        likely: list[_Entry] = []
        for spec, numbers in self._by_spec().items():
            longest = aligned_tokens(spec)
            entries: list[_Entry] = []
            for number in numbers:
                # not the key's own tables, which would keep what they compute
                tables = GroupTables(spec, self.keys[number].secret or b"")
                hypotheses = IntactTest(tables, self.phase, self.max_crop).hypotheses(ids, positions)
                p_values[number] = min(hypothesis.p_value for hypothesis in hypotheses) / INTACT_WEIGHT
                if not entries or spec.code_length:  # but for their codes, the models of one spec are one
                    model = Alignment.of(ids[:longest], positions[:longest], tables, self.phase)
                if entries:
                    model = replace(entries[0].model, wanted=model.wanted)
                entries.append(_Entry(number, model, model.groups(tables)))
            likely += _likeliest(entries, coded=spec.code_length > 0) if len(ids) else []
        for entry in likely:
            p_edited = float(np.exp(min(0.0, -log_e_value(entry.model, entry.groups))))
            p_values[entry.number] = min(p_values[entry.number], p_edited / (1 - INTACT_WEIGHT))
        return np.minimum(p_values, 1.0)

    def _by_spec(self) -> dict[WatermarkSpec, list[int]]:
        numbers: dict[WatermarkSpec, list[int]] = defaultdict(list)
        for number, key in enumerate(self.keys):
            numbers[key.spec].append(number)
        return numbers


@dataclass(frozen=True)
class _Entry:
    """A key's number, its alignment model and its groups of the text's tokens."""

    number: int
    model: Alignment
    groups: UInt8[np.ndarray, " rows"]


def _likeliest(entries: list[_Entry], *, coded: bool) -> list[_Entry]:
    """The few keys of one spec with the best alignment ratios, many scored in one pass."""
    model = entries[0].model
    at_once = max(1, _HELD // model.wanted.size)
    ratios = []
    for begin in range(0, len(entries), at_once):
        part = entries[begin : begin + at_once]
        groups = np.stack([entry.groups for entry in part], axis=1)
        wanted = np.stack([entry.model.wanted for entry in part], axis=2) if coded else None
        ratios += model.log_ratios(groups, np.float32, wanted).tolist()
    return [entries[place] for place in np.argsort(-np.array(ratios), kind="stable")[:_ALIGNED]]


def load_keys(folder: str | Path, *, allow_open: bool = False) -> list[WatermarkKey]:
    """The keys of a folder's `.json` files, in order of name.

    Raises:
        KeyFileNotFound: no such folder, or no key file in it.
        KeyFileFormat: a `.json` file that is no key file.
    """
    files = sorted(Path(folder).glob("*.json"))
    if not files:
        raise KeyFileNotFound(f"the folder {folder} holds no key file (*.json); make one with `dgmark keygen`")
    return [WatermarkKey.load(file, allow_open=allow_open) for file in files]
