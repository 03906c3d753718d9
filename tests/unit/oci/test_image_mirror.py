"""What a mirror says about a container image, for the lock, and which of its answers are refused."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, ImagegenError, RefusedError, VerificationError
from imagegen.fetch.credentials import PrivateHosts, with_credentials
from imagegen.fetch.http import Answer
from imagegen.fetch.lock import Lock, LockedArtifact
from imagegen.fetch.lookup import KEEP, lock_images
from imagegen.oci.names import ImageRequest, LockedImage
from imagegen.oci.registry import (
    ImageMirror,
    find_difference,
    look_up_image,
    reject_other_images,
    tarball_name,
    tarball_requests,
)
from imagegen.oci.tarball import TarballImage, Variant
from imagegen.rehearsal.network.image_mirror import make_image_mirror
from imagegen.rehearsal.network.registries import Registries, make_image
from imagegen.steps.image_name import ImageName
from imagegen.steps.resource import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

URL = "https://files.example.com/mirror"
INDEX = f"{URL}/index.json"
APP = "registry.example.com/team/app:1.4"
DIGEST = make_image(ImageName.parse(APP))[-1].digest
BY_DIGEST = f"registry.example.com/team/app@{DIGEST}"
CONSOLE = Console(io.StringIO(), plain=True)
ZEROS = f"sha256:{'0' * 64}"


def request_for(name: str = APP, *builds: int, isolated: tuple[int, ...] = ()) -> ImageRequest:
    return ImageRequest(ImageName.parse(name), builds or (20348,), (), isolated_builds=isolated, mirror=URL)


@functools.cache
def copied() -> Mapping[str, bytes]:
    return make_image_mirror(URL, [ImageName.parse(APP)])


def mirror_with(files: Mapping[str, bytes]) -> ImageMirror:
    def ask(url: str, _headers: Mapping[str, str], _authorization: str) -> Answer:
        return Answer(200, {}, files[url]) if url in files else Answer(404, {}, b"")

    return ImageMirror(f"{URL}/", ask)


def changed_index(change: Callable[[dict[str, Any]], object]) -> dict[str, bytes]:
    index = json.loads(copied()[INDEX])
    change(index)
    return {**copied(), INDEX: json.dumps(index).encode()}


def entry_of(index: dict[str, Any], build: int) -> dict[str, Any]:
    [found] = [row for row in index["images"].values() if row["os_version"].startswith(f"10.0.{build}.")]
    return dict(found)


def locked() -> LockedImage:
    return mirror_with(copied()).look_up(request_for())


@pytest.mark.parametrize("build", [17763, 20348, 26100])
def test_a_mirror_says_what_the_registry_says(build: int) -> None:
    request = request_for(APP, build)
    assert mirror_with(copied()).look_up(request) == look_up_image(request, Registries([APP]).ask)


def test_the_lock_takes_an_image_from_the_mirror_only_once() -> None:
    requests, refuse = {APP: request_for()}, mirror_with({})
    found = lock_images(requests, None, mirror_with(copied()).look_up, refresh=KEEP, console=CONSOLE)
    old = Lock(images=found)
    assert lock_images(requests, old, refuse.look_up, refresh=KEEP, console=CONSOLE) == found


def _nobody(*_: object) -> Answer:
    raise AssertionError("no registry is asked")


def test_of_several_copies_the_newest_is_taken() -> None:
    """A tag moves. An older copy stays in the mirror for the locks that have it."""

    def add(index: dict[str, Any]) -> None:
        entry = entry_of(index, 20348)
        older = {**entry, "manifest": ZEROS, "digest": ZEROS, "when": "2025-01-01T00:00:00Z"}
        index["images"][f"{APP} {ZEROS}"] = older

    assert mirror_with(changed_index(add)).look_up(request_for()) == locked()


def test_an_image_that_needs_isolation_is_the_last_choice() -> None:
    mirror = mirror_with(copied())
    assert mirror.look_up(request_for(APP, 20348, isolated=(17763,))) == locked()
    older = mirror.look_up(request_for(APP, 14393, isolated=(17763,)))
    assert older.os_version.startswith("10.0.17763.")


@pytest.mark.parametrize(
    ("name", "build", "message"),
    [
        ("registry.example.com/other:1", 20348, "has no registry.example.com/other:1 for Windows build 20348"),
        (APP, 14393, f"has no {APP} for Windows build 14393: it has 10.0.17763.1000, "),
        (BY_DIGEST, 20348, f"has no {BY_DIGEST} for Windows build 20348"),
    ],
)
def test_an_image_that_is_not_there_names_the_command_that_adds_it(name: str, build: int, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        mirror_with(copied()).look_up(request_for(name, build))
    assert message in refused.value.message
    assert "`imagegen artifacts mirror CONFIG --to MIRROR`" in refused.value.hint
    assert "artifacts.pull_from" in refused.value.hint


def test_an_image_without_a_tarball_names_the_other_way() -> None:
    def drop(index: dict[str, Any]) -> None:
        for row in index["images"].values():
            row["tarball"] = None

    with pytest.raises(ConfigError, match="has no tarball of") as refused:
        mirror_with(changed_index(drop)).look_up(request_for())
    assert "runtime.containerd.registry_mirrors.registry.example.com" in refused.value.hint


def test_a_lock_from_outside_is_held_against_the_mirror() -> None:
    mirror, wanted = mirror_with(copied()), locked()
    mirror.check(APP, wanted)
    other = wanted.model_copy(update={"manifest": ZEROS})
    with pytest.raises(ConfigError, match=f"does not have {APP} with the manifest {ZEROS} of the lock"):
        mirror.check(APP, other)


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (Answer(404, {}, b""), ConfigError, f"the mirror {URL} has no index.json"),
        (Answer(401, {}, b""), RefusedError, f"{INDEX} could not be read: status 401"),
        (Answer(200, {}, b"<html>"), VerificationError, f"{INDEX} is not valid: "),
        (Answer(200, {}, b'{"index_version": 2}'), VerificationError, f"{INDEX} is not valid: index_version: "),
        (ConnectionError("no route"), RefusedError, f"the mirror {URL} does not answer: no route"),
    ],
)
def test_a_mirror_without_a_valid_index_is_refused(
    answer: Answer | OSError, kind: type[ImagegenError], message: str
) -> None:
    def ask(*_: object) -> Answer:
        if isinstance(answer, OSError):
            raise answer
        return answer

    with pytest.raises(kind) as refused:
        ImageMirror(URL, ask).look_up(request_for())
    assert refused.value.message.startswith(message)
    assert refused.value.hint or kind is VerificationError


@pytest.mark.parametrize("what", ["digest", "manifest", "config"])
@pytest.mark.parametrize("is_missing", [False, True])
def test_every_document_has_the_digest_by_which_it_is_asked_for(what: str, *, is_missing: bool) -> None:
    found = locked()
    digest = getattr(found, what).removeprefix("sha256:")
    files = {url: data for url, data in copied().items() if not (is_missing and url.endswith(digest))}
    if not is_missing:
        files = {url: b"{}" if url.endswith(digest) else data for url, data in files.items()}
    with pytest.raises(RefusedError if is_missing else VerificationError, match=r"incomplete|answered sha256:"):
        mirror_with(files).look_up(request_for())


def test_a_private_mirror_gets_the_credentials_of_its_host() -> None:
    def ask(url: str, _headers: Mapping[str, str], authorization: str) -> Answer:
        return Answer(200, {}, copied()[url]) if authorization == "Bearer the-token" else Answer(401, {}, b"")

    way = {"files.example.com": {"token_env": "FILES_TOKEN"}}
    private = PrivateHosts(way, {"FILES_TOKEN": "the-token"}, lambda *_: {})
    assert ImageMirror(URL, with_credentials(ask, private)).look_up(request_for()) == locked()


def test_a_mirror_that_demands_credentials_for_an_image_leads_nowhere_else() -> None:
    asked: list[str] = []

    def ask(url: str, _headers: Mapping[str, str], _authorization: str) -> Answer:
        asked.append(url)
        challenge = {"www-authenticate": 'Bearer realm="https://elsewhere.example.com/token"'}
        return Answer(200, {}, copied()[url]) if url == INDEX else Answer(401, challenge, b"")

    with pytest.raises(ConfigError, match="demands credentials") as refused:
        ImageMirror(URL, ask).look_up(request_for())
    assert refused.value.hint == "write files.example.com into artifacts.credentials"
    assert all(url.startswith(URL) for url in asked)


def test_an_index_that_names_another_digest_is_refused() -> None:
    def lie(index: dict[str, Any]) -> None:
        for row in index["images"].values():
            row["digest"] = ZEROS

    with pytest.raises(RefusedError, match="incomplete"):
        mirror_with(changed_index(lie)).look_up(request_for())


def test_an_entry_under_the_key_of_another_image_is_not_offered() -> None:
    def move(index: dict[str, Any]) -> None:
        index["images"] = {f"{key}0": row for key, row in index["images"].items()}

    with pytest.raises(ConfigError, match="has no"):
        mirror_with(changed_index(move)).look_up(request_for())


def by_digest() -> tuple[ImageRequest, LockedImage]:
    files = make_image_mirror(URL, [ImageName.parse(APP)])
    index = json.loads(files[INDEX])
    for row in list(index["images"].values()):
        index["images"][f"{BY_DIGEST} {row['manifest']}"] = {**row, "name": BY_DIGEST}
    request = request_for(BY_DIGEST)
    return request, mirror_with({**files, INDEX: json.dumps(index).encode()}).look_up(request)


def test_an_image_named_by_its_digest_is_proven_by_its_index() -> None:
    request, found = by_digest()
    assert (found.digest, found.answers(request)) == (DIGEST, True)
    assert found.model_copy(update={"index": None}).answers(dataclasses.replace(request, mirror=""))


def test_an_index_that_is_not_utf8_is_no_proof() -> None:
    files = make_image_mirror(URL, [ImageName.parse(APP)])
    index = next(data for url, data in files.items() if url.endswith(DIGEST.removeprefix("sha256:")))
    wide = index.decode().encode("utf-16")
    digest = f"sha256:{hashlib.sha256(wide).hexdigest()}"
    name = f"registry.example.com/team/app@{digest}"
    entry = entry_of(json.loads(files[INDEX]), 20348)
    files[f"{URL}/{entry['path']}/blobs/{digest.replace(':', '/')}"] = wide
    listed = {f"{name} {entry['manifest']}": {**entry, "name": name, "digest": digest}}
    files[INDEX] = json.dumps({"images": listed}).encode()
    with pytest.raises(VerificationError, match="is not UTF-8"):
        mirror_with(files).look_up(request_for(name))


@pytest.mark.parametrize(
    "change", [{"index": None}, {"index": '{"manifests": []}'}, {"index": "[]"}, {"manifest": ZEROS}]
)
def test_a_lock_cannot_give_another_image_to_a_digest(change: dict[str, Any]) -> None:
    request, found = by_digest()
    assert not found.model_copy(update=change).answers(request)


def test_an_image_without_an_index_is_its_own_proof() -> None:
    request, found = by_digest()
    alone = found.model_copy(update={"manifest": found.digest, "index": None})
    assert alone.answers(request)


def tarball_of(image: LockedImage, **changes: Any) -> TarballImage:  # noqa: ANN401 - any field
    facts = {"config": image.config, "layers": image.layers, "digest": image.manifest, **changes}
    variant = Variant(
        os_version=image.os_version, config=facts["config"], layers=facts["layers"], size=image.size, docker=True
    )
    return TarballImage(digest=facts["digest"], variants=[variant])


@pytest.mark.parametrize(
    ("images", "difference"),
    [
        ({APP: {}}, ""),
        ({APP: {"digest": ZEROS}}, f"{APP} as {ZEROS}, but the lock says"),
        ({APP: {"config": ZEROS}}, f"{APP} as "),
        ({APP: {"layers": ZEROS}}, f"{APP} as "),
        ({}, f"the images none in place of {APP}"),
        ({"a.example/b:1": {}}, f"the images a.example/b:1 in place of {APP}"),
        ({APP: {}, "a.example/b:1": {}}, f"the images a.example/b:1, {APP} in place of {APP}"),
    ],
)
def test_a_tarball_must_have_exactly_the_image_of_the_lock(images: dict[str, Any], difference: str) -> None:
    image = locked()
    found = {name: tarball_of(image, **changes) for name, changes in images.items()}
    assert find_difference(APP, image, found).startswith(difference)
    own = tarball_name(ImageName.parse(APP))
    request = tarball_requests({APP: request_for()}, {APP: image})[own]
    artifact = LockedArtifact(url=request.url, sha256="0" * 64, size=1, images=found)
    if difference:
        with pytest.raises(VerificationError, match="has "):
            reject_other_images([request_for()], {APP: image}, {own: artifact})
    else:
        reject_other_images([request_for()], {APP: image}, {own: artifact})


def test_a_tarball_is_where_the_mirror_has_it() -> None:
    image = locked()
    [request] = tarball_requests({APP: request_for()}, {APP: image}).values()
    assert request.url in copied()
    pulled = dataclasses.replace(request_for(), mirror="")
    assert tarball_requests({APP: pulled}, {APP: image}) == {}
    assert tarball_requests({APP: request_for()}, {}) == {}


@pytest.mark.parametrize(
    "name",
    [APP, BY_DIGEST, "registry.example.com:5000/a_b/C.d--e:V1_2.3-x", f"a.example/{'b' * 200}:{'c' * 128}"],
)
def test_the_name_of_a_tarball_is_valid_and_its_own(name: str) -> None:
    own = tarball_name(ImageName.parse(name))
    pydantic.TypeAdapter(Name).validate_python(own)
    others = {tarball_name(ImageName.parse(other)) for other in (APP, BY_DIGEST, f"{name}x", f"x.{name}")} - {own}
    assert len(others) >= 3
