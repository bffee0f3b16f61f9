"""The shades of a text's matching tokens: against a character by character rule, and of a detector's spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgmark import Detector
from dgmark.detection.results.figures import ScoredToken
from dgmark.detection.results.shading import LEVELS, cut, shades_of
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.surprisal_models import HASHED
from support.unmarked_texts import PROSE

PLAIN = (PROSE / "willows.txt").read_text()[:900]
MANY = known_key("shaded sub-keys", subkeys=64)


@st.composite
def tokenized(draw: st.DrawFn) -> tuple[str, list[ScoredToken]]:
    """A text and its tokens; tokens may share characters, as the bytes of one character do."""
    text = draw(st.text("ab \n", min_size=1, max_size=30))
    ends = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    matched, weight = st.sampled_from([True, True, False, None]), st.sampled_from([0.0, 0.1, 1 / 3, 0.4, 0.7, 1.0])
    tokens, start = [], 0
    for end in ends:
        shared = draw(st.integers(0, 1))
        tokens.append(ScoredToken(max(0, start - shared), end, draw(matched), draw(weight)))
        start = end
    return text, tokens


@given(tokenized(), st.data())
def test_each_character_has_the_shade_of_the_first_token_that_holds_it(
    made: tuple[str, list[ScoredToken]], data: st.DataObject
) -> None:
    text, tokens = made
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    levels = [0] * len(text)
    for token in reversed(tokens):
        steps = [level for level in range(1, LEVELS + 1) if token.weight > (level - 1) / LEVELS]
        levels[token.start : token.end] = [max(steps, default=0) if token.matched else 0] * (token.end - token.start)
    shades = shades_of(text, tokens, start, end)
    shown = [0] * len(text)
    for shade in shades:
        assert start <= shade.start < shade.end <= end
        assert not text[shade.start].isspace()
        assert not any(shown[shade.start : shade.end])
        shown[shade.start : shade.end] = [shade.level] * (shade.end - shade.start)
    for place in range(start, end):
        # white space in front of a shade has none
        assert shown[place] == levels[place] or (text[place].isspace() and shown[place] == 0)
    pieces = cut(start, end, shades)
    assert [place for first, last, _ in pieces for place in range(first, last)] == list(range(start, end))
    assert [level for first, last, level in pieces for _ in range(first, last)] == shown[start:end]


def test_the_tokens_of_each_span_are_those_that_match_under_its_own_sub_key() -> None:
    text = marked_text(MANY.subkey(5), 120) + "\n\n" + PLAIN + "\n\n" + marked_text(MANY.subkey(9), 120, seed=1)
    detector = Detector(MANY, surprisal_model=HASHED)
    found = detector.detect(text).with_spans(detector.spans(text), text)
    assert found.spans is not None
    assert {span.subkey for span in found.spans} == {5, 9}
    shades = detector.shades(text, found)
    assert {shade.level for shade in shades} == set(range(1, LEVELS + 1))
    for span in found.spans:
        inside = [shade for shade in shades if span.start <= shade.start and shade.end <= span.end]
        assert span.subkey is not None
        tokens = Detector(MANY.subkey(span.subkey), surprisal_model=HASHED)
        assert inside == shades_of(text, tokens.tokens(text, tokens.detect(text)), span.start, span.end)
        assert inside
    assert all(any(span.start <= one.start and one.end <= span.end for span in found.spans) for one in shades)


@pytest.mark.parametrize("text", [marked_text(MANY, 150), PLAIN])
def test_nothing_is_shaded_by_a_count_or_where_no_span_is_known(text: str) -> None:
    counted, weighed = Detector(MANY), Detector(MANY, surprisal_model=HASHED)
    assert counted.shades(text, counted.detect(text).with_spans(counted.spans(text), text)) == []
    assert weighed.shades(text, weighed.detect(text)) == []
    assert bool(weighed.shades(text, weighed.detect(text).with_spans(weighed.spans(text), text))) == (text != PLAIN)
