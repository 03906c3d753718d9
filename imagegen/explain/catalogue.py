"""A config in; the values that the catalogue gives it, each with the table and row that says so, out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imagegen.catalog.facts import facts_for, known, sources, table, windows_for
from imagegen.explain.model import CATALOGUE, Origin, Value
from imagegen.plan.context import versions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.catalog.facts import JsonObject, Versions
    from imagegen.config.model import ImageConfig
    from imagegen.documents.yaml import YamlPath

# What a step reads as a fact, where a key of the config may say it instead: `{target}` is the target's name.
STANDS_FOR: Final = {
    "facts.pause": ("kubernetes.pause_image",),
    "facts.cloudbase_init.metadata_service": ("cloudbase_init.metadata_services.{target}",),
    "facts.cloudbase_init.plugins": ("cloudbase_init.plugins.{target}",),
    "facts.cloudbase_init": (
        "facts.cloudbase_init.product",
        "cloudbase_init.metadata_services.{target}",
        "cloudbase_init.plugins.{target}",
    ),
}


def catalogue_values(config: ImageConfig, target: str) -> Iterator[Value]:
    """What the catalogue says where the config does not; keys of the config first, then facts that have no key."""
    versions = versions_of(config)
    facts = facts_for(versions, target)
    yield from _of_keys(config, versions, facts, target)
    yield from _of_facts(versions, facts)


def _of_keys(config: ImageConfig, versions: Versions, facts: JsonObject, target: str) -> Iterator[Value]:
    first_boot, cloud = facts["cloudbase_init"], table("cloudbase-init")["clouds"][target]
    yield _value(("kubernetes", "pause_image"), facts["pause"], _pause(versions, facts["pause"]))
    if plugin := table("cni")["plugins"].get(config.cni.plugin):
        said = _said("cni", config.cni.plugin, plugin["source"])
        yield _value(("cni", "version"), plugin["newest"], said)
        yield _value(("cni", "mode"), plugin.get("default_mode"), said)
    said = _said("cloudbase-init", target, cloud["source"])
    yield _value(("cloudbase_init", "plugins", target), first_boot["plugins"], said)
    yield _value(("cloudbase_init", "metadata_services", target), [first_boot["metadata_service"]], said)
    generation = str(getattr(config.targets.named()[target], "generation", "2"))
    image = windows_for(versions, target, generation)[target]
    source = table("windows")["releases"][versions.windows]["images"][versions.edition][target]["source"]
    yield _value(("targets", target, "base_image"), image, _said("windows", versions.windows, source))


def _of_facts(versions: Versions, facts: JsonObject) -> Iterator[Value]:
    fixes = [f"{fix['key']}\\{fix['name']} = {fix['data']}: {fix['reason']}" for fix in facts["hot_fixes"]]
    release = table("windows")["releases"].get(versions.windows, {})
    source = next((fix["source"] for fix in release.get("hot_fixes", ())), None)
    yield _value(("facts", "hot_fixes"), fixes or None, _said("windows", versions.windows, source))
    of_kubernetes = _row("kubernetes", "minors", versions.kubernetes)
    of_containerd = _row("containerd", "lines", versions.containerd or "")
    yield _value(("facts", "crictl"), facts["crictl"], of_kubernetes)
    for name in ("containerd_config_version", "containerd_cni_bin_dirs"):
        yield _value(("facts", name), facts[name], of_containerd)
    product = table("cloudbase-init")["source"]["product"]
    said = _said("cloudbase-init", versions.cloudbase_init, product)
    yield _value(("facts", "cloudbase_init", "product"), facts["cloudbase_init"]["product"], said)


def _pause(versions: Versions, chosen: str | None) -> Origin:
    """The row that decided: the minor's, or the release's where that asks for a newer one."""
    found = known(table("kubernetes")["minors"], versions.kubernetes)
    if found and found.row["pause"] != chosen:
        return _said("windows", versions.windows, table("windows")["releases"][versions.windows]["source"])
    return _row("kubernetes", "minors", versions.kubernetes)


def _row(name: str, rows: str, version: str) -> Origin:
    found = known(table(name)[rows], version)
    return _said(name, found.minor, found.row["source"]) if found else Origin(CATALOGUE, name)


def _said(name: str, row: str, source: str | None) -> Origin:
    said = sources(name)[source] if source else {"from": "", "read": ""}
    return Origin(CATALOGUE, f"{name} {row}", said["from"], said["read"])


_DESCRIPTIONS: Final[Mapping[YamlPath, str]] = {
    ("facts", "crictl"): "The crictl version that goes with this Kubernetes.",
    ("facts", "hot_fixes"): "Registry values that this Windows needs for containers.",
    ("facts", "containerd_config_version"): "The schema of containerd's configuration file.",
    ("facts", "containerd_cni_bin_dirs"): "Whether that configuration takes several folders of CNI plugins.",
    ("facts", "cloudbase_init", "product"): "What Windows calls the installed cloudbase-init.",
}


def _value(path: YamlPath, value: Any, origin: Origin) -> Value:  # noqa: ANN401 - any value
    return Value(path, value, origin, _DESCRIPTIONS.get(path, ""))
