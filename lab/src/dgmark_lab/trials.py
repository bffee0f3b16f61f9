"""The trials of a search: marked texts of each candidate, and unmarked texts of several samplers.

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
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import Rule
from dgmark_lab.evaluate.diversity import distinct_ngrams
from dgmark_lab.evaluate.judge import Judge
from dgmark_lab.evaluate.likelihood import score_texts
from dgmark_lab.halving import FIGURES, Standing, standing

TRIAL_SCHEMA = 2

# multiples of the user's temperature, which comes first
TEMPERATURES = (1.0, 1.3, 0.85, 0.7, 0.6, 0.5)
# what is tried under each rule, and without a mark, if the user does not say
TRIED: dict[Rule | None, dict[str, Sequence[Any]]] = {
    None: {"noise": ("redrawn", "fixed")},
    "bigram": {"alpha": (1.0, 0.5), "farthest": (1, 4, 8)},
    "position": {"min_relative_reward": (0.0, 0.05), "lookahead": (1, 3)},
}

# (finished texts, all texts of this rung)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Candidate:
    """What is tried: a key's rule with decoding settings, or settings without a mark.

    Attributes:
        rule: the rule of the key; None for no mark.
        farthest: the largest distance of the key's pairs; None without pairs.
        settings: decoding settings that replace the user's, by name.
    """

    rule: Rule | None
    farthest: int | None
    settings: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """What distinguishes it in tables and row ids."""
        mark = (self.rule or "unmarked") + (f" 1-{self.farthest}" if self.farthest else "")
        settings = [f"{name} {value}" for name, value in self.settings if value is not None]
        return ", ".join([mark, *settings]).replace("temperature", "T")


def candidates_of(config: DecodeConfig, rule: Rule | None, **given: Sequence[Any] | None) -> list[Candidate]:
    """All candidates of a rule: several temperatures, with and without top-p, with all combinations of what is tried.

    The first one has the user's own temperature and top-p. What the user's strategy cannot have is left out.

    Args:
        config: the user's settings.
        rule: the rule; None for no mark.
        given: values to try in place of those of `TRIED`.

    Raises:
        SettingsError: the settings are greedy, a value is of another rule, or no candidate is left.
    """
    wrong = [name for name, values in given.items() if values and name not in TRIED[rule]]
    if wrong:
        raise SettingsError(
            f"{wrong[0]} means nothing under rule {rule}: leave --{wrong[0]} out, or give another --rule"
        )
    if config.greedy:
        raise SettingsError(
            "at temperature 0 text has one version, and no diversity to compare: give the temperature that you use"
        )
    other = 0.9 if config.top_p in (None, 1.0) else None
    temperatures = [round(config.temperature * share, 6) for share in TEMPERATURES]
    tried = {name: given.get(name) or values for name, values in TRIED[rule].items()}
    choices = {"temperature": temperatures, "top_p": (config.top_p, other), **tried}
    possible, problem = [], ""
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        farthest = settings.pop("farthest", None)
        if settings.get("lookahead", 1) > 1:
            settings["lookahead_proposals"] = "kept"
        try:
            DecodeConfig(**{**config.to_dict(), **settings})
            possible.append(Candidate(rule, farthest, tuple(settings.items())))
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

    @cached_property
    def samplers(self) -> list[Candidate]:
        """Ways to write without a mark: the user's own settings, and the same at other temperatures and noises."""
        return candidates_of(self.config, None, noise=[*dict.fromkeys((self.config.noise, *TRIED[None]["noise"]))])

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

    def standings(
        self, candidates: Sequence[Candidate], reference: Candidate, prompts: int, progress: Progress
    ) -> list[Standing]:
        """Make the trials on the first prompts that are still missing, and compare each candidate with unmarked text.

        Args:
            candidates: the candidates.
            reference: the sampler whose perplexity they are compared with; diversity is compared with the user's own.
            prompts: number of prompts.
            progress: called after each batch.

        Raises:
            PromptTooLong: a prompt leaves no room for the response.
            ResumeMismatch: the file holds trials of another search.
        """
        own = self.samplers[0]
        every = dict.fromkeys([own, reference, *candidates])
        ids = {one: [_row_id(one, number) for number in range(prompts)] for one in every}
        with RowFile(self.rows, self.must_agree, ["prompt", *FIGURES]) as file:
            made: dict[str, Row] = dict(file.done)
            self._check_prompts(made, ids)
            done, total = sum(row_id in made for of_one in ids.values() for row_id in of_one), len(every) * prompts
            progress(done, total)
            for one in every:
                missing = [number for number, row_id in enumerate(ids[one]) if row_id not in made]
                for start in range(0, len(missing), self.batch_size):
                    rows = list(self._rows(one, missing[start : start + self.batch_size]))
                    file.append(rows)
                    made.update((row["id"], row) for row in rows)
                    done += len(rows)
                    progress(done, total)
        trials = {one: [made[row_id] for row_id in of_one] for one, of_one in ids.items()}
        return [standing(trials[one], trials[own], trials[reference], self.rate) for one in candidates]

    def _check_prompts(self, made: Mapping[str, Row], ids: Mapping[Candidate, Sequence[str]]) -> None:
        for of_one in ids.values():
            for prompt, row_id in zip(self.prompts, of_one, strict=False):
                if row_id in made and made[row_id]["prompt"] != prompt:
                    raise ResumeMismatch(
                        f"{self.rows} holds a trial {row_id!r} of a different prompt; choose another --rows"
                    )

    def _rows(self, one: Candidate, numbers: Sequence[int]) -> Iterator[Row]:
        config = DecodeConfig(**{**self.config.to_dict(), **dict(one.settings)})
        requests = [Request(self.prompts[number], number, self._key(one, number)) for number in numbers]
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
                "candidate": one.name,
                "text": text.text,
                "token_ids": text.token_ids,
                **figures,
                **self.must_agree,
                "schema": TRIAL_SCHEMA,
            }

    def _evidence(self, one: Candidate, number: int, text: Generation) -> dict[str, Any]:
        """Diversity, and the p-value and matching share of the first tokens, of a text as it is read back."""
        ids = self.model.tokenizer.encode(text.text)
        p_value, match = 1.0, 0.5
        if (key := self._key(one, number)) is not None:
            detection = Detector(key, tokenizer=self.model.tokenizer, fpr=self.rate).detect(ids[: self.tokens])
            scanned = self._new_key(one).spec.subkeys  # a new key's p-values pay for its sub-keys
            p_value, match = min(1.0, scanned * detection.p_value), detection.green_fraction
        figures = {"p_value": p_value, "match": match, "tokens": len(ids[: self.tokens])}
        return {"distinct_2": distinct_ngrams(ids, 2), **figures}

    def _key(self, one: Candidate, number: int) -> WatermarkKey | None:
        """The throwaway key of a prompt; its secret is no secret, and marks nothing but trials."""
        if one.rule is None:
            return None
        secret = hashlib.sha256(f"dgmark trial key {number}: not a secret".encode()).digest()
        return WatermarkKey(self._new_key(one, subkeys=1).spec, f"trial-{number}", secret)

    def _new_key(self, one: Candidate, **options: Any) -> WatermarkKey:
        return WatermarkKey.generate(self.model, rule=one.rule, farthest=one.farthest, **options)


def _row_id(one: Candidate, number: int) -> str:
    return f"{one.name}/{number}"
