"""Records what the OpenAPI of each Kubernetes minor, and of Cluster API, says about the objects in samples.

The packages kubernetes-validate on PyPI have the definitions of Kubernetes' swagger.json of each minor. The Go modules
of Cluster API and its providers have their custom resource definitions. tests/e2e/test_kubernetes_api.py downloads them
to a folder, and `python -m tests.kubernetes_api.record FOLDER` records the table anew.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Definitions = dict[str, dict[str, Any]]

TABLE = Path(__file__).parent / "definitions.json"
PACKAGES = {
    # The file of each package, and the minors that are taken from it.
    "kubernetes-validate-1.24.1.tar.gz": range(14, 25),
    "kubernetes_validate-1.37.0-py3-none-any.whl": range(25, 38),
}
# Lines for pip's --requirement. Of one version each, because pip takes only one of a package.
REQUIREMENTS = (
    "kubernetes-validate==1.24.1 --hash=sha256:705416be22f53a46799137d6a217a4cdb72f2205f9133241fa9bb0a7e84ac8f6",
    "kubernetes-validate==1.37.0 --hash=sha256:85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
)
KINDS = {
    "apps/v1 DaemonSet": "io.k8s.api.apps.v1.DaemonSet",
    "v1 ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "v1 Secret": "io.k8s.api.core.v1.Secret",
    "v1 ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "rbac.authorization.k8s.io/v1 ClusterRole": "io.k8s.api.rbac.v1.ClusterRole",
    "rbac.authorization.k8s.io/v1 ClusterRoleBinding": "io.k8s.api.rbac.v1.ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1 RoleBinding": "io.k8s.api.rbac.v1.RoleBinding",
    "node.k8s.io/v1 RuntimeClass": "io.k8s.api.node.v1.RuntimeClass",
    "node.k8s.io/v1beta1 RuntimeClass": "io.k8s.api.node.v1beta1.RuntimeClass",
    "policy/v1beta1 PodSecurityPolicy": "io.k8s.api.policy.v1beta1.PodSecurityPolicy",
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy": (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicy"
    ),
    "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding": (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBinding"
    ),
}
# The Go modules with definitions of Cluster API, and the kinds that are taken from them.
MODULES = {
    "sigs.k8s.io/cluster-api@v1.10.7": "bootstrap.cluster.x-k8s.io/v1beta1 KubeadmConfigTemplate",
    "sigs.k8s.io/cluster-api-provider-aws/v2@v2.13.0": "infrastructure.cluster.x-k8s.io/v1beta2 AWSMachineTemplate",
    "sigs.k8s.io/cluster-api-provider-azure@v1.21.0": "infrastructure.cluster.x-k8s.io/v1beta1 AzureMachineTemplate",
}
# Of a cluster, and large. No sample has them.
_UNUSED = ("clusterConfiguration", "initConfiguration")
_FILE = re.compile(r"kubernetes-json-schema/v1\.([0-9]+)\.0-local/_definitions\.json$")


def record(folder: Path) -> dict[str, Any]:
    """The table: each field of each definition with its type, and the minors that have it."""
    fields: dict[str, dict[str, dict[str, list[int]]]] = {}
    minors = dict(sorted(_read(folder)))
    for minor, definitions in minors.items():
        for name in _reachable(definitions):
            for field, kind in _fields(definitions[name]):
                fields.setdefault(_short(name), {}).setdefault(field, {}).setdefault(kind, []).append(minor)
    for module, item in MODULES.items():
        for name, field, kind in _resource(folder / module_file(module), item):
            fields.setdefault(name, {}).setdefault(field, {})[kind] = list(minors)
    return {
        "sources": [*(f"{package} of PyPI" for package in PACKAGES), *(f"Go module {module}" for module in MODULES)],
        "kinds": {kind: _short(name) for kind, name in KINDS.items()}
        | {name: name.split()[1] for name in MODULES.values()},
        "definitions": {
            name: {
                field: "; ".join(f"{kind} {range_}" for kind, found in kinds.items() for range_ in _ranges(found))
                for field, kinds in sorted(rows.items())
            }
            for name, rows in sorted(fields.items())
        },
    }


def table_text(table: Mapping[str, Any]) -> str:
    """The table as it is stored: a line for each definition."""
    rows = [f"    {json.dumps(name)}: {json.dumps(row)}" for name, row in table["definitions"].items()]
    head = [f"  {json.dumps(key)}: {json.dumps(table[key])}," for key in ("sources", "kinds")]
    return "\n".join(["{", *head, '  "definitions": {', ",\n".join(rows), "  }", "}", ""])


def _read(folder: Path) -> Iterator[tuple[int, Definitions]]:
    for package, wanted in PACKAGES.items():
        for path, data in _files(folder / package):
            found = _FILE.search(path)
            if found and int(found[1]) in wanted:
                content = json.loads(data)
                yield int(found[1]), content.get("definitions") or content["$defs"]


def _files(package: Path) -> Iterator[tuple[str, bytes]]:
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist() if _FILE.search(name))
        return
    with tarfile.open(package) as archive:
        for member in archive:
            if _FILE.search(member.name) and (opened := archive.extractfile(member)):
                yield member.name, opened.read()


def module_file(module: str) -> str:
    """The name of a module's zip in the folder."""
    return f"{module.replace('/', '_')}.zip"


def _resource(file: Path, item: str) -> Iterator[tuple[str, str, str]]:
    """The fields of a custom resource: the definition, which is its path, the name, and the type."""
    version, name = item.rpartition("/")[2].split()
    with zipfile.ZipFile(file) as module:
        (path,) = [
            path for path in module.namelist() if path.endswith(f"_{name.lower()}s.yaml") and "/crd/bases/" in path
        ]
        versions = YAML(typ="safe").load(module.read(path))["spec"]["versions"]
    (schema,) = [one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == version]
    yield from _nested(name, schema)


def _nested(path: str, schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for field, inner in schema.get("properties", {}).items():
        below = inner.get("items", inner)
        has_fields = bool(below.get("properties")) and field not in _UNUSED
        place = f"{path}.{field}"
        kind = _kind(inner) if not has_fields else f"[{place}]" if "items" in inner else place
        yield path, field, kind + ("!" if field in schema.get("required", ()) else "")
        if has_fields:
            yield from _nested(place, below)


def _reachable(definitions: Definitions) -> set[str]:
    waiting, seen = [name for name in KINDS.values() if name in definitions], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [other for other in _references(definitions[name]) if definitions[other].get("properties")]
    return seen


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from [item.rpartition("/")[2]] if key == "$ref" else _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _fields(definition: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for field, schema in definition.get("properties", {}).items():
        yield field, _kind(schema) + ("!" if field in definition.get("required", ()) else "")


def _kind(schema: Mapping[str, Any]) -> str:
    """A type as the table has it: `string`, `PodSpec`, `[string]` for lists, `{string}` for maps."""
    if "$ref" in schema:
        return _short(schema["$ref"].rpartition("/")[2])
    kinds = schema.get("type", "any")
    kind: str = next(name for name in kinds if name != "null") if isinstance(kinds, list) else kinds
    if kind == "array":
        return f"[{_kind(schema['items'])}]"
    if kind == "object" and "additionalProperties" in schema:
        return f"{{{_kind(schema['additionalProperties'])}}}"
    return kind


def _short(name: str) -> str:
    return re.sub(r"^io\.k8s\.(api|apimachinery\.pkg|apimachinery\.pkg\.apis)\.", "", name)


def _ranges(minors: Iterable[int]) -> Iterator[str]:
    """Ranges without holes: `14-37`."""
    first = last = None
    for minor in [*sorted(minors), None]:
        if last is not None and (minor is None or minor != last + 1):
            yield f"{first}-{last}"
            first = None
        first, last = minor if first is None else first, minor


if __name__ == "__main__":
    TABLE.write_text(table_text(record(Path(sys.argv[1]))))
