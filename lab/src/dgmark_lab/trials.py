"""The trials of a search: marked texts of each candidate, and unmarked texts at the user's own settings.

Prompt i has one seed and one throwaway key, the same for all candidates, so that candidates differ in nothing else.
Finished trials are rows on disk. Evidence is measured as a checker has it: from the text, by the default detector.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from dgmark.decode.config import DecodeConfig, Settings
from dgmark.decode.generation import Generation, generations
from dgmark.decode.prompts import Prepared, Prompt, Request, config_of
from dgmark.detection.detector import Detector
from dgmark.errors import ResumeMismatch, SettingsError
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.rows.jsonl import Row
from dgmark.rows.row_file import RowFile
from dgmark.watermark.groups import Rule
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.evaluate.diversity import distinct_ngrams
from dgmark_lab.evaluate.judge import Judge
from dgmark_lab.evaluate.likelihood import score_texts
from dgmark_lab.halving import FIGURES, Standing, standing

TRIAL_SCHEMA = 1

# Steering makes text more diverse than it is without a mark, so the search goes down from the user's temperature.
COOLING = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
GUARDS = (0.0, 0.05)
LOOKAHEADS = (1, 3)
RULES: tuple[Rule, ...] = ("bigram", "position")

# (finished texts, all texts of this rung)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Candidate:
    """Settings to try.

    Attributes:
        temperature: sampling temperature.
        guard: the quality guard.
        lookahead: k of the lookahead; with more than one, what it drew is kept.
        rule: the rule of the key.
    """

    temperature: float
    guard: float
    lookahead: int
    rule: Rule

    @property
    def name(self) -> str:
        """What distinguishes it in tables and row ids."""
        guard = f", guard {self.guard:g}" if self.guard else ""
        return f"T = {self.temperature:g}, k = {self.lookahead}, {self.rule}{guard}"

    @property
    def decoding(self) -> Settings:
        """Its decoding settings."""
        settings: Settings = {"temperature": self.temperature, "guard": self.guard, "lookahead": self.lookahead}
        return {**settings, "lookahead_proposals": "kept"} if self.lookahead > 1 else settings


def candidates_of(
    config: DecodeConfig,
    guards: Sequence[float] = GUARDS,
    lookaheads: Sequence[int] = LOOKAHEADS,
    rules: Sequence[Rule] = RULES,
) -> list[Candidate]:
    """List all candidates for settings of the user: cooler temperatures, with every guard, lookahead and rule.

    A guard or lookahead that the user's strategy cannot have is left out.

    Raises:
        SettingsError: the settings are greedy, or no candidate is left.
    """
    if config.greedy:
        raise SettingsError(
            "at temperature 0 text has one version, and no diversity to compare: give the temperature that you use"
        )
    temperatures = [round(config.temperature * share, 6) for share in COOLING]
    found = [
        Candidate(temperature, guard, lookahead, rule)
        for temperature, guard, lookahead, rule in product(temperatures, guards, lookaheads, rules)
    ]
    possible, problem = [], ""
    for one in found:
        try:
            DecodeConfig(**{**config.to_dict(), **one.decoding})
            possible.append(one)
        except SettingsError as error:
            problem = problem or str(error)
    if not possible:
        raise SettingsError(problem)
    return possible


@dataclass(frozen=True)
class Trials:
    """What all trials of a search share, and where they are kept.

    Attributes:
        model: the model.
        judge: the judge of perplexity.
        settings: the user's own decoding settings, without the length.
        prompts: the prompts.
        tokens: tokens of a response from which the mark is to be found.
        rate: the false-positive rate.
        rows: file of the finished trials.
        batch_size: largest number of texts decoded at once.
        pad: see `Prepared`.
        chat: put prompts into the model's chat template.
    """

    model: Denoiser
    judge: Judge
    settings: Settings
    prompts: Sequence[Prompt]
    tokens: int
    rate: float
    rows: Path
    batch_size: int = 8
    pad: bool | None = None
    chat: bool = False

    @cached_property
    def config(self) -> DecodeConfig:
        """The user's own settings, with the shortest response of whole blocks that has the tokens.

        Raises:
            SettingsError: a setting is invalid.
        """
        defaults: dict[str, Any] = {"block_length": DecodeConfig.block_length, **traits_of(self.model).defaults}
        block = {**defaults, **self.settings}["block_length"]
        length = -(-self.tokens // block) * block
        return config_of(self.model, None, {**self.settings, "length": length})

    @property
    def must_agree(self) -> Row:
        """The fields that all rows of one search share."""
        traits = traits_of(self.model)
        return {
            "model": traits.name,
            "dtype": traits.number_format,
            "judge": self.judge.name,
            "judge_dtype": self.judge.dtype,
            "settings": self.config.to_dict(),
            "measured_tokens": self.tokens,
            "rate": self.rate,
            "chat": self.chat,
        }

    def check(self) -> None:
        """Encode all prompts, so that a bad one is found before the search begins.

        Raises:
            PromptTooLong: a prompt leaves no room for the response.
            InputError: a prompt has an id that the model does not have.
        """
        requests = [Request(prompt, 0, None) for prompt in self.prompts]
        Prepared.of(self.model, requests, self.config, chat=self.chat)

    def standings(self, candidates: Sequence[Candidate], prompts: int, progress: Progress) -> list[Standing]:
        """Make the trials on the first prompts that are still missing, and compare each candidate with unmarked text.

        Raises:
            PromptTooLong: a prompt leaves no room for the response.
            ResumeMismatch: the file holds trials of another search.
        """
        every = [None, *candidates]
        ids = {one: [_row_id(one, number) for number in range(prompts)] for one in every}
        with RowFile(self.rows, self.must_agree, ["prompt", *FIGURES]) as file:
            made: dict[str, Row] = dict(file.done)
            self._check_prompts(made, ids)
            done, total = sum(row_id in made for own in ids.values() for row_id in own), len(every) * prompts
            progress(done, total)
            for one in every:
                missing = [number for number, row_id in enumerate(ids[one]) if row_id not in made]
                for start in range(0, len(missing), self.batch_size):
                    rows = list(self._rows(one, missing[start : start + self.batch_size]))
                    file.append(rows)
                    made.update((row["id"], row) for row in rows)
                    done += len(rows)
                    progress(done, total)
        trials = {one: [made[row_id] for row_id in own] for one, own in ids.items()}
        return [standing(trials[one], trials[None], self.rate) for one in candidates]

    def _check_prompts(self, made: Mapping[str, Row], ids: Mapping[Any, Sequence[str]]) -> None:
        for own in ids.values():
            for prompt, row_id in zip(self.prompts, own, strict=False):
                if row_id in made and made[row_id]["prompt"] != prompt:
                    raise ResumeMismatch(
                        f"{self.rows} holds a trial {row_id!r} of a different prompt; choose another --rows"
                    )

    def _rows(self, one: Candidate | None, numbers: Sequence[int]) -> Iterator[Row]:
        config = self.config if one is None else DecodeConfig(**{**self.config.to_dict(), **one.decoding})
        requests = [Request(self.prompts[n], n, None if one is None else self._key(n, one.rule)) for n in numbers]
        prepared = Prepared.of(self.model, requests, config, chat=self.chat, pad=self.pad, batch_size=len(requests))
        texts = generations(prepared, range(len(requests)))
        heads = [p if isinstance(p, str) else self.model.tokenizer.decode(p) for p in (r.prompt for r in requests)]
        scored = score_texts(self.judge, [text.text for text in texts], heads)
        for number, text, judged in zip(numbers, texts, scored, strict=True):
            figures = {"nats": judged.nats, "judge_tokens": judged.tokens, **self._evidence(one, number, text)}
            yield {
                "id": _row_id(one, number),
                "prompt": self.prompts[number],
                "seed": number,
                "candidate": None if one is None else one.name,
                "text": text.text,
                "token_ids": text.token_ids,
                **figures,
                **self.must_agree,
                "schema": TRIAL_SCHEMA,
            }

    def _evidence(self, one: Candidate | None, number: int, text: Generation) -> dict[str, Any]:
        """Diversity, and the p-value and matching share of the first tokens, of a text as it is read back."""
        ids = self.model.tokenizer.encode(text.text)
        p_value, match = 1.0, 0.5
        if one is not None:
            detector = Detector(self._key(number, one.rule), tokenizer=self.model.tokenizer, fpr=self.rate)
            detection = detector.detect(ids[: self.tokens])
            p_value, match = detection.p_value, detection.green_fraction
        figures = {"p_value": p_value, "match": match, "tokens": len(ids[: self.tokens])}
        return {"distinct_2": distinct_ngrams(ids, 2), **figures}

    def _key(self, number: int, rule: Rule) -> WatermarkKey:
        """The throwaway key of a prompt; its secret is no secret, and marks nothing but trials."""
        bound = WatermarkKey.generate(self.model, rule=rule)
        secret = hashlib.sha256(f"dgmark trial key {number}: not a secret".encode()).digest()
        return WatermarkKey(bound.spec, f"trial-{number}", secret)


def _row_id(one: Candidate | None, number: int) -> str:
    return f"{'unmarked' if one is None else one.name}/{number}"
