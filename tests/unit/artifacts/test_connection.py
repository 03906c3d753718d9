"""Addresses that no client and no resolver takes: one message before anything is asked, and never their own errors."""

from __future__ import annotations

import ssl

import pytest

from imagegen.artifacts import connection
from imagegen.errors import ConfigError

GOOD = "https://artifacts.example.com/a"
HOSTS = ["artifacts..corp.example", f"{'a' * 64}.example", "xn--a.example", "a.example:99999", "[fd00::", ""]


def _ask(url: str, environ: dict[str, str]) -> str:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ConfigError) as refused, connection.get(url, {}, environ=environ, trust=trust):
        pass
    return str(refused.value)


@pytest.mark.parametrize("host", HOSTS)
def test_a_url_that_cannot_be_read(host: str) -> None:
    """A server may redirect to one."""
    assert _ask(f"https://{host}/a", {}).endswith("is not a valid URL")


@pytest.mark.parametrize("host", HOSTS)
def test_a_proxy_that_cannot_be_read(host: str) -> None:
    said = _ask(GOOD, {"HTTPS_PROXY": f"http://user:secret@{host}"})
    assert said == "the proxy in HTTPS_PROXY or ALL_PROXY is not a valid URL"
