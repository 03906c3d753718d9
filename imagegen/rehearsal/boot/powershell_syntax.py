"""The statements of PowerShell that scripts around a join need. Anything else is refused by its line. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import UnknownCommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class Text:
    """A text or a number as it stands in the script. In double quotes its variables are replaced."""

    text: str
    expands: bool = False
    bare: bool = False
    """Without quotes: in a call, `-Name` is then a parameter."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """`$name`, or `$env:NAME` with the name `env:NAME`."""

    name: str


Expression = Text | Variable


@dataclasses.dataclass(frozen=True)
class Call:
    """A cmdlet or a program with its words."""

    words: tuple[Expression, ...]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Calls that a pipe joins. The first one may be an expression."""

    parts: tuple[Call | Expression, ...]


@dataclasses.dataclass(frozen=True)
class Assignment:
    variable: str
    value: Expression


@dataclasses.dataclass(frozen=True)
class Condition:
    """A call, an expression, or a comparison of two expressions."""

    left: Call | Expression
    operator: str = ""
    right: Expression | None = None
    negated: bool = False


@dataclasses.dataclass(frozen=True)
class If:
    condition: Condition
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclasses.dataclass(frozen=True)
class Exit:
    code: Expression


@dataclasses.dataclass(frozen=True)
class Throw:
    reason: Expression


@dataclasses.dataclass(frozen=True)
class Statement:
    """A statement and its line in the script."""

    what: Pipeline | Assignment | If | Exit | Throw
    line: int


_TOKENS: Mapping[str, str] = {
    "comment": r"#[^\n]*|<#.*?#>",
    "here": r"@'[ \t]*\r?\n(?P<raw>.*?)\r?\n'@",
    "end": r"\r?\n|;",
    "space": r"[ \t]+|`\r?\n",
    "single": r"'(?:[^']|'')*'",
    "double": r'"(?:[^"`]|`.|"")*"',
    "variable": r"\$(?:\{[^}]+\}|(?:env:)?[A-Za-z_][A-Za-z0-9_]*|\?)",
    "pipe": r"\|",
    "brace": r"[{}()]",
    "assign": r"=",
    "not": r"!",
    "word": r"[^\s;|{}()=#'\"`$!&<>@,]+(?:[^\s;|{}()'\"`$&<>,])*",
    "call": r"&",
}
_TOKEN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _TOKENS.items()), re.DOTALL)
_COMPARISONS = ("-eq", "-ne")


@dataclasses.dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int
    spaced: bool
    """Whether a space stands before it."""


def parse_script(text: str, shown_as: str) -> tuple[Statement, ...]:
    """The statements of a script. `shown_as` is its name in messages."""
    parser = _Parser(_tokens(text, shown_as), shown_as)
    return parser.block(until=None)


def _tokens(text: str, shown_as: str) -> list[_Token]:
    found: list[_Token] = []
    at, spaced = 0, True
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        match = _TOKEN.match(text, at)
        if match is None:
            raise refusal(shown_as, line, text[at:].partition("\n")[0].strip())
        kind = match.lastgroup or ""
        kind = "here" if kind == "raw" else kind
        if kind not in ("comment", "space"):
            found.append(_Token(kind, match["raw"] if kind == "here" else match[0], line, spaced))
        spaced = kind in ("space", "comment", "end")
        at = match.end()
    return found


def refusal(shown_as: str, line: int, what: str) -> UnknownCommandError:
    return UnknownCommandError(f"the rehearsal does not know this PowerShell: {shown_as}, line {line}: {what}")


class _Parser:
    def __init__(self, tokens: Sequence[_Token], shown_as: str) -> None:
        self._tokens = tokens
        self._shown_as = shown_as
        self._at = 0

    def block(self, until: str | None) -> tuple[Statement, ...]:
        """The statements up to a closing brace, or to the end."""
        found: list[Statement] = []
        while True:
            while self._peek("end"):
                self._at += 1
            token = self._token()
            if token is None or (until and token.text == until and token.kind == "brace"):
                if (token is None) == (until is not None):
                    raise self._refuse("a missing }")
                self._at += until is not None
                return tuple(found)
            found.append(Statement(self._statement(token), token.line))

    def _statement(self, token: _Token) -> Pipeline | Assignment | If | Exit | Throw:
        word = token.text.lower() if token.kind == "word" else ""
        following = self._token(1)
        if token.kind == "variable" and following and following.kind == "assign":
            self._at += 2
            return self._ended(Assignment(_name(token.text), self._value()))
        if word in ("if", "exit", "throw"):
            self._at += 1
            if word == "if":
                return self._if()
            bare = self._token() is None or self._peek("end") or self._peek("brace", "}")
            value = Text("0", bare=True) if bare else self._value()
            return self._ended(Exit(value) if word == "exit" else Throw(value))
        return self._ended(self._pipeline())

    def _ended(self, what: Pipeline | Assignment | Exit | Throw) -> Pipeline | Assignment | Exit | Throw:
        if not (self._token() is None or self._peek("end") or self._peek("brace", "}")):
            raise self._refuse()
        return what

    def _if(self) -> If:
        self._need("(")
        condition = self._condition()
        self._need(")")
        self._need("{")
        then = self.block(until="}")
        kept = self._at
        while self._peek("end"):
            self._at += 1
        if self._peek("word", "else"):
            self._at += 1
            self._need("{")
            return If(condition, then, self.block(until="}"))
        self._at = kept
        return If(condition, then)

    def _condition(self) -> Condition:
        negated = False
        if self._peek("not") or self._peek("word", "-not"):
            self._at += 1
            inside = self._condition_in_brackets() if self._peek("brace", "(") else self._condition()
            return dataclasses.replace(inside, negated=not inside.negated)
        if self._peek("brace", "("):
            return self._condition_in_brackets()
        token = self._token()
        if token is not None and token.kind == "word" and not token.text[0].isdigit():
            return Condition(self._call(), negated=negated)
        left = self._value()
        operator = self._token()
        if operator is None or operator.text.lower() not in _COMPARISONS:
            return Condition(left)
        self._at += 1
        return Condition(left, operator.text.lower(), self._value())

    def _condition_in_brackets(self) -> Condition:
        self._need("(")
        inside = self._condition()
        self._need(")")
        return inside

    def _pipeline(self) -> Pipeline:
        parts = [self._pipeline_part()]
        while self._peek("pipe"):
            self._at += 1
            parts.append(self._pipeline_part())
        return Pipeline(tuple(parts))

    def _pipeline_part(self) -> Call | Expression:
        token = self._token()
        if token is not None and token.kind == "call":
            self._at += 1
            return self._call()
        if token is not None and token.kind == "word" and not re.fullmatch(r"-?[0-9]+", token.text):
            return self._call()
        return self._value()

    def _call(self) -> Call:
        words: list[Expression] = []
        while True:
            token = self._token()
            if token is None or token.kind in ("end", "pipe", "brace"):
                if not words:
                    raise self._refuse()
                return Call(tuple(words))
            if words and not token.spaced:
                raise self._refuse()  # a word that is glued from several parts
            words.append(self._expression())

    def _value(self) -> Expression:
        """An expression that stands alone: a word without quotes would be a command there, unless it is a number."""
        token = self._token()
        if token is not None and token.kind == "word" and not re.fullmatch(r"-?[0-9]+", token.text):
            raise self._refuse()
        return self._expression()

    def _expression(self) -> Expression:
        token = self._token()
        if token is None or token.kind not in ("single", "double", "here", "variable", "word"):
            raise self._refuse()
        self._at += 1
        if token.kind == "single":
            return Text(token.text[1:-1].replace("''", "'"))
        if token.kind == "double":
            return Text(token.text[1:-1], expands=True)
        if token.kind == "here":
            return Text(token.text)
        return Variable(_name(token.text)) if token.kind == "variable" else Text(token.text, bare=True)

    # ---- tokens

    def _token(self, ahead: int = 0) -> _Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _peek(self, kind: str, text: str = "") -> bool:
        token = self._token()
        return token is not None and token.kind == kind and (not text or token.text.lower() == text)

    def _need(self, text: str) -> None:
        if not self._peek("brace", text):
            raise self._refuse()
        self._at += 1

    def _refuse(self, what: str = "") -> UnknownCommandError:
        token = self._token() or self._tokens[-1]
        return refusal(self._shown_as, token.line, what or token.text)


def _name(variable: str) -> str:
    return variable[1:].strip("{}").lower()
