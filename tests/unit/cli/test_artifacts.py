"""`imagegen artifacts`: what it prints about a download, and which lines of a config it offers."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from imagegen.cli.inspection import find_overrides, inspection_lines, make_overrides
from imagegen.cli.verbs import artifacts as verb
from imagegen.config.artifact_policy import PinnedUrl
from imagegen.fetch.download import Fetched
from imagegen.inspect.inspect import Inspection, inspect_file
from tests.authenticode.pki import make_ca, make_signer, pki
from tests.authenticode.signing import Options, sign_pe
from tests.authenticode.support import fixture, fixture_trust, trust
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.authenticode.pki import Identity

    Run = Callable[..., tuple[object, str, str]]

VERSIONED = (REPOSITORY / "tests" / "data" / "versioned.exe").read_bytes()
CONTAINERS = ("containerd.exe", "ctr.exe", "containerd-shim-runhcs-v1.exe")
URL = "https://artifacts.example.com/containerd.zip"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


def look(tmp_path: Path, data: bytes, name: str = "x.zip") -> Inspection:
    (tmp_path / "artifact").write_bytes(data)
    return inspect_file(tmp_path / "artifact", name, fixture_trust(), tmp_path)


def test_every_command_has_its_line_and_is_loaded_when_it_runs(run: Run) -> None:
    code, out, _ = run("artifacts", "--help")
    assert code == 0
    commands = verb.artifacts.commands
    assert list(commands) == ["gc", "inspect", "list", "mirror", "verify"]
    assert [one for name, one in commands.items() if f"{name:<8} {one.short_help}" not in out] == []


def test_inspect_says_what_an_operator_begins_with(run: Run, tmp_path: Path) -> None:
    data = zipped({"bin/kubelet.exe": VERSIONED, "LICENSE": b"text"})
    (tmp_path / "kubelet.zip").write_bytes(data)
    code, out, err = run("artifacts", "inspect", tmp_path / "kubelet.zip", "-q")
    assert (code, err) == (0, "")
    assert out == (
        "type       a .zip archive\n"
        f"size       {len(data)} bytes\n"
        f"sha256     {sha256(data)}\n"
        "layout     1 program in bin, 1 other file\n"
        "\n"
        "bin/kubelet.exe\n"
        f"  size       {len(VERSIONED)} bytes\n"
        f"  sha256     {sha256(VERSIONED)}\n"
        "  version    v1.36.2+signed, product 1.36.0.0, Example Corporation, as kubelet.exe\n"
        "  signature  unsigned: the file has no signature\n"
        "\n"
        "other files\n"
        f"             4  {sha256(b'text')}  LICENSE\n"
        "\n"
        "lines for a config\n"
        "  overrides:\n"
        "    kubelet_url:\n"
        '      url: "https://HOST/kubelet.zip"\n'
        f"      sha256: {sha256(data)}\n"
        "      # no signer: bin/kubelet.exe: unsigned\n"
    )


def test_inspect_offers_no_override_that_the_lock_would_refuse(tmp_path: Path) -> None:
    found = look(tmp_path, zipped({"new/kubelet.exe": VERSIONED, "old/kubelet.exe": VERSIONED + b"\0"}))
    overrides = make_overrides(found, "kubelet.zip", "https://artifacts.example.com/kubelet.zip")
    assert overrides == {}
    lines = list(inspection_lines(found, overrides))
    said = (
        "imagegen takes no kubelet.exe from this archive, which has different files with this name: new/kubelet.exe, "
        "old/kubelet.exe"
    )
    assert said in lines
    assert lines[-1].startswith("no override fits: ")
    nssm = look(tmp_path, zipped({"nssm-2.24/win32/nssm.exe": b"MZ1", "nssm-2.24/win64/nssm.exe": b"MZ2"}))
    assert make_overrides(nssm, "nssm.zip", "https://artifacts.example.com/nssm.zip").keys() == {"nssm_url"}


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [("signed.ps1", "x.PS1", "a PowerShell script"), ("signed.cat", "x.cat", "a security catalogue")],
)
def test_inspect_knows_scripts_and_catalogues_by_their_names(tmp_path: Path, name: str, file: str, said: str) -> None:
    found = look(tmp_path, fixture(name), file)
    assert next(inspection_lines(found, {})) == f"type       {said}"


def test_inspect_shows_the_whole_chain_and_what_helps(tmp_path: Path) -> None:
    signer = make_signer(make_ca(make_ca(pki().root, "CN=Upper CA"), "CN=Lower CA"))
    (tmp_path / "artifact").write_bytes(sign_pe(fixture("program.exe"), signer, Options(timestamps=[pki().clock])))

    def lines(*roots: Identity) -> list[str]:
        found = inspect_file(tmp_path / "artifact", "x.exe", trust(*roots), tmp_path)
        return [line.strip() for line in inspection_lines(found, {})]

    both = lines(pki().root, pki().clock_root)
    at = both.index("issuer    CN=Lower CA")
    assert both[at + 1 : at + 3] == ["above it  CN=Upper CA", "root      CN=Example Root, O=Example"]
    assert not [line for line in both if line.startswith("hint")]
    (hint,) = [line for line in lines(pki().root) if line.startswith("hint")]
    assert hint.startswith("hint      ")
    assert hint.endswith("sign it again, with the timestamp of a public authority")


def test_the_lines_of_a_signer_have_its_letters(tmp_path: Path) -> None:
    signer = make_signer(pki().ca, "O=東京 GmbH, CN=Müller")
    data = sign_pe(VERSIONED, signer)
    (tmp_path / "artifact").write_bytes(data)
    found = inspect_file(tmp_path / "artifact", "kubelet.exe", trust(), tmp_path)
    lines = list(inspection_lines(found, make_overrides(found, "kubelet.exe", "https://x.test/kubelet.exe")))
    assert '      signer: "CN=Müller, O=東京 GmbH"' in lines
    written = "\n".join(lines[lines.index("  overrides:") :])
    override = YAML(typ="safe").load(written)["overrides"]["kubelet_url"]
    read = PinnedUrl.model_validate(override).signer
    assert read
    assert read.given == "CN=Müller, O=東京 GmbH"


def test_inspect_has_everything_for_programs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kubelet.exe").write_bytes(VERSIONED)
    code, out, _ = run("artifacts", "inspect", tmp_path / "kubelet.exe", "-q", "--format", "json")
    assert code == 0
    found = json.loads(out)
    assert {key: found[key] for key in ("type", "size", "sha256", "members")} == {
        "type": "program",
        "size": len(VERSIONED),
        "sha256": sha256(VERSIONED),
        "members": None,
    }
    assert found["version"]["ProductVersion"] == "1.36.0.0"
    assert found["signature"]["verdict"] == "unsigned"
    assert found["overrides"] == {"kubelet_url": {"url": "https://HOST/kubelet.exe", "sha256": sha256(VERSIONED)}}


@pytest.mark.parametrize(
    ("data", "said"), [(b"", "empty"), (b"MZ", "a Windows program"), (b"text", "a file of another type")]
)
def test_inspect_tells_what_is_no_archive(run: Run, tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "file").write_bytes(data)
    code, out, err = run("artifacts", "inspect", tmp_path / "file", "-q")
    assert (code, err) == (0, "")
    assert out.startswith(f"type       {said}\nsize       {len(data)} bytes\nsha256     {sha256(data)}\n")
    assert "no override fits: `imagegen catalog overrides` lists" in out


def test_inspect_never_shows_the_query_of_a_url(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: str, into: Path, _web: object) -> Fetched:
        assert url == "https://artifacts.example.com/kubelet.exe?sig=secret"
        into.write_bytes(VERSIONED)
        return Fetched(sha256(VERSIONED), len(VERSIONED))

    monkeypatch.setattr(verb, "fetch", fetch)
    code, out, err = run("artifacts", "inspect", "https://artifacts.example.com/kubelet.exe?sig=secret")
    assert code == 0
    assert 'url: "https://artifacts.example.com/kubelet.exe"' in out
    assert "secret" not in out + err


def test_the_lines_are_those_of_a_config_with_the_signer(tmp_path: Path) -> None:
    data = zipped({f"bin/{name}": fixture("stamped.exe") for name in CONTAINERS})
    found = look(tmp_path, data)
    lines = list(inspection_lines(found, make_overrides(found, "containerd.zip", URL)))
    text = "\n".join(lines[lines.index("lines for a config") + 1 :])
    override = YAML(typ="safe").load(text)["overrides"]["containerd_url"]
    assert PinnedUrl.model_validate(override).model_dump() == {
        "url": URL,
        "sha256": sha256(data),
        "signer": "CN=Example Inc, O=Example Inc",
    }
    shown = "\n".join(lines)
    assert "  signature  valid: " in shown
    assert "    timestamp 2026-03-01T00:00:00Z, by CN=Example Clock, O=Example" in shown
    assert "    root      CN=Example Root, O=Example" in shown


def test_one_program_without_a_signature_leaves_no_signer(tmp_path: Path) -> None:
    members = {f"bin/{name}": fixture("stamped.exe") for name in CONTAINERS} | {"bin/ctr.exe": VERSIONED}
    found = look(tmp_path, zipped(members))
    assert make_overrides(found, "x.zip", URL) == {"containerd_url": {"url": URL, "sha256": found.file.sha256}}
    assert "      # no signer: bin/ctr.exe: unsigned" in inspection_lines(found, make_overrides(found, "x.zip", URL))


def test_programs_that_a_base_url_lacks_are_told(tmp_path: Path) -> None:
    found = look(tmp_path, zipped({"kubelet.exe": VERSIONED, "kubeadm.exe": VERSIONED}))
    lines = list(inspection_lines(found, make_overrides(found, "all.zip", "https://x/all.zip")))
    assert [line.strip() for line in lines if "is not in it" in line] == [
        "# kube-proxy.exe is not in it: set kube_proxy_url too, if the config needs it",
        "# kubectl.exe is not in it: set kubectl_url too",
        "# kube-log-runner.exe is not in it: set kube_log_runner_url too",
    ]


def test_many_files_are_cut(tmp_path: Path) -> None:
    found = look(tmp_path, zipped({f"docs/{number}.txt": b"x" for number in range(30)}))
    lines = list(inspection_lines(found, {}))
    assert "  and 10 more: --format json lists them all" in lines
    assert len([line for line in lines if ".txt" in line]) == 20
    found = look(tmp_path, zipped({f"{number}.cmd": b"x" for number in range(101)}))
    assert "and 1 more program: --format json lists them all" in inspection_lines(found, {})


def test_an_archive_in_an_archive_is_told(tmp_path: Path) -> None:
    found = look(tmp_path, zipped({"inner.zip": zipped({"kubelet.exe": VERSIONED}), "page": b"<html>"}))
    assert [line.partition("  inner.zip")[2] for line in inspection_lines(found, {}) if "inner.zip" in line] == [
        "  (a .zip archive, which imagegen does not open)"
    ]
    assert any(line.endswith("  page  (a web page)") for line in inspection_lines(found, {}))


@pytest.mark.parametrize(
    ("names", "url", "product", "fitting"),
    [
        (["Kubelet.exe"], "https://x/kubelet.zip", "", ["kubelet_url"]),
        (["kubelet.exe", "kubeadm.exe"], "https://x/all.zip", "", ["kubernetes_base_url"]),
        # A base URL is an archive only if it ends like one.
        (["kubelet.exe", "kubeadm.exe"], "https://x/download", "", ["kubeadm_url", "kubelet_url"]),
        (["kube-log-runner.exe"], "https://x/a", "", ["kube_log_runner_url"]),
        ([*CONTAINERS, "crictl.exe"], "https://x/a", "", ["containerd_url", "crictl_url"]),
        (["containerd.exe", "ctr.exe"], "https://x/a", "", []),
        (["nssm.exe"], "https://x/a", "", ["nssm_url"]),
        (["csi-proxy.exe"], "https://x/a", "", ["csi_proxy_url"]),
        (["flannel.exe"], "https://x/a", "", ["flannel_plugin_url"]),
        (["host-local.exe"], "https://x/a", "", ["cni_plugins_url"]),
        (["docker.exe", "dockerd.exe"], "https://x/a", "", ["docker_url"]),
        (["collectlogs.ps1"], "https://x/a.zip", "", []),
        ([], "https://x/a.msi", "Cloudbase-Init 1.1.8", ["cloudbase_init_url"]),
        ([], "https://x/a.msi", "Example", []),
        (["README"], "https://x/a.zip", "", []),
    ],
)
def test_overrides_are_found_by_the_programs(names: list[str], url: str, product: str, fitting: list[str]) -> None:
    assert find_overrides(names, url, product=product) == fitting
