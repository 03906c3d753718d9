"""The user data in tests/data/capi-userdata is what Cluster API's own writer makes, in the versions of its time."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.boot_support import CLUSTER_DATA
from tests.e2e.go_programs import Program

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.e2e

_DATA: Final[Mapping[str, Any]] = json.loads((CLUSTER_DATA / "specs.json").read_text())
_PLACE: Final = "bootstrap/kubeadm/imagegen"
# Cluster API 0.4 names a version of this package that ends with newer compilers.
_NEWER: Final = ("github.com/modern-go/reflect2@v1.0.2",)


def _writer(version: str, file: str, requires: tuple[str, ...] = ()) -> Program:
    return Program("cluster_api", ("main.go", file), f"sigs.k8s.io/cluster-api@v{version}", _PLACE, requires)


WRITERS: Final = {
    "0.4.8": _writer("0.4.8", "v0.4.go", _NEWER),
    "1.7.9": _writer("1.7.9", "v1.7.go"),
    "1.12.0": _writer("1.12.0", "v1.12.go"),
}


def _spec(name: str, version: str) -> Mapping[str, Any]:
    """From v1beta4 on, the arguments of kubelet are a list."""
    spec: dict[str, Any] = copy.deepcopy(_DATA["specs"][name])
    registration = spec["joinConfiguration"]["nodeRegistration"]
    if version == "v1beta4":
        arguments = registration["kubeletExtraArgs"]
        registration["kubeletExtraArgs"] = [{"name": key, "value": value} for key, value in arguments.items()]
    return spec


@pytest.mark.parametrize("version", _DATA["versions"])
def test_the_writer_makes_the_recorded_user_data(version: str) -> None:
    facts = _DATA["versions"][version]
    writer = WRITERS[facts["cluster_api"]]
    folder = CLUSTER_DATA / version
    now: dict[str, str] = {}
    for name in facts["cases"]:
        text = writer.run({"kubernetes": facts["kubernetes"], "spec": _spec(name, version)})
        assert f"apiVersion: kubeadm.k8s.io/{version}\n" in text
        now[f"{name}.yaml"] = text
    assert {file.name: file.read_text() for file in folder.glob("*.yaml")} == now
