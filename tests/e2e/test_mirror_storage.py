"""A mirror in the storage of each cloud: S3 as moto has it, Blob Storage as Azurite has it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import ssl
import urllib.parse
from typing import TYPE_CHECKING, Any

import httpx
import moto.s3.models
import pytest

from imagegen.base.errors import ExitCode, ImagegenError, RefusedError
from imagegen.build import process
from imagegen.fetch.lock import lock_bytes
from imagegen.pipeline import prepare_target
from imagegen.providers import RunFacts
from imagegen.providers.storage import storages
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.cloud import AwsOptions
from imagegen.rehearsal.clouds.azure.cloud import AzureOptions
from imagegen.rehearsal.network.artifact_server import ArtifactServer
from imagegen.rehearsal.network.network import Network
from imagegen.rehearsal.network.registries import Registries
from tests.conftest import load_today, make_test_lock
from tests.e2e.azurite_support import HOST, azurite
from tests.e2e.rehearsal_support import DEADLINE_S, imagegen, user_environ

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from imagegen.plan.loading import Loaded
    from imagegen.providers.storage import FileStore
    from imagegen.rehearsal.network.messages import Host

pytestmark = pytest.mark.e2e

CONFIG = {
    "name": "mirrored",
    "windows": {"release": "2022"},
    "kubernetes": {"version": "1.36.4"},
    "runtime": {"containerd": {"version": "2.3.4"}},
    "images": ["library/nginx"],
    "targets": {"aws": {"region": "us-east-1", "network": {"allowed_cidrs": ["198.51.100.0/24"]}}},
}
ADDRESSES = {"s3": "s3://files/mirror/own", "az": "az://files/container/mirror/own"}
# More than one block of a blob.
LARGE = bytes(range(256)) * 2**17


@dataclasses.dataclass
class World:
    """A network with a storage, and what the command line has for it."""

    network: Network
    address: str
    objects: Mapping[str, Any]
    """In S3: what moto has."""

    def run(self) -> RunFacts:
        return RunFacts(self.network.environ, {}, "")

    @contextlib.contextmanager
    def store(self) -> Iterator[FileStore]:
        [storage] = [one for one in storages().values() if self.address.startswith(f"{one.scheme}://")]
        with storage.open(self.address, self.run()) as store:
            yield store

    def client(self) -> httpx.Client:
        """A client without credentials."""
        trust = ssl.create_default_context(cafile=self.network.environ["SSL_CERT_FILE"])
        return httpx.Client(proxy=self.network.environ["HTTPS_PROXY"], verify=trust, trust_env=False)


def _token(network: Network) -> str:
    environ = network.environ
    trust = ssl.create_default_context(cafile=environ["SSL_CERT_FILE"])
    form = {"grant_type": "client_credentials", "scope": "https://storage.azure.com/.default"}
    form |= {"client_id": environ["AZURE_CLIENT_ID"], "client_secret": environ["AZURE_CLIENT_SECRET"]}
    with httpx.Client(proxy=environ["HTTPS_PROXY"], verify=trust, trust_env=False) as client:
        url = f"https://login.microsoftonline.com/{environ['AZURE_TENANT_ID']}/oauth2/v2.0/token"
        return str(client.post(url, data=form).json()["access_token"])


@contextlib.contextmanager
def _world(kind: str, folder: Path, hosts: Mapping[str, Host], artifacts: ArtifactServer) -> Iterator[World]:
    scratch = folder / "network"
    scratch.mkdir()
    with contextlib.ExitStack() as opened:
        if kind == "s3":
            network = opened.enter_context(Network(scratch, [AwsOptions()], artifacts=artifacts, hosts=hosts))
            bucket = moto.s3.models.s3_backends[moto_call.ACCOUNT]["aws"].create_bucket("files", "us-east-1")
            yield World(network, ADDRESSES[kind], bucket.keys)
            return
        blobs = opened.enter_context(azurite(folder))
        hosts = {**hosts, HOST: blobs}
        network = opened.enter_context(Network(scratch, [AzureOptions()], artifacts=artifacts, hosts=hosts))
        blobs.make_container("container", _token(network))
        yield World(network, ADDRESSES[kind], {})


@pytest.fixture(params=ADDRESSES)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with _world(request.param, tmp_path, {}, ArtifactServer({})) as made:
        # The SDKs take proxy and certificates from the environment of the process.
        for name, value in made.network.environ.items():
            monkeypatch.setenv(name, value)
        yield made


def test_a_storage_keeps_files_with_their_digests(world: World, tmp_path: Path) -> None:
    for name, data in (("large", LARGE), ("empty", b""), ("one", b"1")):
        (tmp_path / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        path = f"h.example/v1.0+build/a b/{name}.zip"
        with world.store() as store:
            assert store.find(path) is None
            store.put(path, tmp_path / name, sha256)
            found = store.find(path)
            assert found is not None
            assert (found.size, found.sha256) == (len(data), sha256)
            read = store.read(path, len(LARGE))
            assert read is not None
            assert read[0] == data
    with world.store() as store:
        assert store.read("none", 10) is None
        with pytest.raises(RefusedError, match="is larger than 10 bytes"):
            store.read("h.example/v1.0+build/a b/large.zip", 10)
    assert world.network.faults == []


def test_the_index_is_replaced_only_by_who_has_read_it(world: World) -> None:
    with world.store() as store:
        assert store.replace("index.json", b"1", "")
        assert not store.replace("index.json", b"2", "")
        read = store.read("index.json", 10)
        assert read is not None
        assert store.replace("index.json", b"3", read[1])
        assert not store.replace("index.json", b"4", read[1])
        again = store.read("index.json", 10)
        assert again is not None
        assert again[0] == b"3"


def test_a_signed_address_opens_one_file_for_everybody(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"private")
    with world.store() as store:
        store.put("a b+c.zip", tmp_path / "file", hashlib.sha256(b"private").hexdigest())
        store.put("other.zip", tmp_path / "file", hashlib.sha256(b"private").hexdigest())
    [storage] = [one for one in storages().values() if world.address.startswith(f"{one.scheme}://")]
    base = f"https://{HOST}/container" if storage.scheme == "az" else "https://files.s3.us-east-1.amazonaws.com"
    url = f"{base}/mirror/own/a%20b%2Bc.zip"
    address = storage.signer(world.run())([url], 3600)[url]
    assert "private" not in urllib.parse.unquote(address.partition("?")[2])
    if storage.scheme == "s3":
        # moto compares no signature: the unit tests of presigned addresses do.
        return
    with world.client() as client:
        assert client.get(address).content == b"private"
        assert client.get(url).status_code >= 400
        for changed in (address.replace("a%20b%2Bc.zip", "other.zip"), address.replace("sp=r", "sp=rw"), f"{address}x"):
            assert client.get(changed).status_code == 403
        assert client.delete(address, headers={"x-ms-version": "2022-11-02"}).status_code == 403


@pytest.mark.parametrize("kind", ADDRESSES)
def test_a_whole_mirror_is_filled_and_continued(kind: str, tmp_path: Path) -> None:
    config = tmp_path / "open.yaml"
    config.write_text(json.dumps(CONFIG))
    loaded = load_today(config)
    lock = make_test_lock(loaded)
    config.with_name("open.lock.json").write_bytes(lock_bytes(lock))
    artifacts, registries = _everything(loaded)
    with _world(kind, tmp_path, dict.fromkeys(registries.hosts, registries), artifacts) as world:
        first, second = (_mirror(world, config, tmp_path) for _ in range(2))
        journal = [entry for entry in world.network.journal if "dl.k8s.io" in entry.host]
    assert world.network.faults == []
    assert sorted(first["copied"].values()) == sorted(
        {one.sha256: one.size for one in lock.artifacts.values()}.values()
    )
    assert sorted(first["copied_images"]) == sorted(lock.images)
    assert (second["copied"], second["copied_images"]) == ({}, [])
    assert (second["kept"], second["kept_images"]) == (first["copied"], first["copied_images"])
    assert second["images_without_tarball"] == []
    assert len(journal) == len({entry.path for entry in journal})


def _everything(loaded: Loaded) -> tuple[ArtifactServer, Registries]:
    prepared = prepare_target(loaded, "aws")
    return ArtifactServer(make_artifacts(prepared.steps)), Registries([*prepared.images])


def _mirror(world: World, config: Path, folder: Path) -> dict[str, Any]:
    environ = world.network.child_environ(user_environ(folder, XDG_CACHE_HOME=str(folder / "cache")))
    words = imagegen("artifacts", "mirror", config, "--to", world.address, "--format", "json")
    done = process.run(words, environ=environ, cwd=folder, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    return dict(json.loads(done.stdout))


def test_a_storage_that_does_not_exist_is_explained(world: World) -> None:
    missing = dataclasses.replace(
        world, address=world.address.replace("files/mirror", "none/mirror").replace("/container/", "/nocontainer/")
    )
    with missing.store() as store, pytest.raises(ImagegenError) as refused:
        store.replace("index.json", b"1", "")
    assert "none" in refused.value.message or "nocontainer" in refused.value.message
    assert "NoSuchBucket" in refused.value.message or "ContainerNotFound" in refused.value.message
