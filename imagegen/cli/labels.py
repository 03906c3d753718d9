"""KEY=VALUE words in, labels out."""

import re
from collections.abc import Iterable

from imagegen.errors import ConfigError


def parse_labels(words: Iterable[str]) -> dict[str, str]:
    """The labels, in the order given, of one given twice the last; tags of every cloud take this form."""
    labels: dict[str, str] = {}
    for word in words:
        match = re.fullmatch(r"([a-z][a-z0-9_]{0,39})=([A-Za-z0-9._-]{1,200})", word)
        if match is None:
            raise ConfigError(
                f"{word!r} is not a label",
                hint="write key=value: lower-case letters, digits and underscores, then at most 200 letters, digits, "
                "dots, underscores and dashes",
            )
        labels[match.group(1)] = match.group(2)
    return labels
