"""A valid call of every public function, class and method of dgmark, in which any argument can be replaced.

Each is a function of keywords, and makers of valid values for them.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch

import dgmark
from dgmark.decode.steps.canvas import Trace
from dgmark.detection.reading.reader import ScoredIds
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.bigram import BigramSpec
from dgmark.watermark.position import PositionSpec
from support.known_keys import bound_key, builtin_tokenizer, known_key

TEXT = "The king went to the sea."
TOY = ToyDenoiser()
# where nobody listens
SERVER = "http://127.0.0.1:9/v1"

Maker = Callable[[], Any]
Call = tuple[Callable[..., object], dict[str, Maker]]


@cache
def key() -> dgmark.WatermarkKey:
    """A key with sub-keys."""
    return known_key("calls", subkeys=2)


@cache
def position_key() -> dgmark.WatermarkKey:
    """A key of rule "position" with rotation."""
    return known_key("calls", rotation=16)


@cache
def toy_key() -> dgmark.WatermarkKey:
    """A key of the toy model."""
    return bound_key("calls", TOY)


@cache
def detector() -> dgmark.Detector:
    """The detector of `key`."""
    return dgmark.Detector(key(), tokenizer=builtin_tokenizer())


@cache
def language_model() -> dgmark.LanguageModel:
    """The smallest built-in language model."""
    return dgmark.LanguageModel(device="cpu", dtype="fp32")


@cache
def keyring() -> dgmark.Keyring:
    """A keyring of two keys."""
    return dgmark.Keyring([key(), known_key("other")], tokenizer=builtin_tokenizer())


@cache
def detection() -> dgmark.Detection:
    """A detection of `TEXT`."""
    return detector().detect(TEXT)


@cache
def report() -> dgmark.Report:
    """A report of `TEXT`."""
    return dgmark.Report.of(detector(), "a text", TEXT)


@cache
def signer() -> dgmark.SigningKey:
    """A signing key."""
    return dgmark.SigningKey.generate("ACME")


@cache
def generation() -> dgmark.Generation:
    """A text of the toy model."""
    return dgmark.generate(TOY, "w1", key=None, length=4, block_length=4)[0]


@cache
def infilling() -> dgmark.Infilling:
    """A filled text of the toy model."""
    return dgmark.infill(TOY, [["w1", 2]], key=None, block_length=4)[0]


def _scored() -> ScoredIds:
    return detector().reader.read(TEXT)


def _toy() -> ToyDenoiser:
    return TOY


def _document() -> bytes:
    return json.dumps({"heading": "found", "signature": ""}, indent=2).encode()


def _fields(made: object) -> dict[str, Any]:
    """The fields of a record, each with its value."""
    return {name: value for name, value in vars(made).items() if not name.startswith("_")}


# of what the methods of a class are called
_OBJECTS: dict[str, Maker] = {
    "DecodeConfig": lambda: dgmark.DecodeConfig(length=32),
    "Detection": detection,
    "Detector": detector,
    "Generation": generation,
    "Infilling": infilling,
    "KeyCommitment": lambda: dgmark.KeyCommitment.of(key()),
    "Keyring": keyring,
    "LanguageEndpoint": lambda: dgmark.LanguageEndpoint(SERVER, "small", timeout=0.1),
    "LanguageModel": language_model,
    "Report": report,
    "RowKeys": lambda: dgmark.RowKeys({"one": key()}),
    "SigningKey": signer,
    "Tokenizer": builtin_tokenizer,
    "Trace": Trace,
    "WatermarkKey": key,
    "WatermarkKey.check_model": toy_key,
    "WatermarkKey.check_vocabulary": toy_key,
    "WatermarkSpec": lambda: key().spec,
}
# of a union its members are called
_MEMBERS: dict[str, Callable[..., object]] = {
    "WatermarkSpec, pairs": BigramSpec,
    "WatermarkSpec, positions": PositionSpec,
}

_DECODING: dict[str, Any] = {
    "model": _toy, "prompts": ["w1 w2"], "key": toy_key, "subkey": None, "seed": 3, "ids": ["a"], "batch_size": 2,
    "chat": False, "pad": None, "check": False, "length": 4, "block_length": 4, "temperature": 1.0,
}  # fmt: skip
_FILLING: dict[str, Any] = {
    **{name: _DECODING[name] for name in ("model", "key", "subkey", "seed", "ids", "check", "block_length")},
    "progress": None,
}
_DETECTOR: dict[str, Any] = {"tokenizer": builtin_tokenizer, "fpr": 1e-3, "surprisal_model": None}
_KEY: dict[str, Any] = {"model": _toy, "expected_match": None, "name": "ACME"}
_SPAN = dgmark.Span(0, 8, 2, 1e-9)

# the arguments of each call, of which functions are called for their values
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "DecodeConfig": _fields(dgmark.DecodeConfig(length=32)),
    "DecodeConfig.of": {"model": _toy, "length": 32, "top_k": 3},
    "DecodeConfig.to_dict": {},
    "DetectColumns": {
        **_DETECTOR, "key": key, "column": "text", "id_column": "id", "prefix": "a_", "allow_open_key": False,
    },
    "Detection": _fields(detection()),
    "Detection.arrow_schema": {"payload": False},
    "Detection.to_row": {"row_id": "1", "payload": True},
    "Detection.with_spans": {"spans": [_SPAN], "content": TEXT},
    "Detector": {"key": key, **_DETECTOR, "normalise": ["nfc"], "keys_tested": 3},
    "Detector, rotating": {"key": position_key, **_DETECTOR, "phase": "any", "max_crop": 1024},
    "Detector.detect": {"text_or_ids": TEXT, "only": [(0, 8)]},
    "Detector.detect, whole": {"text_or_ids": TEXT},
    "Detector.detect_many": {"texts_or_ids": [TEXT], "errors": "return"},
    "Detector.detect_many, raising": {"texts_or_ids": [TEXT]},
    "Detector.spans": {"text_or_ids": TEXT},
    "Detector.tokens": {"text": TEXT, "detection": detection},
    "Detector.shades": {"text": TEXT, "detection": detection},
    "Detector.test": {"tokens": _scored},
    "Detector.score": {"tokens": _scored, "share": 0.5},
    "Detector.p_value": {"test": lambda: detector().test(_scored()), "share": 0.5},
    "Detector.detection": {"test": lambda: detector().test(_scored()), "scored": 6, "share": 0.5},
    "Document": {"text": TEXT, "kind": "PDF", "notes": ()},
    "GenerateColumns": {
        **{name: _DECODING[name] for name in ("model", "key", "seed", "batch_size", "chat", "length")},
        "column": "prompt", "id_column": "id", "prefix": "a_", "device": None, "dtype": None, "check": False,
        "allow_open_key": False,
    },
    "Generation": _fields(generation()),
    "Generation.to_row": {"row_id": "1", "with_trace": True},
    "Infilling": _fields(infilling()),
    "Infilling.to_row": {"row_id": "1"},
    "KeyCommitment": _fields(dgmark.KeyCommitment.of(key())),
    "KeyCommitment.of": {"key": key},
    "KeyCommitment.load": {"path": "in.txt"},
    "KeyCommitment.check": {"key": key},
    "Keyring": {"keys": lambda: [key()], **_DETECTOR},
    "Keyring.detect": {"text_or_ids": TEXT},
    "Keyring.detect_many": {"texts_or_ids": [TEXT]},
    "Limits": {"pages": 5, "seconds": 2.0},
    "RowKeys": {"keys": lambda: {"one": key()}},
    "RowKeys.detect_many": {"texts_or_ids": [TEXT], "names": ["one"]},
    "RowKeys.detector": {"name": "one"},
    "named_keys": {"folder": "."},
    "Report": _fields(report()),
    "Report.of": {
        "scorer": detector, "name": "a text", "text": TEXT, "detection": None, "public": False, "notes": ["a note"],
        "commitment": None, "service_fpr": None, "key_files": None,
    },
    "Report.to_fields": {},
    "Report.pieces": {},
    "Report.quote": {"span": _SPAN},
    "ScoredToken": _fields(dgmark.ScoredToken(0, 1, True)),
    "Shade": _fields(dgmark.Shade(0, 1, 2)),
    "SigningKey": {"key": lambda: signer()._key},
    "SigningKey.generate": {"name": "ACME"},
    "SigningKey.load": {"path": "in.txt", "allow_open": False},
    "SigningKey.save": {"path": "in.txt"},
    "SigningKey.sign": {"document": _document},
    "SigningKey.to_jwks": {},
    "Span": _fields(_SPAN),
    "Tokenizer": _fields(builtin_tokenizer()),
    "Tokenizer.encode": {"text": TEXT},
    "Tokenizer.encode_batch": {"texts": [TEXT]},
    "Tokenizer.encode_with_offsets": {"text": TEXT},
    "Tokenizer.decode": {"ids": [5, 6]},
    "Trace": _fields(Trace()),
    "Trace.choices": {"stop": 1},
    "Trace.to_dict": {},
    "WatermarkKey": {
        "spec": lambda: key().spec, "key_id": "calls", "secret": lambda: key().secret, "number": 1, "name": "ACME",
    },
    "WatermarkKey.generate": _KEY | dict.fromkeys(("rule", "subkeys", "nearest", "farthest")),
    "WatermarkKey.generate, positions": _KEY
    | dict.fromkeys(("rule", "modulus", "rotation", "grouping", "code_length")),
    "WatermarkKey.load": {"path": "in.txt", "allow_open": False},
    "WatermarkKey.save": {"path": "in.txt"},
    "WatermarkKey.subkey": {"number": 1},
    "WatermarkKey.for_text": {"subkey": 1},
    "WatermarkKey.check_tokenizer": {"tokenizer": builtin_tokenizer},
    "WatermarkKey.check_model": {"model": _toy},
    "WatermarkKey.check_vocabulary": {"vocab_size": TOY.vocab_size},
    "WatermarkSpec, pairs": _fields(key().spec),
    "WatermarkSpec, positions": _fields(position_key().spec),
    "WatermarkSpec.new": {
        "tokenizer": builtin_tokenizer, "table_size": 8192,
        **dict.fromkeys(("nearest", "farthest", "subkeys", "expected_match")),
    },
    "detect": {"text_or_ids": TEXT, "key": key, **_DETECTOR},
    "detect_file": {
        "scorer": detector, "inputs": "in.txt", "out": "out.jsonl", "workers": 1, "ids": False, "only": (),
        "spans": False, "payload": False, "text_column": "text", "on_rows": None,
    },
    "generate": {**_DECODING, "progress": None},
    "infill": {**_FILLING, "texts": [["w1", 2, "w2"]]},
    "infill, with a share": {**_FILLING, "texts": [], "ids": [], "share": 0.5, "keep": "w1", "target": 0.01},
    "LanguageEndpoint": {"url": SERVER, "model": "small", "timeout": 1.0, "api_key": None, "tokenizer": None},
    "LanguageEndpoint.at": {"address": f"{SERVER}#small"},
    "LanguageEndpoint.surprisals": {"texts": [""]},
    "LanguageModel": {
        "name_or_path": "no such model",
        **dict.fromkeys(("device", "dtype", "revision", "device_map", "context")),
    },
    "LanguageModel.logits": {"ids": torch.tensor([[5, 6, 7]])},
    "LanguageModel.logits_in_pieces": {"ids": torch.tensor([[5, 6, 7]]), "first": 0},
    "LanguageModel.surprisals": {"texts": [TEXT]},
    "load_keys": {"folder": "keys", "allow_open": False},
    "load_model": {
        "name_or_path": "no such model",
        **dict.fromkeys(("device", "dtype", "revision", "family", "device_map")),
    },
    "load_model, GGUF": {
        "name_or_path": "no.gguf", **dict.fromkeys(("tokenizer", "n_gpu_layers", "n_threads", "n_batch")),
    },
    "load_tokenizer": {"name_or_path": "no such model", "revision": None},
    "read_document": {"path": "in.txt", "text_column": "text", "limits": None},
    "read_settings": {"path": "in.txt", "key": key},
    "select_positions": {
        "scores": torch.tensor([[0.5, 0.6]]), "masked": torch.tensor([[True, True]]),
        "preferred": torch.tensor([[True, False]]), "quota": torch.tensor([1]), "confident": None, "readable": None,
    },
    "stream_generate": _DECODING,
    "stream_text": {"prompt": "w1 w2", **{name: value for name, value in _DECODING.items() if name != "prompts"}},
    "subkey_of": {"key": key, "request_id": "1"},
    "verify_report": {"document": lambda: signer().sign(_document()), "jwks": lambda: signer().to_jwks()},
    "write_report": {"report": report, "path": "report.json", "signer": signer},
}  # fmt: skip


def _call(name: str, /, **given: Any) -> object:
    """Call the function, class or method of this name, which ends at a comma, and take all that an iterator gives."""
    of, _, method = name.partition(",")[0].partition(".")
    if method:
        made = getattr(_OBJECTS.get(name, _OBJECTS[of])(), method)(**given)
    else:
        made = (_MEMBERS.get(name) or getattr(dgmark, of))(**given)
    return list(made) if isinstance(made, Iterator) else made


def _maker(value: Any) -> Maker:
    return value if callable(value) else lambda: [*value] if isinstance(value, list) else value


CALLS: dict[str, Call] = {
    name: (partial(_call, name), {argument: _maker(value) for argument, value in arguments.items()})
    for name, arguments in _ARGUMENTS.items()
}
