"""The throw-away certificate authority: a CA file to trust, and a server-side TLS context per host name."""

from __future__ import annotations

import ssl
import threading
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.network.machine import ListenerCertificate


class _OwnEnd(ssl.SSLSocket):
    """Closes itself when it is let go.

    CPython makes the socket before it looks at the connection; where the client has reset that by then, it raises and
    leaves the socket open, with nobody but the garbage collector to close it.
    """

    def __del__(self) -> None:
        self.close()


class Authority:
    """Makes a certificate for every name that is played; its key never leaves the process."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA(organization_name="imagegen rehearsal")
        # Nobody is told to trust this one: a guest's certificate is accepted only by who asked for no check.
        self._guests = trustme.CA(organization_name="imagegen rehearsal guest")
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()
        self.certificate_file = folder / "rehearsal-ca.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate_file.write_bytes(self._ca.cert_pem.bytes())

    def context_for(self, name: str) -> ssl.SSLContext:
        """A TLS context that shows a certificate for `name`."""
        with self._lock:
            if name not in self._contexts:
                context = _server_context()
                # Go's clients offer HTTP/2 first; the proxy speaks HTTP/1.1 only.
                context.set_alpn_protocols(["http/1.1"])
                self._ca.issue_cert(name).configure_cert(context)
                self._contexts[name] = context
            return self._contexts[name]

    def listener_context(self, address: str, certificate: ListenerCertificate | None) -> ssl.SSLContext:
        """The TLS context of a guest's WinRM listener: with its cloud's certificate, or one of its own."""
        context = _server_context()
        if certificate is None:
            self._guests.issue_cert(address).configure_cert(context)
        else:
            trustme.LeafCert(certificate.key, certificate.certificate, []).configure_cert(context)
        return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = _OwnEnd
    return context
