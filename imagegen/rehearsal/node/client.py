"""HTTPS requests of the model machine's programs to a cluster. Its endpoint is a port on loopback."""

from __future__ import annotations

import dataclasses
import json
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.network.messages import Json
    from imagegen.rehearsal.node.api_server import Cluster

# The server is on loopback, and answers at once.
_TIMEOUT_S = 20.0


class ApiError(Exception):
    """A request failed: its status, or 0 where no answer came, and the words of client-go."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclasses.dataclass(frozen=True)
class ApiClient:
    """A client of the API server. Without `authority` it does not check the server's certificate."""

    cluster: Cluster
    server: str
    authority: bytes = b""
    token: str = dataclasses.field(default="", repr=False)
    certificate_file: Path | None = None
    """A file of the host with key and certificate."""

    def get(self, path: str) -> Json:
        return self._ask("GET", path, None)

    def post(self, path: str, body: Json) -> Json:
        return self._ask("POST", path, body)

    def patch(self, path: str, body: Json) -> Json:
        return self._ask("PATCH", path, body)

    def _ask(self, method: str, path: str, body: Json) -> Json:
        address = urlsplit(self.server)
        if address.netloc != self.cluster.endpoint:
            raise ApiError(
                0, f'{method} "{self.server}{path}": dial tcp {address.netloc}: connectex: it does not answer'
            )
        try:
            with httpx.Client(verify=self._tls(), trust_env=False, timeout=_TIMEOUT_S) as client:
                answer = client.request(
                    method,
                    f"https://127.0.0.1:{self.cluster.port}{path}",
                    json=body,
                    headers={
                        "Host": address.netloc,
                        **({"Authorization": f"Bearer {self.token}"} if self.token else {}),
                    },
                    # The server's certificate is for the address that the machine knows.
                    extensions={"sni_hostname": address.hostname},
                )
        except (httpx.TransportError, ssl.SSLError) as error:
            raise ApiError(0, f'{method} "{self.server}{path}": {error}') from error
        return _content(answer)

    def _tls(self) -> ssl.SSLContext:
        if self.authority:
            context = ssl.create_default_context(cadata=self.authority.decode())
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file)
        return context


def _content(answer: httpx.Response) -> Json:
    try:
        content = answer.json()
    except json.JSONDecodeError:
        content = answer.text
    if not answer.is_success:
        message = content.get("message", "") if isinstance(content, dict) else content
        raise ApiError(answer.status_code, message)
    return content
