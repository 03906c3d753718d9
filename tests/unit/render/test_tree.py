"""The tree as HCL readers see it: every value declared, given and used; plugins bounded by what is used."""

from __future__ import annotations

import functools
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.version import Version

from imagegen import pipeline
from imagegen.base import contents
from tests.source_block import parse_hcl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REPOSITORY = Path(__file__).parents[3]
SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
GOLDEN = REPOSITORY / "tests" / "golden"
TARGETS = ("aws", "azure")
TREES = [(file, target) for file in (SHIPPED, GOLDEN / "minimal.yaml", GOLDEN / "maximal.yaml") for target in TARGETS]
ATTRIBUTES = json.loads((REPOSITORY / "tests/data/packer-plugin-attributes.json").read_bytes())

# Set by imagegen at run time, or by nobody; each has a default.
RUN_FACTS: dict[str, set[str]] = {"aws": set(), "azure": {"gallery_image_version"}}
COMMON_RUN_FACTS = {
    *("builder_size", "created", "labels", "imagegen_version", "report_file", "run_id", "expires_at", "verdict_pipe")
}
CREDENTIALS: dict[str, set[str]] = {
    "aws": set(),
    "azure": {
        f"{family}_{name}"
        for family in ("azure", "arm")
        for name in ("client_id", "client_secret", "tenant_id", "subscription_id")
    },
}
# Where the config names the subscription and the variable of the secret.
OWN_CREDENTIALS = {"azure_client_id", "arm_client_id", "client_secret", "azure_tenant_id", "arm_tenant_id"}
# `image` has one form for every cloud; what a cloud's template has no use for is named here. The name of a secret's
# variable is a literal in the template, where env() takes no reference.
NOT_USED = {"aws": {("image", "base", "owner")}, "azure": {("image", "base", "release"), ("image", "title")}}

LITERAL = re.compile(r"\|\s*(hcl_string|block_name)\s*$")
BARE = {
    'phase.steps | join(", ") or "every resource is tested again"': "names of folders, in a comment",
    '"[0, 3010]" if phase.restart else "[0]"': "one of two literals",
}


@pytest.fixture(params=TREES, ids=lambda case: f"{case[0].stem}-{case[1]}")
def tree(request: pytest.FixtureRequest, decide: Callable[..., Any]) -> dict[str, bytes]:
    return pipeline.render_tree(decide(*request.param).decision)


def _target(tree: dict[str, bytes]) -> str:
    return next(target for target in TARGETS if target in _values(tree))


def _values(tree: dict[str, bytes]) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(tree["image.auto.pkrvars.json"])
    return values


def _parsed(tree: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    return {path: dict(parse_hcl(data.decode())) for path, data in tree.items() if path.endswith(".hcl")}


def _blocks(tree: dict[str, bytes], kind: str) -> dict[str, dict[str, Any]]:
    return {
        name.strip('"'): body
        for document in _parsed(tree).values()
        for block in document.get(kind, [])
        for name, body in block.items()
        if not name.startswith("__")
    }


def _said(value: object) -> Iterator[str]:
    """Every text of a parsed document: expressions among them; comments are not."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not str(key).startswith("__"):
                yield from (str(key), *_said(item))
    elif isinstance(value, list):
        for item in value:
            yield from _said(item)
    else:
        yield str(value)


def _used(tree: dict[str, bytes]) -> set[tuple[str, ...]]:
    """Paths of variables as the documents use them: `var.image.base["name"]` is (image, base, name)."""
    text = "\n".join(text for document in _parsed(tree).values() for text in _said(document)).replace('\\"', '"')
    found = re.findall(r'\bvar((?:\.[a-z_]+|\["[^"]+"\])+)', text)
    return {tuple(re.findall(r"[a-z_0-9-]+", path)) for path in found}


def _leaves(value: object, under: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*under, key))
    else:
        yield under


def _at(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - any value of JSON
    return functools.reduce(lambda found, key: found[key], path, value)


def test_every_value_is_used(tree: dict[str, bytes]) -> None:
    used = _used(tree)
    unused = {
        leaf for leaf in _leaves(_values(tree)) if not any(leaf[: len(path)] == path for path in used if len(path) > 1)
    }
    given = {leaf for leaf in unused if _at(_values(tree), leaf) is not None}
    assert given - {("azure", "client_secret_env")} == NOT_USED[_target(tree)]


def test_variables_are_what_is_given_and_facts_of_the_run(tree: dict[str, bytes]) -> None:
    target = _target(tree)
    declared = _blocks(tree, "variable")
    own = _values(tree)[target].get("client_secret_env") is not None
    facts = COMMON_RUN_FACTS | RUN_FACTS[target] | (OWN_CREDENTIALS if own else CREDENTIALS[target])
    facts |= {"registry_secret"} if b"IMAGEGEN_REGISTRIES" in tree["build.pkr.hcl"] else set()
    facts |= {"download_secret"} if b"IMAGEGEN_DOWNLOADS" in tree["build.pkr.hcl"] else set()
    assert set(declared) == set(_values(tree)) | facts
    assert {name for name, body in declared.items() if "default" not in body} == set(_values(tree))
    assert {path[0] for path in _used(tree)} == set(declared)


def test_types_name_exactly_what_is_given(tree: dict[str, bytes]) -> None:
    declared = _blocks(tree, "variable")
    for name, given in _values(tree).items():
        assert set(_attributes(declared[name]["type"])) == set(given), name
    phases = _values(tree)["guest"]["phases"].values()
    assert all(set(phase) == {"command", "timeout"} for phase in phases)


def _attributes(type_text: str) -> Iterator[str]:
    """The names of an object type's own attributes, not of types inside it."""
    depth = 0
    for match in re.finditer(r"[({]|[)}]|([a-z_]+) = ", type_text.removeprefix("${object(")):
        if match.group(1) and depth == 1:
            yield match.group(1)
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(match.group(0), 0)


def test_secrets_are_marked_and_never_given(tree: dict[str, bytes]) -> None:
    declared = _blocks(tree, "variable")
    secret = {name for name in declared if name.endswith("secret")}
    assert {name for name, body in declared.items() if body.get("sensitive") is True} == secret
    assert not secret & set(_values(tree))


def test_plugin_is_bounded_by_the_newest_attribute_that_is_used(tree: dict[str, bytes]) -> None:
    builder, names = next(iter(_blocks(tree, "source").items()))
    since = [_since(builder, path) for path in _paths(names['"image"'])]
    required = _parsed(tree)["plugins.pkr.hcl"]["packer"][0]["required_plugins"][0]
    (plugin,) = (body for name, body in required.items() if not name.startswith("__"))
    newest = max(since, key=Version)
    assert plugin["version"] == f'">= {newest}"'


# Nested blocks that the table of attributes has a section for; the others are attributes of Config with no section.
SECTIONS = {
    "metadata_options": ("amazon common blocks", "MetadataOptions"),
    "shared_image_gallery_destination": ("azure-arm", "SharedImageGalleryDestination"),
    "spot": ("azure-arm", "Spot"),
}
WITHOUT_SECTION = {"launch_block_device_mappings", "aws_polling", "assume_role"}


def _paths(body: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, value in body.items():
        if name == "dynamic":
            for made in value:
                yield from _paths({kind.strip('"'): said["content"] for kind, said in made.items() if '"' in kind})
            continue
        if name.startswith("__"):
            continue
        yield (name,)
        for block in value if isinstance(value, list) else []:
            if isinstance(block, dict) and "__is_block__" in block:
                yield from ((name, inner) for inner in block if not inner.startswith("__"))


def _since(builder: str, path: tuple[str, ...]) -> str:
    if len(path) == 2 and path[0] in WITHOUT_SECTION:
        path = path[:1]
    table, section = SECTIONS[path[0]] if len(path) == 2 else (builder, "Config")
    attribute = ATTRIBUTES[table][section][path[-1]]
    assert "until" not in attribute, f"{'.'.join(path)} is gone from the plugin"
    return str(attribute["since"])


def test_nested_blocks_are_read(decide: Callable[..., Any]) -> None:
    tree = pipeline.render_tree(decide(SHIPPED, "aws").decision)
    paths = set(_paths(_blocks(tree, "source")["amazon-ebs"]['"image"']))
    nested = {("metadata_options", "http_tokens"), ("aws_polling", "max_attempts"), ("assume_role", "role_arn")}
    assert nested | {("region",)} <= paths


def test_nothing_in_a_tree_names_a_private_network(tree: dict[str, bytes]) -> None:
    texts = dict(tree)
    with zipfile.ZipFile(io.BytesIO(texts.pop("guest/bundle.zip"))) as archive:
        texts |= {f"bundle/{name}": archive.read(name) for name in archive.namelist()}
    # What the config itself asks for.
    proxies = re.compile(rb'[^"]*HTTPS?_PROXY"')
    texts = {path: proxies.sub(b"", data) for path, data in texts.items()}
    # The engine hands over the plan's proxy, and one script obeys it.
    texts["bundle/engine.psm1"] = texts["bundle/engine.psm1"].replace(b" -Proxy $Session.Plan.proxy ", b" ")
    texts["bundle/download.psm1"] = re.sub(rb"(?i)proxy", b"", texts["bundle/download.psm1"])
    words = re.compile(
        rb"rehears|localhost|127\.0\.0\.1|https?_proxy|(?<!csi)(?<!kube)-proxy\b|\bproxy *[=:]|stand-in", re.IGNORECASE
    )
    assert {path: words.findall(data) for path, data in texts.items() if words.search(data)} == {}


def test_trees_hold_no_fact_of_the_machine_that_renders(tree: dict[str, bytes]) -> None:
    here = [str(REPOSITORY).encode(), str(Path.home()).encode() + b"/"]
    assert [path for path, data in tree.items() for place in here if place in data] == []


@pytest.mark.parametrize("name", sorted(contents.read_folder(contents.PACKER, "**/*.j2")))
def test_templates_print_literals_only(name: str) -> None:
    text = contents.read_folder(contents.PACKER, "**/*.j2")[name].decode()
    printed = [found.strip() for found in re.findall(r"\{\{(.*?)\}\}", text, re.DOTALL)]
    assert [found for found in printed if not LITERAL.search(found) and found not in BARE] == []


def test_bare_expressions_are_still_there() -> None:
    texts = b"".join(contents.read_folder(contents.PACKER, "**/*.j2").values()).decode()
    assert [found for found in BARE if "{{ " + found + " }}" not in texts] == []


@pytest.mark.parametrize("file", [SHIPPED, GOLDEN / "maximal.yaml"])
def test_a_phase_may_be_started_again_as_long_as_it_may_take(file: Path, decide: Callable[..., Any]) -> None:
    """By default Packer gives up where WinRM is away later than five minutes after the start of a phase."""
    decision = decide(file, "aws").decision
    text = pipeline.render_tree(decision)["build.pkr.hcl"].decode()
    limits = [f'start_retry_timeout = var.guest.phases["{phase.name}"].timeout' for phase in decision.plan.image.phases]
    assert re.findall(r"start_retry_timeout = var.*", text) == limits


@pytest.mark.parametrize(("file", "private"), [(SHIPPED, 0), (GOLDEN / "maximal.yaml", 2)])
def test_updates_begin_with_a_restart(file: Path, private: int, decide: Callable[..., Any]) -> None:
    """Windows installs no update while what the base image left waits for a restart."""
    text = pipeline.render_tree(decide(file, "aws").decision)["build.pkr.hcl"].decode()
    provisioners = re.findall(r'(?m)^  provisioner "([a-z-]+)"', text)
    begins = bool(private)
    assert provisioners[:2] == ["file", "windows-restart" if begins else "windows-shell"]
    # One for each phase, with a restart between two, and one that seals. The phases with credentials have another.
    assert provisioners.count("powershell") == private
    assert provisioners.count("windows-shell") + private == provisioners.count("windows-restart") - begins + 2


@pytest.mark.parametrize(("file", "runtime"), [(SHIPPED, "containerd"), (REPOSITORY / "configs/docker.yaml", "docker")])
def test_the_title_of_an_image_names_its_runtime(decide: Callable[..., Any], file: Path, runtime: str) -> None:
    values = _values(pipeline.render_tree(decide(file, "aws").decision))
    assert values["image"]["title"].startswith(f"capi-windows-2022-{runtime}-v1.")
