"""The acceptor against another project's initiator."""

from __future__ import annotations

import pytest
import spnego

from imagegen.rehearsal.winrm.ntlm import NtlmAcceptor, NtlmRefusedError, is_negotiate

_USER, _PASSWORD = "Administrator", "Pa55 wörd"


def _login(user: str, password: str) -> NtlmAcceptor:
    acceptor = NtlmAcceptor(username=_USER, password=lambda: _PASSWORD)
    client = spnego.client(user, password, hostname="guest", protocol="ntlm")
    opening = client.step()
    assert opening is not None
    assert is_negotiate(opening)
    proof = client.step(acceptor.challenge(opening))
    assert proof is not None
    assert not is_negotiate(proof)
    acceptor.accept(proof)
    return acceptor


@pytest.mark.parametrize("user", [_USER, _USER.lower(), f".\\{_USER}", f"IMAGEGEN-GUEST\\{_USER}"])
def test_the_password_is_proven(user: str) -> None:
    _login(user, _PASSWORD)


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        (_USER, "pa55 wörd", "the password of 'Administrator' is wrong"),
        (_USER, "", "the password of 'Administrator' is wrong"),
        ("packer", _PASSWORD, "the user is 'packer'"),
        (f"CORP\\{_USER}", _PASSWORD, "the domain is 'CORP'"),
    ],
)
def test_anything_else_is_refused(user: str, password: str, reason: str) -> None:
    with pytest.raises(NtlmRefusedError, match=reason) as caught:
        _login(user, password)
    assert _PASSWORD not in str(caught.value)


def test_ntlm_version_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LM_COMPAT_LEVEL", "1")
    with pytest.raises(NtlmRefusedError, match="NTLMv1"):
        _login(_USER, _PASSWORD)


def test_a_proof_is_good_for_one_challenge_only() -> None:
    first, second = (NtlmAcceptor(username=_USER, password=lambda: _PASSWORD) for _ in range(2))
    client = spnego.client(_USER, _PASSWORD, hostname="guest", protocol="ntlm")
    opening = client.step()
    assert opening is not None
    proof = client.step(first.challenge(opening))
    assert proof is not None
    second.challenge(opening)
    with pytest.raises(NtlmRefusedError, match="is wrong"):
        second.accept(proof)


@pytest.mark.parametrize(
    "token", [b"", b"NTLMSSP\0", b"NTLMSSP\0\1\0\0\0", b"`\x01garbage", b"NTLMSSP\0\3\0\0\0" + b"\xff" * 80]
)
def test_garbage_is_refused(token: bytes) -> None:
    acceptor = NtlmAcceptor(username=_USER, password=lambda: _PASSWORD)
    with pytest.raises(NtlmRefusedError):
        acceptor.challenge(token)
    with pytest.raises(NtlmRefusedError):
        acceptor.accept(token)
