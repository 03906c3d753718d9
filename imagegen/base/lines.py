"""Makes a value safe to print: one line, without control characters, and without commands for a CI runner.

All output for people goes through here last. The author of a config chooses names of files, keys and values, and a
newline in one of them could forge lines of output.

A CI runner reads these commands from its log. They are broken up here:

* GitHub Actions, and Gitea's and Forgejo's runners: `::name::` at the start of a line, `##[name]` anywhere
  (https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs);
* the Pipelines of what was Visual Studio Online, vso: `##vso[area.action]` anywhere, in capitals too, and `##[name]`
  (their documentation calls these logging commands);
* TeamCity: `##teamcity[name]` (https://www.jetbrains.com/help/teamcity/service-messages.html);
* GitLab, Travis and Buildkite: `section_start:`, `travis_fold:` and `ESC ]1338;` need a carriage return or an escape
  character, which are replaced in every value.

Buildkite's `---`, `+++` and `~~~` at the start of a line only fold the log, so they stay.
"""

import re
from collections.abc import Iterable
from typing import Final

# All characters that end a line, move the cursor, change the direction of a text or are invisible, except the tab.
_INVISIBLE: Final = (
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)

_COMMAND: Final = r"^(\s*):(?=:)"
_BRACKETED_COMMAND: Final = r"(##\w*)\["


def one_line(text: str) -> str:
    r"""The text as one line: a newline becomes `\n`, an escape character `\x1b`."""
    # Compiled when it is first needed, which is rare: printable characters need no replacement.
    if not text.isprintable():
        text = re.sub(_INVISIBLE, lambda found: found[0].encode("unicode_escape").decode(), text)
    if text.lstrip().startswith("::"):
        text = re.sub(_COMMAND, r"\1\\x3a", text)
    return without_brackets(text, r"\x5b")


def without_brackets(text: str, bracket: str) -> str:
    """The text with `bracket` instead of the `[` of commands such as `##[` and `##vso[`."""
    if "##" not in text:
        return text
    return re.sub(_BRACKETED_COMMAND, lambda found: f"{found[1]}{bracket}", text)


def joined(lines: Iterable[str]) -> str:
    """Several lines as one text. Each line is made safe."""
    return "\n".join(map(one_line, lines))


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 base image`, `2 base images`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown_size(count: int) -> str:
    """A number of bytes: `12 kB`, `3.4 MB`, `1.2 GB`."""
    if count < 10**6:
        return f"{count / 10**3:.0f} kB"
    return f"{count / 10**6:.1f} MB" if count < 10**9 else f"{count / 10**9:.1f} GB"
