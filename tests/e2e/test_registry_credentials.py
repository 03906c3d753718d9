"""Credentials of registries in a whole rehearsed build: they are used, and nothing keeps them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from tests.conftest import load_today
from tests.e2e.rehearsal_support import CONFIG, DEADLINE_S, imagegen, sandbox_of, setup_of, user_environ
from tests.e2e.secrets_support import kept_in, markers_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

NAMES = ("REGISTRY_USERNAME", "REGISTRY_PASSWORD", "HUB_USERNAME", "HUB_LOGIN")
SETS = (
    "images=[registry.example.com/app:1, library/nginx, ghcr.io/team/tool:2]",
    "registry_credentials=[{registry: registry.example.com, username_env: REGISTRY_USERNAME, password_env: "
    "REGISTRY_PASSWORD}, {registry: docker.io, username_env: HUB_USERNAME, password_env: HUB_LOGIN}]",
)
DOCKER = ("runtime.containerd=null", "runtime.docker={version: 28.5.1, cri_dockerd: 0.3.20}", "kube_proxy=none")


def _markers(values: dict[str, str]) -> list[bytes]:
    """The passwords, and the forms in which programs take them."""
    user, password, hub_user, hub_login = (values[name] for name in NAMES)
    pairs = [
        base64.b64encode(f"{one}:{other}".encode()).decode() for one, other in ((user, password), (hub_user, hub_login))
    ]
    return markers_of([password, hub_login, *pairs])


@pytest.mark.parametrize("runtime", [(), DOCKER], ids=["containerd", "docker"])
def test_credentials_are_used_and_nowhere_afterwards(runtime: tuple[str, ...], tmp_path: Path) -> None:
    sets = (*SETS, *runtime)
    out = tmp_path / "out"
    setup = setup_of("aws", out, load_today(CONFIG, *sets))
    options = [word for value in sets for word in ("--set", value)]
    words = imagegen("build", CONFIG, "--target", "aws", "--no-publish", *options)
    with sandbox_of(setup, tmp_path) as sandbox:
        environ = {**sandbox.child_environ(user_environ(tmp_path)), "PACKER_LOG": "1"}
        done = process.run(
            [*words, "--out", str(out), "--lock", str(out / "lock.json")],
            environ=environ,
            cwd=tmp_path,
            timeout=DEADLINE_S,
        )
        assert (sandbox.faults, done.returncode) == ([], ExitCode.OK), done.stderr
        assert sandbox.missing == []
        tokens = {entry.host for entry in sandbox.network.journal if "token" in entry.path}
        assert {"registry.example.com", "auth.docker.io"} <= tokens
        values = setup.secret_variables
        assert {name: environ[name] for name in NAMES} == values
        markers = _markers(values)
        assert sandbox.captured is not None
        assert kept_in(sandbox.captured, tmp_path, markers) == []
        assert not any(marker in (done.stdout + done.stderr).encode() for marker in markers)
        # The same search finds what a build would have left.
        sandbox.captured.files.write(r"C:\left.txt", base64.b64encode(f"x{values['HUB_LOGIN']}".encode()))
        assert kept_in(sandbox.captured, tmp_path, markers) == [r"C:\left.txt"]
