"""What a lock costs beside curl, tar and sha256sum: the same files from one server on this machine, by turns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import http.server
import io
import os
import random
import re
import shutil
import signal
import socketserver
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trustme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROUNDS = 3
CONFIG = "configs/windows-2022-containerd.yaml"
PROGRAMS, PROGRAM_BYTES = 30, 50_000_000
ARCHIVES, MEMBERS, MEMBER_BYTES = 8, 3, 40_000_000
AT_ONCE = 4
# What `imagegen lock` does with artifacts, without base images and a config. `kind` is the form of the artifacts.
LOCK = """
import sys
from pathlib import Path
from imagegen.fetch.cache import Cache
from imagegen.fetch.lock import Lock
from imagegen.fetch.lookup import Sources, lock_artifacts
from imagegen.fetch.http import Web
from imagegen.fetch.request import ArtifactRequest
from imagegen.base.console import Console
def peak(): return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
base = peak()
url, ca, cache, kind, *names = sys.argv[1:]
environ, console = {"SSL_CERT_FILE": ca}, Console(sys.stderr, plain=True, quiet=True)
web = Web(environ=environ, console=console)
sources = Sources(web=web, cache=Cache(Path(cache), 2**40, print), ask=web.ask, console=console)
requests = {n: ArtifactRequest(n, f"{url}/{n}", None, kind, "executables", f"{url}/{n}", own=True) for n in names}
lock = lock_artifacts(requests, None, sources)
for name, artifact in lock.items():
    print(artifact.sha256, name, *(artifact.members or {}).values())
print(peak() - base, file=sys.stderr)
"""
CURL = 'curl -sS --cacert "$1" -o "$2/$4" "$3/$4" && sha256sum "$2/$4"'
TAR = f'{CURL} && mkdir "$2/in-$4" && tar -xf "$2/$4" -C "$2/in-$4" && sha256sum "$2/in-$4"/*'


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of one folder."""

    protocol_version = "HTTP/1.1"

    def __init__(self, folder: Path, *args: Any) -> None:  # noqa: ANN401 - the base class's own
        self.folder = folder
        super().__init__(*args)

    def do_GET(self) -> None:
        file = self.folder / self.path.rpartition("/")[2]
        if not file.is_file():
            self.send_error(404)
            return
        if self.headers["If-None-Match"] == f'"{file.name}"':
            self.send_response(304)
            self.end_headers()
            return
        with file.open("rb") as opened:
            self.send_response(200)
            self.send_header("Content-Length", str(file.stat().st_size))
            self.send_header("ETag", f'"{file.name}"')
            self.end_headers()
            while chunk := opened.read(1 << 20):
                self.wfile.write(chunk)

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - the base class prints here
        """Nothing between the figures."""


class Server(socketserver.ForkingMixIn, http.server.HTTPServer):
    """One process per connection, so that the server does not measure Python's lock."""

    request_queue_size = 128

    def __init__(self, context: ssl.SSLContext, handler: Any) -> None:  # noqa: ANN401 - the base class's own
        super().__init__(("127.0.0.1", 0), handler)
        self.context = context

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base class's own
        super().finish_request(self.context.wrap_socket(request, server_side=True), client_address)


@contextlib.contextmanager
def serving(folder: Path, ca_file: Path) -> Iterator[str]:
    """The address of a server with the files of the folder."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(ca_file))
    server = Server(context, functools.partial(Handler, folder))
    process = os.fork()
    if process == 0:
        server.serve_forever()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)


def make_programs(folder: Path) -> list[str]:
    names = [f"program-{number}.exe" for number in range(PROGRAMS)]
    for name in names:
        (folder / name).write_bytes(os.urandom(PROGRAM_BYTES))
    return names


def make_archives(folder: Path) -> list[str]:
    names = [f"archive-{number}.tar.gz" for number in range(ARCHIVES)]
    # As programs, they can be compressed to less than half.
    words = [os.urandom(random.randint(2, 24)) for _ in range(4000)]  # noqa: S311 - no secret
    for name in names:
        with tarfile.open(folder / name, "w:gz", compresslevel=6) as archive:
            for number in range(MEMBERS):
                data = b"".join(random.choices(words, k=MEMBER_BYTES // 13))  # noqa: S311 - no secret
                info = tarfile.TarInfo(f"program-{number}.exe")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return names


@dataclasses.dataclass
class Best:
    """The best of several runs: seconds, and seconds of CPU, which other work on the machine changes less."""

    wall: float = float("inf")
    cpu: float = float("inf")
    environ: Mapping[str, str] | None = None

    def run(self, argv: list[str], names: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        before, began = os.times(), time.perf_counter()
        done = subprocess.run(  # noqa: S603 - our own commands
            argv, input="\n".join(names), env=self.environ, capture_output=True, check=True, text=True
        )
        self.wall = min(self.wall, time.perf_counter() - began)
        after = os.times()
        used = (after.children_user + after.children_system) - (before.children_user + before.children_system)
        self.cpu = min(self.cpu, used)
        return done


def digests_in(output: str) -> set[str]:
    return set(re.findall(r"\b[0-9a-f]{64}\b", output))


def compare(what: str, kind: str, script: str, names: list[str], url: str, ca: Path, folder: Path) -> Iterator[str]:
    out, cache = folder / "out", folder / "cache"
    by_shell = ["xargs", "-P", str(AT_ONCE), "-n", "1", "sh", "-c", script, "sh", str(ca), str(out), url]
    by_lock = [sys.executable, "-c", LOCK, url, str(ca), str(cache), kind, *names]
    shell, lock, again, memory = Best(), Best(), Best(), 0
    for _ in range(ROUNDS):
        out.mkdir()
        expected = digests_in(shell.run(by_shell, names).stdout)
        locked = lock.run(by_lock)
        if digests_in(locked.stdout) != expected:
            sys.exit(f"the digests of {what} differ")
        memory = max(memory, int(locked.stderr.split()[-1]))
        again.run(by_lock)
        shutil.rmtree(out)
        shutil.rmtree(cache)
    tools = "curl + sha256sum" if script == CURL else "curl + tar -x + sha256sum"
    yield (
        f"locking {what}: {lock.wall:.2f} s, {lock.wall / shell.wall:.2f} x {tools} ({shell.wall:.2f} s; promised: "
        f"1.5 x); by CPU time {lock.cpu / shell.cpu:.2f} x"
    )
    yield f"  again, unchanged on the server: {again.wall:.2f} s"
    yield f"  memory: {memory / 10**6:.0f} MB over its modules (promised: below 100 MB)"


# A lock of the shipped config whose artifacts are in the cache, each with this size.
FROZEN_BYTES = 50_000_000
MAKE_FROZEN = """
import hashlib, os, sys
from pathlib import Path
from imagegen.fetch.lock import lock_bytes
from tests.conftest import load_today, make_test_lock
config, file, cache, size = sys.argv[1:]
files = Path(cache, "imagegen", "artifacts", "sha256")
files.mkdir(parents=True)
lock, artifacts = make_test_lock(load_today(Path(config)), "aws"), {}
for name, artifact in lock.artifacts.items():
    data = os.urandom(int(size))
    sha256 = hashlib.sha256(data).hexdigest()
    (files / sha256).write_bytes(data)
    artifacts[name] = artifact.model_copy(update={"sha256": sha256, "size": len(data)})
Path(file).write_bytes(lock_bytes(lock.model_copy(update={"artifacts": artifacts})))
print(len(artifacts))
"""


def frozen_figure(folder: Path) -> str:
    """How long an unchanged config with its lock takes to verify from the cache."""
    cache, file = folder / "frozen", folder / "frozen.lock.json"
    made = [sys.executable, "-c", MAKE_FROZEN, CONFIG, str(file), str(cache), str(FROZEN_BYTES)]
    number = subprocess.run(made, capture_output=True, check=True, text=True).stdout.strip()  # noqa: S603 - as above
    imagegen = str(Path(sys.executable).with_name("imagegen"))
    verify = [imagegen, "lock", CONFIG, "--target", "aws", "--lock", str(file), "--frozen"]
    best = Best(environ={**os.environ, "XDG_CACHE_HOME": str(cache)})
    for _ in range(ROUNDS):
        said = best.run(verify).stderr
        if f"{number} files verified in the cache\n" not in said:
            sys.exit(f"the cache was not verified: {said}")
    total = int(number) * FROZEN_BYTES // 10**6
    shown = f"{best.wall:.2f} s (promised: below 1 s), {best.cpu:.2f} s of CPU"
    return f"verifying a lock from the cache, {total} MB, with the start: {shown}"


def locking_figures() -> Iterator[str]:
    """The promised figures about locks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served, ca = folder / "served", folder / "ca.pem"
        served.mkdir()
        programs, archives = make_programs(served), make_archives(served)
        with serving(served, ca) as url:
            what = f"{PROGRAMS} programs of {PROGRAM_BYTES // 10**6} MB"
            yield from compare(what, "file", CURL, programs, url, ca, folder)
            what = f"{ARCHIVES} archives of {MEMBERS} x {MEMBER_BYTES // 10**6} MB"
            yield from compare(what, "archive", TAR, archives, url, ca, folder)
        yield frozen_figure(folder)


if __name__ == "__main__":
    for figure in locking_figures():
        print(figure, flush=True)
