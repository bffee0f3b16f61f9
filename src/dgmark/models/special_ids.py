"""The mask id, the end ids and the ids of edits of a checkpoint: read from its files, checked against known ones."""

from collections.abc import Collection
from typing import Any

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.folder import Checkpoint, read_object
from dgmark.checkpoint.tokenizer import END_TOKENS, Tokenizer
from dgmark.errors import CheckpointFormat


def find_mask_id(checkpoint: Checkpoint, tokenizer: Tokenizer, family: Family) -> int:
    """Find the id of a position not yet committed; where there is none, or sources differ, it is a CheckpointFormat
    error.

    It is taken from the tokenizer by name, from config.json, or (for iLLaDA, whose files state neither) from the known
    ids of checkpoints with this vocabulary.
    """
    stated = checkpoint.config.get("mask_token_id")
    named = _mask_token_id(checkpoint, tokenizer, family)
    known = family.known_ids.get(checkpoint.vocab_size)
    if stated is not None and named is not None and stated != named:
        raise CheckpointFormat(f"{checkpoint.folder}: config.json says mask id {stated}, the tokenizer {named}")
    mask_id = named if named is not None else stated
    if mask_id is None and known is not None:
        return known.mask_id
    if mask_id is None:
        raise CheckpointFormat(f"{checkpoint.folder} names no mask token; this is not a masked diffusion model")
    if known is not None and mask_id != known.mask_id:
        raise CheckpointFormat(
            f"{checkpoint.folder}: the mask id is {mask_id}, but {known.mask_id} in every published checkpoint with "
            f"{checkpoint.vocab_size} ids; config.json and tokenizer are not of one checkpoint"
        )
    if not isinstance(mask_id, int) or not 0 <= mask_id < checkpoint.vocab_size:
        raise CheckpointFormat(f"{checkpoint.folder}: mask id {mask_id} is not among the {checkpoint.vocab_size} ids")
    return mask_id


def find_end_ids(checkpoint: Checkpoint, tokenizer: Tokenizer, family: Family) -> tuple[int, ...]:
    """Find the ids that end a response: the tokenizer's ends of text and of turn, special or not, and config.json's."""
    stated: Any = checkpoint.config.get("eos_token_id")
    stated = stated if isinstance(stated, list) else [stated]
    ends = {i for i in stated if isinstance(i, int) and 0 <= i < tokenizer.vocab_size}
    added = tokenizer.backend.get_added_tokens_decoder()
    ends |= {*tokenizer.end_ids, *(i for i, token in added.items() if token.content in END_TOKENS)}
    known = family.known_ids.get(checkpoint.vocab_size)
    if known is not None and known.end_of_text not in ends:
        raise CheckpointFormat(
            f"{checkpoint.folder}: id {known.end_of_text} ends a text in every published checkpoint with "
            f"{checkpoint.vocab_size} ids, but not here ({sorted(ends)}); config.json and tokenizer are not of one "
            "checkpoint"
        )
    return tuple(sorted(ends))


def find_edit_ids(checkpoint: Checkpoint, family: Family, others: Collection[int]) -> tuple[int, int] | None:
    """Find the ids by which a model asks for a deletion and for an insertion; None if its family has none.

    They must be none of the others, which mean something else, such as the mask.
    """
    if family.edit_fields is None:
        return None
    delete, split = checkpoint.require(*family.edit_fields)
    for name, stated, taken in zip(family.edit_fields, (delete, split), (others, {*others, delete}), strict=True):
        if type(stated) is not int or not 0 <= stated < checkpoint.vocab_size or stated in taken:
            raise CheckpointFormat(
                f"{checkpoint.folder}: {name} is {stated!r}, which is no id of its own among the "
                f"{checkpoint.vocab_size} ids; fetch the checkpoint again"
            )
    return delete, split


def _mask_token_id(checkpoint: Checkpoint, tokenizer: Tokenizer, family: Family) -> int | None:
    names = list(family.mask_tokens)
    token = read_object(checkpoint.folder / "tokenizer_config.json", or_empty=True).get("mask_token")
    content = token.get("content") if isinstance(token, dict) else token
    ids = (tokenizer.backend.token_to_id(name) for name in ([content] if isinstance(content, str) else []) + names)
    return next((i for i in ids if i is not None), None)
