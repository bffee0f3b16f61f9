"""Styles that are based on others."""

from dgmark_documents.styles import Cascade


def test_a_style_states_what_those_below_it_state_and_more() -> None:
    styles = Cascade()
    styles.add("a", {"size": 1, "colour": "red"})
    styles.add("b", {"size": 2}, "not there", "a")
    assert styles.of("b") == {"size": 2, "colour": "red"}
    assert styles.of("not there either", "a") == {"size": 1, "colour": "red"}
    assert styles.of("not there") == {}


def test_styles_that_are_based_on_each_other_come_to_an_end() -> None:
    styles = Cascade()
    styles.add("a", {"size": 1}, "b")
    styles.add("b", {"colour": "red"}, "a")
    assert styles.of("a") == {"size": 1, "colour": "red"}


def test_a_size_in_percent_is_a_share_of_the_one_below() -> None:
    styles = Cascade(lambda outer, inner: {"size": outer.get("size", 1) * inner["size"]})
    styles.add("a", {"size": 0.5})
    styles.add("b", {"size": 0.5}, "a")
    assert styles.of("b") == {"size": 0.25}
