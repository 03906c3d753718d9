"""Makes the samples for an image: chooses those that apply, and renders them. Reads only its own templates."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.base.templating import evaluate, render_text
from imagegen.catalog.facts import numbers, table
from imagegen.providers.registry import provider_folder
from imagegen.samples.bootstrap import bootstrap_context, find_accounts
from imagegen.samples.network import Network, find_network, net_conf

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec

_FOLDER: Final = Path(__file__).parent
_TEMPLATES: Final = _FOLDER / "templates"
_BOOTSTRAP: Final = "bootstrap.yaml.j2"
POD_SCRIPT: Final = "start-in-pod.ps1"
"""The script that pods run."""
INDEX: Final = "README.md"


@dataclasses.dataclass(frozen=True)
class SamplesRequest:
    """What the operator says about the cluster."""

    network: str | None
    """The network plugin that the cluster installs."""
    images: Mapping[str, str]
    """The operator's container images by name."""
    cluster_cidr: str
    service_cidr: str
    signed_script: Callable[[], bytes] | None = None
    """Takes the signed copy of the script of the pods, for nodes that run only signed scripts. Samples in which no such
    node runs it do not ask."""


@dataclasses.dataclass(frozen=True)
class Sample:
    """One file, and how to use it."""

    name: str
    title: str
    how: str
    text: str


@dataclasses.dataclass(frozen=True)
class SampleImage:
    """A container image that a sample uses."""

    name: str
    reference: str
    origin: str
    holds: str


@dataclasses.dataclass(frozen=True)
class Samples:
    """All samples for an image."""

    files: tuple[Sample, ...]
    images: tuple[SampleImage, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...]
    """What has no sample, and why."""
    readme: str


def first_line(name: str) -> str:
    """The first line of a file. It names the file: another run must not replace or remove a copy."""
    text = f"`imagegen samples` wrote {name}. Another run replaces this file: change a copy with another name."
    return f"<!-- {text} -->" if name == INDEX else f"# {text}"


def name_patterns() -> set[str]:
    """The names that files can have, as patterns for `glob`."""
    return {INDEX, _bootstrap_name("*"), *(row["file"] for row in _index()["samples"])}


def make_samples(specs: Sequence[Spec], lack: Sequence[str], request: SamplesRequest) -> Samples:
    """The samples for an image with these targets. `lack` is the reason why its nodes have no HostProcess containers.

    Everything but the bootstrap configs is the same for every target of a config.
    """
    index = _index()
    network = find_network(specs[0], request.network)
    context = _context(specs, lack, request, network)
    rows = [row for row in index["samples"] if evaluate(row["when"], context)]
    needed = {name for row in rows for name in row.get("images", ())}
    images = _find_images(specs[0], sorted(needed), str(context["delivery"]), request.images)
    context["images"] = {image.name: image.reference for image in images}
    files = [
        Sample(row["file"], row["title"], row["how"], _render(row["file"], _read(row["template"]), context))
        for row in rows
    ]
    files += _bootstraps(specs, request, network)
    context["kinds"] = re.findall(r"(?m)^kind: (\w+)$", "\n".join(file.text for file in files))
    notes = tuple(render_text(row["text"], context) for row in index["notes"] if evaluate(row["when"], context))
    left = tuple(render_text(row["text"], context) for row in index["left_out"] if evaluate(row["when"], context))
    about = {
        **context,
        "files": [dataclasses.asdict(file) for file in files],
        "image_rows": [dataclasses.asdict(image) for image in images],
        "notes": notes,
        "left_out": left,
    }
    return Samples(tuple(files), images, notes, left, _render(INDEX, _read(f"{INDEX}.j2"), about))


def _index() -> dict[str, Any]:
    rows: dict[str, Any] = json.loads((_FOLDER / "samples.json").read_bytes())
    return rows


def _render(name: str, template: str, context: Mapping[str, object]) -> str:
    return f"{first_line(name)}\n{render_text(template, context)}"


def _context(specs: Sequence[Spec], lack: Sequence[str], request: SamplesRequest, network: Network) -> dict[str, Any]:
    """All values that samples use."""
    config, facts = specs[0].config, specs[0].facts
    version = numbers(config.kubernetes.version)
    gates = [f"{row['gate']}=true" for row in _gates() if version < numbers(row["on_since"])]
    by_wins = config.wins is not None
    known = table("samples")["accounts"]
    accounts = [known[name] for name in find_accounts(specs[0])]
    routes = table("samples").get("routes", {})
    clouds = [routes[name] for name in dict.fromkeys(spec.provider for spec in specs) if name in routes]
    return {
        "name": config.name,
        "kubernetes": {"version": config.kubernetes.version},
        "minor": list(version[:2]),
        "wins": config.wins is not None,
        "kube_proxy": config.kube_proxy,
        "facts": {"windows_build": facts.windows_build},
        "network": dataclasses.asdict(network),
        "delivery": "wins" if by_wins else "" if lack else "hostprocess",
        "lack": lack[0] if lack else "",
        "is_docker": config.runtime.docker is not None,
        "gates": ",".join(gates),
        "folder": config.kubernetes.install_path.removeprefix("C:"),
        "api_version": table("cni")["api_versions"]["containerd" if config.runtime.containerd else "docker"],
        "net_conf": net_conf(network, request.cluster_cidr),
        "cluster_cidr": request.cluster_cidr,
        "service_cidr": request.service_cidr,
        "port": table("cni")["vxlan"]["port"],
        "runtime_classes": list(_runtime_classes(specs[0])),
        "accounts": [row for row in accounts if row["account"]],
        "cloud_routes": " ".join(cloud[network.routes] for cloud in clouds if network.routes),
        "script": textwrap.indent(_read(POD_SCRIPT).rstrip(), "    "),
        "own_images": sorted(request.images),
        "only_signed": request.signed_script is not None,
        "signed_script": functools.partial(_signed_script, request),
    }


def _signed_script(request: SamplesRequest) -> str:
    return base64.b64encode(request.signed_script() if request.signed_script else b"").decode()


def _gates() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = table("kubernetes")["kube_proxy_gates"]
    return rows


def sample_scripts() -> dict[str, bytes]:
    """The scripts that pods of the samples run, by name."""
    return {POD_SCRIPT: (_TEMPLATES / POD_SCRIPT).read_bytes()}


def _read(template: str) -> str:
    return (_TEMPLATES / template).read_text(encoding="utf-8")


def _runtime_classes(spec: Spec) -> Iterator[dict[str, str]]:
    """One class for the release of the node, and one for each handler of Hyper-V on the image."""
    release = spec.config.windows.release
    yield {
        "name": f"windows-{release}",
        "handler": "runhcs-wcow-process" if spec.config.runtime.containerd else "docker",
    }
    if spec.facts.hyper_v.builds:
        yield {"name": f"windows-{release}-isolated", "handler": "runhcs-wcow-hypervisor"}
    releases = {row["build"]: name for name, row in table("windows")["releases"].items()}
    for build in spec.facts.hyper_v.builds:
        if build != spec.facts.windows_build:
            name = f"windows-{releases.get(build, build)}-isolated"
            yield {"name": name, "handler": f"runhcs-wcow-hypervisor-{build}"}


def _find_images(spec: Spec, needed: Sequence[str], delivery: str, given: Mapping[str, str]) -> tuple[SampleImage, ...]:
    """The images that the samples need: the operator's, or those of the catalogue."""
    if unused := sorted(given.keys() - set(needed)):
        used = f"these samples use {', '.join(needed)}" if needed else "no sample uses an image"
        raise ConfigError(f"--image {unused[0]}={given[unused[0]]} has no effect: {used}", hint="leave it out")
    known = table("samples")
    images: list[SampleImage] = []
    missing: dict[str, str] = {}
    for name in needed:
        holds = known["holds"][name][delivery]
        if name in given:
            images.append(SampleImage(name, given[name], "--image", holds))
        elif published := _find_published(name, delivery, spec.config.kubernetes.version):
            images.append(SampleImage(name, *published, holds))
        else:
            missing[name] = f"{name}: {known['missing'][name][delivery]}. It must hold {holds}"
    if missing:
        own = " ".join(f"--image {name}=registry.example.com/{name}:1" for name in missing)
        raise RefusedError(
            "the samples need container images that nobody publishes",
            details=missing.values(),
            hint=f"build them, and name yours: {own}",
        )
    return tuple(images)


def _find_published(name: str, delivery: str, version: str) -> tuple[str, str] | None:
    """The reference of a published image, and where that is known from."""
    known = table("samples")
    row = known["images"].get(name)
    # No image is published for a pre-release.
    if row is None or row["delivery"] != delivery or "-" in version or numbers(version) < numbers(row["since"]):
        return None
    source = known["sources"][row["source"]]
    return row["reference"].format(version=version), f"{source['from'].partition(':')[0]}, read {source['read']}"


def _bootstraps(specs: Sequence[Spec], request: SamplesRequest, network: Network) -> Iterator[Sample]:
    """The bootstrap config of each target, if its cloud has a template."""
    for spec in specs:
        template = provider_folder(spec.provider) / "samples" / _BOOTSTRAP
        if template.is_file():
            context = bootstrap_context(spec, request.cluster_cidr, request.service_cidr, network)
            name = _bootstrap_name(spec.target)
            text = _render(name, template.read_text(encoding="utf-8"), context)
            title = (
                f"the bootstrap config and the machine template of target {spec.target}, for the management cluster. "
                "Replace the words in capitals first"
            )
            yield Sample(name, title, f"kubectl apply -f {name}", text)


def _bootstrap_name(target: str) -> str:
    return f"bootstrap-{target}.yaml"
