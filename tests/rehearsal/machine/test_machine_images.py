"""Pulling container images on the model machine: what containerd keeps, and what Windows and registries refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.container_store import ContainerStore, open_store
from imagegen.rehearsal.machine.image_pull import can_run
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.updates import CURRENT_VERSION
from tests.rehearsal.machine.conftest import EndedError
from tests.rehearsal.machine.image_support import (
    CONFIG,
    CRICTL,
    CTR,
    LOCKED,
    OTHER,
    PAUSE,
    REGISTRIES,
    image,
    install_containerd,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench


def pull(bench: Bench, name: str = PAUSE, *, pinned: bool = False) -> None:
    bench.bundle({"phase-1": [("image", image(name, pinned=pinned))]})
    bench.done("phase-1")


@pytest.mark.parametrize("discards", [True, False])
def test_containerd_discards_layers_if_its_configuration_says_so(bench: Bench, discards: bool) -> None:
    install_containerd(bench.machine, discards=discards)
    pull(bench, OTHER)
    store = open_store(bench.machine)
    target = store.read(LOCKED[OTHER].manifest)
    assert [store.has(layer["digest"]) for layer in target["layers"]] == [not discards] * 2
    assert store.has(target["config"]["digest"])
    assert store.has_snapshot(LOCKED[OTHER].layers)


def test_an_image_has_the_names_that_kubernetes_asks_for(bench: Bench) -> None:
    install_containerd(bench.machine)
    pull(bench, OTHER)
    store = open_store(bench.machine)
    config = store.read(LOCKED[OTHER].manifest)["config"]["digest"]
    assert set(store.images()) == {OTHER, f"docker.io/library/nginx@{LOCKED[OTHER].digest}", config}
    assert {found["labels"]["io.cri-containerd.image"] for found in store.images().values()} == {"managed"}
    assert store.images("default") == {}


def test_a_mirror_of_the_configuration_is_asked_first(bench: Bench) -> None:
    asked: list[str] = []

    def browse(
        url: str, headers: Mapping[str, str], authorization: str, _proxy: str | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(url)
        answer = REGISTRIES.ask(url, headers, authorization)
        return answer.status, answer.headers, answer.body

    install_containerd(bench.machine)
    files = bench.machine.files
    more = b"[plugins.'io.containerd.cri.v1.images'.registry]\nconfig_path = 'C:\\c\\certs.d'\n"
    files.write(CONFIG, files.read(CONFIG) + more)
    files.make_folder(r"C:\c\certs.d\docker.io")
    files.write(r"C:\c\certs.d\docker.io\hosts.toml", b'[host."https://mirror.example.com/hub"]\n')
    bench.machine.browse = browse
    pull(bench, OTHER)
    assert {url.partition("/v2/")[0] for url in asked} == {"https://mirror.example.com/hub"}
    assert all(url.endswith("?ns=docker.io") for url in asked)


REFUSALS: list[tuple[Callable[[Machine], object], str]] = [
    (lambda m: m.files.remove(CTR), f"cannot find {CTR}"),
    (lambda m: m.files.remove(CRICTL), f"cannot find {CRICTL}"),
    (lambda m: m.services.stop("containerd"), "containerd does not answer"),
    (lambda m: vars(m.volume).update(used=m.volume.size - 2**30), "choose a larger disk"),
    (lambda m: vars(m).update(browse=lambda *_: (503, {}, b"")), "unexpected status 503"),
    (lambda m: vars(m).update(browse=lambda *_: (200, {}, b"{}")), "unexpected commit digest"),
]


@pytest.mark.parametrize(("spoil", "reason"), REFUSALS, ids=[reason for _, reason in REFUSALS])
def test_what_keeps_an_image_from_being_pulled_is_named(
    bench: Bench, spoil: Callable[[Machine], object], reason: str
) -> None:
    install_containerd(bench.machine)
    bench.bundle({"phase-1": [("image", image(OTHER, pinned=False))]})
    spoil(bench.machine)
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    [event] = bench.events(outcome, "resource")
    assert reason in event["reason"]


def test_an_interrupted_registry_is_asked_again(bench: Bench) -> None:
    def flaky(
        url: str, headers: Mapping[str, str], authorization: str, _proxy: str | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        asked.append(url)
        if len(asked) < 3:
            raise ConnectionResetError("wsarecv: An existing connection was forcibly closed by the remote host.")
        answer = REGISTRIES.ask(url, headers, authorization)
        return answer.status, answer.headers, answer.body

    asked: list[str] = []
    install_containerd(bench.machine)
    bench.machine.browse = flaky
    pull(bench, OTHER)
    assert bench.machine.up_s >= 15 + 30


@pytest.mark.parametrize(
    ("host", "version", "runs"),
    [
        ("17763", "10.0.17763.1", True),
        ("17763", "10.0.17134.1", False),
        ("20348", "10.0.17763.1", False),
        ("20348", "10.0.20348.1", True),
        ("20348", "10.0.26100.1", False),
        ("25398", "10.0.20348.1", True),
        ("26100", "10.0.20348.1", True),
        ("26100", "10.0.17763.1", False),
        ("17763", "", True),
    ],
)
def test_which_images_a_host_runs(bench: Bench, host: str, version: str, runs: bool) -> None:
    bench.machine.registry.write(CURRENT_VERSION, "CurrentBuildNumber", Value("String", host))
    assert can_run(bench.machine, version) is runs


def test_the_plan_of_another_build_is_found_out(bench: Bench) -> None:
    """containerd takes the manifest for its own Windows, whatever the lock was made for."""
    install_containerd(bench.machine)
    fields = {**image(OTHER, pinned=False), "layers": "sha256:" + "0" * 64}
    bench.bundle({"phase-1": [("image", fields)]})
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert "not as planned after it was set: its layers are not unpacked" in outcome.output


def test_a_drive_is_extended_once(bench: Bench) -> None:
    bench.bundle({"phase-1": [("volume", {"drive": "C"})]})
    assert [event["status"] for event in bench.done("phase-1") if event["event"] == "resource"] == ["changed"]
    assert bench.machine.volume.size == bench.machine.volume.largest
    vars(bench.machine.volume).update(size=bench.machine.volume.largest - 2**20 + 1)
    assert [event["status"] for event in bench.done("phase-1") if event["event"] == "resource"] == ["ok"]


def test_an_image_may_need_the_room_behind_the_drive(bench: Bench) -> None:
    install_containerd(bench.machine)
    large = ("image", {**image(OTHER, pinned=False), "size": 20 * 2**30})
    bench.bundle({"phase-1": [large]})
    assert bench.run("phase-1").exit_code == 6
    bench.bundle({"phase-1": [("volume", {"drive": "C"}), large]})
    bench.done("phase-1")


@pytest.mark.parametrize("stage", ["unpack", "name_image"])
def test_a_pull_that_was_interrupted_is_resumed(bench: Bench, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's process ends in the middle of it: the next run finds what is missing."""
    install_containerd(bench.machine)
    bench.bundle({"phase-1": [("image", image())]})
    with monkeypatch.context() as patched:
        patched.setattr(ContainerStore, stage, _end)
        with pytest.raises(EndedError):
            bench.run("phase-1")
    assert bench.run("all", "-Check").exit_code == 5
    assert [event["status"] for event in bench.done("phase-1") if event["event"] == "resource"] == ["changed"]
    assert bench.run("all", "-Check").exit_code == 0


def _end(*_: object) -> None:
    raise EndedError
