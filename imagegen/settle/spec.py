"""The settled spec of one target, and how it is made. Steps, rules, providers and explain read it.

Only this module chooses between a config's value and the catalogue's. Reads nothing but the catalogue. It never fails:
if the catalogue does not know a version, the values that depend on it are None, and a rule rejects the config."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Literal

from typing_extensions import TypeVar

from imagegen.catalog.facts import (
    JsonObject,
    catalogue_text,
    find_row,
    is_overlay,
    minor,
    numbers,
    provider_text,
    sources,
    table,
)
from imagegen.settle.facts import (
    AgentConfig,
    CniArchive,
    CniFile,
    CredentialProviderApi,
    ExcludedPorts,
    Facts,
    HnsValue,
    HotFix,
    Ports,
    RestrictedAddress,
)

if TYPE_CHECKING:
    import pydantic

    from imagegen.config.model import ImageConfig
    from imagegen.documents.own_files import OwnFile
    from imagegen.documents.yaml import Document, YamlPath
    from imagegen.providers.settings import TargetSettings

S = TypeVar("S", bound="TargetSettings", default="TargetSettings", covariant=True)
Model = TypeVar("Model", bound="pydantic.BaseModel")
Kind = Literal["default", "catalogue", "file", "set"]
FACTS = "facts"
_SHOWN_AS_TEXT: Final = (AgentConfig, CniArchive, RestrictedAddress, Ports, CredentialProviderApi)
_API_KEYS: Final = tuple(field.name for field in dataclasses.fields(CredentialProviderApi))
NO_FILES: Final[Mapping[str, OwnFile]] = types.MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a value comes from. `where` is `file:line`, the command-line option, or a table and row of the catalogue.
    `source` is what the row was taken from, and `read` is the day."""

    kind: Kind
    where: str = ""
    source: str = ""
    read: str = ""


@dataclasses.dataclass(frozen=True)
class CatalogueValue:
    """A value of the catalogue: for a key that the config leaves out, or for a fact that has no key."""

    path: YamlPath
    value: Any
    origin: Origin
    description: str = ""

    @property
    def shown(self) -> object:
        """The value as `imagegen explain` shows it."""
        if isinstance(self.value, tuple):
            return [str(record) for record in self.value]
        return str(self.value) if isinstance(self.value, _SHOWN_AS_TEXT) else self.value


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
    """The files beside the config that go to the machine, by their key."""

    def origin(self, path: YamlPath) -> Origin:
        """Where the value at a path comes from."""
        if path in self.document.lines:
            place = self.document.place(path)
            return Origin("file" if place.line else "set", str(place))
        known = self.catalogue.get(path)
        return known.origin if known is not None and known.value is not None else Origin("default")


def settle_targets(
    config: ImageConfig, document: Document, own_files: Mapping[str, OwnFile] = NO_FILES
) -> dict[str, Spec]:
    """The spec of each target, by the target's name."""
    return {target: settle(config, document, target, own_files) for target in config.targets.named()}


def settle(config: ImageConfig, document: Document, target: str, own_files: Mapping[str, OwnFile] = NO_FILES) -> Spec:
    """The spec of one target of the config."""
    settings = config.targets.named()[target]
    found = (
        *_windows(config, target),
        *_ports(settings.provider),
        *_kubernetes(config),
        *_containerd(config),
        *_network(config),
        *_kube_proxy(config),
        *_csi_proxy(config),
        *_first_boot(config, settings.provider),
        _restricted_address(config, settings),
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
        own_files=own_files,
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
    fixes = tuple(HotFix(fix["key"], fix["name"], fix["data"], fix["reason"]) for fix in rows)
    origin = _origin("windows", release, row.get("source"))
    yield _fact("windows_build", row.get("build"), origin, "The build number of Windows that the base image must have.")
    origin = _origin("windows", release, rows[0]["source"] if rows else None)
    yield _fact("hot_fixes", fixes, origin, "Registry values that this Windows release needs for containers.")
    image: JsonObject = row.get("images", {}).get(config.windows.edition, {}).get(settings.provider, {})
    if "sku" in image:
        named = {"offer": image["offer"], "sku": image["sku"][str(getattr(settings, "generation", "2"))]}
    else:
        named = {"name": image.get("name")}
    offered = None if None in named.values() else named
    yield CatalogueValue(("targets", target, "base_image"), offered, _origin("windows", release, image.get("source")))


def _kubernetes(config: ImageConfig) -> Iterator[CatalogueValue]:
    row, origin = _row("kubernetes", "minors", config.kubernetes.version)
    pause, pause_origin = row.get("pause"), origin
    release: JsonObject = table("windows")["releases"].get(config.windows.release, {})
    least = release.get("pause_at_least")
    if pause and least and numbers(least) > numbers(pause.rpartition(":")[2]):
        # The pause image of this Kubernetes minor has no layer for this Windows release.
        pause = f"{pause.rpartition(':')[0]}:{least}"
        pause_origin = _origin("windows", config.windows.release, release["source"])
    yield CatalogueValue(("kubernetes", "pause_image"), pause, pause_origin)
    yield _fact("crictl", row.get("crictl"), origin, "The crictl version for this Kubernetes version.")
    yield _since("kubeadm_joins_as_system", config, "joins_as_system", "Whether kubeadm can run as LocalSystem.")
    row = table("kubernetes")["since"]["log_runner"]
    runs = numbers(config.kubernetes.version) >= numbers(row["minor"])
    yield _fact(
        "kube_log_runner",
        config.kubernetes.version if runs else row["instead"],
        _origin("kubernetes", f"since {row['minor']}", row["source"]),
        "The Kubernetes release whose kube-log-runner writes kubelet's log.",
    )
    yield _since("kubelet_log_rotates", config, "log_rotation", "Whether kube-log-runner can rotate kubelet's log.")
    nssm = table("kubernetes")["nssm"]
    origin = _origin("kubernetes", "nssm", nssm["source"])
    yield _fact("nssm", nssm["version"], origin, "The version of nssm that can run kubelet.")
    version = numbers(config.kubernetes.version)
    rows = [row for row in table("kubelet")["credential_providers"] if version >= numbers(row["first"])]
    api = CredentialProviderApi(**{key: rows[-1][key] for key in _API_KEYS}) if rows else None
    origin = _origin("kubelet", f"since {rows[-1]['first']}", rows[-1]["source"]) if rows else Origin("catalogue")
    yield _fact("credential_provider_api", api, origin, "The API versions of kubelet's credential providers.")


def _containerd(config: ImageConfig) -> Iterator[CatalogueValue]:
    containerd = config.runtime.containerd
    row, origin = _row("containerd", "lines", containerd.version if containerd else "")
    version, bin_dirs = row.get("config_version"), row.get("cni_bin_dirs")
    yield _fact("containerd_config_version", version, origin, "The schema version of containerd's configuration file.")
    yield _fact(
        "containerd_cni_bin_dirs", bin_dirs, origin, "Whether that file can name several folders of CNI plugins."
    )
    pins = table("containerd")["pins_images"]
    least = {minor(one): numbers(one) for one in pins["since"]}
    version = containerd.version if containerd else ""
    known = bool(version) and numbers(version) >= least.get(minor(version), max(least.values()))
    origin = _origin("containerd", "pins_images", pins["source"])
    yield _fact("containerd_pins_images", known, origin, "Whether this containerd tells kubelet of pinned images.")


def _network(config: ImageConfig) -> Iterator[CatalogueValue]:
    cni, known = config.cni, table("cni")
    plugin = known["plugins"].get(cni.plugin) or known["plugins"]["none"]
    origin = _origin("cni", cni.plugin, plugin["source"])
    yield CatalogueValue(("cni", "version"), plugin["newest"], origin)
    yield CatalogueValue(("cni", "mode"), plugin.get("default_mode"), origin)
    mode = cni.mode or plugin.get("default_mode")
    if "vni" in plugin["takes"] and is_overlay(cni.plugin, mode):
        vxlan = known["vxlan"]
        yield CatalogueValue(("cni", "vni"), vxlan["vni_at_least"], _origin("cni", "vxlan", vxlan["source"]))
    rows = [*plugin.get("files", ()), *(known["kube_proxy"]["files"] if config.kube_proxy == "service" else ())]
    # Two of them may start services.
    files = tuple(dict.fromkeys(_cni_file(row) for row in rows))
    yield _fact("cni_files", files, origin, "The files of the network plugin that a node fills in when it joins.")
    archive = plugin.get("archive")
    url = archive and archive["url"].format(version=cni.version or plugin["newest"])
    found = archive and CniArchive(url, tuple(archive["programs"]))
    yield _fact("cni_archive", found, origin, "The archive of the network plugin, if it has one of its own.")
    values = tuple(HnsValue(name, data) for name, data in plugin.get("hns_values", {}).items())
    description = "The values of Windows' network service (HNS) that the network plugin needs."
    yield _fact("hns_values", values, origin, description)
    named = plugin.get("programs", {})
    programs = tuple(named.get(mode or "any", ()))
    description = "The programs of containernetworking/plugins that the network plugin needs."
    yield _fact("cni_programs", programs, origin, description)
    row = known["cni_plugins"]
    version = (cni.version or plugin["newest"]) if plugin.get("is_cni_plugins") else row["version"]
    origin = _origin("cni", "cni_plugins", row["source"])
    yield _fact("cni_plugins", version if programs else None, origin, "The version of containernetworking/plugins.")
    row = known["flannel_plugin"]
    version = row["version"] if cni.plugin == "flannel" else None
    description = "The version of flannel's network plugin."
    yield _fact("flannel_plugin", version, _origin("cni", "flannel_plugin", row["source"]), description)
    name = plugin.get("network", {}).get(mode or "any")
    name = name and name.format(vni=cni.vni or known["vxlan"]["vni_at_least"])
    description = "The name of the pod network in Windows' network service (HNS)."
    yield _fact("pod_network", name, _origin("cni", cni.plugin, plugin["source"]), description)
    api = known["api_versions"]
    origin = _origin("cni", "api_versions", api["source"])
    description = "The version of Windows' network service (HNS) for which network plugins write."
    version = api["containerd" if config.runtime.containerd else "docker"] if files else None
    yield _fact("cni_api_version", version, origin, description)


def _kube_proxy(config: ImageConfig) -> Iterator[CatalogueValue]:
    """Nothing but for a service: the cluster configures any other."""
    cni, plugins = config.cni, table("cni")["plugins"]
    plugin = plugins.get(cni.plugin) or plugins["none"]
    mode = cni.mode or plugin.get("default_mode")
    rows = table("kubernetes")["kube_proxy_gates"]
    gates = [row for row in rows if numbers(config.kubernetes.version) < numbers(row["on_since"])]
    asked = config.kube_proxy == "service"
    origin = _origin("kubernetes", "kube_proxy_gates", rows[0]["source"])
    description = "The feature gates that kube-proxy of this minor needs on Windows."
    yield _fact("kube_proxy_gates", tuple(row["gate"] for row in gates) if asked else (), origin, description)
    origin = _origin("cni", cni.plugin, plugin["source"])
    description = "Whether kube-proxy needs an address of its own in the pod network, because that is an overlay."
    yield _fact("has_source_address", (asked and is_overlay(cni.plugin, mode)) or None, origin, description)


def _cni_file(row: JsonObject) -> CniFile:
    """A file of a plugin. If only one cloud has the plugin, the file is beside the cloud's tables."""
    text = row.get("text")
    return CniFile(row["name"], row["folder"], text and catalogue_text(text))


def _csi_proxy(config: ImageConfig) -> Iterator[CatalogueValue]:
    if config.csi_proxy is not None:
        rows = table("csi-proxy")["published"]
        version = next(version for version, row in rows.items() if row["default"])
        origin = _origin("csi-proxy", version, rows[version]["source"])
        yield CatalogueValue(("csi_proxy", "version"), version, origin)


def _first_boot(config: ImageConfig, provider: str) -> Iterator[CatalogueValue]:
    cloudbase = table("cloudbase-init")
    cloud = cloudbase["clouds"][provider]
    origin = _origin("cloudbase-init", provider, cloud["source"])
    yield CatalogueValue(("cloudbase_init", "plugins", provider), cloud["plugins"], origin)
    yield CatalogueValue(("cloudbase_init", "metadata_services", provider), [cloud["metadata_service"]], origin)
    agent = table("machines").get("first_boot_agent", {}).get(provider)
    # The step's template ends the last line.
    found = agent and AgentConfig(agent["path"], provider_text(provider, agent["file"]).removesuffix("\n"))
    origin = _origin("machines", provider, agent["source"] if agent else None)
    yield _fact("first_boot_agent", found, origin, "The configuration of the agent on the cloud's base images.")
    version, source = config.cloudbase_init.version, cloudbase["source"]["product"]
    yield _fact(
        "cloudbase_init_product",
        cloudbase["product"].format(version=version),
        _origin("cloudbase-init", version, source),
        "The name under which Windows lists cloudbase-init.",
    )


def _ports(provider: str) -> Iterator[CatalogueValue]:
    ports = table("ports")
    dynamic, general = ports["dynamic"], ports["excluded"]
    own: list[JsonObject] | None = ports["excluded_on"].get(provider)
    origin = _origin("ports", "dynamic", dynamic["source"])
    description = "The ports that Windows gives to programs which ask for any port."
    yield _fact("dynamic_ports", Ports(dynamic["start"], dynamic["count"]), origin, description)
    origin = _origin("ports", "excluded", general[0]["source"])
    yield _fact("excluded_ports", _excluded(general), origin, "Ports that Windows must not give to such programs.")
    origin = _origin("ports", provider, own[0]["source"] if own else None)
    description = "Ports that Windows must not give to such programs on this cloud."
    yield _fact("excluded_ports_on_cloud", _excluded(own) if own else None, origin, description)


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
    origin = _origin("machines", settings.provider, row["source"] if row else None)
    return _fact("restricted_address", found, origin, "The address of the cloud that containers must not use.")


def _row(name: str, rows: str, version: str) -> tuple[JsonObject, Origin]:
    """The row for a version, and its origin; an empty row if the catalogue does not know the version."""
    found = find_row(table(name)[rows], version)
    return (found.row, _origin(name, found.minor, found.row["source"])) if found else ({}, Origin("catalogue", name))


def _since(name: str, config: ImageConfig, what: str, description: str) -> CatalogueValue:
    """Whether this Kubernetes minor is one of those that can do something, which begin with a row of the catalogue."""
    row = table("kubernetes")["since"][what]
    origin = _origin("kubernetes", f"since {row['minor']}", row["source"])
    return _fact(name, _is_since(config, what), origin, description)


def _is_since(config: ImageConfig, what: str) -> bool:
    return numbers(config.kubernetes.version) >= numbers(table("kubernetes")["since"][what]["minor"])


def _fact(name: str, value: object, origin: Origin, description: str) -> CatalogueValue:
    return CatalogueValue((FACTS, name), value, origin, description)


def _origin(name: str, row: str, source: str | None) -> Origin:
    """The origin of a value in a table's row, with the source of the row."""
    said = sources(name)[source] if source else {"from": "", "read": ""}
    return Origin("catalogue", f"{name} {row}", said["from"], said["read"])
