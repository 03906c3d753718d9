"""Evaluates the template expressions that are really sent, such as [concat(parameters('a'), '/x')], and no others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import ArmError
from imagegen.rehearsal.clouds.azure.resources import GroupId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imagegen.rehearsal.network.messages import Json

_TOKEN = re.compile(r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>\d+)|'(?P<text>(?:[^']|'')*)'|(?P<sign>[(),.\[\]]))")
_PLACEHOLDER = re.compile(r"\{(\d+)\}")
MAX_DEPTH = 32


def invalid(message: str) -> ArmError:
    return ArmError(400, "InvalidTemplate", f"Deployment template validation failed: '{message}'")


class Evaluator:
    """One deployment: its parameters and variables, and the group it goes to."""

    def __init__(
        self,
        *,
        parameters: Mapping[str, Json],
        variables: Mapping[str, Json],
        group: GroupId,
        location: str,
    ) -> None:
        self._parameters = parameters
        self._variables = variables
        self._group = group
        self._location = location
        self._depth = 0
        self._functions: dict[str, Callable[[Sequence[Json]], Json]] = {
            "concat": _concat,
            "empty": lambda arguments: not _only(arguments),
            "format": _format,
            "not": lambda arguments: not _only(arguments),
            "parameters": lambda arguments: self._named(self._parameters, "parameter", arguments),
            "resourcegroup": self._resource_group,
            "resourceid": self._resource_id,
            "subscription": self._subscription,
            "variables": lambda arguments: self.value(self._named(self._variables, "variable", arguments)),
        }

    def value(self, raw: Json) -> Json:
        """A JSON value with every expression in it evaluated."""
        if isinstance(raw, dict):
            return {key: self.value(each) for key, each in raw.items()}
        if isinstance(raw, list):
            return [self.value(each) for each in raw]
        if not isinstance(raw, str) or not (raw.startswith("[") and raw.endswith("]")):
            return raw
        if raw.startswith("[["):
            return raw[1:]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise invalid("expressions refer to each other in a circle")
        try:
            return _Parser(raw[1:-1], self._functions).whole()
        finally:
            self._depth -= 1

    @staticmethod
    def _named(values: Mapping[str, Json], what: str, arguments: Sequence[Json]) -> Json:
        wanted = str(_only(arguments))
        for name, value in values.items():
            if name.lower() == wanted.lower():
                return value
        raise invalid(f"the template {what} '{wanted}' is not found")

    def _resource_group(self, arguments: Sequence[Json]) -> dict[str, str]:
        if arguments:
            raise invalid("resourceGroup takes no arguments")
        return {"id": str(self._group), "name": self._group.name, "location": self._location}

    def _subscription(self, arguments: Sequence[Json]) -> dict[str, str]:
        if arguments:
            raise invalid("subscription takes no arguments")
        subscription = self._group.subscription
        return {"id": f"/subscriptions/{subscription}", "subscriptionId": subscription}

    def _resource_id(self, arguments: Sequence[Json]) -> str:
        texts = [str(each) for each in arguments]
        at = next((index for index, text in enumerate(texts) if "/" in text), -1)
        if at not in (0, 1, 2):
            raise invalid(f"resourceId({', '.join(texts)}) names no resource type")
        name = texts[at - 1] if at else self._group.name
        subscription = texts[0] if at == 2 else self._group.subscription
        return GroupId(subscription, name).resource(texts[at], "/".join(texts[at + 1 :]))


class _Parser:
    def __init__(self, text: str, functions: Mapping[str, Callable[[Sequence[Json]], Json]]) -> None:
        self._text = text
        self._at = 0
        self._functions = functions

    def whole(self) -> Json:
        value = self._expression()
        if self._text[self._at :].strip():
            raise invalid(f"unexpected text in the expression '{self._text}'")
        return value

    def _next(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise invalid(f"the expression '{self._text}' cannot be read")
        self._at = match.end()
        return match

    def _sign(self, sign: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match["sign"] != sign:
            return False
        self._at = match.end()
        return True

    def _expression(self) -> Json:
        token = self._next()
        if token["text"] is not None:
            return token["text"].replace("''", "'")
        if token["number"] is not None:
            return int(token["number"])
        if token["name"] is None:
            raise invalid(f"the expression '{self._text}' cannot be read")
        return self._properties(self._call(token["name"]))

    def _call(self, name: str) -> Json:
        function = self._functions.get(name.lower())
        if function is None:
            raise ArmError(
                400,
                "InvalidTemplate",
                f"The template function '{name}' is not valid.",
                fault=f"unexpected template function {name}",
            )
        if not self._sign("("):
            raise invalid(f"the function '{name}' is not called")
        arguments: list[Json] = []
        while not self._sign(")"):
            if arguments and not self._sign(","):
                raise invalid(f"the arguments of '{name}' cannot be read")
            arguments.append(self._expression())
        return function(arguments)

    def _properties(self, value: Json) -> Json:
        while self._sign("."):
            name = self._next()["name"]
            if not isinstance(value, dict) or name not in value:
                raise invalid(f"the property '{name}' does not exist in '{self._text}'")
            value = value[name]
        return value


def _only(arguments: Sequence[Json]) -> Json:
    if len(arguments) != 1:
        raise invalid(f"one argument is wanted, not {len(arguments)}")
    return arguments[0]


def _concat(arguments: Sequence[Json]) -> Json:
    if arguments and all(isinstance(each, list) for each in arguments):
        return [item for each in arguments for item in each]
    return "".join(str(each) for each in arguments)


def _format(arguments: Sequence[Json]) -> str:
    if not arguments:
        raise invalid("format wants a text")
    values = [str(each) for each in arguments[1:]]

    def fill(match: re.Match[str]) -> str:
        if int(match[1]) >= len(values):
            raise invalid("format has fewer values than places")
        return values[int(match[1])]

    return _PLACEHOLDER.sub(fill, str(arguments[0]))
