"""What is taken as a URL or a host: one table, which every key that names one is held to."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imagegen.base.errors import InvalidValue
from imagegen.config.fields import Key, keys
from imagegen.config.value_types import check_authority

LONG = ".".join(["a" * 63] * 3)

TAKEN = [
    *("artifacts.example.com", "artifacts", "localhost:8443", "a.example:1", "a.example:65535", "10.0.0.7:8443"),
    *("a-b.c--d.example", "0.example", "1a.2b", f"{LONG}.{'a' * 61}", f"{'a' * 63}.example", "xn--bcher-kva.example"),
]
REFUSED = {
    "artifacts..corp.example": "the host 'artifacts..corp.example' has an empty part",
    ".corp.example": "the host '.corp.example' has an empty part",
    "corp.example.": "the host 'corp.example.' has an empty part",
    ":443": "the host '' has an empty part",
    f"{'a' * 64}.example": "the part aaaaaaaaaaaaaaaaaaaa… of the host has 64 characters",
    f"{LONG}.{'a' * 62}": "the host aaaaaaaaaaaaaaaaaaaa… has 254 characters",
    "a.example:99999": "'99999' is not a port",
    "a.example:65536": "'65536' is not a port",
    "a.example:0": "'0' is not a port",
    "a.example:0443": "'0443' is not a port",
    "a.example:": "'' is not a port",
    "a.example:https": "'https' is not a port",
    "a.example:1:2": "the host 'a.example:1' has the character ':'",
    "-a.example": "the part '-a' of the host '-a.example' begins or ends with a dash",
    "a-.example": "the part 'a-' of the host 'a-.example' begins or ends with a dash",
    "my_mirror.example": "the host 'my_mirror.example' has the character '_'",
    "a,b.example": "the host 'a,b.example' has the character ','",
    "bücher.example": "the host 'bücher.example' has a character outside ASCII",
    "xn--a.example": "the host 'xn--a.example' is not a valid IDNA name: ",
    "a.xn--ls8h.example": "the host 'a.xn--ls8h.example' is not a valid IDNA name: ",
    "[fd00::1]": "the host [fd00::1] is an IPv6 address, which is not supported here",
    "[fd00::1]:443": "the host [fd00::1] is an IPv6 address, which is not supported here",
    "10.0.0.256": "the host '10.0.0.256' is neither a name nor an IPv4 address",
    "10.0.7": "the host '10.0.7' is neither a name nor an IPv4 address",
    "010.0.0.7": "the host '010.0.0.7' is neither a name nor an IPv4 address",
    "example.7": "the host 'example.7' is neither a name nor an IPv4 address",
}


def test_taken() -> None:
    assert [check_authority(authority) for authority in TAKEN] == TAKEN


@pytest.mark.parametrize("authority", REFUSED)
def test_refused_with_what_is_wrong(authority: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        check_authority(authority)
    assert str(refused.value).startswith(REFUSED[authority])
    assert refused.value.hint


def _texts(example: Any) -> list[str]:  # noqa: ANN401 - any example
    if isinstance(example, (list, dict)):
        parts = [*example, *example.values()] if isinstance(example, dict) else example
        return [text for part in parts for text in _texts(part)]
    return [str(example)]


# By the key: an authority that stands in its example, in whichever part of the example.
HOSTS = ("artifacts.example.com", "mirror.example.com", "proxy.example.com:3128", "registry.example.com", "docker.io")
NAMING = {
    (key.path, host): key
    for key in keys()
    for host in HOSTS
    if any(host in text for text in _texts(key.field.examples))
}
ALSO = {
    ("proxy.no_proxy", ".svc"),
    ("windows.container_images[]", "mcr.microsoft.com"),
    ("host_names.dns_suffix", "nodes.example.com"),
    ("credential_providers[].match_images[]", "registry.internal"),
}


def _with(example: Any, host: str, other: str) -> Any:  # noqa: ANN401 - any example
    if isinstance(example, dict):
        return {_with(key, host, other): _with(value, host, other) for key, value in example.items()}
    if isinstance(example, list):
        return [_with(item, host, other) for item in example]
    return example.replace(host, other) if isinstance(example, str) else example


def _takes(key: Key, value: object) -> bool:
    wanted: Any = key.field.annotation
    for part in key.field.metadata:
        wanted = Annotated[wanted, part]
    try:
        pydantic.TypeAdapter(wanted, config=pydantic.ConfigDict(strict=True)).validate_python(value)
    except pydantic.ValidationError:
        return False
    return True


def _named(path: str) -> Key:
    return next(key for key in keys() if path in (key.path, f"{key.path}{key.mark}"))


@pytest.mark.parametrize(("path", "host"), sorted([*NAMING, *ALSO]))
def test_every_key_that_names_a_host_is_held_to_it(path: str, host: str) -> None:
    key = _named(path)
    example = key.field.examples[0] if key.field.examples else None
    assert _takes(key, example)
    for wrong in ("artifacts..corp.example", f"{'a' * 64}.example", "-a.example", "a.example:99999", "a.example:0"):
        assert not _takes(key, _with(example, host, wrong)), wrong


def test_the_keys_are_those_that_name_a_host() -> None:
    assert {path for path, _ in NAMING} == {
        *("artifacts.allowed_hosts", "artifacts.credentials[].host", "artifacts.denied_hosts", "artifacts.mirror"),
        "artifacts.pull_from",
        *("artifacts.signatures.crls", "credential_providers[].url", "executables[].url", "images"),
        *(
            "image_tarballs[].name",
            "image_tarballs[].url",
            "kubernetes.pause_image",
            "overrides",
            "overrides.*.url",
            "proxy.http",
            "proxy.https",
        ),
        *("registry_credentials[].registry", "runtime.containerd.registry_mirrors"),
    }


@pytest.mark.parametrize(
    ("entry", "taken"),
    [
        *(("*", True), (".svc", True), ("*.example.com", True), ("10.0.0.0/8", True), ("fd00::/8", True)),
        *(("fd00::1", True), ("a.example:8080", True), ("10.0.0.1/33", False), ("a/b", False), ("a::b::c", False)),
        *(
            ("..svc", False),
            ("a.example:0", False),
            ("*a.example", True),
            ("10.*", True),
            ("corp.", False),
            ("a..*", False),
        ),
    ],
)
def test_no_proxy_takes_networks_and_domains_too(entry: str, taken: bool) -> None:
    assert _takes(_named("proxy.no_proxy"), [entry]) == taken


@given(st.text(st.sampled_from("a0-.:xn_9[]1ü"), max_size=9))
@settings(max_examples=40, database=None, deadline=None)
def test_what_is_taken_is_taken_by_client_and_resolver(authority: str) -> None:
    try:
        check_authority(authority)
    except InvalidValue:
        return
    url = httpx.URL(f"https://{authority}/a")
    assert url.host.encode("idna")
    assert url.port is None or 0 < url.port < 65536
