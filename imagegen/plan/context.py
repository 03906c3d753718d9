"""Orders and evaluates the steps of a settled spec, with the values that they may read. Pure.

Also applies the config's policy for downloads, and finds the proxy of the machine.
"""

from __future__ import annotations

import dataclasses
import graphlib
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import paths, table
from imagegen.fetch.policy import host_of, host_policy, with_mirror, with_publishing
from imagegen.fetch.request import ArtifactRequest, Override
from imagegen.oci.names import ImageRequest
from imagegen.steps.evaluate import EvaluatedStep, applies, evaluate_step, rotated_logs
from imagegen.steps.image_name import ImageName
from imagegen.steps.model import Step, StepMeta

if TYPE_CHECKING:
    from imagegen.config.model import ImageConfig
    from imagegen.config.node import Proxy
    from imagegen.settle.spec import Spec

# What is not about the content of the image: steps cannot read it. `scripts` and `step_options` have another form.
_ABOUT_THE_BUILD = {
    *("name", "targets", "artifacts", "overrides", "registry_credentials", "timeouts", "allow_eol"),
    *("provisioner", "ansible", "steps_path", "step_options", "scripts"),
}


def step_context(spec: Spec) -> dict[str, object]:
    """All values that a step's `reads` may name."""
    sections = spec.config.model_dump(mode="json", exclude=_ABOUT_THE_BUILD)
    own_lists = {"plugins": list(spec.plugins), "metadata_services": list(spec.metadata_services)}
    return {
        **sections,
        "cloudbase_init": sections["cloudbase_init"] | own_lists,
        "target": spec.provider,
        "pulled_images": list(spec.pulled_images),
        "scripts": [script.model_dump(mode="json") for script in spec.config.all_scripts],
        "step_options": spec.config.step_options,
        "paths": {**paths(), "kubernetes": spec.config.kubernetes.install_path},
        "facts": dataclasses.asdict(spec.facts),
        "rotated_logs": [],
    }


def order_steps(steps: Mapping[str, Step]) -> dict[str, frozenset[str]]:
    """The steps in order, each with the names of all steps that it must follow. Equal steps are ordered by name."""
    first = {name for name, step in steps.items() if step.meta.first}
    direct = {name: sorted(_steps_before(steps[name].meta, set(steps) - {name}, first)) for name in sorted(steps)}
    try:
        ordered = list(graphlib.TopologicalSorter(direct).static_order())
    except graphlib.CycleError as error:
        problems = []
        for other, name in itertools.pairwise(error.args[1]):
            meta = steps[name].meta
            lists = {"after": meta.after, "needs_restart_of": meta.needs_restart_of}
            place = next(((key, names.index(other)) for key, names in lists.items() if other in names), ("last",))
            message = f'"{other}" itself comes after "{name}"'
            if place == ("last",) and not meta.last:
                name, place, message = other, ("first",), f'"{other}" is first, but comes after "{name}"'
            problems.append(steps[name].described.problem(place, message, "remove one of them"))
        raise ConfigError(
            f"these steps form a cycle: {', '.join(sorted(set(error.args[1])))}", problems=problems
        ) from None
    earlier: dict[str, frozenset[str]] = {}
    for name in ordered:
        earlier[name] = frozenset(direct[name]).union(*(earlier[other] for other in direct[name]))
    # A step follows more steps than any step before it, so their number gives a valid order.
    return dict(sorted(earlier.items(), key=lambda item: (len(item[1]), item[0])))


def _steps_before(meta: StepMeta, others: set[str], first: set[str]) -> set[str]:
    if meta.last:
        return others
    return {*meta.after, *meta.needs_restart_of} | (set() if meta.first else first)


def evaluate_steps(spec: Spec, steps: Mapping[str, Step]) -> tuple[EvaluatedStep, ...]:
    """All steps that apply, in order, evaluated."""
    context = step_context(spec)
    overrides = {
        name: Override(given) if isinstance(given, str) else Override(given.url, given.sha256, given.rule)
        for name, given in spec.config.overrides.items()
    }
    order = {name: earlier for name, earlier in order_steps(steps).items() if applies(steps[name], context)}
    context["rotated_logs"] = [log for name in order for log in rotated_logs(steps[name], context)]
    evaluated = []
    for name, earlier in order.items():
        step = evaluate_step(steps[name], context, overrides, spec.own_files)
        requests = {key: with_publishing(with_mirror(request, spec.config)) for key, request in step.requests.items()}
        evaluated.append(dataclasses.replace(step, requests=requests, earlier=earlier))
    return tuple(evaluated)


def artifact_requests(evaluated: tuple[EvaluatedStep, ...]) -> dict[str, ArtifactRequest]:
    """All artifacts that the steps download, by name. Several steps may take files from one artifact."""
    requests: dict[str, ArtifactRequest] = {}
    for name, request in (item for step in evaluated for item in step.requests.items()):
        before = requests.get(name, request)
        files = tuple(dict.fromkeys((*before.files, *request.files)))
        requests[name] = dataclasses.replace(request, files=files)
    return requests


def image_requests(
    evaluated: Iterable[EvaluatedStep], spec: Spec, *, with_tarballs: bool = False
) -> dict[str, ImageRequest]:
    """All container images that the steps pull, by their whole names; also those that they import from tarballs.

    The hosts that the policy does not allow are not asked for them."""
    builds, isolated = _builds(spec)
    containerd = spec.config.runtime.containerd
    mirrors = containerd.registry_mirrors if containerd else {}
    hosts = host_policy(spec.config)
    requests = {}
    for item in evaluated:
        drafts = [draft.fields for draft in item.drafts if draft.kind == "image"]
        for fields in (one for one in drafts if with_tarballs or not one.get("artifact")):
            name = ImageName.parse(str(fields.get("name")))
            allowed = tuple(url for url in mirrors.get(name.registry, []) if hosts.is_allowed(host_of(url)))
            asks = hosts.is_allowed(name.registry)
            requests[str(name)] = ImageRequest(
                *(name, builds, allowed),
                asks_registry=asks,
                isolated_builds=isolated,
                hosts=hosts,
                mirror="" if fields.get("artifact") else image_mirror(spec.config, name.registry),
            )
    return requests


def credential_variables(config: ImageConfig) -> dict[str, dict[str, str]]:
    """For each registry from which images are pulled the names of the environment variables with its credentials."""
    return {
        one.registry: one.model_dump(include={"username_env", "password_env"})
        for one in config.registry_credentials
        if not image_mirror(config, one.registry)
    }


def image_mirror(config: ImageConfig, registry: str) -> str:
    """The mirror that has the images of a registry. Empty if they are pulled."""
    return "" if registry in config.artifacts.pull_from else config.artifacts.mirror or ""


def _builds(spec: Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The Windows builds whose containers share the host's kernel, and those that need Hyper-V isolation."""
    own, releases = spec.facts.windows_build, table("windows")["releases"]
    runs = releases.get(spec.config.windows.release, {}).get("runs_images_of", [])
    older = sorted((releases[name]["build"] for name in runs), reverse=True)
    builds = tuple(dict.fromkeys([*([own] if own else []), *older]))
    if spec.config.windows.hyper_v != "isolation" or own is None:
        return builds, ()
    known = {row["build"] for row in (*releases.values(), *table("images")["former_tags"].values())}
    isolated = spec.facts.hyper_v.builds if spec.config.runtime.containerd else (one for one in known if one < own)
    return builds, tuple(sorted({*isolated} - {*builds}, reverse=True))


def components_of(evaluated: Iterable[EvaluatedStep]) -> dict[str, str]:
    """The version of every component that the steps install, for tags, manifest and `imagegen plan`."""
    components: dict[str, str] = {}
    for step in evaluated:
        for name, version in step.components:
            if components.setdefault(name, version) != version:
                message = f"{name} has two versions: {components[name]} and {version}"
                raise ConfigError(
                    "the plan is not valid",
                    problems=[step.step.described.problem((), message, "give each component one version")],
                )
    return components


# A domain with its subdomains, or an IPv4 address; with a port, only that port.
_ENTRY = re.compile(r"(?:\*?\.)?([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)(?::([0-9]+))?")


def download_proxy(proxy: Proxy | None) -> dict[str, object] | None:
    """The proxy of the guest's downloads; None if the config has none. HTTP_PROXY does not matter: all use https.

    .NET matches each exception, a case-insensitive regular expression, against `https://host` or, if the port is not
    443, `https://host:port`."""
    if proxy is None or proxy.for_downloads is None or "*" in proxy.no_proxy:
        return None
    return {"url": proxy.for_downloads, "bypass": sorted({*map(_pattern, proxy.no_proxy)} - {""})}


def _pattern(entry: str) -> str:
    """The regular expression of an exception. Empty for a network, an IPv6 address or a `*` within a name."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return ""
    name, port = match.groups()
    below = "" if re.fullmatch(r"[0-9.]+", name) else r"([^/:]+\.)?"
    ports = "(:[0-9]+)?" if port is None else f":{int(port)}".removesuffix(":443")
    return f"^https://{below}{re.escape(name.lower())}{ports}$"
