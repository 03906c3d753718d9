"""A lock comes from a repository: what it may say, how much of it, and of a base image exactly what its cloud says."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from imagegen.base.errors import ConfigError
from imagegen.fetch.download import LIMIT_BYTES
from imagegen.fetch.lock import WHOLE_FILE, Lock, LockedArtifact, LockedBase, read_lock
from imagegen.inspect.archive import LIMIT_MEMBERS
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS

if TYPE_CHECKING:
    from pathlib import Path

SHA = "ab" * 32
IMAGE = {
    **dict.fromkeys(("digest", "manifest", "layers"), f"sha256:{SHA}"),
    **{"os_version": "10.0.20348.1", "windows_build": 20348, "size": 1},
}
ARTIFACT = {"url": "https://x.test/a.zip", "sha256": SHA, "size": 3}
ARCHIVE = {**ARTIFACT, "members": {"bin/a.exe": SHA}}
ROOT = {"subject": "CN=Example Root, O=Zürich AG", "thumbprint": SHA}
SIGNATURE = {
    **{"signer": "CN=Example", "thumbprint": SHA, "sha1": "ab" * 20, "by": "nested", "issuers": [ROOT]},
    **{"root": ROOT, "timestamp": "2026-01-31T12:00:00Z"},
}
CERTIFICATE = base64.b64encode(b"a certificate").decode()
OF_CERTIFICATE = {"thumbprint": hashlib.sha256(b"a certificate").hexdigest(), "certificate": CERTIFICATE}
SHA_URL = "https://x.test/a.zip.sha256"
AMAZONS = {"region": "us-east-1", "name": "Windows_Server-2022-English-Core-Base-*", "owner": "amazon"}
MICROSOFTS = {"location": "westeurope", "publisher": "MicrosoftWindowsServer", "offer": "WindowsServer", "sku": "2022"}
BASES: dict[str, dict[str, dict[str, str]]] = {
    "aws": {
        "request": AMAZONS,
        "identity": {"owner": "amazon", "name": "Windows_Server-2022-English-Core-Base-2026.11.12"},
        "place": {"region": "us-east-1", "ami_id": "ami-0123456789abcdef0"},
    },
    "azure": {
        "request": MICROSOFTS,
        "identity": {name: MICROSOFTS[name] for name in ("publisher", "offer", "sku")} | {"version": "20348.1.260809"},
        "place": {"location": "westeurope"},
    },
}
FORMS = {name: provider(name).base_form for name in PROVIDERS}


def read(folder: Path, **content: Any) -> Lock | None:  # noqa: ANN401 - any JSON
    file = folder / "x.lock.json"
    file.write_text(json.dumps({"lock_version": 1, **content}))
    return read_lock(file, FORMS)


def read_base(folder: Path, target: str, part: str, change: dict[str, str | None]) -> Lock | None:
    base: dict[str, Any] = copy.deepcopy(BASES[target])
    for key, value in change.items():
        if value is None:
            del base[part][key]
        else:
            base[part][key] = value
    return read(folder, base_images={target: base})


def test_what_the_clouds_answer_is_taken(tmp_path: Path) -> None:
    lock = read(tmp_path, base_images=BASES)
    assert lock is not None
    assert {name: base.model_dump() for name, base in lock.base_images.items()} == BASES


@pytest.mark.parametrize(
    ("target", "part", "change", "says"),
    [
        ("aws", "place", {"region": None, "ami_id": None}, "place: its keys must be ami_id and region, not none"),
        ("aws", "place", {"ami_id": None}, "place: its keys must be ami_id and region, not region"),
        ("aws", "place", {"region": None}, "place: its keys must be ami_id and region, not ami_id"),
        ("aws", "place", {"ami_id": "evil"}, "place.ami_id: 'evil' is not a valid value"),
        ("aws", "place", {"ami_id": "*"}, "place.ami_id: '*' is not"),
        ("aws", "place", {"ami_id": "ami-0123456789abcdef0 x"}, "place.ami_id: "),
        ("aws", "place", {"subnet": "x"}, "place: its keys must be ami_id and region, not ami_id, region, subnet"),
        ("aws", "identity", {"owner": None, "name": None}, "identity: its keys must be name and owner, not none"),
        ("aws", "identity", {"name": "Windows_Server-2022-English-Core-Base-*"}, "identity.name: "),
        ("aws", "identity", {"id": "x"}, "identity: its keys must be name and owner, not id, name, owner"),
        ("azure", "identity", dict.fromkeys(BASES["azure"]["identity"]), "identity: its keys must be"),
        ("azure", "identity", {"version": None}, "identity: its keys must be offer and publisher and sku and version"),
        ("azure", "identity", {"version": "latest"}, "identity.version: 'latest' is not a valid value"),
        ("azure", "identity", {"plan": "x"}, "identity: its keys must be"),
        ("azure", "place", {"location": None}, "place: its keys must be location, not none"),
        ("azure", "place", {"zone": "1"}, "place: its keys must be location, not location, zone"),
    ],
)
def test_a_base_image_has_its_clouds_keys_and_values(
    tmp_path: Path, target: str, part: str, change: dict[str, str | None], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_base(tmp_path, target, part, change)
    assert says in "\n".join(f"{problem.path}: {problem.message}" for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("asked", "found", "fits"),
    [
        ("base-*", "base-1", True),
        ("base-?", "base-1", True),
        ("base-[1]", "base-[1]", True),
        ("base-[1]", "base-1", False),
        ("it's-*", "it's-1", True),
        ("base-*", "other-1", False),
    ],
)
def test_a_name_is_one_that_was_asked_for(asked: str, found: str, fits: bool) -> None:
    try:
        LockedBase(request={"name": asked}, identity={"name": found}, place={})
    except pydantic.ValidationError as error:
        assert not fits, error  # noqa: PT017 - both ends are what is tested
    else:
        assert fits


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"lock_version": True}, "lock_version: must be 1"),
        ({"lock_version": 2}, "lock_version: must be 1"),
        ({"foreign": 1}, "foreign: "),
        ({"artifacts": {"a": {**ARTIFACT, "foreign": 1}}}, "artifacts.a.foreign: "),
        ({"images": {"a.example.com/b:1": {**IMAGE, "foreign": 1}}}, "images.a.example.com/b:1.foreign: "),
        ({"images": {"a.example.com/b:1": {**IMAGE, "layers": "sha256:.*"}}}, "images.a.example.com/b:1.layers: "),
        ({"images": {"a.example.com/b:1": {**IMAGE, "digest": SHA}}}, "images.a.example.com/b:1.digest: "),
        ({"images": {"a.example.com/b:1": {**IMAGE, "os_version": "x"}}}, "images.a.example.com/b:1.os_version: "),
        ({"images": {"a.example.com/b:1": {**IMAGE, "size": -1}}}, "images.a.example.com/b:1.size: "),
        ({"images": {"a.example.com/b 1": IMAGE}}, "images.a.example.com/b 1: "),
        ({"artifacts": {"a": {**ARTIFACT, "size": LIMIT_BYTES + 1}}}, "artifacts.a.size: "),
        ({"artifacts": {"a": {**ARTIFACT, "size": True}}}, "artifacts.a.size: "),
        *(
            ({"artifacts": {"a": {**ARTIFACT, "members": {name: SHA}}}}, f"artifacts.a.members.{name}: ")
            for name in ("con", "aux.exe", "bin/NUL", "com1 .txt", "a./b", "a /b", "bin//x", "./x", "a/./b", "x?")
        ),
        ({"artifacts": {"a": {**ARTIFACT, "members": {"A": SHA, "a": SHA}}}}, "one file on Windows"),
        ({"base_images": {"aws": {**BASES["aws"], "foreign": {}}}}, "base_images.aws.foreign: "),
        *(
            ({"artifacts": {"a": {**ARTIFACT, "published": text}}}, "artifacts.a.published: ")
            for text in ("2026-01-31", "2026-1-31T12:00:00Z", "2026-02-30T12:00:00Z", "2026-01-31T12:00:00+00:00", 3)
        ),
        ({"artifacts": {"a": {**ARTIFACT, "confirmed": [f"{SHA_URL}?sig=x"]}}}, "must have no query"),
        ({"artifacts": {"a": {**ARTIFACT, "confirmed": ["http://x.test/a"]}}}, "must start with https://"),
        ({"artifacts": {"a": {**ARTIFACT, "redirected_to": f"{SHA_URL}?sig=x"}}}, "must have no query"),
        ({"artifacts": {"a": {**ARTIFACT, "redirected_to": "http://x.test/a"}}}, "must start with https://"),
        ({"artifacts": {"a": {**ARTIFACT, "confirmed": []}}}, "artifacts.a.confirmed: "),
        ({"artifacts": {"a": {**ARTIFACT, "signed": {"a.exe": SIGNATURE}}}}, "'a.exe' is not one of the members"),
        ({"artifacts": {"a": {**ARCHIVE, "sizes": {"bin/b.exe": 1}}}}, "sizes: it must have each of the members"),
        ({"artifacts": {"a": {**ARCHIVE, "sizes": {"bin/a.exe": -1}}}}, "artifacts.a.sizes.bin/a.exe: "),
        ({"artifacts": {"a": {**ARCHIVE, "dotted": "none"}}}, "artifacts.a.dotted: "),
        ({"artifacts": {"a": {**ARCHIVE, "signed": {"../a.exe": SIGNATURE}}}}, "is not a valid path of a file"),
        *(
            ({"artifacts": {"a": {**ARCHIVE, "signed": {"bin/a.exe": SIGNATURE | change}}}}, f"bin/a.exe.{key}: ")
            for key, change in (
                ("foreign", {"foreign": 1}),
                ("signer", {"signer": "CN=a\nCN=b"}),
                ("signer", {"signer": ""}),
                ("signer", {"signer": "x" * 1025}),
                ("thumbprint", {"thumbprint": "AB" * 32}),
                ("root", {"root": None}),
                ("root.thumbprint", {"root": {**ROOT, "thumbprint": "ab"}}),
                ("timestamp", {"timestamp": "today"}),
                ("timestamp_root.subject", {"timestamp_root": {**ROOT, "subject": ""}}),
                ("by", {"by": "somewhere"}),
                ("sha1", {"sha1": "AB" * 20}),
                ("certificate", {"certificate": "no base64"}),
                ("certificate", {"certificate": ""}),
                ("certificate", {"certificate": base64.b64encode(bytes(32 * 1024)).decode()}),
            )
        ),
        (
            {"artifacts": {"a": {**ARCHIVE, "signed": {"bin/a.exe": {**SIGNATURE, "certificate": CERTIFICATE}}}}},
            "certificate: its sha256 is not the thumbprint",
        ),
    ],
)
def test_what_a_lock_cannot_say(tmp_path: Path, content: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, **content)
    assert says in "\n".join(f"{problem.path}: {problem.message}" for problem in raised.value.problems)


def test_a_lock_may_say_when_and_where_an_artifact_was_published_and_who_signed_it(tmp_path: Path) -> None:
    known = {"confirmed": [SHA_URL], "published": "2026-01-31T12:00:00Z"}
    signed = {
        "bin/a.exe": {**SIGNATURE, "by": "own", "timestamp_root": ROOT, "certificate": None},
        WHOLE_FILE: {**SIGNATURE, "timestamp": None, "by": "nested", "timestamp_root": None, **OF_CERTIFICATE},
    }
    lock = read(tmp_path, artifacts={"a": {**ARCHIVE, **known, "signed": signed}})
    assert lock is not None
    assert lock.artifacts["a"].model_dump(include={*known, "signed"}) == {**known, "signed": signed}


def test_a_lock_of_an_older_imagegen_has_no_publication_or_signature(tmp_path: Path) -> None:
    lock = read(tmp_path, artifacts={"a": ARTIFACT})
    assert lock is not None
    assert (lock.artifacts["a"].confirmed, lock.artifacts["a"].published, lock.artifacts["a"].signed) == (None,) * 3


NOTHING = LockedBase(request={}, identity={}, place={})
ONE = LockedArtifact(url="https://x.test/a", sha256=SHA, size=0)


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda n: Lock(artifacts={f"a{i}": ONE for i in range(n)}), 1000),
        (lambda n: Lock(base_images={f"a{i}": NOTHING for i in range(n)}), 100),
        (lambda n: Lock(labels={f"a{i}": "x" for i in range(n)}), 100),
        (lambda n: LockedBase(request={f"a{i}": "x" for i in range(n)}, identity={}, place={}), 32),
        (lambda n: LockedBase(request={}, identity={f"a{i}": "x" for i in range(n)}, place={}), 32),
        (lambda n: LockedBase(request={}, identity={}, place={f"a{i}": "x" for i in range(n)}), 32),
        (
            lambda n: LockedArtifact(url=ONE.url, sha256=SHA, size=0, members={f"a{i}": SHA for i in range(n)}),
            LIMIT_MEMBERS,
        ),
    ],
    ids=["artifacts", "base images", "labels", "request", "identity", "place", "members"],
)
def test_how_much_a_lock_can_say(make: Any, most: int) -> None:  # noqa: ANN401 - of any model
    assert make(most) is not None
    with pytest.raises(pydantic.ValidationError):
        make(most + 1)
