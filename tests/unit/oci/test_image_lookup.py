"""What a lock says about a container image, and which answers of registries are refused."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.hosts import HostPolicy
from imagegen.fetch.http import Answer
from imagegen.fetch.lock import Lock
from imagegen.fetch.lookup import KEEP, Refresh, lock_images
from imagegen.oci.names import ImageRequest, chain_id
from imagegen.oci.registry import look_up_image
from imagegen.rehearsal.network.registries import Registries
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.fetch.http import Ask

OWN = "registry.example.com:5000/team/app:1"
SERVERCORE = "mcr.microsoft.com/windows/servercore:ltsc2022"
MIRROR = "https://mirror.example.com/hub/"
OWN_BUILD = ("windows", "10.0.20348.9")
ZEROS = "sha256:" + "0" * 64
DIFF = "sha256:" + "1" * 64


def asks(name: str, *builds: int, mirrors: tuple[str, ...] = (), asks_registry: bool = True) -> ImageRequest:
    return ImageRequest(ImageName.parse(name), builds or (20348,), mirrors, asks_registry=asks_registry)


@pytest.mark.parametrize(
    ("reference", "whole", "host"),
    [
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10", "registry.k8s.io"),
        ("library/nginx", "docker.io/library/nginx:latest", "registry-1.docker.io"),
        ("docker.io/nginx:1", "docker.io/library/nginx:1", "registry-1.docker.io"),
        ("rancher/pause:3.6", "docker.io/rancher/pause:3.6", "registry-1.docker.io"),
        ("localhost/a", "localhost/a:latest", "localhost"),
        (OWN, OWN, "registry.example.com:5000"),
        ("registry.example.com:5000/a", "registry.example.com:5000/a:latest", "registry.example.com:5000"),
        (f"a.example.com/b:1@{ZEROS}", f"a.example.com/b@{ZEROS}", "a.example.com"),
    ],
)
def test_a_name_is_read_as_container_runtimes_read_it(reference: str, whole: str, host: str) -> None:
    name = ImageName.parse(reference)
    assert (str(name), name.host) == (whole, host)
    assert ImageName.parse(whole) == name


def test_layers_have_the_name_of_the_image_specification() -> None:
    """The example's rule: the first is its own chain, and each next one is the digest of chain and layer."""
    second = "sha256:" + hashlib.sha256(f"{DIFF} {ZEROS}".encode()).hexdigest()
    assert [chain_id([DIFF]), chain_id([DIFF, ZEROS])] == [DIFF, second]


class Web:
    """A registry with these documents for any name, whose answers a test can change."""

    def __init__(self, *platforms: tuple[str, str], index: bool = True) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.sent: list[str] = []
        rows = []
        for number, (os, version) in enumerate(platforms):
            platform = {"os": os, "architecture": "amd64", **({"os.version": version} if version else {})}
            config = self.keep({**platform, "rootfs": {"diff_ids": [DIFF, ZEROS]}, "n": number})
            layers = [{"digest": ZEROS, "size": 5}, {"digest": DIFF, "size": 10 + number}]
            digest = self.keep({"config": {"digest": config}, "layers": layers})
            rows.append({"digest": digest, "platform": platform})
        self.digest = self.keep({"manifests": rows}) if index else str(rows[0]["digest"])
        self.answers["1"] = self.answers[self.digest]

    def keep(self, document: object) -> str:
        data = json.dumps(document).encode()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.answers[digest] = data
        return digest

    def __call__(self, url: str, _headers: Mapping[str, str], authorization: str) -> Answer:
        self.asked.append(url)
        self.sent.append(authorization)
        body = self.answers.get(url.rpartition("/")[2].partition("?")[0])
        return Answer(404, {}, b"") if body is None else Answer(200, {}, body)


def test_the_manifest_of_the_hosts_build_is_taken() -> None:
    web = Web(("linux", ""), ("windows", "10.0.17763.1"), ("windows", "10.0.20348.9"), ("windows", "10.0.20348.10"))
    locked = look_up_image(asks(OWN), web)
    assert (locked.digest, locked.os_version, locked.windows_build) == (web.digest, "10.0.20348.10", 20348)
    assert (locked.size, locked.layers) == (5 + 10 + 3, chain_id([DIFF, ZEROS]))
    assert web.asked[0] == "https://registry.example.com:5000/v2/team/app/manifests/1"


@pytest.mark.parametrize(
    ("platforms", "builds", "version"),
    [
        ([("windows", "10.0.20348.9"), ("windows", "10.0.26100.1")], (26100, 20348), "10.0.26100.1"),
        ([("windows", "10.0.20348.9"), ("windows", "")], (26100, 20348), "10.0.20348.9"),
        ([("windows", "10.0.17763.9"), ("windows", "")], (26100, 20348), ""),
    ],
)
def test_without_the_hosts_build_the_next_one_is_taken(
    platforms: list[tuple[str, str]], builds: tuple[int, ...], version: str
) -> None:
    assert look_up_image(asks(OWN, *builds), Web(*platforms)).os_version == version


def test_an_image_without_an_index_says_its_version_itself() -> None:
    web = Web(("windows", "10.0.20348.9"), index=False)
    locked = look_up_image(asks(OWN), web)
    assert (locked.digest, locked.manifest, locked.os_version) == (web.digest, web.digest, "10.0.20348.9")


@pytest.mark.parametrize("index", [True, False])
def test_an_image_for_other_machines_is_refused(index: bool) -> None:
    with pytest.raises(ConfigError, match=r"no image for Windows build 20348: it has .*windows/amd64 10\.0\.17763\.1"):
        look_up_image(asks(OWN), Web(("windows", "10.0.17763.1"), ("linux", ""), index=index))


def test_a_name_with_a_digest_is_that_image() -> None:
    web = Web(("windows", "10.0.20348.9"))
    assert look_up_image(asks(f"{OWN}@{web.digest}"), web).digest == web.digest
    web.answers[ZEROS] = web.answers[web.digest]
    with pytest.raises(VerificationError, match="answered sha256"):
        look_up_image(asks(f"{OWN}@{ZEROS}"), web)


def test_every_document_must_have_its_digest() -> None:
    whole = Web(("windows", "10.0.20348.9"))
    inner = [digest for digest in whole.answers if digest not in ("1", whole.digest)]
    assert len(inner) == 2
    for digest in inner:
        web = Web(("windows", "10.0.20348.9"))
        web.answers[digest] += b" "
        with pytest.raises(VerificationError, match=f"for {digest}"):
            look_up_image(asks(OWN), web)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"[" * 100_000])
def test_a_page_of_a_web_filter_is_no_image(body: bytes) -> None:
    web = Web(("windows", "10.0.20348.9"))
    web.answers["1"] = body
    with pytest.raises(RefusedError, match="not a JSON document"):
        look_up_image(asks(OWN), web)


@pytest.mark.parametrize(
    "index",
    [
        {"manifests": None},
        {"manifests": 1},
        {"manifests": [{"platform": {"os": "windows", "architecture": "amd64", "os.version": f"10.0.{'9' * 5000}"}}]},
    ],
    ids=["null", "a number", "an endless version"],
)
def test_an_index_that_is_not_valid_is_refused_by_the_name_of_its_registry(index: dict[str, Any]) -> None:
    web = Web(("windows", "10.0.20348.9"))
    web.answers["1"] = json.dumps(index).encode()
    with pytest.raises(VerificationError, match=r"^registry\.example\.com:5000 has an image .* that is not valid"):
        look_up_image(asks(OWN), web)


@pytest.mark.parametrize(
    ("realm", "token"),
    [("https://auth.example.com/token", b'{"a":' * 100_000), ("https://[/token", b"{}")],
    ids=["nested", "no address"],
)
def test_an_answer_that_holds_no_token_is_refused_by_the_name_of_its_registry(realm: str, token: bytes) -> None:
    def ask(url: str, _headers: Mapping[str, str], _authorization: str) -> Answer:
        challenge = {"www-authenticate": f'Bearer realm="{realm}"'}
        return Answer(200, {}, token) if url.startswith(realm) else Answer(401, challenge, b"")

    with pytest.raises(RefusedError, match=r"registry\.example\.com:5000 gives no token"):
        look_up_image(asks(OWN), ask)


@pytest.mark.parametrize(
    "change", [{"layers": 1}, {"config": {}}, {"layers": [{"digest": ZEROS, "size": "x"}]}, {"config": {"digest": "x"}}]
)
def test_a_manifest_that_is_not_valid_is_refused(change: dict[str, Any]) -> None:
    web = Web(("windows", "10.0.20348.9"), index=False)
    web.answers["1"] = json.dumps({**json.loads(web.answers["1"]), **change}).encode()
    with pytest.raises(VerificationError):
        look_up_image(asks(OWN), web)


def test_mirrors_are_asked_in_their_order_before_the_registry() -> None:
    def ask(url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        asked.append(url.split("/v2/")[0])
        if url.startswith("https://down.example.com"):
            raise ConnectionError("no route to host")
        return web(url, headers, authorization)

    asked: list[str] = []
    web = Web(("windows", "10.0.20348.9"))
    mirrors = ("https://down.example.com/", MIRROR)
    look_up_image(asks(OWN, mirrors=mirrors), ask)
    assert asked == ["https://down.example.com", *["https://mirror.example.com/hub"] * 3]
    assert web.asked[0].endswith("/hub/v2/team/app/manifests/1?ns=registry.example.com%3A5000")
    web.answers.clear()
    with pytest.raises(RefusedError, match=r"registry\.example\.com:5000 answered with status 404") as refused:
        look_up_image(asks(OWN, mirrors=mirrors), ask)
    assert [*refused.value.details] == [
        "https://down.example.com/ does not answer: no route to host",
        f"{MIRROR} answered with status 404",
    ]
    with pytest.raises(RefusedError, match=rf"{MIRROR} answered"):
        look_up_image(asks(OWN, mirrors=mirrors, asks_registry=False), ask)


@pytest.mark.parametrize("name", ["docker.io/library/nginx:1", "ghcr.io/team/app:2", "registry.k8s.io/pause:3.10.1"])
def test_a_token_that_everybody_gets_is_enough(name: str) -> None:
    """The stand-in answers with an error to a token that it did not give, and after a redirect to any token."""
    direct = look_up_image(asks(name), Registries([name]).ask)
    mirrored = look_up_image(asks(name, mirrors=(MIRROR,), asks_registry=False), Registries([name], [MIRROR]).ask)
    assert direct == mirrored


@pytest.mark.parametrize(
    ("challenge", "token"),
    [
        ('Basic realm="x"', Answer(200, {}, b"")),
        ("", Answer(200, {}, b"")),
        ('Bearer realm="http://auth.example.com/token"', Answer(200, {}, b'{"token": "t"}')),
        ('Bearer realm="https://auth.example.com/token"', Answer(401, {}, b"")),
        ('Bearer realm="https://auth.example.com/token"', Answer(200, {}, b"[]")),
        ('Bearer realm="https://auth.example.com/token"', Answer(200, {}, '{"token": "t\u00fc"}'.encode())),
        ('Bearer realm="https://auth.example.com/token"', Answer(200, {}, b'{"token": "t"}')),
    ],
)
def test_a_registry_that_demands_credentials_is_refused_by_name(challenge: str, token: Answer) -> None:
    def ask(url: str, _headers: Mapping[str, str], authorization: str) -> Answer:
        assert url.startswith("https://")  # a token over http would be anybody's
        assert authorization.isascii()  # a header carries nothing else
        return token if "auth.example.com" in url else Answer(401, {"www-authenticate": challenge}, b"")

    with pytest.raises(ConfigError, match=r"registry\.example\.com:5000 demands credentials") as refused:
        look_up_image(asks(OWN), ask)
    assert "registry_mirrors" in refused.value.hint


def test_a_token_is_fetched_only_from_an_allowed_host() -> None:
    """A policy about hosts covers the address to which a registry sends its clients for a token."""
    asked: list[str] = []

    def ask(url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        asked.append(url)
        return registries.ask(url, headers, authorization)

    registries = Registries(["docker.io/library/nginx:1"])
    request = asks("docker.io/library/nginx:1")
    with pytest.raises(
        ConfigError, match=r"only with a token from auth\.docker\.io, which is not an allowed"
    ) as refused:
        look_up_image(dataclasses.replace(request, hosts=HostPolicy.of(["registry-1.docker.io"], [])), ask)
    assert "add auth.docker.io to artifacts.allowed_hosts" in refused.value.hint
    assert not any("auth.docker.io" in url for url in asked)
    assert look_up_image(dataclasses.replace(request, hosts=HostPolicy.of(["auth.docker.io"], [])), ask).size


def test_an_image_of_an_older_build_is_the_last_choice_and_needs_isolation() -> None:
    request = dataclasses.replace(asks(OWN), isolated_builds=(17763, 14393))
    older, independent = ("windows", "10.0.17763.1"), ("windows", "")
    found = {
        platforms: look_up_image(request, Web(*platforms))
        for platforms in ((older,), (("windows", "10.0.14393.1"), older), (older, independent), (older, OWN_BUILD))
    }
    assert [(one.os_version, one.needs_isolation(request)) for one in found.values()] == [
        ("10.0.17763.1", True),
        ("10.0.17763.1", True),
        ("", False),
        ("10.0.20348.9", False),
    ]
    assert [one.answers(asks(OWN)) for one in found.values()] == [False, False, True, True]
    assert all(one.answers(request) for one in found.values())


def lock(ask: Ask, request: ImageRequest, old: Lock | None = None, *, refresh: bool = False) -> Lock:
    console = Console(io.StringIO(), plain=True)
    again = Refresh(None) if refresh else KEEP
    asked = functools.partial(look_up_image, ask=ask)
    return Lock(images=lock_images({str(request.name): request}, old, asked, refresh=again, console=console))


def test_only_what_a_lock_does_not_have_is_looked_up() -> None:
    web = Registries([SERVERCORE])
    first = lock(web.ask, asks(SERVERCORE))

    def unreachable(url: str, *_: object) -> Answer:
        raise ConnectionError(url)

    assert lock(unreachable, asks(SERVERCORE), first) == first
    for request, refresh in ((asks(SERVERCORE), True), (asks(SERVERCORE, 26100, 20348), False)):
        with pytest.raises(RefusedError):
            lock(unreachable, request, first, refresh=refresh)
    [image] = first.images.values()
    other = dataclasses.replace(asks(SERVERCORE), name=ImageName.parse(f"{SERVERCORE}@{ZEROS}"))
    assert not image.answers(other)
