"""The short texts of a page that stand apart from its text: tool tips, placeholders, choices of lists, titles."""

# the attributes that a page shows, and what is said of them
LABEL_ATTRIBUTES = {
    "title": "tool tips",
    "alt": "texts of pictures",
    "placeholder": "placeholders",
    "label": "labels",
}
# the kinds of `input` that do not show their value
VALUE_FIELDS = frozenset(("hidden", "password", "checkbox", "radio", "file", "color", "range", "image"))
_PARTS = 0.1  # of labels that begin or end with white space, the share from which on they are parts of one text


def join_labels(labels: list[str]) -> str:
    """Labels of one kind as one text.

    They stand one after the other with a space between, those of several words once. Labels of which several begin or
    end with white space, as labels otherwise do not, are parts of one text.
    """
    parts = sum(one != one.strip() for one in labels)
    if len(labels) > 1 and parts > _PARTS * len(labels):
        return "".join(labels)
    joined: list[str] = []
    seen: set[str] = set()
    for label in (one.strip() for one in labels):
        if label and label not in joined[-1:] and label not in seen:
            joined.append(label)
            seen |= {label} if " " in label else set()
    return " ".join(joined)
