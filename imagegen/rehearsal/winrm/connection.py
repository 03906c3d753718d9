"""Handles one connection: HTTP requests, responses, and NTLM, which authenticates the connection as in http.sys."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.winrm import envelope
from imagegen.rehearsal.winrm.ntlm import NtlmAcceptor, NtlmRefusedError, is_negotiate
from imagegen.rehearsal.winrm.observations import Cost, Observations

if TYPE_CHECKING:
    import socket
    import socketserver
    from collections.abc import Callable

    from imagegen.rehearsal.winrm.shells import Shells

log = logging.getLogger(__name__)

_SOAP_TYPE = "application/soap+xml"
# WinRM's own limit (MaxEnvelopeSizekb).
_LARGEST_BODY = 500 * 1024


@dataclasses.dataclass(frozen=True)
class Service:
    """What all connections of a server share."""

    username: str
    password: Callable[[], str]
    shells: Shells
    observations: Observations
    go_down: Callable[[], None]


class Connection(BaseHTTPRequestHandler):
    """The handler of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "Microsoft-HTTPAPI/2.0"
    sys_version = ""
    wbufsize = -1
    disable_nagle_algorithm = True

    def __init__(
        self,
        service: Service,
        request: socket.socket,
        address: Any,  # noqa: ANN401 - the base class's own type
        server: socketserver.BaseServer,
    ) -> None:
        self._service = service
        self._trusted = False
        self._handshake: NtlmAcceptor | None = None
        super().__init__(request, address, server)

    def do_POST(self) -> None:
        """Answer one request. The base class calls this method by its name."""
        body = self._body()
        if body is None:
            return
        if self.path != "/wsman":
            self._service.observations.add_fault(f"a request for {self.path!r}; WinRM answers at '/wsman' only")
            self._reply(HTTPStatus.NOT_FOUND)
        elif self._authenticate():
            self._answer(body)

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LARGEST_BODY:
            self._service.observations.add_fault(
                f"a request with Content-Length {length!r}; at most {_LARGEST_BODY} bytes"
            )
            self.close_connection = True
            self._reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE if length.isdecimal() else HTTPStatus.LENGTH_REQUIRED)
            return None
        body = self.rfile.read(int(length))
        self._service.observations.add_cost(Cost(bytes_in=len(body)))
        return body

    def _authenticate(self) -> bool:
        """Whether the request is authenticated. Otherwise a 401 has been sent."""
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        if not scheme:
            if not self._trusted:
                self._unauthorized()
            return self._trusted
        self._trusted = False
        if scheme.lower() != "negotiate":
            self._handshake = None
            self._service.observations.add_fault(
                f"the client offered {scheme} authentication; this machine takes Negotiate (NTLM) only, as Windows"
                " does when Basic is off: winrm_use_ntlm must be true"
            )
            self._unauthorized()
            return False
        try:
            challenge = self._continue_handshake(base64.b64decode(value, validate=True))
        except (NtlmRefusedError, binascii.Error) as error:
            self._handshake = None
            self._service.observations.add_fault(f"NTLM authentication failed: {error}")
            self._unauthorized()
            return False
        if challenge is not None:
            self._unauthorized(challenge)
            return False
        self._trusted = True
        return True

    def _continue_handshake(self, token: bytes) -> bytes | None:
        """The challenge for a token, or None if the token completed the handshake."""
        if is_negotiate(token):
            self._handshake = NtlmAcceptor(username=self._service.username, password=self._service.password)
            return self._handshake.challenge(token)
        handshake, self._handshake = self._handshake, None
        if handshake is None:
            raise NtlmRefusedError("the token answers no challenge of this connection")
        handshake.accept(token)
        return None

    def _answer(self, body: bytes) -> None:
        observations = self._service.observations
        observations.add_cost(Cost(messages=1))
        content_type = self.headers.get_content_type()
        if content_type != _SOAP_TYPE:
            observations.add_fault(f"a message of type {content_type!r}; inside TLS it must be a plain {_SOAP_TYPE}")
            self._reply(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
            return
        try:
            request = envelope.parse(body)
        except envelope.EnvelopeError as error:
            observations.add_fault(f"a message that is no WS-Management request: {error}")
            self._reply(HTTPStatus.BAD_REQUEST)
            return
        answer = self._service.shells.answer(request)
        self._reply(HTTPStatus.OK if answer.ok else HTTPStatus.INTERNAL_SERVER_ERROR, answer.body)
        if answer.restarts:
            # The client must have the response before its connection is closed.
            self.wfile.flush()
            self.close_connection = True
            self._service.go_down()

    def _unauthorized(self, challenge: bytes = b"") -> None:
        self._service.observations.add_cost(Cost(handshakes=1))
        token = f" {base64.b64encode(challenge).decode('ascii')}" if challenge else ""
        self._reply(HTTPStatus.UNAUTHORIZED, challenge=f"Negotiate{token}")

    def _reply(self, status: HTTPStatus, body: bytes = b"", *, challenge: str = "") -> None:
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        if body:
            self.send_header("Content-Type", f"{_SOAP_TYPE};charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self._service.observations.add_cost(Cost(bytes_out=len(body)))

    def log_message(self, format: str, *args: object) -> None:
        """The base class would write to standard error."""
        log.debug(format, *args)
