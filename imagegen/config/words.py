"""The small typed words that a config's values are made of."""

from typing import Annotated, Final

import pydantic

from imagegen.errors import InvalidValue

# https://pkg.go.dev/time#Duration
_LONGEST_DURATION_S: Final = (2**63 - 1) // 10**9
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}

# Without leading zeros: one version has one spelling.
Version = Annotated[
    str,
    pydantic.StringConstraints(
        pattern=r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[a-z]+\.[0-9]+)?$", max_length=40
    ),
]
# Docker numbered its releases by year and month, with a zero: 19.03.12.
DockerVersion = Annotated[str, pydantic.StringConstraints(pattern=r"^[1-9][0-9]*\.[0-9]{1,2}\.[0-9]+$", max_length=40)]
Kb = Annotated[str, pydantic.StringConstraints(pattern=r"^KB[0-9]{6,8}$")]
# A folder that stands unquoted in command lines: no blank in it.
PlainFolder = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z]:(\\[A-Za-z0-9_.-]*[A-Za-z0-9_-])+$")]
# Below the config's own folder, with forward slashes; no part ends in a dot, which Windows drops.
_PART: Final = "[A-Za-z0-9_-]([A-Za-z0-9._-]*[A-Za-z0-9_-])?"
RelativePath = Annotated[str, pydantic.StringConstraints(pattern=rf"^{_PART}(/{_PART})*$", max_length=200)]
# One line that ends up in an ini file, a TOML text or a registry value.
Line = Annotated[str, pydantic.StringConstraints(pattern=r"^[ -~]+$", max_length=500)]


def _check_duration(text: str) -> str:
    longest = _LONGEST_DURATION_S // _SECONDS[text[-1]]
    if int(text[:-1]) > longest:
        raise InvalidValue(f"{text} is longer than Go's longest duration", f"write at most {longest}{text[-1]}")
    return text


# As Go reads it, into nanoseconds of 64 bits: a longer one ends the program that reads it.
Duration = Annotated[
    str,
    pydantic.StringConstraints(pattern=r"^[1-9][0-9]{0,18}(s|m|h)$"),
    pydantic.AfterValidator(_check_duration),
]
# A name in the templates of a step.
StepOption = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")]
Minutes = Annotated[int, pydantic.Field(ge=1, le=720)]
