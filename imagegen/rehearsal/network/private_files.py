"""What the hosts of private artifacts demand of a request: the credentials that the config names, or a cloud's
signature."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from imagegen.fetch.credentials import Ways

Admit = Callable[[Request], Response | None]
"""The answer in place of the file; None if the request may have it."""

_CHALLENGE: Final = (("WWW-Authenticate", "Bearer"),)


@dataclasses.dataclass(frozen=True)
class Demand:
    """What one host demands, or one path on it."""

    authorization: str = ""
    query: str = ""
    cloud: str = ""
    """The cloud that must have signed the query."""

    def admit(self, request: Request, clouds: Mapping[str, Admit]) -> Response | None:
        if self.cloud:
            return clouds[self.cloud](request)
        given = request.headers.get("authorization", ""), request.target.partition("?")[2]
        return None if given == (self.authorization, self.query) else Response(401, b"", _CHALLENGE)


def demands_of(ways: Ways, values: Mapping[str, str]) -> dict[str, Demand]:
    """The demand of each place. `values` are those of the environment variables."""
    return {place: _demand({key: values.get(name, name) for key, name in way.items()}) for place, way in ways.items()}


def _demand(given: Mapping[str, str]) -> Demand:
    if "sign_in" in given:
        return Demand(cloud=given["sign_in"])
    if "query_env" in given:
        return Demand(query=given["query_env"])
    if "token_env" in given:
        return Demand(authorization=f"Bearer {given['token_env']}")
    pair = f"{given['username_env']}:{given['password_env']}"
    return Demand(authorization=f"Basic {base64.b64encode(pair.encode()).decode()}")
