"""Container images in a mirror: what is pulled, in which order it is stored, what a runtime finds in the tarball."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import RefusedError, VerificationError
from imagegen.fetch.credentials import PrivateHosts
from imagegen.fetch.download import StatusError
from imagegen.fetch.http import Answer, Web
from imagegen.mirror import images
from imagegen.mirror.fill import fill
from imagegen.mirror.images import ImageCopier, Origin, WantedImage
from imagegen.oci.names import ImageRequest, Index, LockedImage, chain_id
from imagegen.oci.registry import NotThereError, RegistryClient, look_up_image
from imagegen.oci.tarball import read_image_tarball
from imagegen.rehearsal.network.registries import Blob, Registries, make_image
from imagegen.steps.image_name import ImageName
from tests.unit.mirror.conftest import Given, Memory, sha

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.fetch.http import Ask

APP = "registry.example.com/team/app:1.4"
FILES = "https://files.example.com/mirror"
AUTH = base64.b64encode(b"robot:the-password").decode()
BUILDS = (20348,)


def _never(*_: object) -> dict[str, str]:
    raise AssertionError("nothing is signed")


def _origin(ask: Ask, credentials: Mapping[str, str]) -> Origin:
    return Origin(PrivateHosts({}, {}, _never), Web(environ={}), ask, lambda: credentials)


def _wanted(name: str = APP, *, mirrors: tuple[str, ...] = (), auth: str = "") -> WantedImage:
    registry = ImageName.parse(name).registry
    credentials = {registry: auth} if auth else {}
    registries = Registries([name], mirrors, credentials=credentials)
    request = ImageRequest(ImageName.parse(name), BUILDS, mirrors)
    return WantedImage(request, look_up_image(request, registries.ask, auth), _origin(registries.ask, credentials))


def _layers(name: str) -> dict[str, bytes]:
    """All blobs of an image that is made for a rehearsal, by digest."""
    return {blob.digest: blob.data for blob in make_image(ImageName.parse(name))}


@pytest.fixture
def source(given: Given) -> Given:
    return _with_layers(given, APP)


def _with_layers(given: Given, name: str, base: str = "") -> Given:
    parsed = ImageName.parse(name)
    for digest, data in _layers(name).items():
        place = base or f"https://{parsed.host}"
        query = f"?ns={parsed.registry}" if base else ""
        given.web[f"{place}/v2/{parsed.repository}/blobs/{digest}{query}"] = [data]
    return given


def _index(wanted: WantedImage, entry: Any) -> Index:  # noqa: ANN401 - an entry of the index
    return Index(images={wanted.key: entry})


def test_the_layout_has_the_manifest_of_the_lock_with_its_layers(memory: Memory, source: Given) -> None:
    wanted = _wanted()
    entry = ImageCopier(memory, source, "now").copy(wanted)
    folder = f"oci/registry.example.com/team/app/{wanted.locked.manifest.replace(':', '-')}"
    assert entry.path == folder
    inside = {path.removeprefix(f"{folder}/"): data for path, data in memory.files.items() if path.startswith(folder)}
    index = json.loads(inside["index.json"])
    [listed] = index["manifests"]
    assert (listed["digest"], listed["platform"]["os.version"]) == (wanted.locked.manifest, wanted.locked.os_version)
    manifest = json.loads(inside[f"blobs/sha256/{wanted.locked.manifest.partition(':')[2]}"])
    digests = [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]
    # Of an index for several versions of Windows, nothing but this one; and the index, which proves whose it is.
    blobs = {f"blobs/{digest.replace(':', '/')}" for digest in (wanted.locked.manifest, *digests, wanted.locked.digest)}
    assert inside.keys() == {"oci-layout", "index.json", *blobs}
    assert all(sha(data) == path.rpartition("/")[2] for path, data in inside.items() if path.startswith("blobs/"))
    # Whoever finds the first documents finds the layers too.
    stored = [path.removeprefix(f"{folder}/") for path in memory.puts[:-1]]
    assert stored[-2:] == ["index.json", "oci-layout"]


@pytest.mark.parametrize("is_docker", [False, True], ids=["containerd", "docker"])
def test_a_runtime_finds_the_image_in_the_tarball(
    memory: Memory, source: Given, tmp_path: Path, *, is_docker: bool
) -> None:
    wanted = _wanted()
    entry = ImageCopier(memory, source, "now").copy(wanted)
    assert entry.tarball is not None
    assert entry.tarball.path == f"oci/registry.example.com/team/app/1.4-{wanted.locked.manifest[7:19]}.tar"
    data = memory.files[entry.tarball.path]
    assert (entry.tarball.sha256, entry.tarball.size) == (sha(data), len(data))
    (tmp_path / "a.tar").write_bytes(data)
    found = read_image_tarball(tmp_path / "a.tar", "tar", "image-tarball-1")
    assert [*found] == [APP]
    variant = found[APP].choose(wanted.request)
    assert variant is not None
    assert (variant.config, variant.layers, variant.os_version) == (
        wanted.locked.config,
        wanted.locked.layers,
        wanted.locked.os_version,
    )
    if is_docker:
        assert variant.docker
    else:
        assert found[APP].digest == wanted.locked.manifest


def test_the_same_image_has_the_same_tarball(source: Given) -> None:
    one, other = Memory(), Memory()
    ImageCopier(one, source, "now").copy(_wanted())
    ImageCopier(other, source, "later").copy(_wanted())
    assert one.files == other.files
    [tarball] = [data for path, data in one.files.items() if path.endswith(".tar")]
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        assert {(entry.mtime, entry.uid, entry.mode) for entry in archive} == {(0, 0, 0o644)}


def test_a_complete_image_is_found_without_a_request(memory: Memory, source: Given) -> None:
    wanted = _wanted()
    copier = ImageCopier(memory, source, "now")
    assert copier.find(wanted, Index()) is None
    entry = copier.copy(wanted)

    def refuse(*_: object) -> Answer:
        raise AssertionError("no registry is asked")

    offline = dataclasses.replace(wanted, origin=_origin(refuse, {}))
    assert copier.find(offline, _index(wanted, entry)) == entry


def test_a_run_that_was_killed_keeps_its_finished_images(memory: Memory, given: Given) -> None:
    """As the cache may have dropped their layers meanwhile, these are not asked for again."""
    names = ["registry.example.com/a:1", "registry.example.com/b:1"]
    first, second = (_wanted(name) for name in names)
    for name in names:
        _with_layers(given, name)
    layers = {url: answers for url, answers in given.web.items() if "/b/" in url}
    for url in layers:
        given.web[url] = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        fill([], [first, second], memory, given, "now", dry_run=False)
    for url in [*given.web]:
        given.web[url] = layers.get(url, [AssertionError(f"{url} is downloaded again")])
    filled = fill([], [first, second], memory, given, "later", dry_run=False)
    assert (filled.copied_images, filled.kept_images) == ((names[1],), (names[0],))
    assert {one.name: one.when for one in filled.images} == {names[0]: "now", names[1]: "later"}


@pytest.mark.parametrize("change", ["missing", "other bytes"])
def test_a_damaged_image_is_copied_again(memory: Memory, source: Given, change: str) -> None:
    wanted = _wanted()
    copier = ImageCopier(memory, source, "now")
    entry = copier.copy(wanted)
    whole = dict(memory.files)
    for path in whole:
        if path.endswith(("index.json", "oci-layout")):
            continue
        if change == "missing":
            del memory.files[path]
        else:
            memory.files[path] = b"{}"
        assert copier.find(wanted, _index(wanted, entry)) is None, path
        memory.puts.clear()
        assert copier.copy(wanted) == entry
        # Only what is missing is stored.
        assert memory.puts == [path]
        assert memory.files == whole


def test_credentials_and_their_token_go_to_the_registry_only(memory: Memory, given: Given) -> None:
    source = _with_layers(given, APP)
    ImageCopier(memory, source, "now").copy(_wanted(auth=AUTH))
    assert source.asked
    assert all(authorization.startswith("Bearer ") for _, authorization in source.asked)


def test_an_image_comes_from_the_first_mirror_that_has_it(memory: Memory, given: Given) -> None:
    mirror = "https://mirror.example.com/own"
    source = _with_layers(given, APP, mirror)
    ImageCopier(memory, source, "now").copy(_wanted(mirrors=(mirror,)))
    assert {url.partition("/v2/")[0] for url, _ in source.asked} == {mirror}
    assert all(not authorization for _, authorization in source.asked)


def test_an_image_is_copied_from_one_mirror_to_another(memory: Memory, source: Given) -> None:
    """The config of a closed network can fill a mirror in a network that is even more closed."""
    wanted = _wanted()
    entry = ImageCopier(memory, source, "now").copy(wanted)
    first, other = {f"{FILES}/{path}": data for path, data in memory.files.items()}, Memory()
    source.web.clear()
    source.web.update({url: [data] for url, data in first.items()})

    def ask(url: str, _headers: Mapping[str, str], _authorization: str) -> Answer:
        return Answer(200, {}, first[url])

    request = dataclasses.replace(wanted.request, mirror=FILES)
    behind = WantedImage(request, wanted.locked, _origin(ask, {}))
    assert ImageCopier(other, source, "now").copy(behind) == entry
    assert other.files == memory.files


def _status(status: int) -> StatusError:
    error = StatusError(f"HTTP {status}")
    error.status = status
    return error


def test_a_token_that_expired_is_renewed_once(memory: Memory, given: Given) -> None:
    source = _with_layers(given, APP)
    for url in source.web:
        source.web[url].insert(0, _status(401))
    ImageCopier(memory, source, "now").copy(_wanted(auth=AUTH))
    for url in source.web:
        source.web[url].insert(0, _status(404))
    with pytest.raises(StatusError, match="2 of 2 files failed"):
        ImageCopier(Memory(), source, "now").copy(_wanted(auth=AUTH))


def test_a_registry_that_goes_away_meanwhile_ends_with_its_reason(
    memory: Memory, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _with_layers(given, APP)
    for url in source.web:
        source.web[url].insert(0, _status(401))

    def renew(*_: object) -> None:
        raise NotThereError("the registry does not answer")

    monkeypatch.setattr(RegistryClient, "renew", renew)
    with pytest.raises(RefusedError) as refused:
        ImageCopier(memory, source, "now").copy(_wanted(auth=AUTH))
    assert "could not be pulled to its end: the registry does not answer" in "".join(refused.value.details)


def _foreign(urls: list[str]) -> tuple[WantedImage, dict[str, bytes]]:
    """An image whose first layer is at other hosts. Its registry has it too."""
    name = ImageName.parse("registry.example.com/old:1")
    first, second, config, manifest, _ = make_image(name, [("windows", "10.0.20348.1")])
    document = json.loads(manifest.data)
    document["layers"][0] |= {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", "urls": urls}
    made = Blob(manifest.media_type, json.dumps(document).encode())
    documents = {made.digest: made.data, config.digest: config.data}
    registries = Registries(["registry.example.com/old:1"])

    def ask(url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        answer = registries.ask(url.replace(made.digest, manifest.digest), headers, authorization)
        body = documents.get(url.rpartition("/")[2])
        return answer if body is None else dataclasses.replace(answer, status=200, body=body)

    locked = LockedImage(
        digest=made.digest,
        manifest=made.digest,
        os_version="10.0.20348.1",
        windows_build=20348,
        config=config.digest,
        layers=chain_id(json.loads(config.data)["rootfs"]["diff_ids"]),
        size=len(first.data) + len(second.data),
    )
    return WantedImage(ImageRequest(name, BUILDS, ()), locked, _origin(ask, {})), {
        first.digest: first.data,
        second.digest: second.data,
    }


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_foreign_layer_comes_from_its_own_hosts_or_else_from_the_registry(
    memory: Memory, given: Given, broken: int
) -> None:
    urls = ["https://one.example.com/layer", "https://two.example.com/layer"]
    wanted, layers = _foreign(urls)
    [foreign, *_] = layers
    for digest, data in layers.items():
        given.web[f"https://registry.example.com/v2/old/blobs/{digest}"] = [data]
    for at, url in enumerate(urls):
        given.web[url] = [RefusedError(f"no answer from {url}") if at < broken else layers[foreign]]
    entry = ImageCopier(memory, given, "now").copy(wanted)
    assert memory.files[f"{entry.path}/blobs/{foreign.replace(':', '/')}"] == layers[foreign]
    asked = {url for url, _ in given.asked}
    assert (f"https://registry.example.com/v2/old/blobs/{foreign}" in asked) is (broken == 2)


def test_containerd_finds_an_image_named_by_its_digest_in_the_tarball(
    memory: Memory, given: Given, tmp_path: Path
) -> None:
    by_tag = _wanted("registry.example.com/app:1")
    name = f"registry.example.com/app@{by_tag.locked.digest}"
    wanted = WantedImage(ImageRequest(ImageName.parse(name), BUILDS, ()), by_tag.locked, by_tag.origin)
    entry = ImageCopier(memory, _with_layers(given, "registry.example.com/app:1"), "now").copy(wanted)
    assert entry.tarball is not None
    short, manifest = by_tag.locked.digest[7:19], by_tag.locked.manifest[7:19]
    assert entry.tarball.path == f"oci/registry.example.com/app/sha256-{short}-{manifest}.tar"
    (tmp_path / "a.tar").write_bytes(memory.files[entry.tarball.path])
    found = read_image_tarball(tmp_path / "a.tar", "tar", "image-app")
    assert ([*found], found[name].digest) == ([name], by_tag.locked.manifest)
    # Docker imports no image under such a name.
    assert not found[name].variants[0].docker


def test_a_tarball_names_no_platform_by_which_containerd_would_pass_over_it(memory: Memory, source: Given) -> None:
    ImageCopier(memory, source, "now").copy(_wanted())
    [tarball] = [data for path, data in memory.files.items() if path.endswith(".tar")]
    with tarfile.open(fileobj=io.BytesIO(tarball)) as archive:
        index = archive.extractfile("index.json")
        assert index is not None
        [listed] = json.loads(index.read())["manifests"]
    assert "platform" not in listed


def test_an_image_that_is_too_large_has_no_tarball(
    memory: Memory, source: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "LIMIT_BYTES", 100)
    wanted = _wanted()
    copier = ImageCopier(memory, source, "now")
    entry = copier.copy(wanted)
    assert entry.tarball is None
    assert copier.find(wanted, _index(wanted, entry)) == entry
    # A mirror that was filled when fewer images had tarballs is completed.
    monkeypatch.undo()
    assert copier.find(wanted, _index(wanted, entry)) is None
    assert copier.copy(wanted).tarball is not None


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("layers", f"sha256:{'0' * 64}", "has other layers than the lock says"),
        ("config", f"sha256:{'0' * 64}", "has other layers than the lock says"),
        ("size", 7, "has other layers than the lock says"),
        ("manifest", f"sha256:{'0' * 64}", "could not be pulled: registry.example.com answered with status 404"),
    ],
)
def test_another_image_than_that_of_the_lock_is_refused(
    memory: Memory, source: Given, field: str, value: object, fault: str
) -> None:
    wanted = _wanted()
    other = dataclasses.replace(wanted, locked=wanted.locked.model_copy(update={field: value}))
    with pytest.raises((VerificationError, RefusedError), match=fault):
        ImageCopier(memory, source, "now").copy(other)
    assert memory.files == {}
