"""The settled spec of one target, and how it is made. Steps, rules, providers and explain read it.

Only this module chooses between a config's value and the catalogue's. Reads nothing but the catalogue. It never fails:
if the catalogue does not know a version, the values that depend on it are None, and a rule rejects the config."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic

from typing_extensions import TypeVar

from imagegen.catalog.docker import find_client, least_api
from imagegen.catalog.facts import JsonObject, find_row, minor, numbers, provider_text, table
from imagegen.catalog.products import find_products
from imagegen.settle.facts import (
    AgentConfig,
    CredentialProviderApi,
    ExcludedPorts,
    Facts,
    HotFix,
    HyperV,
    Ports,
    RestrictedAddress,
    Updates,
    Wins,
)
from imagegen.settle.folders import settle_folders
from imagegen.settle.network import settle_kube_proxy, settle_link_local_routes, settle_network
from imagegen.settle.trust import certificate_key, settle_trust
from imagegen.settle.values import FACTS as FACTS
from imagegen.settle.values import CatalogueValue as CatalogueValue
from imagegen.settle.values import Origin as Origin
from imagegen.settle.values import fact, find_origin
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    import pydantic

    from imagegen.config.model import ImageConfig
    from imagegen.config.own_files import GivenCertificate, OwnFile
    from imagegen.config.yaml import Document, YamlPath
    from imagegen.providers.settings import TargetSettings

S = TypeVar("S", bound="TargetSettings", default="TargetSettings", covariant=True)
Model = TypeVar("Model", bound="pydantic.BaseModel")
_SHOWN_AS_TEXT: Final = (HyperV, Updates, AgentConfig, RestrictedAddress, Ports, CredentialProviderApi, Wins)
_API_KEYS: Final = tuple(field.name for field in dataclasses.fields(CredentialProviderApi))
NO_FILES: Final[Mapping[str, OwnFile]] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Spec(Generic[S]):
    """All settled values of one target.

    If the operator leaves out a key, `config` has the catalogue's value, if there is one. A config can have lists for
    each cloud: here they are the lists of this target's cloud.
    """

    target: str
    provider: str
    config: ImageConfig
    settings: S
    facts: Facts
    plugins: tuple[str, ...]
    """cloudbase-init's plugins, in the order in which they run."""
    metadata_services: tuple[str, ...]
    offered_image: Mapping[str, str]
    """The name of the cloud's own base image of this Windows release; empty if there is none."""
    document: Document
    catalogue: Mapping[YamlPath, CatalogueValue]
    """The catalogue's values by path, including those that the config overrides."""
    own_files: Mapping[str, OwnFile]
    """The files beside the config that go to the machine, or with which downloads are judged, by their key."""
    authorities: tuple[GivenCertificate, ...] = ()
    """The certificates of artifacts.ca."""

    @property
    def pulled_images(self) -> tuple[str, ...]:
        """The container images that the build pulls from registries. The pause image comes with any other image, also
        with one of a tarball, unless a tarball has it."""
        config, pause = self.config, self.config.kubernetes.pause_image
        tarballs = {str(ImageName.parse(tarball.name)) for tarball in config.image_tarballs}
        listed = [*config.windows.container_images, *config.images, *self.facts.cni_images]
        others = tuple(name for name in listed if name != pause)
        # Rules refuse a Kubernetes version without a pause image.
        if pause is None or not (listed or tarballs) or str(ImageName.parse(pause)) in tarballs:
            return others
        return (pause, *others)

    def origin(self, path: YamlPath) -> Origin:
        """Where the value at a path comes from."""
        if path in self.document.lines:
            place = self.document.place(path)
            return Origin("file" if place.line else "set", str(place))
        known = self.catalogue.get(path)
        return known.origin if known is not None and known.value is not None else Origin("default")


def settle_targets(
    config: ImageConfig,
    document: Document,
    own_files: Mapping[str, OwnFile] = NO_FILES,
    roots: Sequence[GivenCertificate] = (),
    authorities: Sequence[GivenCertificate] = (),
) -> dict[str, Spec]:
    """The spec of each target, by the target's name."""
    named = config.targets.named()
    return {target: settle(config, document, target, own_files, roots, authorities) for target in named}


def settle(
    config: ImageConfig,
    document: Document,
    target: str,
    own_files: Mapping[str, OwnFile] = NO_FILES,
    roots: Sequence[GivenCertificate] = (),
    authorities: Sequence[GivenCertificate] = (),
) -> Spec:
    """The spec of one target of the config. `roots` are the certificates in the files of windows.trusted_roots, and
    `authorities` those of artifacts.ca."""
    settings = config.targets.named()[target]
    found = (
        *_windows(config, target),
        *_hyper_v(config),
        _updates(config),
        *_ports(settings.provider),
        *_kubernetes(config),
        *_containerd(config),
        *_docker(config),
        *settle_folders(config),
        *settle_network(config),
        *settle_kube_proxy(config),
        *_default_versions(config),
        _wins(config),
        *_gmsa(config, settings.provider),
        *_ssh(config),
        *_first_boot(config, settings.provider),
        _restricted_address(config, settings),
        settle_link_local_routes(settings.provider),
        *settle_trust(config, document, roots),
    )
    values = {value.path: value for value in found}
    settled = _fill(config, {path: value.value for path, value in values.items() if path[0] not in (FACTS, "targets")})
    return Spec(
        target=target,
        provider=settings.provider,
        config=settled,
        settings=settings,
        facts=Facts(**{str(path[1]): value.value for path, value in values.items() if path[0] == FACTS}),
        plugins=tuple(getattr(settled.cloudbase_init.plugins, settings.provider)),
        metadata_services=tuple(getattr(settled.cloudbase_init.metadata_services, settings.provider)),
        offered_image=values["targets", target, "base_image"].value or {},
        document=document,
        catalogue=values,
        own_files={**own_files, **{certificate_key(number): root.file for number, root in enumerate(roots)}},
        authorities=tuple(authorities),
    )


def _fill(section: Model, values: Mapping[YamlPath, object]) -> Model:
    """Set the values whose keys the config leaves out. Paths begin at the section."""
    changed = {}
    for name in dict.fromkeys(str(path[0]) for path in values):
        inner = {path[1:]: value for path, value in values.items() if path[0] == name}
        have = getattr(section, name)
        if have is None or () not in inner:
            changed[name] = inner.get(()) if have is None else _fill(have, inner)
    # A value that stays None is not set: explain tells values that were set from defaults.
    return section.model_copy(update={name: value for name, value in changed.items() if value is not None})


def _windows(config: ImageConfig, target: str) -> Iterator[CatalogueValue]:
    release, settings = config.windows.release, config.targets.named()[target]
    row: JsonObject = table("windows")["releases"].get(release, {})
    rows: list[JsonObject] = row.get("hot_fixes", [])
    fixes = {(fix["key"], fix["name"]): HotFix(fix["key"], fix["name"], fix["data"], fix["reason"]) for fix in rows}
    for name in config.windows.fixes:
        for fix in table("windows")["fix_sets"][name]["releases"].get(release, []):
            # What the release itself needs stays: a set may have an older opinion.
            made = HotFix(fix["key"], fix["name"], fix["data"], f"of the set {name}, since the update {fix['since']}")
            fixes.setdefault((fix["key"], fix["name"]), made)
    origin = find_origin("windows", release, row.get("source"))
    yield fact("windows_build", row.get("build"), origin)
    origin = find_origin("windows", release, rows[0]["source"] if rows else None)
    yield fact("hot_fixes", tuple(fixes.values()), origin)
    image: JsonObject = row.get("images", {}).get(config.windows.edition, {}).get(settings.provider, {})
    if "sku" in image:
        named = {"offer": image["offer"], "sku": image["sku"][str(getattr(settings, "generation", "2"))]}
    else:
        named = {"name": image.get("name")}
    offered = None if None in named.values() else named
    origin = find_origin("windows", release, image.get("source"))
    yield CatalogueValue(
        ("targets", target, "base_image"), offered, find_origin("windows", release, image.get("source"))
    )


def _hyper_v(config: ImageConfig) -> Iterator[CatalogueValue]:
    """containerd runs no containers of the builds before the first release that it runs on."""
    releases = table("windows")["releases"]
    host: JsonObject = releases.get(config.windows.release, {})
    known = {row["build"] for row in (*releases.values(), *table("images")["former_tags"].values())}
    first, last = min(row["build"] for row in releases.values()), host.get("build", 0)
    isolates, runtime, name = config.windows.hyper_v == "isolation", config.runtime, "HyperVContainer"
    builds = tuple(sorted(build for build in known if first <= build <= last)) if runtime.containerd else ()
    gate: JsonObject = table("kubelet")["feature_gates"][name]
    has_gate = runtime.docker and numbers(minor(config.kubernetes.version)) <= numbers(gate["last"])
    found = HyperV(builds if isolates else (), name if isolates and has_gate else "")
    origin = find_origin("windows", config.windows.release, host.get("source"))
    yield fact("hyper_v", found, origin)


def _updates(config: ImageConfig) -> CatalogueValue:
    rows, wanted = table("updates"), config.windows.updates
    build = table("windows")["releases"].get(config.windows.release, {}).get("build")
    known: JsonObject = {kb: row["ubr"] for kb, row in rows["cumulative"].items() if row["build"] == build}
    found = Updates(
        [rows["categories"][name]["guid"] for name in wanted.categories] if wanted else [],
        [{"kb": kb, "ubr": known.get(kb)} for kb in wanted.kbs] if wanted else [],
        [{"code": code, "means": means} for code, means in rows["codes"].items()],
    )
    return fact("updates", found, find_origin("updates", "codes", "codes"))


def _kubernetes(config: ImageConfig) -> Iterator[CatalogueValue]:
    row, origin = _row("kubernetes", "minors", config.kubernetes.version)
    pause, pause_origin = row.get("pause"), origin
    release: JsonObject = table("windows")["releases"].get(config.windows.release, {})
    least = release.get("pause_at_least")
    if pause and least and numbers(least) > numbers(pause.rpartition(":")[2]):
        # The pause image of this Kubernetes minor has no layer for this Windows release.
        pause = f"{pause.rpartition(':')[0]}:{least}"
        pause_origin = find_origin("windows", config.windows.release, release["source"])
    yield CatalogueValue(("kubernetes", "pause_image"), pause, pause_origin)
    yield fact("crictl", row.get("crictl"), origin)
    yield _since("kubeadm_joins_as_system", config, "joins_as_system")
    yield _since("kubeadm_writes_drives", config, "kubeadm_writes_drives")
    yield _since("kubelet_has_priority_class", config, "priority_class")
    row = table("kubernetes")["since"]["log_runner"]
    runs = numbers(config.kubernetes.version) >= numbers(row["minor"])
    yield fact(
        "kube_log_runner",
        config.kubernetes.version if runs else row["instead"],
        find_origin("kubernetes", f"since {row['minor']}", row["source"]),
    )
    nssm = table("kubernetes")["nssm"]
    origin = find_origin("kubernetes", "nssm", nssm["source"])
    yield fact("nssm", nssm["version"], origin)
    scripts = table("debug-tools")
    yield fact("debug_tools", scripts["commit"], find_origin("debug-tools", "commit", scripts["source"]["commit"]))
    origin = find_origin("debug-tools", "checks_commit", scripts["source"]["checks_commit"])
    yield fact("node_checks", scripts["checks_commit"], origin)
    version = numbers(config.kubernetes.version)
    rows = [row for row in table("kubelet")["credential_providers"] if version >= numbers(row["first"])]
    api = CredentialProviderApi(**{key: rows[-1][key] for key in _API_KEYS}) if rows else None
    origin = find_origin("kubelet", f"since {rows[-1]['first']}", rows[-1]["source"]) if rows else Origin("catalogue")
    yield fact("credential_provider_api", api, origin)


def _containerd(config: ImageConfig) -> Iterator[CatalogueValue]:
    containerd = config.runtime.containerd
    row, origin = _row("containerd", "lines", containerd.version if containerd else "")
    version, bin_dirs = row.get("config_version"), row.get("cni_bin_dirs")
    yield fact("containerd_config_version", version, origin)
    yield fact("containerd_cni_bin_dirs", bin_dirs, origin)
    pins = table("containerd")["pins_images"]
    least = {minor(one): numbers(one) for one in pins["since"]}
    version = containerd.version if containerd else ""
    known = bool(version) and numbers(version) >= least.get(minor(version), max(least.values()))
    origin = find_origin("containerd", "pins_images", pins["source"])
    yield fact("containerd_pins_images", known, origin)
    scrubs = table("containerd")["scrubs_logs"]
    has_option = bool(version) and numbers(version) >= numbers(scrubs["since"])
    yield fact("containerd_scrubs_logs", has_option, find_origin("containerd", "scrubs_logs", scrubs["source"]))


def _docker(config: ImageConfig) -> Iterator[CatalogueValue]:
    docker = config.runtime.docker
    api = docker and least_api(docker.version, find_client(config.kubernetes.version, docker.cri_dockerd))
    origin = find_origin("docker", docker.version if docker else "", "lower" if api else None)
    yield fact("docker_least_api", api, origin)


def _default_versions(config: ImageConfig) -> Iterator[CatalogueValue]:
    """The versions of the products of optional sections, where the row of the product has the default."""
    for product in find_products():
        section, _, key = product.default.get("key", "").partition(".")
        if section and getattr(config, section) is not None:
            origin = find_origin("products", product.name, product.default["source"])
            yield CatalogueValue((section, key), product.default["version"], origin)


def _wins(config: ImageConfig) -> CatalogueValue:
    version = numbers(config.wins.version) if config.wins else ()
    rows = [(first, row) for first, row in table("wins")["forms"].items() if version >= numbers(first)]
    if config.wins is None or not rows:
        return fact("wins", None, Origin("catalogue"))
    first, row = rows[-1]
    known = table("wins")["programs"]
    users = (("kube_proxy", config.kube_proxy == "wins"), ("flannel", config.cni.plugin in ("none", "flannel")))
    programs = () if config.wins.policy else tuple(one for name, uses in users if uses for one in known[name])
    found = Wins(row["white_list"], row["replaces_itself"], programs)
    return fact("wins", found, find_origin("wins", f"since {first}", row["source"]))


def _gmsa(config: ImageConfig, provider: str) -> Iterator[CatalogueValue]:
    rows: JsonObject = table("machines").get("gmsa_plugin", {})
    row: JsonObject | None = rows.get(provider)
    origin = find_origin("machines", provider, row["source"] if row else None)
    if config.gmsa is not None:
        # A config has one version for all its targets.
        newest = next(iter(rows.values()))
        yield CatalogueValue(
            ("gmsa", "version"), newest["newest"], find_origin("machines", "gmsa_plugin", newest["source"])
        )
    yield fact("gmsa_plugin", row["product"] if row and config.gmsa else None, origin)


def _ssh(config: ImageConfig) -> Iterator[CatalogueValue]:
    facts, tag = table("openssh"), None
    origin = find_origin("openssh", "tags", "archives")
    if config.ssh is not None and config.ssh.source == "zip":
        yield CatalogueValue(("ssh", "version"), facts["default"], origin)
        version = config.ssh.version or facts["default"]
        # A rule requires an override for a version that is not known.
        tags = (row["tag"] for name, row in facts["tags"].items() if version in (name, name.partition("p")[0]))
        tag = next(tags, f"v{version}")
    yield fact("ssh_tag", tag, origin)


def _first_boot(config: ImageConfig, provider: str) -> Iterator[CatalogueValue]:
    cloudbase = table("cloudbase-init")
    cloud = cloudbase["clouds"][provider]
    origin = find_origin("cloudbase-init", provider, cloud["source"])
    yield CatalogueValue(("cloudbase_init", "plugins", provider), cloud["plugins"], origin)
    yield CatalogueValue(("cloudbase_init", "metadata_services", provider), [cloud["metadata_service"]], origin)
    agent = table("machines").get("first_boot_agent", {}).get(provider)
    # The step's template ends the last line.
    found = agent and AgentConfig(agent["path"], provider_text(provider, agent["file"]).removesuffix("\n"))
    origin = find_origin("machines", provider, agent["source"] if agent else None)
    yield fact("first_boot_agent", found, origin)
    version, source = config.cloudbase_init.version, cloudbase["source"]["product"]
    yield fact(
        "cloudbase_init_product",
        cloudbase["product"].format(version=version),
        find_origin("cloudbase-init", version, source),
    )


def _ports(provider: str) -> Iterator[CatalogueValue]:
    ports = table("ports")
    dynamic, general = ports["dynamic"], ports["excluded"]
    own: list[JsonObject] | None = ports["excluded_on"].get(provider)
    origin = find_origin("ports", "dynamic", dynamic["source"])
    yield fact("dynamic_ports", Ports(dynamic["start"], dynamic["count"]), origin)
    origin = find_origin("ports", "excluded", general[0]["source"])
    yield fact("excluded_ports", _excluded(general), origin)
    origin = find_origin("ports", provider, own[0]["source"] if own else None)
    yield fact("excluded_ports_on_cloud", _excluded(own) if own else None, origin)


def _excluded(rows: list[JsonObject]) -> tuple[ExcludedPorts, ...]:
    return tuple(
        ExcludedPorts(row["protocol"], row["start"], row["start"] + row["count"] - 1, row["count"], row["reason"])
        for row in rows
    )


def _restricted_address(config: ImageConfig, settings: TargetSettings) -> CatalogueValue:
    row = table("machines").get("restricted_address", {}).get(settings.provider)
    # Without an account of its own, cloudbase-init runs as SYSTEM.
    services = () if _is_since(config, "joins_as_system") else (table("cloudbase-init")["service_account"],)
    members = (*services, *settings.restricted_address_users)
    found = row and RestrictedAddress(row["address"], tuple(row["ports"]), row["group"], row["rule"], members)
    origin = find_origin("machines", settings.provider, row["source"] if row else None)
    return fact("restricted_address", found, origin)


def _row(name: str, rows: str, version: str) -> tuple[JsonObject, Origin]:
    """The row for a version, and its origin; an empty row if the catalogue does not know the version."""
    found = find_row(table(name)[rows], version)
    return (
        (found.row, find_origin(name, found.minor, found.row["source"])) if found else ({}, Origin("catalogue", name))
    )


def _since(name: str, config: ImageConfig, what: str) -> CatalogueValue:
    """Whether this Kubernetes minor is one of those that can do something, which begin with a row of the catalogue."""
    row = table("kubernetes")["since"][what]
    origin = find_origin("kubernetes", f"since {row['minor']}", row["source"])
    return fact(name, _is_since(config, what), origin)


def _is_since(config: ImageConfig, what: str) -> bool:
    return numbers(config.kubernetes.version) >= numbers(table("kubernetes")["since"][what]["minor"])
