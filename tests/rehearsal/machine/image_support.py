"""A machine with containerd, the registries of its images, and how an image can be spoilt behind its back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imagegen.oci.names import ImageRequest
from imagegen.oci.registry import look_up_image
from imagegen.rehearsal.machine.container_store import NAMESPACE, PINNED, open_store
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.services import AUTOMATIC
from imagegen.rehearsal.network.registries import Registries
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench, Fields

PAUSE = "registry.k8s.io/pause:3.10.1"
OTHER = "docker.io/library/nginx:1"
CTR, CRICTL = r"C:\c\ctr.exe", r"C:\k\crictl.exe"
CONFIG = r"C:\c\config.toml"
ROOT = r"C:\ProgramData\containerd\root"
REGISTRIES = Registries([PAUSE, OTHER], ["https://mirror.example.com/hub"])
LOCKED = {
    name: look_up_image(ImageRequest(ImageName.parse(name), (20348,), ()), REGISTRIES.ask) for name in (PAUSE, OTHER)
}


def install_containerd(machine: Machine, *, discards: bool = True) -> None:
    """containerd runs, and reaches the registries."""
    files = machine.files
    machine.features.install("Containers")
    machine.restart()
    for folder in (r"C:\c", r"C:\k", ROOT):
        files.make_folder(folder)
    for program in (r"C:\c\containerd.exe", CTR, CRICTL):
        files.write(program, b"MZ")
    settings = f"[plugins.'io.containerd.cri.v1.images']\ndiscard_unpacked_layers = {str(discards).lower()}\n"
    files.write(CONFIG, f"version = 3\nroot = '{ROOT}'\n{settings}".encode())
    command = rf"C:\c\containerd.exe --run-service --config {CONFIG}"
    machine.services.create("containerd", command, "containerd", AUTOMATIC)
    machine.services.start("containerd")
    machine.browse = browse


def browse(
    url: str, headers: Mapping[str, str], authorization: str, _proxy: str | None
) -> tuple[int, Mapping[str, str], bytes]:
    answer = REGISTRIES.ask(url, headers, authorization)
    return answer.status, answer.headers, answer.body


def image(name: str = PAUSE, *, pinned: bool = True) -> Fields:
    locked = LOCKED[name]
    reference = f"{name.rpartition(':')[0]}@{locked.digest}"
    pins = {"digest": locked.digest, "layers": locked.layers, "size": locked.size}
    return {"name": name, "reference": reference, **pins, "pinned": pinned, "ctr": CTR, "crictl": CRICTL}


DOCKER = r"C:\Program Files\docker\docker.exe"


def install_docker(machine: Machine) -> None:
    """Docker runs, and reaches the registries."""
    machine.features.install("Containers")
    machine.restart()
    machine.files.make_folder(parent(DOCKER))
    machine.files.write(DOCKER, b"MZ")
    daemon = rf"{parent(DOCKER)}\dockerd.exe"
    machine.files.write(daemon, b"MZ a stand-in for docker/dockerd.exe 28.5.1, made for a rehearsal\n")
    machine.services.create("docker", f'"{daemon}" --run-service', "Docker Engine", AUTOMATIC)
    machine.services.start("docker")
    machine.browse = browse


def docker_image(name: str = OTHER) -> Fields:
    locked = LOCKED[name]
    reference = f"{name.rpartition(':')[0]}@{locked.manifest}"
    return {
        **{"name": name, "reference": reference, "digest": locked.config, "layers": locked.layers},
        **{"size": locked.size, "docker": DOCKER},
    }


def ready_image(bench: Bench) -> Fields:
    install_containerd(bench.machine)
    return image()


FACTS: dict[str, Any] = {"digest": LOCKED[PAUSE].digest, "unpacked": True, "pinned": True}


def _rename(machine: Machine) -> None:
    """As with `ctr` without -n: it is in another namespace."""
    store = open_store(machine)
    store.name_image(PAUSE, LOCKED[PAUSE].digest, dict([PINNED]), "default")
    store.forget_image(PAUSE)


def _label(**labels: str) -> Callable[[Machine], object]:
    return lambda machine: open_store(machine).name_image(PAUSE, LOCKED[PAUSE].digest, labels)


def _retarget(machine: Machine) -> None:
    open_store(machine).name_image(PAUSE, LOCKED[OTHER].digest, dict([PINNED]))


def _remove_layers(machine: Machine) -> None:
    machine.files.remove(open_store(machine).snapshot_folder(LOCKED[PAUSE].layers, NAMESPACE))


SPOILS: list[tuple[str, Callable[[Machine], object], str]] = [
    ("image", lambda machine: open_store(machine).forget_image(PAUSE), f"there is no image {PAUSE}"),
    ("image", _rename, f"there is no image {PAUSE}"),
    ("image", _label(), "it is not pinned"),
    ("image", _retarget, f"digest is {LOCKED[OTHER].digest}, not {LOCKED[PAUSE].digest}"),
    ("image", _remove_layers, f"there is no snapshot {LOCKED[PAUSE].layers}"),
    ("volume", lambda machine: vars(machine.volume).update(size=2**35), "drive C has 34359738368 bytes, and there is"),
]
