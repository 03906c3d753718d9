"""What a real Packer makes of a plugin's release, from a server that has what Packer 1.16 asks HashiCorp's for."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import VerificationError
from imagegen.build.process import Programs
from imagegen.build.tools import HOST, ToolContext, find_tools, install_released, system_name
from imagegen.fetch.http import UnreachableError
from imagegen.rehearsal.network.messages import Request, Response
from imagegen.rehearsal.network.network import Network
from tests.provider_answers import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.e2e

# Packer starts what it downloaded, to see that it is what it says.
PLUGIN = b"""#!/bin/sh
echo '{"version":"1.4.5","sdk_version":"0.5.2","api_version":"x5.0","builders":[],"post_processors":[],\
"provisioners":[],"datasources":[]}'
"""


def site(digest: str = "") -> dict[str, bytes]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"packer-plugin-azure_v1.4.5_x5.0_{system_name()}", PLUGIN)
    name, base = f"packer-plugin-azure_1.4.5_{system_name()}.zip", "/packer-plugin-azure/1.4.5/"
    digest = digest or hashlib.sha256(file.getvalue()).hexdigest()
    return {
        "/packer-plugin-azure/index.json": b'{"versions": {"1.4.5": {"name": "azure", "version": "1.4.5"}}}',
        f"{base}packer-plugin-azure_1.4.5_SHA256SUMS": f"{digest}  {name}\n".encode(),
        f"{base}packer-plugin-azure_1.4.5_manifest.json": b'{"version": 1, "metadata": {"protocol_version": "5.0"}}',
        f"{base}{name}": file.getvalue(),
    }


def install(files: Mapping[str, bytes], folder: Path) -> Path:
    packer = find_tools(environ=os.environ, console=Console(sys.stderr, plain=True), needed=[]).packer

    def answer(request: Request) -> Response:
        data = files.get(request.path)
        return Response(404) if data is None else Response(200, data)

    cache = folder / "cache"
    cache.mkdir()
    github = {"api.github.com": lambda _: Response(404), "github.com": lambda _: Response(404)}
    with Network(folder / "network", hosts={HOST: answer, **github}) as network:
        environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin", **network.environ}
        context = ToolContext(environ, cache, Console(sys.stderr, plain=True), Programs())
        install_released(PLUGINS["azure"], packer=packer, context=context)
    return cache


def test_packer_downloads_a_plugin_into_the_cache(tmp_path: Path) -> None:
    cache = install(site(), tmp_path)
    folder = cache / "plugins" / "github.com" / "hashicorp" / "azure"
    name = f"packer-plugin-azure_v1.4.5_x5.0_{system_name()}"
    assert sorted(file.name for file in folder.iterdir()) == [name, f"{name}_SHA256SUM"]
    assert (folder / name).read_bytes() == PLUGIN
    assert [path.name for path in cache.iterdir()] == ["plugins"]


def test_a_wrong_checksum_is_no_obstacle_but_a_fault(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="the plugin azure that Packer downloads has the wrong checksum"):
        install(site("0" * 64), tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_version_that_is_not_there_is_an_obstacle(tmp_path: Path) -> None:
    files = site() | {"/packer-plugin-azure/index.json": b'{"versions": {"2.6.3": {"version": "2.6.3"}}}'}
    with pytest.raises(UnreachableError, match="Packer cannot download the plugin azure: "):
        install(files, tmp_path)
