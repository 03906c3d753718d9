"""The samples for nodes that run only signed scripts: their pods run the signed copy, under the policy of the node."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from imagegen.samples.make import POD_SCRIPT, sample_scripts
from imagegen.trust.scripts import SAMPLES
from tests.authenticode.signing import sign_script
from tests.signing_support import SIGNED, signers, write_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

FLANNEL = ("--network", "flannel-host-gw", "--image", "flannel=registry.example.com/flannel:1")
MAPS = {"flannel.yaml": "flannel-windows", "kube-proxy.yaml": "kube-proxy-windows"}


def read(file: Path) -> dict[str, dict[str, Any]]:
    """The last object of each kind."""
    return {item["kind"]: item for item in YAML(typ="safe").load_all(file) if item}


@pytest.mark.parametrize("name", MAPS)
def test_pods_run_the_signed_copy_byte_for_byte(run: Run, tmp_path: Path, name: str) -> None:
    config = write_config(tmp_path)
    copy = sign_script(sample_scripts()[POD_SCRIPT], signers().signer)
    file = tmp_path / SIGNED / SAMPLES / POD_SCRIPT
    file.parent.mkdir(parents=True)
    file.write_bytes(copy)
    code, _, err = run("samples", config.file, "--target", "aws", "--out", tmp_path / "out", *FLANNEL)
    assert code == 0, err
    found = read(tmp_path / "out" / name)
    assert base64.b64decode(found["ConfigMap"]["binaryData"]["start.ps1"]) == copy
    assert "start.ps1" not in found["ConfigMap"].get("data", {})
    (container,) = found["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][:4] == ["powershell.exe", "-NoProfile", "-NonInteractive", "-Command"]


def test_an_unsigned_script_is_refused_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    code, _, err = run("samples", config.file, "--target", "aws", "--out", tmp_path / "out", *FLANNEL)
    assert code == 4
    assert f"{SAMPLES}{POD_SCRIPT}: the folder {tmp_path / SIGNED} does not exist" in err
    assert f"run `imagegen sign-list {config.file} --target aws --out DIR`" in err
    assert not (tmp_path / "out").exists()


CALICO = ("--network", "calico")


def test_calicos_kube_proxy_is_left_out_because_its_script_is_unsigned(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    code, out, err = run("samples", config.file, "--target", "aws", "--out", tmp_path / "out", *CALICO)
    assert code == 0, err
    assert "left out: kube-proxy.yaml: with Calico, a script of the container image starts kube-proxy" in out
    assert not (tmp_path / "out" / "kube-proxy.yaml").exists()


def test_an_image_of_your_own_may_have_the_script_signed(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    image = "registry.example.com/kube-proxy:1"
    own = ("--image", f"kube-proxy={image}")
    code, out, err = run("samples", config.file, "--target", "aws", "--out", tmp_path / "out", *CALICO, *own)
    assert code == 0, err
    assert "left out" not in out
    assert image in (tmp_path / "out" / "kube-proxy.yaml").read_text()
    assert f"must have signed `kube-proxy\\start.ps1` in your image {image}" in (tmp_path / "out/README.md").read_text()
