"""`imagegen lock` with everything but the network: what it writes, says and asks for, and how it ends."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
from typing import IO, TYPE_CHECKING, Any, NoReturn

import pytest

import imagegen.providers.aws.provider as aws
from imagegen import pipeline
from imagegen.base.errors import RefusedError, ToolError
from imagegen.fetch import http, locking, lookup
from imagegen.fetch.download import Download, Fetched, UnchangedError, Version
from imagegen.fetch.http import Answer
from imagegen.fetch.request import host_of
from imagegen.plan.context import artifact_requests
from imagegen.rehearsal.artifacts import make_artifacts
from tests.authenticode.pki import pki
from tests.conftest import REPOSITORY, load_today, looked_up
from tests.provider_answers import answer
from tests.unit.record.test_manifest_store import manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from imagegen.fetch.lock import LockedBase, StoredLock
    from imagegen.plan.target import PreparedTarget
    from imagegen.record.manifest import ImageManifest

    Run = Callable[..., tuple[object, str, str]]
    LockCommand = Callable[..., tuple[object, str, str]]

SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
KUBELET = "https://dl.k8s.io/release/v1.36.4/bin/windows/amd64/kubelet.exe"
OWN_URL = "https://own.example/crictl.tar.gz"
OWN = ("--set", f"overrides.crictl_url={OWN_URL}")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Web:
    """Every server: their files, the digests beside them, and the newest base image."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.modified = "Sat, 31 Oct 2020 12:00:00 GMT"
        self.day = "2026.11.11"
        self.digests: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.asked: list[str] = []
        self.downloaded: list[str] = []

    def fill(self, download: Download, file: IO[bytes]) -> Fetched:
        self.asked.append(download.url)
        data = self.files[download.url]
        version = Version(f'"{sha256(data)}"', self.modified)
        if download.known == version:
            raise UnchangedError(self.redirects.get(download.url, ""))
        self.downloaded.append(download.url)
        file.write(data)
        return Fetched(sha256(data), len(data), version, self.redirects.get(download.url, ""))

    def ask(self, url: str, *_: object) -> Answer:
        self.asked.append(url)
        file = url.removesuffix(".sha256sum").removesuffix(".sha256")
        if "own.example" in url:
            return Answer(404, {}, b"")
        return Answer(200, {}, self.digests.get(url, sha256(self.files[file])).encode())

    def look_up_base(self, _settings: object, request: Mapping[str, str], _run: object) -> LockedBase:
        self.asked.append("base image")
        found = looked_up("aws", request)
        identity = found.identity | {"name": found.identity["name"].replace("2026.11.11", self.day)}
        return found.model_copy(update={"identity": identity})


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    target = pipeline.prepare_target(load_today(SHIPPED), "aws")
    stand_ins = make_artifacts(target.steps)
    found = {request.url: stand_ins[request.url] for request in artifact_requests(target.steps).values()}
    return found | {OWN_URL: next(data for url, data in found.items() if "crictl" in url)}


@pytest.fixture
def web(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Web:
    found = Web(files)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1794960000")
    # A function becomes a method of the download; a method would be given only the file.
    monkeypatch.setattr(Download, "fill", lambda download, file: found.fill(download, file))
    monkeypatch.setattr(http.Web, "ask", lambda _, *asked: found.ask(*asked))
    answer(monkeypatch, aws, look_up_base=found.look_up_base, quick_checks=lambda *_: [])
    return found


@pytest.fixture
def lock(run: Run, web: Web, tmp_path: Path) -> LockCommand:
    assert web.downloaded == []

    def ran(*words: str) -> tuple[object, str, str]:
        return run("lock", SHIPPED, *words, "--target", "aws", "--lock", tmp_path / "x.lock.json", "--plain")

    return ran


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "x.lock.json").read_text())
    return found


def test_a_lock_names_what_no_policy_for_signatures_could_accept(lock: LockCommand) -> None:
    names = ["containerd", "crictl", "kube-log-runner", "kubeadm", "kubectl", "kubelet"]
    for words, unsigned in (((), names), (OWN, [name for name in names if name != "crictl"])):
        code, _, err = lock(*words)
        assert code == 0
        assert f"published without a signature: {', '.join(unsigned)}. artifacts.signatures would refuse them" in err


def test_a_lock_says_where_a_digest_was_confirmed_and_when_a_file_was_published(
    web: Web, lock: LockCommand, tmp_path: Path
) -> None:
    assert lock()[0] == 0
    kubelet = stored(tmp_path)["artifacts"]["kubelet"]
    assert kubelet["confirmed"] == [f"{kubelet['url']}.sha256"]
    assert kubelet["published"] == "2020-10-31T12:00:00Z"
    assert stored(tmp_path)["artifacts"]["cloudbase-init"]["confirmed"] is None
    assert len(web.downloaded) == len(set(web.downloaded))


def test_a_published_digest_that_disagrees_ends_with_4(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    web.digests[f"{KUBELET}.sha256"] = "ab" * 32
    code, _, err = lock()
    assert code == 4
    now = sha256(web.files[KUBELET])
    assert f"kubelet: {KUBELET} has sha256 {now}, but {KUBELET}.sha256 says {'ab' * 32}" in err
    assert not (tmp_path / "x.lock.json").exists()


def test_a_second_lock_without_the_first_downloads_nothing(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    assert lock()[0] == 0
    first = (tmp_path / "x.lock.json").read_bytes()
    (tmp_path / "x.lock.json").unlink()
    web.downloaded.clear()
    code, _, err = lock()
    assert (code, web.downloaded) == (0, [])
    assert f"{len(stored(tmp_path)['artifacts'])} artifacts unchanged on the server" in err
    assert (tmp_path / "x.lock.json").read_bytes() == first


def test_a_complete_lock_asks_nobody(web: Web, lock: LockCommand) -> None:
    lock()
    web.asked.clear()
    assert lock()[0] == 0
    assert lock("--frozen")[0] == 0
    assert web.asked == []


def test_a_frozen_build_asks_nobody(
    web: Web, lock: LockCommand, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither the servers of artifacts nor registries nor the cloud for its newest image, up to the rendered tree."""
    lock()
    web.asked.clear()

    def connect(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it opened a connection")

    def find_toolchain(*_: object) -> NoReturn:
        raise ToolError("the tree is rendered")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(pipeline, "find_toolchain", find_toolchain)
    words = ("build", SHIPPED, "--target", "aws", "--lock", tmp_path / "x.lock.json", "--out", tmp_path / "out")
    code, _, err = run(*words, "--frozen")
    assert (code, "error: the tree is rendered" in err) == (3, True), err
    assert web.asked == []
    assert [*(tmp_path / "out").rglob("*.pkr.hcl")] != []


def test_a_lock_says_which_hosts_need_the_authorities_of_the_config(
    web: Web, lock: LockCommand, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each host is asked once, and again only if everything is looked up again."""
    asked: list[str] = []

    def is_trusted(url: str, _sources: object, added: tuple[bytes, ...]) -> bool:
        asked.append(host_of(url))
        return bool(added) if "own.example" in url else "dl.k8s.io" in url

    monkeypatch.setattr(lookup, "_is_trusted", is_trusted)
    (tmp_path / "ca.pem").write_bytes(pki().root.pem)
    config = tmp_path / "image.yaml"
    config.write_text(f"{SHIPPED.read_text()}\nartifacts: {{ca: [ca.pem]}}\noverrides: {{crictl_url: '{OWN_URL}'}}\n")
    words = (config, "--target", "aws", "--lock", tmp_path / "x.lock.json", "--plain")
    assert lock(*OWN)[0] == 0
    assert stored(tmp_path)["ca_hosts"] == {}
    code, _, err = run("lock", *words, "--frozen")
    assert (code, "has no entry for the certificate of " in err) == (2, True), err
    assert run("lock", *words)[0] == 0
    # Only the system of this machine vouches for the others: the builder has no use for artifacts.ca there.
    assert {host for host, needed in stored(tmp_path)["ca_hosts"].items() if needed} == {"own.example"}
    assert stored(tmp_path)["ca_hosts"].keys() == {host_of(url) for url in web.files if "crictl-v" not in url}
    assert sorted(set(asked)) == sorted(stored(tmp_path)["ca_hosts"])
    asked.clear()
    assert run("lock", *words)[0] == run("lock", *words, "--frozen")[0] == 0
    assert asked == []
    assert run("lock", *words, "--upgrade")[0] == 0
    assert asked != []


def test_check_says_what_drifted_and_writes_nothing(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    lock()
    assert lock("--check")[:2] == (0, "")
    before = (tmp_path / "x.lock.json").read_bytes()
    web.day = "2026.12.09"
    was, web.files[KUBELET] = web.files[KUBELET], web.files[KUBELET] + b"x"
    code, out, err = lock("--check")
    assert code == 4
    assert out.splitlines() == [
        "base image for aws: name Windows_Server-2022-English-Core-Base-2026.11.11 -> "
        "name Windows_Server-2022-English-Core-Base-2026.12.09",
        f"kubelet: sha256 {sha256(was)} -> sha256 {sha256(was + b'x')}",
    ]
    assert "is not up to date: 2 differences" in err
    assert (tmp_path / "x.lock.json").read_bytes() == before
    code, out, _ = lock("--check", "--format", "json")
    assert code == 4
    assert [change["name"] for change in json.loads(out)] == ["base image for aws", "kubelet"]


def test_check_notes_a_redirect_to_another_host(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    web.redirects[KUBELET] = "https://cdn.example/kubelet.exe"
    lock()
    assert stored(tmp_path)["artifacts"]["kubelet"]["redirected_to"] == "https://cdn.example/kubelet.exe"
    assert "note:" not in lock("--check")[2]
    web.redirects[KUBELET] = "https://other.example/kubelet.exe"
    code, out, err = lock("--check")
    assert (code, out) == (0, "")
    assert f"note: kubelet: {KUBELET} redirects to other.example now, no longer to cdn.example\n" in err


def test_check_without_a_lock_lists_everything(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    code, out, _ = lock("--check")
    assert code == 4
    assert len(out.splitlines()) == len(web.files)
    assert all(": not locked -> " in line for line in out.splitlines())
    assert not (tmp_path / "x.lock.json").exists()


def test_upgrade_moves_base_images_and_own_urls(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    lock(*OWN)
    web.day = "2026.12.09"
    # The same archive, packed at another time.
    web.files[OWN_URL] = gzip.compress(gzip.decompress(web.files[OWN_URL]), mtime=1)
    code, out, _ = lock(*OWN, "--upgrade")
    assert code == 0
    assert [line.partition(":")[0] for line in out.splitlines()] == ["base image for aws", "crictl"]
    assert stored(tmp_path)["artifacts"]["crictl"]["sha256"] == sha256(web.files[OWN_URL])
    assert lock(*OWN, "--check")[0] == 0


def test_upgrade_of_a_name_moves_only_this(web: Web, lock: LockCommand) -> None:
    lock(*OWN)
    web.day = "2026.12.09"
    # The same archive, packed at another time.
    web.files[OWN_URL] = gzip.compress(gzip.decompress(web.files[OWN_URL]), mtime=1)
    web.asked.clear()
    code, out, _ = lock(*OWN, "--upgrade", "aws", "--format", "json")
    assert code == 0
    assert [change["name"] for change in json.loads(out)] == ["base image for aws"]
    assert web.asked == ["base image"]
    assert lock(*OWN, "crictl", "--upgrade")[1].startswith("crictl: sha256 ")


def test_another_file_at_another_url_must_be_upgraded_by_name(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    lock()
    public = stored(tmp_path)["artifacts"]["crictl"]
    web.files[OWN_URL] = gzip.compress(gzip.decompress(web.files[OWN_URL]), mtime=1)
    code, _, err = lock(*OWN)
    assert code == 4
    now = sha256(web.files[OWN_URL])
    assert f"crictl: {OWN_URL} has other bytes than {public['url']}, which is locked: sha256 {now}" in err
    assert f"run `imagegen lock {SHIPPED} --lock {tmp_path / 'x.lock.json'} --upgrade crictl`" in err
    assert stored(tmp_path)["artifacts"]["crictl"] == public
    code, out, _ = lock(*OWN, "--upgrade", "crictl")
    assert (code, out.startswith("crictl: url ")) == (0, True)
    # The config may also say which bytes are right.
    was = sha256(web.files[OWN_URL])
    web.files[OWN_URL] = gzip.compress(gzip.decompress(web.files[OWN_URL]), mtime=2)
    now = sha256(web.files[OWN_URL])
    code, _, err = lock("--set", f"overrides.crictl_url={{url: '{OWN_URL}', sha256: {now}}}")
    assert (code, f"crictl: sha256 {was} -> {now}: overrides.crictl_url has this sha256" in err) == (0, True), err


def test_upgrade_refuses_other_bytes_of_a_public_url(web: Web, lock: LockCommand, tmp_path: Path) -> None:
    lock()
    before = (tmp_path / "x.lock.json").read_bytes()
    web.files[KUBELET] += b"x"
    code, _, err = lock("--upgrade")
    assert code == 4
    assert f"kubelet: the bytes of {KUBELET} have changed since it was locked" in err
    assert (tmp_path / "x.lock.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--upgrade", "kublet"), 2, "the lock has no entry kublet"),
        (("kubelet",), 2, "kubelet: a NAME can only be used together with --upgrade"),
        (("--check", "--frozen"), 2, "--check, --upgrade and --frozen exclude each other"),
        (("--frozen",), 2, "there is no lock"),
        (("--set", "artifacts.quarantine_days=7"), 5, "artifacts.quarantine_days is 7, which refuses"),
    ],
)
def test_what_lock_refuses(
    words: tuple[str, ...], code: int, says: str, web: Web, lock: LockCommand, tmp_path: Path
) -> None:
    web.modified = "Sat, 31 Oct 2099 12:00:00 GMT"
    found, _, err = lock(*words)
    assert (found, says in err) == (code, True), err
    assert not (tmp_path / "x.lock.json").exists()


def test_quarantine_looks_at_locks_that_were_made_without_it(lock: LockCommand, tmp_path: Path) -> None:
    lock()
    days = ("--set", "artifacts.quarantine_days=7")
    assert lock(*days)[0] == lock(*days, "--frozen")[0] == 0
    known = stored(tmp_path)
    known["artifacts"]["kubelet"]["published"] = "2099-01-01T00:00:00Z"
    (tmp_path / "x.lock.json").write_text(json.dumps(known))
    for words in (days, (*days, "--frozen")):
        code, _, err = lock(*words)
        assert code == 5
        assert "kubelet: https://dl.k8s.io" in err


def test_check_is_about_drift_and_not_about_age(web: Web, lock: LockCommand) -> None:
    lock(*OWN)
    web.modified = "Sat, 31 Oct 2099 12:00:00 GMT"
    web.files[OWN_URL] = gzip.compress(gzip.decompress(web.files[OWN_URL]), mtime=1)
    days = ("--set", "artifacts.quarantine_days=7")
    code, out, _ = lock(*OWN, *days, "--check")
    assert (code, out.startswith("crictl: sha256 ")) == (4, True)
    code, _, err = lock(*OWN, *days, "--upgrade")
    assert (code, f"crictl: {OWN_URL} was published on 2099-10-31" in err) == (5, True)


def test_frozen_names_what_is_missing_and_the_command(web: Web, lock: LockCommand, run: Run, tmp_path: Path) -> None:
    lock()
    file, known = tmp_path / "x.lock.json", stored(tmp_path)
    del known["artifacts"]["kubelet"]
    file.write_text(json.dumps(known))
    web.asked.clear()
    for verb in ("lock", "plan", "render", "build"):
        options = ("--out", tmp_path / "out") if verb in ("render", "build") else ()
        code, _, err = run(verb, SHIPPED, "--target", "aws", "--lock", file, "--frozen", *options)
        assert code == 2, err
        assert "has no entry for kubelet" in err
        assert f"hint: run `imagegen lock {SHIPPED} --lock {file}`" in err
    assert web.asked == []


def test_frozen_verifies_the_cache(lock: LockCommand, tmp_path: Path) -> None:
    lock()
    number = len({artifact["sha256"] for artifact in stored(tmp_path)["artifacts"].values()})
    _, _, err = lock("--frozen")
    assert f"is complete: {number} files verified in the cache\n" in err
    file = next((tmp_path / "cache/imagegen/artifacts/sha256").iterdir())
    file.write_bytes(b"x")
    _, _, err = lock("--frozen")
    assert f"warning: {file} has other bytes than its name says" in err
    assert f"{number - 1} files verified in the cache, 1 not in the cache" in err


def test_a_rehearsal_has_no_frozen_lock(run: Run) -> None:
    for verb in ("plan", "build"):
        code, _, err = run(verb, SHIPPED, "--target", "aws", "--rehearse", "--frozen")
        assert (code, "--frozen cannot be used together with --rehearse" in err) == (2, True)


def target_in(region: str) -> str:
    return f"{{provider: aws, region: {region}, network: {{allowed_cidrs: [198.51.100.0/24]}}}}"


TWO = (
    *("--set", f"targets.prod={target_in('us-east-1')}", "--set", f"targets.dr={target_in('us-west-2')}"),
    *("--set", "targets.aws=null", "--set", "targets.azure=null"),
)


class Building:
    """Builds in the place of real ones: the digest of the lock that each would record."""

    def __init__(self) -> None:
        self.locks: dict[str, str] = {}

    def __call__(self, target: PreparedTarget, _options: object, _run: object, stored: StoredLock) -> ImageManifest:
        locking.check_complete(target, stored.lock, stored.file)
        self.locks[target.name] = stored.sha256
        return manifest().model_copy(update={"target": target.name})


@pytest.fixture
def building(monkeypatch: pytest.MonkeyPatch) -> Building:
    found = Building()
    monkeypatch.setattr(pipeline, "build", found)
    return found


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("frozen", [(), ("--frozen",)], ids=["completed", "frozen"])
def test_several_targets_are_built_with_one_lock(
    run: Run, building: Building, tmp_path: Path, frozen: tuple[str, ...]
) -> None:
    """The first build records no lock to which the second still adds its base image."""
    file = tmp_path / "x.lock.json"
    if frozen:
        assert run("lock", SHIPPED, *TWO, "--lock", file)[0] == 0
    code, _, err = run("build", SHIPPED, *TWO, "--target", "aws", "--lock", file, *frozen)
    assert code == 0, err
    assert building.locks == dict.fromkeys(("prod", "dr"), sha256(file.read_bytes()))


def test_a_target_that_cannot_be_locked_keeps_no_other_from_being_built(
    run: Run, web: Web, building: Building, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up_base(settings: object, request: Mapping[str, str], facts: object) -> LockedBase:
        if request["region"] == "us-west-2":
            raise RefusedError("the region is away")
        return web.look_up_base(settings, request, facts)

    answer(monkeypatch, aws, look_up_base=look_up_base, quick_checks=lambda *_: [])
    code, _, err = run("build", SHIPPED, *TWO, "--target", "aws", "--lock", tmp_path / "x.lock.json")
    assert (code, [*building.locks]) == (5, ["prod"])
    assert err.count("error: the region is away") == 1


@pytest.mark.usefixtures("web")
def test_a_lock_of_one_target_keeps_the_entries_of_the_others(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.lock.json"
    assert run("lock", SHIPPED, *TWO, "--lock", file)[0] == 0
    known = stored(tmp_path)
    known["artifacts"]["of-another-target"] = known["artifacts"]["kubelet"]
    del known["artifacts"]["kubelet"]
    file.write_text(json.dumps(known))
    assert run("lock", SHIPPED, *TWO, "--lock", file, "--target", "prod")[0] == 0
    assert {"kubelet", "of-another-target"} <= stored(tmp_path)["artifacts"].keys()
    assert run("lock", SHIPPED, *TWO, "--lock", file)[0] == 0
    assert "of-another-target" not in stored(tmp_path)["artifacts"], "no target needs it"


def test_two_runs_that_complete_one_lock_lose_no_entry(
    run: Run, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run ends while this one looks up its base image."""
    file, others = tmp_path / "x.lock.json", list[int]()

    def look_up_base(settings: object, request: Mapping[str, str], facts: object) -> LockedBase:
        if not others:
            others.append(1)
            assert run("lock", SHIPPED, *TWO, "--lock", file, "--target", "dr")[0] == 0
        return web.look_up_base(settings, request, facts)

    answer(monkeypatch, aws, look_up_base=look_up_base, quick_checks=lambda *_: [])
    code, _, err = run("lock", SHIPPED, *TWO, "--lock", file, "--target", "prod")
    assert code == 0, err
    assert f"another run changed {file} meanwhile" in err
    assert stored(tmp_path)["base_images"].keys() == {"prod", "dr"}
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "x.lock.json"}


def test_a_lock_that_others_change_all_the_time_is_refused(
    run: Run, web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, times = tmp_path / "x.lock.json", list[int]()

    def look_up_base(settings: object, request: Mapping[str, str], facts: object) -> LockedBase:
        times.append(1)
        file.write_text(json.dumps({"labels": {"times": str(len(times))}}))
        return web.look_up_base(settings, request, facts)

    answer(monkeypatch, aws, look_up_base=look_up_base, quick_checks=lambda *_: [])
    code, _, err = run("lock", SHIPPED, *TWO, "--lock", file, "--target", "prod")
    assert (code, len(times)) == (5, 5)
    assert f"{file} was changed by other runs 5 times" in err
