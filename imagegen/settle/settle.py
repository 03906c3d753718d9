"""A config and a target in; its settled spec out. The one place where "the config, or else the catalogue" is decided.

Pure but for reading the catalogue, and total: of versions that the catalogue does not know its values are None, and
rules refuse such a config."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from imagegen.catalog.facts import known, minor, numbers, provider_text, sources, table
from imagegen.settle.spec import CATALOGUE, AgentConfig, CatalogueValue, Facts, HotFix, Origin, Spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pydantic

    from imagegen.catalog.facts import JsonObject
    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import Document, YamlPath

    Model = TypeVar("Model", bound=pydantic.BaseModel)

FACTS = "facts"


def settle_targets(config: ImageConfig, document: Document) -> dict[str, Spec]:
    """The spec of each target, by its name."""
    return {target: settle(config, document, target) for target in config.targets.named()}


def settle(config: ImageConfig, document: Document, target: str) -> Spec:
    """The spec of one of the config's targets."""
    settings = config.targets.named()[target]
    provider = settings.provider
    values = {value.path: value for value in _values(config, target)}
    of_keys = {path: value.value for path, value in values.items() if path[0] not in (FACTS, "targets")}
    settled = _filled(config, of_keys)
    return Spec(
        target=target,
        provider=provider,
        config=settled,
        settings=settings,
        facts=Facts(**{str(path[1]): value.value for path, value in values.items() if path[0] == FACTS}),
        plugins=tuple(getattr(settled.cloudbase_init.plugins, provider)),
        metadata_services=tuple(getattr(settled.cloudbase_init.metadata_services, provider)),
        offered_image=values["targets", target, "base_image"].value or {},
        document=document,
        catalogue=values,
    )


def _filled(section: Model, values: Mapping[YamlPath, object]) -> Model:
    """A section with a value at each path below it that the config leaves out."""
    below: dict[str, dict[YamlPath, object]] = {}
    for path, value in values.items():
        below.setdefault(str(path[0]), {})[path[1:]] = value
    changed = {}
    for name, inner in below.items():
        have = getattr(section, name)
        if () not in inner:
            changed[name] = _filled(have, inner) if have is not None else None
        elif have is None:
            changed[name] = inner[()]
    return _copied(section, changed)


def _copied(section: Model, changed: Mapping[str, object]) -> Model:
    """Without the values that stay None: a default is not something that was set."""
    return section.model_copy(update={name: value for name, value in changed.items() if value is not None})


def _values(config: ImageConfig, target: str) -> Iterator[CatalogueValue]:
    """What the catalogue says, whether or not the config says something else."""
    yield from _windows(config, target)
    yield from _kubernetes(config)
    yield from _containerd(config)
    yield from _network(config)
    yield from _first_boot(config, config.targets.named()[target].provider)


def _windows(config: ImageConfig, target: str) -> Iterator[CatalogueValue]:
    release, settings = config.windows.release, config.targets.named()[target]
    row: JsonObject = table("windows")["releases"].get(release, {})
    rows: list[JsonObject] = row.get("hot_fixes", [])
    fixes = tuple(HotFix(fix["key"], fix["name"], fix["data"], fix["reason"]) for fix in rows)
    origin = _origin("windows", release, row.get("source"))
    yield _fact("windows_build", row.get("build"), origin, "The Windows build, which the base image must have.")
    origin = _origin("windows", release, rows[0]["source"] if rows else None)
    yield _fact("hot_fixes", fixes, origin, "Registry values that this Windows needs for containers.")
    image: JsonObject = row.get("images", {}).get(config.windows.edition, {}).get(settings.provider, {})
    named = {"name": image.get("name")} if "name" in image else {}
    if "sku" in image:
        named = {"offer": image["offer"], "sku": image["sku"][str(getattr(settings, "generation", "2"))]}
    offered = named if named and None not in named.values() else None
    yield CatalogueValue(("targets", target, "base_image"), offered, _origin("windows", release, image.get("source")))


def _kubernetes(config: ImageConfig) -> Iterator[CatalogueValue]:
    found = known(table("kubernetes")["minors"], config.kubernetes.version)
    origin = _origin("kubernetes", found.minor, found.row["source"]) if found else Origin(CATALOGUE, "kubernetes")
    pause = pause_for(config.kubernetes.version, config.windows.release) if found else None
    release: JsonObject = table("windows")["releases"].get(config.windows.release, {})
    # The release decides where it needs a newer image than the minor's own.
    of_release = found is not None and pause != found.row["pause"]
    decided_by = _origin("windows", config.windows.release, release["source"]) if of_release else origin
    yield CatalogueValue(("kubernetes", "pause_image"), pause, decided_by)
    crictl = found.row["crictl"] if found else None
    yield _fact("crictl", crictl, origin, "The crictl version that goes with this Kubernetes.")


def _containerd(config: ImageConfig) -> Iterator[CatalogueValue]:
    containerd = config.runtime.containerd
    found = known(table("containerd")["lines"], containerd.version) if containerd else None
    origin = _origin("containerd", found.minor, found.row["source"]) if found else Origin(CATALOGUE, "containerd")
    schema, bin_dirs = (found.row["config_version"], found.row["cni_bin_dirs"]) if found else (None, None)
    yield _fact("containerd_config_version", schema, origin, "The schema of containerd's configuration file.")
    takes = "Whether that configuration takes several folders of CNI plugins."
    yield _fact("containerd_cni_bin_dirs", bin_dirs, origin, takes)


def _network(config: ImageConfig) -> Iterator[CatalogueValue]:
    if plugin := table("cni")["plugins"].get(config.cni.plugin):
        origin = _origin("cni", config.cni.plugin, plugin["source"])
        yield CatalogueValue(("cni", "version"), plugin["newest"], origin)
        yield CatalogueValue(("cni", "mode"), plugin.get("default_mode"), origin)


def _first_boot(config: ImageConfig, provider: str) -> Iterator[CatalogueValue]:
    cloudbase = table("cloudbase-init")
    cloud = cloudbase["clouds"][provider]
    origin = _origin("cloudbase-init", provider, cloud["source"])
    yield CatalogueValue(("cloudbase_init", "plugins", provider), cloud["plugins"], origin)
    yield CatalogueValue(("cloudbase_init", "metadata_services", provider), [cloud["metadata_service"]], origin)
    agent = table("machines").get("first_boot_agent", {}).get(provider)
    # The template of the step ends the last line.
    text = provider_text(provider, agent["file"]).removesuffix("\n") if agent else ""
    config_file = AgentConfig(agent["path"], text) if agent else None
    origin = _origin("machines", provider, agent["source"] if agent else None)
    yield _fact("first_boot_agent", config_file, origin, "The configuration of the agent that the cloud's images have.")
    product = cloudbase["product"].format(version=config.cloudbase_init.version)
    origin = _origin("cloudbase-init", config.cloudbase_init.version, cloudbase["source"]["product"])
    yield _fact("cloudbase_init_product", product, origin, "What Windows calls the installed cloudbase-init.")


def pause_for(kubernetes_version: str, windows_release: str) -> str:
    """The minor's pause image, but never one without a layer for that Windows."""
    found = known(table("kubernetes")["minors"], kubernetes_version)
    if found is None:
        raise KeyError(f"the catalogue knows no Kubernetes {minor(kubernetes_version)}")
    image, _, tag = found.row["pause"].rpartition(":")
    least = table("windows")["releases"].get(windows_release, {}).get("pause_at_least") or tag
    return f"{image}:{max(tag, least, key=numbers)}"


def _fact(name: str, value: object, origin: Origin, description: str) -> CatalogueValue:
    return CatalogueValue((FACTS, name), value, origin, description)


def _origin(name: str, row: str, source: str | None) -> Origin:
    """A row of a table, and what it was read from."""
    said = sources(name)[source] if source else {"from": "", "read": ""}
    return Origin(CATALOGUE, f"{name} {row}", said["from"], said["read"])
