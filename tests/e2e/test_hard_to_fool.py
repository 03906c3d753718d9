"""A rehearsal that passes when something is taken away proves nothing: each of these must fail, and name what is wrong.

Real Packer and its plugins build a changed tree, or the right tree in a changed sandbox.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.clouds.azure.cloud import Azure
from tests.e2e.rehearsal_support import rehearse_tree, rendered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.network.messages import Request, Response
    from imagegen.rehearsal.sandbox import Sandbox, SandboxSetup
    from tests.e2e.rehearsal_support import Tree

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

_SOURCE = "source.pkr.hcl"
_BUILD = "build.pkr.hcl"
_VALUES = "image.auto.pkrvars.json"
# Documentation addresses: not where the rehearsal's operator is seen to come from.
_ELSEWHERE = "198.18.0.0/15"


@dataclasses.dataclass(frozen=True)
class Case:
    """What is changed, and the words by which the rehearsal must name it."""

    name: str
    target: str
    words: tuple[str, ...]
    change: Callable[[Tree], object]


def _other_user_data(tree: Tree) -> None:
    data = tree.files["guest/user-data.txt"]
    assert b"FromSeconds(120)" in data
    tree.files["guest/other.txt"] = data.replace(b"FromSeconds(120)", b"FromSeconds(121)")
    tree.replace(_SOURCE, "guest/user-data.txt", "guest/other.txt")


def _other_cidrs(tree: Tree) -> None:
    values = json.loads(tree.files[_VALUES])
    values["aws"]["allowed_cidrs"] = [_ELSEWHERE]
    tree.files[_VALUES] = json.dumps(values).encode()


def _pin_of_other_bundle(tree: Tree) -> None:
    values = json.loads(tree.files[_VALUES])
    command = values["guest"]["phases"]["phase-1"]["command"]
    head, word, pin = command.partition("-BundleSha256 ")
    values["guest"]["phases"]["phase-1"]["command"] = head + word + "0" * 64 + pin[64:]
    tree.files[_VALUES] = json.dumps(values).encode()


def _made_where_sealing_deletes(tree: Tree) -> None:
    """A plan that no config leads to: one folder more, in the engine's own."""
    with zipfile.ZipFile(io.BytesIO(tree.files["guest/bundle.zip"])) as bundle:
        contents = {name: bundle.read(name) for name in bundle.namelist()}
    plan = json.loads(contents["plan.json"])
    step = plan["phases"][-1]["steps"][-1]
    path = r"C:\ProgramData\imagegen\kept"
    folder: dict[str, Any] = {"kind": "directory", "fields": {"path": path}, "until": None, "effects": []}
    step["resources"].append({"id": f"{step['name']}/directory:{path}", **folder})
    changed = {**contents, "plan.json": json.dumps(plan, sort_keys=True, separators=(",", ":")).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, data in changed.items():
            bundle.writestr(name, data)
    for old, new in (
        (tree.files["guest/bundle.zip"], buffer.getvalue()),
        (contents["plan.json"], changed["plan.json"]),
    ):
        pin, other = (hashlib.sha256(data).hexdigest().encode() for data in (old, new))
        tree.files[_VALUES] = tree.files[_VALUES].replace(pin, other)
    tree.files["guest/bundle.zip"] = buffer.getvalue()


_BUNDLE_BLOCK = "destination = var.guest.bundle_path"
_PHASE_1_BLOCK = 'var.guest.phases["phase-1"].command'
_PHASE_2_BLOCK = 'var.guest.phases["phase-2"].command'
_REPORT_BLOCK = "var.guest.report_path"
_GENERALISE_BLOCK = "var.guest.generalise_path"

_EXTRA_COMMAND = '  provisioner "powershell" {\n    inline = ["Get-Date"]\n  }'
_EXTRA_DOWNLOAD = (
    '  provisioner "file" {\n    direction   = "download"\n    source      = "C:/Windows/win.ini"\n'
    '    destination = "${path.root}/../win.ini"\n  }'
)
_EXTRA_UPLOAD = (
    '  provisioner "file" {\n    source      = "${path.root}/guest/start.ps1"\n'
    '    destination = "C:/Windows/Temp/imagegen-other.ps1"\n  }'
)
_EXTRA_HOST = 'data "http" "elsewhere" {\n  url = "https://telemetry.example.net/"\n}'

CASES = (
    Case(
        "no user data",
        "aws",
        ("the user data of the machine differs from guest/user-data.txt of the tree",),
        lambda tree: tree.drop_line(_SOURCE, "user_data_file"),
    ),
    Case("other user data than the tree's", "aws", ("the user data of the machine differs",), _other_user_data),
    Case(
        "a security group that admits somebody else",
        "aws",
        ("security group", "no rule for TCP 5986 from 203.0.113.7"),
        _other_cidrs,
    ),
    Case(
        "a security group that admits somebody else",
        "azure",
        ("network security group", "no rule for TCP 5986 from 203.0.113.7"),
        lambda tree: tree.replace(_SOURCE, "= var.azure.allowed_cidrs", f'= ["{_ELSEWHERE}"]'),
    ),
    # Not for Azure: azure-arm 1.4.5 speaks NTLM whatever winrm_use_ntlm says, and from 2.6.2 on it is the default.
    Case("NTLM off", "aws", ("Basic", "NTLM"), lambda tree: tree.drop_line(_SOURCE, "winrm_use_ntlm")),
    Case(
        "a password of the tree's own",
        "aws",
        ("the password of 'Administrator' is wrong",),
        lambda tree: tree.add_line(
            _SOURCE, '  winrm_username           = "Administrator"', '  winrm_password           = "Pa55word!of-mine"'
        ),
    ),
    Case(
        "the listener's certificate is checked",
        "aws",
        ("winrm_insecure must be true",),
        lambda tree: tree.drop_line(_SOURCE, "winrm_insecure"),
    ),
    Case(
        "no upload of the bundle",
        "azure",
        ("expected the upload of the bundle",),
        lambda tree: tree.drop_block(_BUNDLE_BLOCK),
    ),
    Case(
        "a flipped byte of the bundle",
        "azure",
        ("-BundleSha256",),
        lambda tree: tree.flip_byte("guest/bundle.zip", len(tree.files["guest/bundle.zip"]) // 2),
    ),
    Case(
        "another file as the bundle",
        "azure",
        ("the upload of the bundle to", "has other bytes than the tree"),
        lambda tree: tree.replace(_BUILD, "guest/bundle.zip", "guest/start.ps1"),
    ),
    Case(
        "another script as the entry",
        "azure",
        ("the upload of start.ps1 to", "has other bytes than the tree"),
        lambda tree: tree.change_block(_PHASE_1_BLOCK, "guest/start.ps1", "guest/generalise.ps1"),
    ),
    Case(
        "a variable more",
        "azure",
        ('received the command set "', "expected the run of phase-1"),
        lambda tree: tree.change_block(_PHASE_1_BLOCK, _PHASE_1_BLOCK, f'"{{{{.Vars}}}}${{{_PHASE_1_BLOCK}}}"'),
    ),
    Case(
        "a pin of another bundle",
        "azure",
        ("-BundleSha256 " + "0" * 64, "expected the run of phase-1"),
        _pin_of_other_bundle,
    ),
    Case(
        "two phases swapped",
        "azure",
        ("-Phase phase-2", "expected the run of phase-1"),
        lambda tree: tree.swap_blocks(_PHASE_1_BLOCK, _PHASE_2_BLOCK),
    ),
    Case(
        "no restart",
        "azure",
        ("expected the restart after phase-1",),
        lambda tree: tree.drop_block("windows-restart"),
    ),
    Case(
        "no download of the report",
        "aws",
        (r"expected the download of C:\ProgramData\imagegen\report.json",),
        lambda tree: tree.drop_block(_REPORT_BLOCK),
    ),
    Case(
        "no generalising",
        "azure",
        ("the build ended without the run of generalise",),
        lambda tree: tree.drop_block(_GENERALISE_BLOCK),
    ),
    Case(
        "a command more",
        "azure",
        ("; expected the upload of start.ps1",),
        lambda tree: tree.add_block_after(_BUNDLE_BLOCK, _EXTRA_COMMAND),
    ),
    Case(
        "an upload more",
        "azure",
        (r"C:\Windows\Temp\imagegen-other.ps1",),
        lambda tree: tree.add_block_after(_BUNDLE_BLOCK, _EXTRA_UPLOAD),
    ),
    Case(
        "a download more",
        "azure",
        ("received a download of C:/Windows/win.ini",),
        lambda tree: tree.add_block_after(_BUNDLE_BLOCK, _EXTRA_DOWNLOAD),
    ),
    Case(
        "a command after the end",
        "aws",
        ("nothing more: the image is finished",),
        lambda tree: tree.add_block_after(_GENERALISE_BLOCK, _EXTRA_COMMAND),
    ),
    Case(
        "a folder that sealing deletes",
        "azure",
        ("sealing undid ", r"/directory:C:\ProgramData\imagegen\kept is gone"),
        _made_where_sealing_deletes,
    ),
    Case(
        "a host more",
        "aws",
        ("unexpected host telemetry.example.net:443",),
        lambda tree: tree.files.update({"more.pkr.hcl": _EXTRA_HOST.encode()}),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.target}: {case.name}")
def test_a_changed_tree_fails_by_name(case: Case, tmp_path: Path) -> None:
    tree = rendered(case.target)
    case.change(tree)
    assert tree != rendered(case.target)
    verdict = rehearse_tree(case.target, tree, tmp_path)
    assert not verdict.passed, "the rehearsal did not notice"
    assert [words for words in case.words if words not in verdict.words] == [], verdict.words


def _served(words: str, change: Callable[[bytes], bytes | None]) -> Callable[[SandboxSetup], SandboxSetup]:
    """The setup with the one artifact whose address holds `words` changed, or taken away."""

    def changed(setup: SandboxSetup) -> SandboxSetup:
        (url,) = [url for url in setup.artifacts if words in url]
        others = {each: data for each, data in setup.artifacts.items() if each != url}
        data = change(setup.artifacts[url])
        return dataclasses.replace(setup, artifacts=others if data is None else {**others, url: data})

    return changed


def _secret_of_another_vault(sandbox: Sandbox) -> None:
    def mutate(_request: Request, response: Response) -> Response:
        secret = json.loads(response.body)
        vault, _, version = secret["id"].rpartition("/")
        body = json.dumps({**secret, "id": f"{vault}/{version[::-1]}"}).encode()
        return dataclasses.replace(response, body=body)

    sandbox.network.inject("*.vault.azure.net", "/secrets/*", mutate=mutate)


@dataclasses.dataclass(frozen=True)
class SandboxCase:
    """The right tree, where something of the world is not as it should be."""

    name: str
    target: str
    words: tuple[str, ...]
    setup: Callable[[SandboxSetup], SandboxSetup] = lambda setup: setup
    sandbox: Callable[[Sandbox], None] = lambda _: None


SANDBOX_CASES = (
    SandboxCase(
        "an artifact that is not there",
        "azure",
        ("unexpected download https://dl.k8s.io/release/", "kubelet.exe"),
        _served("kubelet.exe", lambda _: None),
    ),
    SandboxCase(
        "an artifact with other bytes",
        "azure",
        ("artifact kubelet from https://dl.k8s.io/release/", "sha256 is"),
        _served("kubelet.exe", lambda data: data[::-1]),
    ),
    SandboxCase(
        "a listener certificate that its vault does not hold",
        "azure",
        ("The Key Vault secret", "does not exist"),
        sandbox=_secret_of_another_vault,
    ),
)


@pytest.mark.parametrize("case", SANDBOX_CASES, ids=lambda case: f"{case.target}: {case.name}")
def test_a_changed_world_fails_by_name(case: SandboxCase, tmp_path: Path) -> None:
    tree = rendered(case.target)
    verdict = rehearse_tree(case.target, tree, tmp_path, change_setup=case.setup, prepare=case.sandbox)
    assert not verdict.passed, "the rehearsal did not notice"
    assert [words for words in case.words if words not in verdict.words] == [], verdict.words


def test_a_machine_with_another_windows_says_so(tmp_path: Path) -> None:
    def another(setup: SandboxSetup) -> SandboxSetup:
        return dataclasses.replace(setup, release="2019")

    verdict = rehearse_tree("azure", rendered("azure"), tmp_path, change_setup=another)
    assert not verdict.passed, "the rehearsal did not notice"
    assert "the plan is for Windows Server 2022, build 20348; this machine has build 17763" in verdict.words


def test_a_machine_without_a_listener_stays_shut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Azure.__call__
    taken = []

    def without_listener(self: Azure, request: Request) -> Response:
        body = request.body
        if b'"winRM"' in body:
            taken.append(request.method)
            body = body.replace(b'"winRM"', b'"winRMtaken"')
        return answer(self, dataclasses.replace(request, body=body))

    monkeypatch.setattr(Azure, "__call__", without_listener)
    verdict = rehearse_tree("azure", rendered("azure"), tmp_path)
    assert "PUT" in taken
    assert not verdict.passed, "the rehearsal did not notice"
    assert "is closed: the deployment has no WinRM listener over HTTPS" in verdict.words
