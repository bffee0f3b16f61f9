"""A valid call of every public function, class and method of dgmark, in which any argument can be replaced.

Each is a function of keywords, and makers of valid values for them.
"""

import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

import dgmark
from dgmark.decode.canvas import Trace
from dgmark.detection.reader import ScoredIds
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


def _stream(**arguments: Any) -> list[object]:
    return list(dgmark.stream_generate(**arguments))


def _fields(made: object) -> dict[str, Maker]:
    """The fields of a record, each with its value."""
    return {name: partial(_same, value) for name, value in vars(made).items() if not name.startswith("_")}


def _same(value: Any) -> Any:
    return value


_DECODING: dict[str, Maker] = {
    "model": lambda: TOY,
    "prompts": lambda: ["w1 w2"],
    "key": toy_key,
    "subkey": lambda: None,
    "seed": lambda: 3,
    "ids": lambda: ["a"],
    "batch_size": lambda: 2,
    "chat": lambda: False,
    "pad": lambda: None,
    "check": lambda: False,
    "length": lambda: 4,
    "block_length": lambda: 4,
    "temperature": lambda: 1.0,
}
_FILLING: dict[str, Maker] = {
    **{name: _DECODING[name] for name in ("model", "key", "subkey", "seed", "ids", "check", "block_length")},
    "progress": lambda: None,
}
_DETECTOR: dict[str, Maker] = {
    "tokenizer": builtin_tokenizer,
    "fpr": lambda: 1e-3,
    "surprisal_model": lambda: None,
}
_KEY: dict[str, Maker] = {"model": lambda: TOY, "expected_match": lambda: None, "name": lambda: "ACME"}
_REPORT: dict[str, Maker] = {
    "detector": detector,
    "name": lambda: "a text",
    "text": lambda: TEXT,
    "detection": lambda: None,
    "public": lambda: False,
    "notes": lambda: ["a note"],
    "commitment": lambda: None,
    "service_fpr": lambda: None,
}


def _document() -> bytes:
    return json.dumps({"heading": "found", "signature": ""}, indent=2).encode()


CALLS: dict[str, Call] = {
    "DecodeConfig": (dgmark.DecodeConfig, _fields(dgmark.DecodeConfig(length=32))),
    "DecodeConfig.of": (dgmark.DecodeConfig.of, {"model": lambda: TOY, "length": lambda: 32, "top_k": lambda: 3}),
    "DecodeConfig.to_dict": (lambda: dgmark.DecodeConfig(length=32).to_dict(), {}),
    "DetectColumns": (
        dgmark.DetectColumns,
        {
            **{name: one for name, one in _DETECTOR.items() if name != "tokenizer"},
            "key": key,
            "column": lambda: "text",
            "id_column": lambda: "id",
            "tokenizer": builtin_tokenizer,
            "prefix": lambda: "a_",
            "allow_open_key": lambda: False,
        },
    ),
    "Detection": (dgmark.Detection, _fields(detection())),
    "Detection.arrow_schema": (dgmark.Detection.arrow_schema, {"payload": lambda: False}),
    "Detection.to_row": (
        lambda **given: detection().to_row(**given),
        {"row_id": lambda: "1", "payload": lambda: True},
    ),
    "Detection.with_spans": (
        lambda **given: detection().with_spans(**given),
        {"spans": lambda: [dgmark.Span(0, 8, 2, 1e-9)], "content": lambda: TEXT},
    ),
    "Detector": (
        dgmark.Detector,
        {"key": key, **_DETECTOR, "normalise": lambda: ["nfc"], "keys_tested": lambda: 3},
    ),
    "Detector, rotating": (
        dgmark.Detector,
        {"key": position_key, **_DETECTOR, "phase": lambda: "any", "max_crop": lambda: 1024},
    ),
    "Detector.detect": (
        lambda **given: detector().detect(**given),
        {"text_or_ids": lambda: TEXT, "only": lambda: [(0, 8)]},
    ),
    "Detector.detect, whole": (lambda **given: detector().detect(**given), {"text_or_ids": lambda: TEXT}),
    "Detector.detect_many": (
        lambda **given: detector().detect_many(**given),
        {"texts_or_ids": lambda: [TEXT], "errors": lambda: "return"},
    ),
    "Detector.spans": (lambda **given: detector().spans(**given), {"text_or_ids": lambda: TEXT}),
    "Detector.tokens": (
        lambda **given: detector().tokens(**given),
        {"text": lambda: TEXT, "detection": detection},
    ),
    "Detector.shades": (
        lambda **given: detector().shades(**given),
        {"text": lambda: TEXT, "detection": detection},
    ),
    "Detector.test": (lambda **given: detector().test(**given), {"tokens": _scored}),
    "Detector.score": (lambda **given: detector().score(**given), {"tokens": _scored, "share": lambda: 0.5}),
    "Detector.p_value": (
        lambda **given: detector().p_value(**given),
        {"test": lambda: detector().test(_scored()), "share": lambda: 0.5},
    ),
    "Detector.detection": (
        lambda **given: detector().detection(**given),
        {"test": lambda: detector().test(_scored()), "scored": lambda: 6, "share": lambda: 0.5},
    ),
    "Document": (dgmark.Document, {"text": lambda: TEXT, "kind": lambda: "PDF", "notes": lambda: ()}),
    "GenerateColumns": (
        dgmark.GenerateColumns,
        {
            **{name: _DECODING[name] for name in ("model", "key", "seed", "batch_size", "chat", "length")},
            "column": lambda: "prompt",
            "id_column": lambda: "id",
            "prefix": lambda: "a_",
            "device": lambda: None,
            "dtype": lambda: None,
            "check": lambda: False,
            "allow_open_key": lambda: False,
        },
    ),
    "Generation": (dgmark.Generation, _fields(generation())),
    "Generation.to_row": (
        lambda **given: generation().to_row(**given),
        {"row_id": lambda: "1", "with_trace": lambda: True},
    ),
    "Infilling": (dgmark.Infilling, _fields(infilling())),
    "Infilling.to_row": (lambda **given: infilling().to_row(**given), {"row_id": lambda: "1"}),
    "KeyCommitment": (dgmark.KeyCommitment, _fields(dgmark.KeyCommitment.of(key()))),
    "KeyCommitment.of": (dgmark.KeyCommitment.of, {"key": key}),
    "KeyCommitment.load": (dgmark.KeyCommitment.load, {"path": lambda: "in.txt"}),
    "KeyCommitment.check": (lambda **given: dgmark.KeyCommitment.of(key()).check(**given), {"key": key}),
    "Keyring": (dgmark.Keyring, {"keys": lambda: [key()], **_DETECTOR}),
    "Keyring.detect": (lambda **given: keyring().detect(**given), {"text_or_ids": lambda: TEXT}),
    "Keyring.detect_many": (lambda **given: keyring().detect_many(**given), {"texts_or_ids": lambda: [TEXT]}),
    "Limits": (dgmark.Limits, {"pages": lambda: 5, "seconds": lambda: 2.0}),
    "RowKeys": (dgmark.RowKeys, {"keys": lambda: {"one": key()}}),
    "RowKeys.detect_many": (
        lambda **given: dgmark.RowKeys({"one": key()}).detect_many(**given),
        {"texts_or_ids": lambda: [TEXT], "names": lambda: ["one"]},
    ),
    "RowKeys.tested": (
        lambda **given: dgmark.RowKeys({"one": key()}).tested(**given),
        {"name": lambda: "one", "row": lambda: {"key_fingerprint": key().fingerprint}},
    ),
    "named_keys": (dgmark.named_keys, {"folder": lambda: "."}),
    "Report": (dgmark.Report, _fields(report())),
    "Report.of": (dgmark.Report.of, _REPORT),
    "Report.to_fields": (lambda: report().to_fields(), {}),
    "Report.pieces": (lambda: report().pieces(), {}),
    "Report.quote": (lambda **given: report().quote(**given), {"span": lambda: dgmark.Span(0, 8, 2, 1e-9)}),
    "ScoredToken": (dgmark.ScoredToken, _fields(dgmark.ScoredToken(0, 1, True))),
    "Shade": (dgmark.Shade, _fields(dgmark.Shade(0, 1, 2))),
    "SigningKey": (dgmark.SigningKey, {"key": lambda: signer()._key}),
    "SigningKey.generate": (dgmark.SigningKey.generate, {"name": lambda: "ACME"}),
    "SigningKey.load": (dgmark.SigningKey.load, {"path": lambda: "in.txt", "allow_open": lambda: False}),
    "SigningKey.save": (lambda **given: signer().save(**given), {"path": lambda: "in.txt"}),
    "SigningKey.sign": (lambda **given: signer().sign(**given), {"document": _document}),
    "SigningKey.to_jwks": (lambda: signer().to_jwks(), {}),
    "Span": (dgmark.Span, _fields(dgmark.Span(0, 8, 2, 1e-9))),
    "Tokenizer": (dgmark.Tokenizer, _fields(builtin_tokenizer())),
    "Tokenizer.encode": (lambda **given: builtin_tokenizer().encode(**given), {"text": lambda: TEXT}),
    "Tokenizer.encode_batch": (lambda **given: builtin_tokenizer().encode_batch(**given), {"texts": lambda: [TEXT]}),
    "Tokenizer.encode_with_offsets": (
        lambda **given: builtin_tokenizer().encode_with_offsets(**given),
        {"text": lambda: TEXT},
    ),
    "Tokenizer.decode": (lambda **given: builtin_tokenizer().decode(**given), {"ids": lambda: [5, 6]}),
    "Trace": (dgmark.Trace, _fields(Trace())),
    "Trace.choices": (lambda **given: Trace().choices(**given), {"stop": lambda: 1}),
    "WatermarkKey": (
        dgmark.WatermarkKey,
        {
            "spec": lambda: key().spec,
            "key_id": lambda: "calls",
            "secret": lambda: key().secret,
            "number": lambda: 1,
            "name": lambda: "ACME",
        },
    ),
    "WatermarkKey.generate": (
        dgmark.WatermarkKey.generate,
        _KEY | dict.fromkeys(("rule", "subkeys", "nearest", "farthest"), lambda: None),
    ),
    "WatermarkKey.generate, positions": (
        dgmark.WatermarkKey.generate,
        _KEY | dict.fromkeys(("rule", "modulus", "rotation", "grouping", "code_length"), lambda: None),
    ),
    "WatermarkKey.load": (dgmark.WatermarkKey.load, {"path": lambda: "in.txt", "allow_open": lambda: False}),
    "WatermarkKey.save": (lambda **given: key().save(**given), {"path": lambda: "in.txt"}),
    "WatermarkKey.subkey": (lambda **given: key().subkey(**given), {"number": lambda: 1}),
    "WatermarkKey.for_text": (lambda **given: key().for_text(**given), {"subkey": lambda: 1}),
    "WatermarkKey.check_tokenizer": (
        lambda **given: key().check_tokenizer(**given),
        {"tokenizer": builtin_tokenizer},
    ),
    "WatermarkKey.check_model": (lambda **given: toy_key().check_model(**given), {"model": lambda: TOY}),
    "WatermarkKey.check_vocabulary": (
        lambda **given: toy_key().check_vocabulary(**given),
        {"vocab_size": lambda: TOY.vocab_size},
    ),
    "WatermarkSpec, pairs": (BigramSpec, _fields(key().spec)),
    "WatermarkSpec, positions": (PositionSpec, _fields(position_key().spec)),
    "WatermarkSpec.new": (
        BigramSpec.new,
        {
            "tokenizer": builtin_tokenizer,
            "table_size": lambda: 8192,
            **dict.fromkeys(("nearest", "farthest", "subkeys", "expected_match"), lambda: None),
        },
    ),
    "detect": (dgmark.detect, {"text_or_ids": lambda: TEXT, "key": key, **_DETECTOR}),
    "detect_file": (
        dgmark.detect_file,
        {
            "scorer": detector,
            "inputs": lambda: "in.txt",
            "out": lambda: "out.jsonl",
            "workers": lambda: 1,
            "ids": lambda: False,
            "only": lambda: (),
            "spans": lambda: False,
            "payload": lambda: False,
            "text_column": lambda: "text",
            "on_rows": lambda: None,
        },
    ),
    "generate": (dgmark.generate, {**_DECODING, "progress": lambda: None}),
    "infill": (dgmark.infill, {**_FILLING, "texts": lambda: [["w1", 2, "w2"]]}),
    "infill, with a share": (
        dgmark.infill,
        {**_FILLING, "texts": list, "ids": list, "share": lambda: 0.5, "keep": lambda: "w1", "target": lambda: 0.01},
    ),
    "LanguageEndpoint": (
        dgmark.LanguageEndpoint,
        {
            "url": lambda: SERVER,
            "model": lambda: "small",
            "timeout": lambda: 1.0,
            **dict.fromkeys(("api_key", "tokenizer"), lambda: None),
        },
    ),
    "LanguageEndpoint.at": (dgmark.LanguageEndpoint.at, {"address": lambda: f"{SERVER}#small"}),
    "LanguageEndpoint.surprisals": (
        lambda **given: dgmark.LanguageEndpoint(SERVER, "small", timeout=0.1).surprisals(**given),
        {"texts": lambda: [""]},
    ),
    "LanguageModel": (
        dgmark.LanguageModel,
        {
            "name_or_path": lambda: "no such model",
            **dict.fromkeys(("device", "dtype", "revision", "device_map", "context"), lambda: None),
        },
    ),
    "LanguageModel.logits": (
        lambda **given: language_model().logits(**given),
        {"ids": lambda: torch.tensor([[5, 6, 7]])},
    ),
    "LanguageModel.logits_in_pieces": (
        lambda **given: list(language_model().logits_in_pieces(**given)),
        {"ids": lambda: torch.tensor([[5, 6, 7]]), "first": lambda: 0},
    ),
    "LanguageModel.surprisals": (
        lambda **given: language_model().surprisals(**given),
        {"texts": lambda: [TEXT]},
    ),
    "load_keys": (dgmark.load_keys, {"folder": lambda: "keys", "allow_open": lambda: False}),
    "load_model": (
        dgmark.load_model,
        {
            "name_or_path": lambda: "no such model",
            **dict.fromkeys(("device", "dtype", "revision", "family", "device_map"), lambda: None),
        },
    ),
    "load_model, GGUF": (
        dgmark.load_model,
        {
            "name_or_path": lambda: "no.gguf",
            **dict.fromkeys(("tokenizer", "n_gpu_layers", "n_threads", "n_batch"), lambda: None),
        },
    ),
    "load_tokenizer": (
        dgmark.load_tokenizer,
        {"name_or_path": lambda: "no such model", "revision": lambda: None},
    ),
    "read_document": (
        dgmark.read_document,
        {"path": lambda: "in.txt", "text_column": lambda: "text", "limits": lambda: None},
    ),
    "read_settings": (dgmark.read_settings, {"path": lambda: "in.txt", "key": key}),
    "select_positions": (
        dgmark.select_positions,
        {
            "scores": lambda: torch.tensor([[0.5, 0.6]]),
            "masked": lambda: torch.tensor([[True, True]]),
            "preferred": lambda: torch.tensor([[True, False]]),
            "quota": lambda: torch.tensor([1]),
            "confident": lambda: None,
            "readable": lambda: None,
        },
    ),
    "stream_generate": (_stream, _DECODING),
    "subkey_of": (dgmark.subkey_of, {"key": key, "request_id": lambda: "1"}),
    "verify_report": (
        dgmark.verify_report,
        {"document": lambda: signer().sign(_document()), "jwks": lambda: signer().to_jwks()},
    ),
    "write_report": (
        dgmark.write_report,
        {"report": report, "path": lambda: "report.json", "signer": signer},
    ),
}
