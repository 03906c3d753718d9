"""The digests that projects publish: the forms in which they write them, where they must be, and what contradicts."""

from __future__ import annotations

import dataclasses

import pytest

from imagegen.base.errors import ConfigError, VerificationError
from imagegen.fetch.http import Answer
from imagegen.fetch.published import confirm, find_digest
from imagegen.fetch.request import ArtifactRequest, PublishedDigest

SHA, OTHER = "ab" * 32, "cd" * 32
NAME = "tool-1.0.zip"
URL = f"https://a.example/v1.0/{NAME}"
BESIDE, LIST = f"{URL}.sha256", "https://a.example/v1.0/SHA256SUMS"


@pytest.mark.parametrize(
    ("text", "of_file", "in_list"),
    [
        (SHA, SHA, None),
        (f"{SHA}\n", SHA, None),
        (f"{SHA.upper()}\r\n", SHA, None),
        (f"\ufeff{SHA}", SHA, None),
        (f"{SHA}  {NAME}\n", SHA, SHA),
        (f"{SHA} *{NAME}\n", SHA, SHA),
        (f"{SHA}\t{NAME}\n", SHA, SHA),
        (f"{SHA}  ./{NAME}", SHA, SHA),
        (f"{SHA}  build/windows/{NAME}", SHA, SHA),
        (f"{SHA}  build\\windows\\{NAME}", SHA, SHA),
        (f"SHA256 ({NAME}) = {SHA}", SHA, SHA),
        (f"{SHA}  another-name.zip", SHA, None),
        (f"{OTHER}  a.zip\n{SHA}  {NAME}\n{OTHER}  {NAME}.sig\n", SHA, SHA),
        (f"{SHA}  {NAME}\n{SHA}  {NAME}\n", SHA, SHA),
        (f"{SHA}  {NAME}\n{OTHER}  {NAME}\n", None, None),
        (f"{OTHER}  a.zip\n{OTHER}  b.zip\n", None, None),
        (f"{SHA}\n{OTHER}\n", None, None),
        ("<!doctype html><p>Not here", None, None),
        ("", None, None),
        (SHA[:-1], None, None),
        (SHA + "a", None, None),
        (f"{'ab' * 64}  {NAME}", None, None),
        ("\x00\xff" * 50, None, None),
    ],
)
def test_find_digest(text: str, of_file: str | None, in_list: str | None) -> None:
    assert find_digest(text.encode(), NAME, is_list=False) == of_file
    assert find_digest(text.encode(), NAME, is_list=True) == in_list


class Web:
    def __init__(self, **documents: str | int | Exception) -> None:
        self.documents, self.asked = documents, list[str]()

    def ask(self, url: str, headers: object, authorization: str) -> Answer:
        assert (headers, authorization) == ({}, "")
        self.asked.append(url)
        found = self.documents.get(url.removeprefix("https://a.example/v1.0/"), 404)
        if isinstance(found, Exception):
            raise found
        return Answer(found, {}, b"") if isinstance(found, int) else Answer(200, {}, found.encode())


PUBLIC = ArtifactRequest("tool", URL, None, "archive", "overrides.tool_url", URL, digest=PublishedDigest(BESIDE, True))
MIRRORED = dataclasses.replace(PUBLIC, digest=PublishedDigest(BESIDE, False))
OWN = dataclasses.replace(PUBLIC, digest=None, own=True)
ONE = f"{NAME}.sha256"


@pytest.mark.parametrize("request_", [PUBLIC, MIRRORED, OWN])
def test_a_digest_that_agrees_confirms(request_: ArtifactRequest) -> None:
    assert confirm(request_, SHA, Web(**{ONE: SHA}).ask) == [BESIDE]


@pytest.mark.parametrize("request_", [PUBLIC, MIRRORED, OWN])
def test_a_digest_that_disagrees_is_refused_with_both(request_: ArtifactRequest) -> None:
    with pytest.raises(VerificationError) as refused:
        confirm(request_, SHA, Web(**{ONE: f"{OTHER}  {NAME}"}).ask)
    assert refused.value.message == f"tool: {URL} has sha256 {SHA}, but {BESIDE} says {OTHER}"
    assert "overrides.tool_url" in refused.value.hint
    assert refused.value.exit_code == 4


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (404, "the server responded with status 404"),
        (403, "the server responded with status 403"),
        ("<html>", f"it has no sha256 of {NAME}"),
        ("x" * (2**20 + 1), "it is larger than 1 MiB"),
        (ConnectionError("no route"), "no route"),
    ],
)
def test_a_promised_digest_must_be_there(document: str | int | Exception, reason: str) -> None:
    with pytest.raises(VerificationError) as refused:
        confirm(PUBLIC, SHA, Web(**{ONE: document}).ask)
    assert refused.value.message == f"tool: the published digest {BESIDE} cannot be read: {reason}"
    for request in (MIRRORED, OWN):
        assert confirm(request, SHA, Web(**{ONE: document}).ask) == []


def test_a_host_that_is_not_allowed_is_no_reason_to_refuse_what_nobody_promised() -> None:
    web = Web(**{ONE: ConfigError("b.example is one of artifacts.denied_hosts")})
    assert confirm(OWN, SHA, web.ask) == []
    with pytest.raises(ConfigError, match="denied_hosts"):
        confirm(PUBLIC, SHA, web.ask)


def test_a_server_may_offer_a_list() -> None:
    web = Web(SHA256SUMS=f"{OTHER}  other.zip\n{SHA}  {NAME}\n")
    assert confirm(OWN, SHA, web.ask) == [LIST]
    assert web.asked == [BESIDE, f"{URL}.sha256sum", LIST]
    web = Web(**{"sha256sums.txt": f"{OTHER}  {NAME}\n"})
    with pytest.raises(VerificationError, match=f"sha256sums.txt says {OTHER}"):
        confirm(OWN, SHA, web.ask)


def test_a_list_of_the_project_names_the_file() -> None:
    request = dataclasses.replace(PUBLIC, digest=PublishedDigest(LIST, True))
    assert confirm(request, SHA, Web(SHA256SUMS=f"{SHA}  {NAME}\n").ask) == [LIST]
    with pytest.raises(VerificationError, match="it has no sha256 of"):
        confirm(request, SHA, Web(SHA256SUMS=f"{SHA}  other.zip\n").ask)


@pytest.mark.parametrize(
    "request_",
    [
        dataclasses.replace(PUBLIC, digest=None),
        dataclasses.replace(PUBLIC, sha256=SHA),
        dataclasses.replace(OWN, sha256=SHA),
    ],
    ids=["nobody publishes one", "the config has it", "the config has it beside its own URL"],
)
def test_nobody_is_asked(request_: ArtifactRequest) -> None:
    web = Web()
    assert confirm(request_, SHA, web.ask) == []
    assert web.asked == []
