"""The settled spec of one target, and how it is made. Steps, rules, providers and explain read it.

Only this module chooses between a config's value and the catalogue's. Reads nothing but the catalogue. It never fails:
if the catalogue does not know a version, the values that depend on it are None, and a rule rejects the config."""

from __future__ import annotations

import contextlib
import dataclasses
import ntpath
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic

from typing_extensions import TypeVar

from imagegen.base.errors import ImagegenError
from imagegen.catalog.docker import find_client, least_api
from imagegen.catalog.facts import (
    JsonObject,
    catalogue_text,
    find_row,
    is_overlay,
    minor,
    numbers,
    provider_text,
    table,
)
from imagegen.catalog.products import find_products
from imagegen.settle.facts import (
    FACTS,
    AgentConfig,
    CatalogueValue,
    CniArchive,
    CniFile,
    CredentialProviderApi,
    ExcludedPorts,
    Facts,
    HnsValue,
    HotFix,
    HyperV,
    Origin,
    Ports,
    RestrictedAddress,
    TrustedCertificate,
    Updates,
    Wins,
    fact,
    find_origin,
)
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pydantic

    from imagegen.config.model import ImageConfig
    from imagegen.config.own_files import GivenCertificate, OwnFile
    from imagegen.config.yaml import Document, YamlPath
    from imagegen.providers.settings import TargetSettings


S = TypeVar("S", bound="TargetSettings", default="TargetSettings", covariant=True)
Model = TypeVar("Model", bound="pydantic.BaseModel")
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
    yield fact("windows_build", row.get("build"), find_origin("windows", release, row.get("source")))
    yield fact("hot_fixes", tuple(fixes.values()), find_origin("windows", release, rows[0]["source"] if rows else None))
    image: JsonObject = row.get("images", {}).get(config.windows.edition, {}).get(settings.provider, {})
    if "sku" in image:
        named = {"offer": image["offer"], "sku": image["sku"][str(getattr(settings, "generation", "2"))]}
    else:
        named = {"name": image.get("name")}
    offered = None if None in named.values() else named
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
    yield fact("hyper_v", found, find_origin("windows", config.windows.release, host.get("source")))


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
    yield fact("nssm", nssm["version"], find_origin("kubernetes", "nssm", nssm["source"]))
    scripts = table("debug-tools")
    yield fact("debug_tools", scripts["commit"], find_origin("debug-tools", "commit", scripts["source"]["commit"]))
    yield fact(
        "node_checks",
        scripts["checks_commit"],
        find_origin("debug-tools", "checks_commit", scripts["source"]["checks_commit"]),
    )
    version = numbers(config.kubernetes.version)
    rows = [row for row in table("kubelet")["credential_providers"] if version >= numbers(row["first"])]
    api = CredentialProviderApi(**{key: rows[-1][key] for key in _API_KEYS}) if rows else None
    yield fact(
        "credential_provider_api",
        api,
        find_origin("kubelet", f"since {rows[-1]['first']}", rows[-1]["source"]) if rows else Origin("catalogue"),
    )


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
    yield fact("containerd_pins_images", known, find_origin("containerd", "pins_images", pins["source"]))
    scrubs = table("containerd")["scrubs_logs"]
    has_option = bool(version) and numbers(version) >= numbers(scrubs["since"])
    yield fact("containerd_scrubs_logs", has_option, find_origin("containerd", "scrubs_logs", scrubs["source"]))


def _docker(config: ImageConfig) -> Iterator[CatalogueValue]:
    docker = config.runtime.docker
    api = docker and least_api(docker.version, find_client(config.kubernetes.version, docker.cri_dockerd))
    yield fact(
        "docker_least_api", api, find_origin("docker", docker.version if docker else "", "lower" if api else None)
    )


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
    if config.gmsa is not None:
        # A config has one version for all its targets.
        newest = next(iter(rows.values()))
        yield CatalogueValue(
            ("gmsa", "version"), newest["newest"], find_origin("machines", "gmsa_plugin", newest["source"])
        )
    yield fact(
        "gmsa_plugin",
        row["product"] if row and config.gmsa else None,
        find_origin("machines", provider, row["source"] if row else None),
    )


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
    yield fact("first_boot_agent", found, find_origin("machines", provider, agent["source"] if agent else None))
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
    yield fact(
        "dynamic_ports", Ports(dynamic["start"], dynamic["count"]), find_origin("ports", "dynamic", dynamic["source"])
    )
    yield fact("excluded_ports", _excluded(general), find_origin("ports", "excluded", general[0]["source"]))
    yield fact(
        "excluded_ports_on_cloud",
        _excluded(own) if own else None,
        find_origin("ports", provider, own[0]["source"] if own else None),
    )


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
    return fact("restricted_address", found, find_origin("machines", settings.provider, row["source"] if row else None))


def _row(name: str, rows: str, version: str) -> tuple[JsonObject, Origin]:
    """The row for a version, and its origin; an empty row if the catalogue does not know the version."""
    found = find_row(table(name)[rows], version)
    return (
        (found.row, find_origin(name, found.minor, found.row["source"])) if found else ({}, Origin("catalogue", name))
    )


def _since(name: str, config: ImageConfig, what: str) -> CatalogueValue:
    """Whether this Kubernetes minor is one of those that can do something, which begin with a row of the catalogue."""
    row = table("kubernetes")["since"][what]
    return fact(name, _is_since(config, what), find_origin("kubernetes", f"since {row['minor']}", row["source"]))


def _is_since(config: ImageConfig, what: str) -> bool:
    return numbers(config.kubernetes.version) >= numbers(table("kubernetes")["since"][what]["minor"])


def settle_folders(config: ImageConfig) -> Iterator[CatalogueValue]:
    layout = table("layout")
    install_path, top = config.kubernetes.install_path, tuple(layout["closed_folders"])
    closed = (*top, *_folders_above([install_path], (*top, *layout["closed_by_windows"])))
    origin = find_origin("layout", "closed_folders", layout["source"]["closed_folders"])
    yield fact("closed_folders", closed, origin)
    programs = [program.path for program in config.executables]
    others = _folders_above(programs, (*closed, install_path, *layout["closed_by_windows"]))
    yield fact("program_folders", others, origin)


def _folders_above(paths: Iterable[str], closed: Iterable[str]) -> tuple[str, ...]:
    """The folders above these paths that are neither closed nor Windows' own, outermost first, each once."""
    whole = [folder.lower() for folder in closed]
    found: dict[str, str] = {}
    for path in paths:
        above = ntpath.dirname(path)
        chain = []
        while above != ntpath.dirname(above):
            chain.append(above)
            above = ntpath.dirname(above)
        for folder in reversed(chain):
            if not any(f"{folder.lower()}\\".startswith(f"{one}\\") for one in whole) and not _is_windows_own(folder):
                found.setdefault(folder.lower(), folder)
    return tuple(found.values())


def _is_windows_own(folder: str) -> bool:
    return folder.lower() in {one.lower() for one in table("layout")["system_folders"]}


def settle_network(config: ImageConfig) -> Iterator[CatalogueValue]:
    cni, known = config.cni, table("cni")
    plugin = known["plugins"].get(cni.plugin) or known["plugins"]["none"]
    origin = find_origin("cni", cni.plugin, plugin["source"])
    yield CatalogueValue(("cni", "version"), plugin["newest"], origin)
    yield CatalogueValue(("cni", "mode"), plugin.get("default_mode"), origin)
    mode = cni.mode or plugin.get("default_mode")
    if "vni" in plugin["takes"] and is_overlay(cni.plugin, mode):
        vxlan = known["vxlan"]
        yield CatalogueValue(("cni", "vni"), vxlan["vni_at_least"], find_origin("cni", "vxlan", vxlan["source"]))
    services = known["kube_proxy"]["files"] if config.kube_proxy == "service" else ()
    rows = [*plugin.get("files", ()), *services, *(known["calico"]["files"] if cni.policy else ())]
    # Several of them may start services.
    files = tuple(dict.fromkeys(_cni_file(row) for row in rows if mode in row.get("modes", (mode,))))
    yield fact("cni_files", files, origin)
    archive = plugin.get("archive")
    found = archive and CniArchive(archive["product"], tuple(archive["programs"]))
    yield fact("cni_archive", found, origin)
    values = tuple(HnsValue(name, data) for name, data in plugin.get("hns_values", {}).items())
    yield fact("hns_values", values, origin)
    named = plugin.get("programs", {})
    programs = tuple(named.get(mode or "any", ()))
    yield fact("cni_programs", programs, origin)
    row = known["cni_plugins"]
    version = (cni.version or plugin["newest"]) if plugin.get("is_cni_plugins") else row["version"]
    yield fact("cni_plugins", version if programs else None, find_origin("cni", "cni_plugins", row["source"]))
    yield from _settle_calico(config, mode)
    row = known["wincni"]
    commit = row["commit"] if cni.plugin == "wincni" else None
    yield fact("wincni", commit, find_origin("cni", "wincni", row["source"]))
    row = known["flannel_plugin"]
    version = row["version"] if cni.plugin == "flannel" else None
    yield fact("flannel_plugin", version, find_origin("cni", "flannel_plugin", row["source"]))
    yield _overlay_port(config, mode)
    name = plugin.get("network", {}).get(mode or "any")
    name = name and name.format(vni=cni.vni or known["vxlan"]["vni_at_least"])
    yield fact("pod_network", name, find_origin("cni", cni.plugin, plugin["source"]))
    api = known["api_versions"]
    version = api["containerd" if config.runtime.containerd else "docker"] if files else None
    yield fact("cni_api_version", version, find_origin("cni", "api_versions", api["source"]))


def _overlay_port(config: ImageConfig, mode: str | None) -> CatalogueValue:
    """The UDP port of an overlay network, which the config may name."""
    row = table("cni")["vxlan"]
    port = (config.cni.port or row["port"]) if is_overlay(config.cni.plugin, mode) else None
    return fact("overlay_port", port, find_origin("cni", "vxlan", row["source"]))


def _settle_calico(config: ImageConfig, mode: str | None) -> Iterator[CatalogueValue]:
    """In HostProcess pods the image has Calico's images only."""
    cni, known = config.cni, table("cni")
    newest, row = known["plugins"]["calico"]["newest"], known["calico"]
    origin = find_origin("cni", "calico", row["source"])
    if cni.policy:
        yield CatalogueValue(("cni", "policy_version"), newest, origin)
    version, images = cni.version or newest, []
    is_plugin = cni.plugin == "calico"
    if is_plugin and mode == "hostprocess":
        registries = [host for since, host in row["images"].items() if numbers(version) >= numbers(since)]
        # A rule refuses a version without images.
        images = [f"{host}/{name}:v{version}" for host in registries[-1:] for name in row["names"]]
    listed = [*config.windows.container_images, *config.images, *(tarball.name for tarball in config.image_tarballs)]
    known_images = {str(ImageName.parse(name)) for name in listed}
    yield fact("cni_images", [name for name in images if str(ImageName.parse(name)) not in known_images], origin)
    backend = "vxlan" if is_plugin and mode == "vxlan" else "none" if cni.policy else None
    version = cni.policy_version or newest if cni.policy else version
    yield fact("calico_version", version if backend else None, origin)
    yield fact("calico_backend", backend, origin)


def settle_kube_proxy(config: ImageConfig) -> Iterator[CatalogueValue]:
    """Nothing but for a service: the cluster configures any other."""
    cni, plugins = config.cni, table("cni")["plugins"]
    plugin = plugins.get(cni.plugin) or plugins["none"]
    mode = cni.mode or plugin.get("default_mode")
    rows = table("kubernetes")["kube_proxy_gates"]
    gates = [row for row in rows if numbers(config.kubernetes.version) < numbers(row["on_since"])]
    asked = config.kube_proxy == "service"
    yield fact(
        "kube_proxy_gates",
        tuple(row["gate"] for row in gates) if asked else (),
        find_origin("kubernetes", "kube_proxy_gates", rows[0]["source"]),
    )
    origin = find_origin("cni", cni.plugin, plugin["source"])
    yield fact("has_source_address", (asked and is_overlay(cni.plugin, mode)) or None, origin)
    yield fact("asks_source_address", asked and cni.plugin == "none", origin)


def settle_link_local_routes(provider: str) -> CatalogueValue:
    """The addresses of the cloud that a network of pods hides."""
    row = table("machines").get("link_local_routes", {}).get(provider)
    return fact(
        "link_local_routes",
        tuple(row["addresses"]) if row else (),
        find_origin("machines", provider, row["source"] if row else None),
    )


def _cni_file(row: JsonObject) -> CniFile:
    """A file of a plugin. If only one cloud has the plugin, the file is beside the cloud's tables."""
    text = row.get("text")
    return CniFile(row["name"], row["folder"], text and catalogue_text(text))


ROOT: Final = "Root"
PUBLISHER: Final = "TrustedPublisher"
_ROOTS: Final = ("windows", "trusted_roots")
_OWN_SCRIPTS: Final = ("artifacts", "signatures", "own_scripts")
# Windows Server's own policy runs these scripts too, unless the base image has another one.
_ANY_SCRIPT: Final = "-ExecutionPolicy Bypass "


def settle_trust(
    config: ImageConfig, document: Document, roots: Sequence[GivenCertificate]
) -> Iterator[CatalogueValue]:
    """The facts about certificates and signed scripts."""
    signatures = config.artifacts.signatures
    all_signed = signatures is not None and signatures.own_scripts is not None
    yield fact("certificates", tuple(_trusted(ROOT, one) for one in roots), _origin(document, _ROOTS))
    yield fact("all_signed", all_signed, _origin(document, _OWN_SCRIPTS))
    yield fact("script_policy", "" if all_signed else _ANY_SCRIPT, _origin(document, _OWN_SCRIPTS))


def with_publishers(spec: Spec, publishers: Sequence[GivenCertificate]) -> Spec:
    """The spec of an image whose Windows runs only signed scripts: those of these publishers."""
    trusting = _with_certificates(spec, PUBLISHER, publishers)
    return dataclasses.replace(trusting, facts=dataclasses.replace(trusting.facts, all_signed=True, script_policy=""))


def with_authorities(spec: Spec) -> Spec:
    """The spec of an image whose machine downloads from hosts that need the certificates of artifacts.ca."""
    known = {one.thumbprint for one in spec.facts.certificates}
    return _with_certificates(spec, ROOT, [one for one in spec.authorities if one.thumbprint not in known])


def _with_certificates(spec: Spec, store: str, added: Sequence[GivenCertificate]) -> Spec:
    certificates = spec.facts.certificates
    facts = dataclasses.replace(spec.facts, certificates=(*certificates, *(_trusted(store, one) for one in added)))
    files = {certificate_key(number): one.file for number, one in enumerate(added, len(certificates))}
    return dataclasses.replace(spec, facts=facts, own_files={**spec.own_files, **files})


def certificate_key(number: int) -> str:
    """The key under which steps find the bytes of a certificate, by its place in `facts.certificates`."""
    return f"facts.certificates[{number}]"


def _trusted(store: str, certificate: GivenCertificate) -> TrustedCertificate:
    return TrustedCertificate(store, certificate.thumbprint, certificate.subject)


def _origin(document: Document, path: YamlPath) -> Origin:
    if path not in document.lines:
        return Origin("default")
    place = document.place(path)
    return Origin("file" if place.line else "set", str(place))


def with_keys_of(spec: Spec, text: str) -> str:
    """A provider's text with the keys of this target.

    A provider names them as those of the target that has its cloud's name, and a config may call its target otherwise.
    """
    return text.replace(f"targets.{spec.provider}", f"targets.{spec.target}")


@contextlib.contextmanager
def errors_of(spec: Spec) -> Iterator[None]:
    """Within it, errors name the keys of this target."""
    try:
        yield
    except ImagegenError as error:
        error.message, error.hint = with_keys_of(spec, error.message), with_keys_of(spec, error.hint)
        error.details = tuple(with_keys_of(spec, line) for line in error.details)
        raise
