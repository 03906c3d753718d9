"""The server side of one NTLM handshake: reads two tokens, and sends a challenge or rejects the client.

The password stays in memory. pyspnego's public acceptor reads its credentials from a file, which an environment
variable names, so this module uses only pyspnego's message types and hash functions.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from typing import TYPE_CHECKING

from spnego._ntlm_raw.crypto import ntowfv1, ntowfv2
from spnego._ntlm_raw.messages import (
    Authenticate,
    AvId,
    Challenge,
    FileTime,
    Negotiate,
    NegotiateFlags,
    TargetInfo,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Callable

COMPUTER = "IMAGEGEN-GUEST"

_PROOF = 16
_NTLM_V1_RESPONSE = 24


class NtlmRefusedError(Exception):
    """The handshake failed, with the reason."""


class NtlmAcceptor:
    """One handshake of one connection: `challenge`, then `accept`.

    No message is signed or sealed inside TLS, so no session key is derived, and a MIC (Packer's client sends none)
    is ignored.
    """

    def __init__(self, *, username: str, password: Callable[[], str]) -> None:
        self._username = username
        self._password = password
        self._server_challenge = secrets.token_bytes(8)

    def challenge(self, token: bytes) -> bytes:
        """The CHALLENGE message for a NEGOTIATE message."""
        flags = _negotiate(token).flags
        if not flags & NegotiateFlags.unicode:
            raise NtlmRefusedError("the client does not support Unicode")
        flags |= (
            NegotiateFlags.ntlm
            | NegotiateFlags.always_sign
            | NegotiateFlags.request_target
            | NegotiateFlags.target_info
            | NegotiateFlags.target_type_server
            | NegotiateFlags.version
        )
        flags &= ~(NegotiateFlags.oem | NegotiateFlags.lm_key)
        target = TargetInfo()
        target[AvId.nb_computer_name] = COMPUTER
        target[AvId.nb_domain_name] = COMPUTER
        target[AvId.dns_computer_name] = COMPUTER.lower()
        target[AvId.timestamp] = FileTime.now()
        return Challenge(
            flags,
            self._server_challenge,
            target_name=COMPUTER,
            target_info=target,
            version=Version(10, 0, 20348),
        ).pack()

    def accept(self, token: bytes) -> None:
        """Raise an error unless an AUTHENTICATE message proves the password."""
        message = _authenticate(token)
        user, domain = message.user_name or "", message.domain_name or ""
        if user.lower() != self._username.lower():
            raise NtlmRefusedError(f"the user is {user!r}; this machine knows {self._username!r} only")
        if domain.upper() not in ("", ".", COMPUTER):
            raise NtlmRefusedError(f"the domain is {domain!r}; this machine is in none")
        response = message.nt_challenge_response or b""
        if len(response) <= _NTLM_V1_RESPONSE:
            raise NtlmRefusedError("the client sent NTLMv1 or no response; Windows accepts only NTLMv2")
        key = ntowfv2(user, ntowfv1(self._password()), domain)
        proof, blob = response[:_PROOF], response[_PROOF:]
        if not hmac.compare_digest(proof, hmac.digest(key, self._server_challenge + blob, "md5")):
            raise NtlmRefusedError(f"the password of {self._username!r} is wrong")


def is_negotiate(token: bytes) -> bool:
    """Whether the token opens a handshake: a raw NEGOTIATE message, as Packer's client sends under `Negotiate`."""
    return token.startswith(b"NTLMSSP\0\1\0\0\0")


def _negotiate(token: bytes) -> Negotiate:
    try:
        return Negotiate.unpack(token)
    except (ValueError, struct.error) as error:
        raise NtlmRefusedError("the token is not an NTLM NEGOTIATE message") from error


def _authenticate(token: bytes) -> Authenticate:
    try:
        return Authenticate.unpack(token)
    except (ValueError, struct.error) as error:
        raise NtlmRefusedError("the token is not an NTLM AUTHENTICATE message") from error
