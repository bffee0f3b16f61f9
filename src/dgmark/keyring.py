"""Which of many keys, if any, a text is marked with; their number is paid for in the p-value.

Each key's groups of this text's tokens are computed and kept, its whole table is not. Every key gets the exact test
and its alignment ratio (all keys of one spec in one pass); the e-value is computed for the few keys whose ratio stands
out, which can only make the smallest p-value larger.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from dgmark.alignment import Alignment
from dgmark.detection import Detection, summary
from dgmark.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, INTACT_WEIGHT, Detector, TextOrIds
from dgmark.edited import aligned_tokens
from dgmark.errors import KeyFileNotFound, SettingsError, TokenizerMismatch
from dgmark.evalue import log_e_value
from dgmark.intact import IntactTest, Phase
from dgmark.key import WatermarkKey
from dgmark.tokenizer import Tokenizer
from dgmark.watermark import GroupTables, WatermarkSpec

# keys whose alignment is worth an e-value
_ALIGNED = 3


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
        columns = defaultdict(list)
        models: dict[tuple[WatermarkSpec, int | None], Alignment] = {}
        for number, key in enumerate(self.keys):
            tables = GroupTables(key.spec, key.secret or b"")  # not the key's own, which would keep its table
            hypotheses = IntactTest(tables, self.phase, self.max_crop).hypotheses(ids, positions)
            p_values[number] = min(hypothesis.p_value for hypothesis in hypotheses) / INTACT_WEIGHT
            like = (key.spec, number if key.spec.code_length else None)  # a position code is the key's own
            if like not in models:
                longest = aligned_tokens(key.spec)
                models[like] = Alignment.of(ids[:longest], positions[:longest], tables, self.phase)
            columns[like].append((number, models[like].groups(tables)))
        ratios = []
        for like, model in models.items() if len(ids) else ():
            of_all = model.log_ratios(np.stack([groups for _, groups in columns[like]], axis=1), np.float32)
            ratios += [
                (float(ratio), number, model, groups)
                for ratio, (number, groups) in zip(of_all, columns[like], strict=True)
            ]
        # the few best over all models: each coded key has a model of its own
        for _, number, model, groups in sorted(ratios, key=lambda ratio: -ratio[0])[:_ALIGNED]:
            p_edited = float(np.exp(min(0.0, -log_e_value(model, groups))))
            p_values[number] = min(p_values[number], p_edited / (1 - INTACT_WEIGHT))
        return np.minimum(p_values, 1.0)


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
