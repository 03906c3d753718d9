"""Evaluates the template expressions that clients send, such as [concat(parameters('a'), '/x')]."""

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
    """Evaluates expressions with the parameters, the variables and the resource group of one deployment."""

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
            "parameters": lambda arguments: self._find(self._parameters, "parameter", arguments),
            "resourcegroup": self._resource_group,
            "resourceid": self._resource_id,
            "subscription": self._subscription,
            "variables": lambda arguments: self.evaluate(self._find(self._variables, "variable", arguments)),
        }

    def evaluate(self, raw: Json) -> Json:
        """Evaluate every expression in a JSON value."""
        if isinstance(raw, dict):
            return {key: self.evaluate(item) for key, item in raw.items()}
        if isinstance(raw, list):
            return [self.evaluate(item) for item in raw]
        if not isinstance(raw, str) or not (raw.startswith("[") and raw.endswith("]")):
            return raw
        if raw.startswith("[["):
            return raw[1:]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise invalid("expressions refer to each other")
        try:
            return _Parser(raw[1:-1], self._functions).parse()
        finally:
            self._depth -= 1

    @staticmethod
    def _find(values: Mapping[str, Json], kind: str, arguments: Sequence[Json]) -> Json:
        name = str(_only(arguments))
        for known, value in values.items():
            if known.lower() == name.lower():
                return value
        raise invalid(f"the template {kind} '{name}' is not found")

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
        texts = [str(argument) for argument in arguments]
        at = next((index for index, text in enumerate(texts) if "/" in text), -1)
        if at not in (0, 1, 2):
            raise invalid(f"resourceId({', '.join(texts)}) has no resource type")
        name = texts[at - 1] if at else self._group.name
        subscription = texts[0] if at == 2 else self._group.subscription
        return GroupId(subscription, name).resource(texts[at], "/".join(texts[at + 1 :]))


class _Parser:
    def __init__(self, text: str, functions: Mapping[str, Callable[[Sequence[Json]], Json]]) -> None:
        self._text = text
        self._at = 0
        self._functions = functions

    def parse(self) -> Json:
        value = self._expression()
        if self._text[self._at :].strip():
            raise invalid(f"unexpected text in the expression '{self._text}'")
        return value

    def _next_token(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise invalid(f"the expression '{self._text}' cannot be read")
        self._at = match.end()
        return match

    def _skip_sign(self, sign: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match["sign"] != sign:
            return False
        self._at = match.end()
        return True

    def _expression(self) -> Json:
        token = self._next_token()
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
        if not self._skip_sign("("):
            raise invalid(f"the function '{name}' is not called")
        arguments: list[Json] = []
        while not self._skip_sign(")"):
            if arguments and not self._skip_sign(","):
                raise invalid(f"the arguments of '{name}' cannot be read")
            arguments.append(self._expression())
        return function(arguments)

    def _properties(self, value: Json) -> Json:
        while self._skip_sign("."):
            name = self._next_token()["name"]
            if not isinstance(value, dict) or name not in value:
                raise invalid(f"the property '{name}' does not exist in '{self._text}'")
            value = value[name]
        return value


def _only(arguments: Sequence[Json]) -> Json:
    if len(arguments) != 1:
        raise invalid(f"expected 1 argument, found {len(arguments)}")
    return arguments[0]


def _concat(arguments: Sequence[Json]) -> Json:
    if arguments and all(isinstance(argument, list) for argument in arguments):
        return [item for argument in arguments for item in argument]
    return "".join(str(argument) for argument in arguments)


def _format(arguments: Sequence[Json]) -> str:
    if not arguments:
        raise invalid("format needs a string")
    values = [str(argument) for argument in arguments[1:]]

    def fill(match: re.Match[str]) -> str:
        if int(match[1]) >= len(values):
            raise invalid("format has fewer values than placeholders")
        return values[int(match[1])]

    return _PLACEHOLDER.sub(fill, str(arguments[0]))
