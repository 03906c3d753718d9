"""The HTTPS listener of a rehearsed machine: a port on loopback, with a thread for each connection."""

from __future__ import annotations

import logging
import math
import socket
import socketserver
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.winrm.connection import Connection, Service
from imagegen.rehearsal.winrm.observations import Cost, Observations
from imagegen.rehearsal.winrm.shells import JOIN_S, Shells

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

    from imagegen.rehearsal.winrm.command import Guest

log = logging.getLogger(__name__)

_HANDSHAKE_S = 10.0
# Packer waits five seconds after it saw a machine go down, so a shorter restart costs a build no time.
_RESTART_S = 2.0


class WinRMServer:
    """WinRM over HTTPS for one machine and one account.

    It listens from `start` on. A command whose result says so takes the machine down for `restart_s`.
    """

    def __init__(
        self,
        guest: Guest,
        *,
        username: str,
        password: Callable[[], str] | str,
        certificate: ssl.SSLContext,
        restart_s: float = _RESTART_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guest = guest
        self._observations = Observations()
        self._shells = Shells(guest, self._observations)
        self._restart_s = restart_s
        self._clock = clock
        self._down_until = clock()
        self._listener = _Listener(
            Service(
                username=username,
                password=password if callable(password) else lambda: password,
                shells=self._shells,
                observations=self._observations,
                go_down=self.restart,
            ),
            certificate,
            self.is_available,
        )
        # The poll interval is how long closing the listener takes at most.
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.05}, name="winrm", daemon=True
        )

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._listener.port

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults of the transport, each once."""
        return self._observations.faults

    @property
    def cost(self) -> Cost:
        """The cost so far."""
        return self._observations.cost

    def is_available(self) -> bool:
        """Whether a new connection is accepted now."""
        return self._clock() >= self._down_until

    def restart(self) -> None:
        """Go down for a while. Open connections and shells are lost."""
        self._down_until = math.inf
        self._drop_shells()
        self._listener.drop_connections()
        self._down_until = self._clock() + self._restart_s
        self._guest.restarted()

    def disconnect(self, away_s: float) -> None:
        """Lose the connections, and accept none for a while. Shells and their commands continue."""
        self._guest.disconnected()
        self._down_until = self._clock() + away_s
        self._listener.drop_connections()

    def start(self) -> None:
        """Start to listen."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and end all connections and commands. May be called without `start`, and twice."""
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join(JOIN_S)
        self._drop_shells()
        self._listener.drop_connections()
        if not self._listener.wait_until_idle(JOIN_S):
            log.warning("a WinRM connection did not end in time")
        self._listener.server_close()

    def _drop_shells(self) -> None:
        for command in self._shells.drop():
            self._observations.add_fault(f"command {command} did not end when its shell was lost")

    def __enter__(self) -> WinRMServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, service: Service, certificate: ssl.SSLContext, available: Callable[[], bool]) -> None:
        self._service = service
        self._certificate = certificate
        self._available = available
        self._changed = threading.Condition()
        self._served = 0
        self._open: set[ssl.SSLSocket] = set()
        # finish_request makes the handler, because it needs TLS and the service.
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)

    @property
    def port(self) -> int:
        return int(self.socket.getsockname()[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401, ARG002  # the base class's own types
        return self._available()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # the base class's own types
        with self._changed:
            self._served += 1
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # the base class's own types
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._served -= 1
                self._changed.notify_all()

    def wait_until_idle(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._served == 0, timeout_s)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # the base class's own types
        try:
            request.settimeout(_HANDSHAKE_S)
            tls = self._certificate.wrap_socket(request, server_side=True)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError, TimeoutError):
            log.debug("a client went away before TLS was up", exc_info=True)
            return
        except ssl.SSLError as error:
            self._service.observations.add_fault(f"TLS failed: {error.reason or error}: winrm_insecure must be true")
            return
        tls.settimeout(None)
        with self._changed:
            self._open.add(tls)
        try:
            # The machine may have gone down since this connection was let in; `drop_connections` did not see it then.
            if self._available():
                Connection(self._service, tls, client_address, self)
        except OSError:
            # Only the socket raises here; commands run in threads of their own, which keep their errors.
            log.debug("a connection ended in the middle of a request", exc_info=True)
        finally:
            with self._changed:
                self._open.discard(tls)
            tls.close()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002  # the base class's own types
        """The base class would write to standard error."""
        log.exception("a WinRM connection failed")
        self._service.observations.add_fault("a WinRM connection failed by a defect of the server; the log says which")

    def drop_connections(self) -> None:
        with self._changed:
            connections = list(self._open)
        for connection in connections:
            try:
                # SSLSocket's own shutdown would take TLS away under a thread that reads.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                log.debug("the connection was gone already", exc_info=True)
