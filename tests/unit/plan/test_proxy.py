"""The proxy of the guest's downloads: which one, and for which hosts NO_PROXY means none."""

from __future__ import annotations

import re

import pytest

from imagegen.config.node import Proxy
from imagegen.fetch.http import proxy_for
from imagegen.plan.context import download_proxy

URL = "http://proxy.example.com:3128"

# What is written, and what of .NET's own spelling of an address it does or does not spare.
ENTRIES = [
    (
        "example.com",
        ["https://example.com", "https://a.b.example.com", "https://example.com:8443"],
        ["https://xexample.com", "https://example.com.org", "https://examplescom"],
    ),
    (".corp", ["https://mirror.corp", "https://mirror.corp:8443"], ["https://mirrorcorp", "https://mirror.corp.org"]),
    ("*.corp", ["https://mirror.corp"], ["https://mirrorcorp"]),
    ("Mirror.Corp", ["https://mirror.corp"], ["https://corp"]),
    (
        "mirror.corp:8443",
        ["https://mirror.corp:8443", "https://a.mirror.corp:8443"],
        ["https://mirror.corp", "https://mirror.corp:84430"],
    ),
    ("mirror.corp:443", ["https://mirror.corp"], ["https://mirror.corp:8443"]),
    (
        "10.0.0.1",
        ["https://10.0.0.1", "https://10.0.0.1:8443"],
        ["https://110.0.0.1", "https://10.0.0.10", "https://10a0.0.1"],
    ),
    ("my-host", ["https://my-host"], ["https://my-hosts"]),
]


def bypassed(entry: str, address: str) -> bool:
    proxy = download_proxy(Proxy(https=URL, no_proxy=[entry]))
    assert proxy is not None
    assert proxy["url"] == URL
    assert isinstance(proxy["bypass"], list)
    [pattern] = proxy["bypass"]
    return re.search(pattern, address, re.IGNORECASE) is not None


@pytest.mark.parametrize(("entry", "spared", "others"), ENTRIES, ids=[entry for entry, _, _ in ENTRIES])
def test_an_entry_spares_what_it_names(entry: str, spared: list[str], others: list[str]) -> None:
    assert [address for address in spared if not bypassed(entry, address)] == []
    assert [address for address in others if bypassed(entry, address)] == []


@pytest.mark.parametrize("entry", ["example.com", ".corp", "10.0.0.1", "my-host"])
@pytest.mark.parametrize("host", ["example.com", "a.example.com", "b.corp", "corp", "10.0.0.1", "my-host", "else.org"])
def test_names_mean_the_same_on_the_host_and_on_the_machine(entry: str, host: str) -> None:
    direct = proxy_for(host, {"HTTPS_PROXY": URL, "NO_PROXY": entry}) is None
    assert bypassed(entry, f"https://{host}") == direct


def test_what_no_name_can_be_matched_with_is_left_out() -> None:
    entries = ["10.0.0.0/8", "fd00::1", "10.*", "a*b"]
    assert download_proxy(Proxy(https=URL, no_proxy=entries)) == {"url": URL, "bypass": []}


def test_exceptions_stand_once_and_in_order() -> None:
    plans = [download_proxy(Proxy(https=URL, no_proxy=entries)) for entries in (["b", "a", ".a"], ["*.a", "B"])]
    assert plans[0] == plans[1]
    assert plans[0] is not None
    assert plans[0]["bypass"] == [r"^https://([^/:]+\.)?a(:[0-9]+)?$", r"^https://([^/:]+\.)?b(:[0-9]+)?$"]


@pytest.mark.parametrize(
    "proxy",
    [
        None,
        Proxy(http=URL),
        Proxy(https="https://proxy.example.com"),
        Proxy(https=URL, no_proxy=["*"]),
        Proxy(https=URL, no_proxy=["corp", "*"]),
    ],
)
def test_downloads_go_through_no_proxy(proxy: Proxy | None) -> None:
    assert download_proxy(proxy) is None
