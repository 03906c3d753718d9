"""Makes a value safe to print: one line, without control characters, and no command to a CI runner that reads the log.

Whatever people read goes through here, last: names of files, keys and values are chosen by whoever wrote the config,
and a newline in one of them would let it write lines of its own.

Commands are what makes a runner act, and all of these are broken:

* GitHub Actions, and Gitea's and Forgejo's runners: `::name::` at the start of a line, `##[name]` anywhere
  (https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs);
* the Pipelines of what was Visual Studio Online, vso: `##vso[area.action]` anywhere, in capitals too, and `##[name]`
  (their documentation calls these logging commands);
* TeamCity: `##teamcity[name]` (https://www.jetbrains.com/help/teamcity/service-messages.html);
* GitLab, Travis and Buildkite: `section_start:`, `travis_fold:` and `ESC ]1338;` need a carriage return or an escape
  character, which no value keeps.

Buildkite's `---`, `+++` and `~~~` at the start of a line only fold the log: they stay as they are.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# Everything that ends a line, moves a cursor, turns the direction of a text, hides, or is no character; not the tab.
_UNSEEN: Final = (
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)

_COMMAND: Final = r"^(\s*):(?=:)"
_BRACKETED_COMMAND: Final = r"(##\w*)\["


def one_line(text: str) -> str:
    r"""The text as one line: a newline is shown as `\n`, an escape character as `\x1b`."""
    # Compiled when they are first needed, which is seldom: what is printable is none of these.
    if not text.isprintable():
        text = re.sub(_UNSEEN, _escaped, text)
    if text.lstrip().startswith("::"):
        text = re.sub(_COMMAND, r"\1\\x3a", text)
    return without_brackets(text, r"\x5b")


def without_brackets(text: str, bracket: str) -> str:
    """The text with `bracket` in place of the one that makes a command of `##[`, `##vso[` and their like."""
    if "##" not in text:
        return text
    return re.sub(_BRACKETED_COMMAND, lambda found: f"{found[1]}{bracket}", text)


def joined(lines: Iterable[str]) -> str:
    """A text of several lines, each safe."""
    return "\n".join(map(one_line, lines))


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 base image`, `2 base images`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
