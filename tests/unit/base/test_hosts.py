"""Which hosts may be asked: spellings that lead to the same host, ports, and lists that contradict each other."""

from __future__ import annotations

import pytest

from imagegen.base.hosts import ANY_HOST, HostPolicy, plain_host


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("a.example.com", "a.example.com"),
        ("A.Example.COM", "a.example.com"),
        ("a.example.com:443", "a.example.com"),
        ("a.example.com:8443", "a.example.com:8443"),
        ("a.example.com.", "a.example.com"),
        ("a.example.com.:443", "a.example.com"),
        ("a.example.com.:8443", "a.example.com:8443"),
        ("a.example.com:", "a.example.com"),
        ("[::1]", "[::1]"),
        ("[::1]:443", "[::1]"),
        ("[::1]:8443", "[::1]:8443"),
    ],
)
def test_plain_host(host: str, plain: str) -> None:
    assert plain_host(host) == plain


@pytest.mark.parametrize(
    ("allowed", "denied", "host", "is_allowed"),
    [
        ([], [], "a.example", True),
        (["a.example"], [], "a.example", True),
        (["A.example:443"], [], "a.example.", True),
        (["a.example"], [], "b.example", False),
        (["a.example"], [], "a.example:8443", False),
        (["a.example:8443"], [], "a.example", False),
        (["example"], [], "a.example", False),
        ([], ["a.example"], "b.example", True),
        ([], ["a.example"], "a.example", False),
        ([], ["a.example"], "A.EXAMPLE.", False),
        ([], ["a.example"], "a.example:8443", False),
        ([], ["a.example:8443"], "a.example", True),
        ([], ["a.example:8443"], "a.example.:8443", False),
        ([], ["a.example:443"], "a.example", False),
        (["a.example"], ["a.example"], "a.example", False),
        (["a.example", "b.example"], ["a.example"], "b.example", True),
    ],
)
def test_is_allowed(allowed: list[str], denied: list[str], host: str, is_allowed: bool) -> None:
    assert HostPolicy.of(allowed, denied).is_allowed(host) is is_allowed
    assert ANY_HOST.is_allowed(host)
