"""`imagegen artifacts mirror` with everything but the network: what it copies, says and refuses."""

from __future__ import annotations

import hashlib
import json
import re
import urllib.parse
from typing import IO, TYPE_CHECKING

import pytest

from imagegen.fetch.download import Download, Fetched, Version
from imagegen.fetch.http import Answer, Web
from imagegen.fetch.lock import lock_bytes
from imagegen.mirror import images
from imagegen.pipeline import prepare_target
from imagegen.plan.context import artifact_requests
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.network.registries import Registries
from tests.conftest import load_today, make_test_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

CONFIG = {
    "name": "mirrored",
    "windows": {"release": "2022"},
    "kubernetes": {"version": "1.36.4"},
    "runtime": {"containerd": {"version": "2.3.4"}},
    "images": ["library/nginx"],
    "executables": [{"url": "https://own.example.com/tool.exe", "path": "C:\\tools\\tool.exe"}],
    "targets": {"aws": {"region": "us-east-1", "network": {"allowed_cidrs": ["198.51.100.0/24"]}}},
}


@pytest.fixture
def config(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config with its lock, and a web that has what the lock says. A parameter is its overrides."""
    file = tmp_path / "prod.yaml"
    file.write_text(json.dumps(CONFIG | {"overrides": getattr(request, "param", {})}))
    loaded = load_today(file)
    file.with_name("prod.lock.json").write_bytes(lock_bytes(make_test_lock(loaded)))
    target = prepare_target(loaded, "aws")
    files, registries = make_artifacts(target.steps), Registries([*target.images])

    def fill(download: Download, part: IO[bytes]) -> Fetched:
        data = files.get(download.url) or registries.ask(download.url, {}, _token(download)).body
        part.write(data)
        return Fetched(hashlib.sha256(data).hexdigest(), len(data), Version())

    def ask(url: str, headers: Mapping[str, str], authorization: str) -> Answer:
        return registries.ask(url, headers, authorization)

    monkeypatch.setattr(Download, "fill", fill)
    monkeypatch.setattr(Web, "ask", lambda _, *asked: ask(*asked))
    monkeypatch.setenv("IMAGEGEN_CACHE_DIR", str(tmp_path / "cache"))
    return file


def _token(download: Download) -> str:
    return download.address().authorization if download.address else ""


def test_only_the_urls_of_the_config_itself_must_be_changed(config: Path, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("artifacts", "mirror", config, "--to", tmp_path / "m", "--url", "https://m.example.com/files/")
    assert code == 0
    first, own = out.splitlines()
    assert first.startswith("copied 8 files with ")
    assert first.endswith(f" and 2 container images to {tmp_path / 'm'}; 0 were there")
    url = "https://m.example.com/files/own.example.com/tool.exe"
    assert own == f"executables[0].url is a URL of the config, which artifacts.mirror does not replace: write {url}"


TEMPLATE = "https://own.example.com/a%20b/{name}/{version}/{name}.zip"
FOLDER = "https://own.example.com/k8s/v1.36.4/"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"kubernetes_base_url": TEMPLATE}, "overrides.kubernetes_base_url"),
        ({"kubernetes_base_url": FOLDER}, "overrides.kubernetes_base_url"),
        ({"kubernetes_base_url": "https://own.example.com/v1.36.4.zip"}, "overrides.kubernetes_base_url"),
        ({"containerd_url": {"url": "https://own.example.com/c.tar.gz"}}, "overrides.containerd_url.url"),
        (
            {"kubernetes_base_url": TEMPLATE, "kubectl_url": "https://own.example.com/kubectl.exe"},
            "overrides.kubectl_url",
        ),
    ],
    indirect=["config"],
    ids=["template", "folder", "archive", "map", "one of several"],
)
def test_what_it_says_to_write_is_where_the_mirror_has_each_file(
    config: Path, key: str, tmp_path: Path, run: Run
) -> None:
    mirror, url = tmp_path / "m", "https://m.example.com/files"
    code, out, err = run("artifacts", "mirror", config, "--to", mirror, "--url", url)
    assert code == 0, err
    told = dict(re.findall(r"(?m)^(\S+) is a URL of the config, .*: write (\S+)$", out))
    assert {*told} >= {key, "executables[0].url"}
    closed = tmp_path / "closed.yaml"
    closed.write_text(json.dumps({"extends": "prod.yaml", "artifacts": {"mirror": url}}))
    sets = [f"{place}={value}" for place, value in told.items() if place.startswith("overrides.")]
    own = {"url": told["executables[0].url"], "path": "C:\\tools\\tool.exe"}
    target = prepare_target(load_today(closed, *sets, f"executables=[{json.dumps(own)}]"), "aws")
    urls = [request.url for request in artifact_requests(target.steps).values()]
    missing = [one for one in urls if not (mirror / urllib.parse.unquote(one.removeprefix(f"{url}/"))).is_file()]
    assert missing == []


def test_without_a_url_the_lines_have_a_place_for_it(config: Path, tmp_path: Path, run: Run) -> None:
    _, out, _ = run("artifacts", "mirror", config, "--to", tmp_path / "m")
    assert "write https://MIRROR/own.example.com/tool.exe" in out


def test_an_image_that_is_too_large_for_a_tarball_has_a_hint(
    config: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "LIMIT_BYTES", 100)
    _, out, _ = run("artifacts", "mirror", config, "--to", tmp_path / "m")
    assert (
        "docker.io/library/nginx:latest is too large for a tarball: in the closed network, write docker.io into "
        "artifacts.pull_from, and a registry that has it into runtime.containerd.registry_mirrors.docker.io"
    ) in out.splitlines()


def test_a_dry_run_lists_what_is_missing(config: Path, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("artifacts", "mirror", config, "--to", tmp_path / "m", "--dry-run")
    assert code == 0
    missing = [line.split()[1] for line in out.splitlines() if line.startswith("missing")]
    assert {"own.example.com/tool.exe", "docker.io/library/nginx:latest"} <= set(missing)
    assert len(missing) == 10
    assert "would copy 8 files with " in out
    assert not (tmp_path / "m").exists()
    assert run("artifacts", "mirror", config, "--to", tmp_path / "m")[0] == 0
    code, out, _ = run("artifacts", "mirror", config, "--to", tmp_path / "m", "--dry-run", "--format", "json")
    summary = json.loads(out)
    assert (summary["dry_run"], summary["copied"], summary["copied_images"]) == (True, {}, [])
    assert (len(summary["kept"]), len(summary["kept_images"])) == (8, 2)


def test_a_missing_lock_names_the_command(tmp_path: Path, run: Run) -> None:
    (tmp_path / "prod.yaml").write_text(json.dumps(CONFIG))
    code, _, err = run("artifacts", "mirror", tmp_path / "prod.yaml", "--to", tmp_path / "m")
    assert code == 2
    assert f"error: there is no lock {tmp_path / 'prod.lock.json'}" in err
    assert f"hint: run `imagegen lock {tmp_path / 'prod.yaml'}`" in err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--to", "ftp://host/a"), "'ftp://host/a' is not the address of a mirror"),
        (("--to", "s3://B/a"), "'s3://B/a' is not the address of a folder in a bucket"),
        (("--to", "az://a"), "'az://a' is not the address of a folder in a container"),
        (("--to", "m", "--url", "http://m.example.com"), "--url 'http://m.example.com' must start with https://"),
    ],
)
def test_wrong_addresses(config: Path, run: Run, words: tuple[str, ...], error: str) -> None:
    code, _, err = run("artifacts", "mirror", config, *words)
    assert (code, error in err) == (2, True)


def test_other_bytes_in_the_mirror_end_with_4(config: Path, tmp_path: Path, run: Run) -> None:
    run("artifacts", "mirror", config, "--to", tmp_path / "m")
    (tmp_path / "m" / "own.example.com" / "tool.exe").write_bytes(b"other")
    code, _, err = run("artifacts", "mirror", config, "--to", tmp_path / "m")
    assert code == 4
    assert "the mirror has another file at own.example.com/tool.exe" in err
    assert (tmp_path / "m" / "own.example.com" / "tool.exe").read_bytes() == b"other"
