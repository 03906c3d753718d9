"""`imagegen artifacts mirror` with everything but the network: what it copies, says and refuses."""

from __future__ import annotations

import hashlib
import io
import json
from typing import IO, TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from imagegen.artifacts.arrival import Version
from imagegen.artifacts.download import Download, Fetched
from imagegen.artifacts.image_lookup import Answer
from imagegen.artifacts.lock import lock_bytes
from imagegen.mirror import from_locks
from imagegen.pipeline import prepare_target
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
    "kubernetes": {"version": "1.36.2"},
    "runtime": {"containerd": {"version": "2.3.4"}},
    "images": ["library/nginx"],
    "executables": [{"url": "https://own.example.com/tool.exe", "path": "C:\\tools\\tool.exe"}],
    "targets": {"aws": {"region": "us-east-1", "network": {"allowed_cidrs": ["198.51.100.0/24"]}}},
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config with its lock, and a web that has what the lock says."""
    file = tmp_path / "prod.yaml"
    file.write_text(json.dumps(CONFIG))
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
    monkeypatch.setattr(from_locks, "ask_over_https", lambda *_, **__: ask)
    monkeypatch.setenv("IMAGEGEN_CACHE_DIR", str(tmp_path / "cache"))
    return file


def _token(download: Download) -> str:
    return download.address().authorization if download.address else ""


def test_the_lines_to_paste_are_yaml_of_a_config(config: Path, tmp_path: Path, run: Run) -> None:
    code, out, _ = run("artifacts", "mirror", config, "--to", tmp_path / "m", "--url", "https://m.example.com/files/")
    assert code == 0
    first, own, said, *lines = out.splitlines()
    assert first.startswith("copied 8 files with ")
    assert first.endswith(f" and 2 container images to {tmp_path / 'm'}; 0 were there")
    assert own == (
        "executables[0].url is a URL of the config, which artifacts.mirror does not replace: its file is "
        "own.example.com/tool.exe"
    )
    assert said == "to import the container images, write this in place of images and windows.container_images:"
    pasted = YAML(typ="safe").load(io.StringIO("\n".join(lines)))["image_tarballs"]
    assert [row["name"] for row in pasted] == ["docker.io/library/nginx:latest", "registry.k8s.io/pause:3.10.2"]
    for row in pasted:
        path = row["url"].removeprefix("https://m.example.com/files/")
        assert hashlib.sha256((tmp_path / "m" / path).read_bytes()).hexdigest() == row["sha256"]
    # The config that has these lines in their place is valid.
    closed = {**CONFIG, "images": [], "image_tarballs": pasted, "artifacts": {"mirror": "https://m.example.com/files"}}
    (tmp_path / "closed.yaml").write_text(json.dumps(closed))
    assert run("validate", tmp_path / "closed.yaml")[0] == 0


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


def test_without_a_url_the_lines_have_a_place_for_it(config: Path, tmp_path: Path, run: Run) -> None:
    words = ("artifacts", "mirror", config, "--to", tmp_path / "m", "--format", "json")
    _, out, _ = run(*words)
    assert {row["url"].partition("/oci/")[0] for row in json.loads(out)["image_tarballs"]} == {"https://MIRROR"}


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
