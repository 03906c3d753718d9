"""The credentials of hosts with private files: which address each file gets, and what is refused without showing it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

import pytest

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.fetch.credentials import (
    Address,
    PrivateHosts,
    address_texts,
    encode_addresses,
    hint_for,
)

FILE = "https://files.example.com/a/b.zip"
WAYS = {
    "files.example.com": {"token_env": "A_TOKEN"},
    "files.example.com:8443": {"query_env": "A_SAS"},
    "presigned.example.com/a/1.zip": {"query_env": "A_SAS"},
    "presigned.example.com/a": {"token_env": "A_TOKEN"},
    "basic.example.com": {"username_env": "A_USER", "password_env": "A_LOGIN"},
    "bucket.example.com": {"sign_in": "cloud"},
}
VALUES = {"A_TOKEN": "secret-1", "A_SAS": "?sv=1&sig=secret-2", "A_USER": "robot", "A_LOGIN": "secret:3"}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.signed: list[tuple[str, list[str], float]] = []

    def sign(self, cloud: str, urls: Sequence[str], valid_s: float) -> Mapping[str, str]:
        self.signed.append((cloud, [*urls], valid_s))
        return {url: f"{url}?sig={len(self.signed)}" for url in urls}


def hosts(values: Mapping[str, str] = VALUES, clock: Clock | None = None) -> PrivateHosts:
    clock = clock or Clock()
    return PrivateHosts(WAYS, values, clock.sign, lambda: clock.now)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (FILE, Address(FILE, "Bearer secret-1")),
        ("https://FILES.example.com:443/x", Address("https://FILES.example.com:443/x", "Bearer secret-1")),
        ("https://files.example.com:8443/x", Address("https://files.example.com:8443/x?sv=1&sig=secret-2")),
        ("https://basic.example.com/x", Address("https://basic.example.com/x", "Basic cm9ib3Q6c2VjcmV0OjM=")),
        # The innermost place counts. A folder is not the start of a name.
        ("https://presigned.example.com/a/1.zip", Address("https://presigned.example.com/a/1.zip?sv=1&sig=secret-2")),
        ("https://presigned.example.com/a/2.zip", Address("https://presigned.example.com/a/2.zip", "Bearer secret-1")),
        ("https://presigned.example.com/ab.zip", Address("https://presigned.example.com/ab.zip")),
        ("https://bucket.example.com/x", Address("https://bucket.example.com/x?sig=1")),
        ("https://other.example.com/x", Address("https://other.example.com/x")),
        ("https://files.example.com.evil.test/x", Address("https://files.example.com.evil.test/x")),
    ],
)
def test_each_host_gets_its_own_credentials(url: str, address: Address) -> None:
    assert hosts().address(url) == address
    assert hosts().is_private(url) == (address != Address(url))


def test_addresses_that_last_are_made_together() -> None:
    clock = Clock()
    urls = [FILE, "https://bucket.example.com/a", "https://public.example.com/c", "https://bucket.example.com/b"]
    made = hosts(clock=clock).lasting(urls, 7200)
    assert clock.signed == [("cloud", [urls[1], urls[3]], 7200)]
    assert made == {
        FILE: Address(FILE, "Bearer secret-1"),
        urls[1]: Address(f"{urls[1]}?sig=1"),
        urls[3]: Address(f"{urls[3]}?sig=1"),
    }


def test_a_signed_address_is_made_again_before_it_ends() -> None:
    clock = Clock()
    found = hosts(clock=clock)
    url = "https://bucket.example.com/x"
    addresses = []
    for clock.now in (0, 599, 601):
        addresses.append(found.address(url).url)
    assert addresses == [f"{url}?sig=1", f"{url}?sig=1", f"{url}?sig=2"]
    # A download may begin just before the next one is made.
    assert all(valid_s >= 1200 for _, _, valid_s in clock.signed)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"A_TOKEN": ""},
            "A_TOKEN must have the credentials of files.example.com and presigned.example.com, and is not set",
        ),
        (
            {"A_USER": "", "A_LOGIN": ""},
            "A_USER and A_LOGIN must have the credentials of basic.example.com, and are not",
        ),
        ({"A_TOKEN": "secret 1"}, "A_TOKEN, for files.example.com, is not valid: a bearer token has only visible"),
        ({"A_TOKEN": "secret-1\n"}, "A_TOKEN, for files.example.com, is not valid: it is not one line"),
        ({"A_SAS": "sig=a#secret-1"}, "A_SAS, for files.example.com:8443, is not valid: a query has only visible"),
        ({"A_SAS": "sig=secret-1 "}, "A_SAS, for files.example.com:8443, is not valid: a query has only visible"),
        ({"A_USER": "rob:ot"}, "A_USER, for basic.example.com, is not valid: a user name has no colon"),
        ({"A_LOGIN": "secret-1\udcff"}, "A_LOGIN, for basic.example.com, is not valid: it is not one line of UTF-8"),
    ],
)
def test_values_that_cannot_be_right_are_refused_without_showing_them(change: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        hosts({**VALUES, **change}).check()
    assert refused.value.message.startswith(f"artifacts.credentials: {reason}")
    assert "secret" not in f"{refused.value.message} {refused.value.hint}"


def test_only_the_variables_of_the_files_are_needed() -> None:
    found = hosts({"A_SAS": "sig=1"})
    found.check(["https://presigned.example.com/a/1.zip", "https://bucket.example.com/x", "https://other.example/x"])
    with pytest.raises(ConfigError, match=r"A_TOKEN must have the credentials of files\.example\.com, and is not set"):
        found.check([FILE])


def test_a_complete_environment_passes_without_a_request() -> None:
    clock = Clock()
    hosts(clock=clock).check()
    assert clock.signed == []


def test_the_builder_gets_addresses_by_the_names_of_artifacts() -> None:
    variable = encode_addresses({"b": Address("https://x.example.com/b?sig=1"), "a": Address(FILE, "Bearer t")})
    assert json.loads(base64.b64decode(variable)) == {
        "a": {"url": FILE, "authorization": "Bearer t"},
        "b": {"url": "https://x.example.com/b?sig=1", "authorization": ""},
    }
    assert encode_addresses({}) == ""


def test_more_than_a_variable_can_have_is_refused() -> None:
    with pytest.raises(RefusedError, match="the addresses of 60 private artifacts are too long"):
        encode_addresses({f"a{n}": Address(f"{FILE}?{'x' * 1600}") for n in range(60)})


def test_every_part_of_an_address_that_opens_a_file_is_hidden() -> None:
    pair = base64.b64encode(b"robot:secret-4").decode()
    texts = address_texts(
        [Address(f"{FILE}?sig=a%2Fb&se=1"), Address(FILE, "Bearer secret-1"), Address(FILE, f"Basic {pair}")]
    )
    assert set(texts) == {
        *("sig=a%2Fb&se=1", "sig%3Da%252Fb%26se%3D1", "Bearer secret-1", "secret-1", f"Basic {pair}", pair, "secret-4")
    }


def test_an_address_does_not_show_itself() -> None:
    assert "secret" not in repr(Address("https://x/?sig=secret", "Bearer secret"))


@pytest.mark.parametrize(
    ("is_private", "hint"),
    [
        (True, "check the credentials of files.example.com in artifacts.credentials, and whether they may read "),
        (False, "write files.example.com into artifacts.credentials"),
    ],
)
def test_the_hint_for_a_refused_download(is_private: bool, hint: str) -> None:
    assert hint_for(f"{FILE}?sig=secret", is_private=is_private).startswith(hint)
    assert "secret" not in hint_for(f"{FILE}?sig=secret", is_private=is_private)
