"""The temporary certificate authority: a CA file for clients, and a server-side TLS context for each host name."""

from __future__ import annotations

import ssl
import threading
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.network.machine import ListenerCertificate


class _SelfClosingSocket(ssl.SSLSocket):
    """Closes itself when it is deleted.

    CPython creates the socket before it checks the connection. If the client has reset the connection by then, CPython
    raises an error and leaves the socket open.
    """

    def __del__(self) -> None:
        self.close()


class Authority:
    """Issues the certificates of the hosts. Its key never leaves the process."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA(organization_name="imagegen rehearsal")
        # No client trusts this CA: a guest's certificate is accepted only by clients that do not check it.
        self._guests = trustme.CA(organization_name="imagegen rehearsal guest")
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()
        self.certificate_file = folder / "rehearsal-ca.pem"
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate_file.write_bytes(self._ca.cert_pem.bytes())

    def context_for(self, name: str) -> ssl.SSLContext:
        """A TLS context with a certificate for `name`."""
        with self._lock:
            if name not in self._contexts:
                context = _server_context()
                # Go's clients prefer HTTP/2, which the proxy does not support.
                context.set_alpn_protocols(["http/1.1"])
                self._ca.issue_cert(name).configure_cert(context)
                self._contexts[name] = context
            return self._contexts[name]

    def listener_context(self, address: str, certificate: ListenerCertificate | None) -> ssl.SSLContext:
        """The TLS context of a guest's WinRM listener, with the certificate of the cloud or a new one."""
        context = _server_context()
        if certificate is None:
            self._guests.issue_cert(address).configure_cert(context)
        else:
            trustme.LeafCert(certificate.key, certificate.certificate, []).configure_cert(context)
        return context


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = _SelfClosingSocket
    return context
