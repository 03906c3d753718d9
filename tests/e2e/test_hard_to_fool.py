"""A rehearsal that passes when something is taken away proves nothing: each of these must fail, and name what is wrong.

Real Packer and its plugins build a changed tree, or the right tree on a changed stage.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.network.azure.edge import Azure
from imagegen.rehearsal.network.messages import Request, Response
from tests.e2e.rehearsal_support import rehearse_tree, rendered, supplies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.rehearsal_support import Tree

pytestmark = pytest.mark.e2e

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
    started: bool = True
    """Whether a machine was started before it was found."""


def _other_user_data(tree: Tree) -> None:
    tree.files["guest/other.txt"] = tree.files["guest/user-data.txt"].replace(b"-TimeoutSeconds 120", b"-TimeoutSeconds 121")
    tree.replace(_SOURCE, "guest/user-data.txt", "guest/other.txt")


def _other_cidrs(tree: Tree) -> None:
    values = json.loads(tree.files[_VALUES])
    values["aws"]["allowed_cidrs"] = [_ELSEWHERE]
    tree.files[_VALUES] = json.dumps(values).encode()


def _pin_of_other_bundle(tree: Tree) -> None:
    values = json.loads(tree.files[_VALUES])
    command = values["guest"]["phases"]["base"]["command"]
    head, word, pin = command.partition("-BundleSha256 ")
    values["guest"]["phases"]["base"]["command"] = head + word + "0" * 64 + pin[64:]
    tree.files[_VALUES] = json.dumps(values).encode()


_BUNDLE_BLOCK = "destination = var.guest.bundle_path"
_BASE_BLOCK = 'var.guest.phases["base"].command'
_NODE_BLOCK = 'var.guest.phases["node"].command'
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
        ("without the tree's own user data",),
        lambda tree: tree.drop_line(_SOURCE, "user_data_file"),
    ),
    Case("other user data than the tree's", "aws", ("without the tree's own user data",), _other_user_data),
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
        lambda tree: tree.add_line(
            _SOURCE, "  image_version   = var.image.base[\"version\"]", f'  allowed_inbound_ip_addresses = ["{_ELSEWHERE}"]'
        ),
    ),
    Case("NTLM off", "aws", ("Basic", "NTLM"), lambda tree: tree.drop_line(_SOURCE, "winrm_use_ntlm")),
    Case("NTLM off", "azure", ("Basic", "NTLM"), lambda tree: tree.drop_line(_SOURCE, "winrm_use_ntlm")),
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
    Case("no upload of the bundle", "azure", ("expected the upload of the bundle",), lambda tree: tree.drop_block(_BUNDLE_BLOCK)),
    Case(
        "a flipped byte of the bundle",
        "azure",
        ("-BundleSha256",),
        lambda tree: tree.flip_byte("guest/bundle.zip", len(tree.files["guest/bundle.zip"]) // 2),
    ),
    Case("a pin of another bundle", "azure", ("-BundleSha256 " + "0" * 64, "expected the run of phase base"), _pin_of_other_bundle),
    Case(
        "two phases swapped",
        "azure",
        ("-Phase node", "expected the run of phase base"),
        lambda tree: tree.swap_blocks(_BASE_BLOCK, _NODE_BLOCK),
    ),
    Case("no restart", "azure", ("expected the restart after phase base",), lambda tree: tree.drop_block("windows-restart")),
    Case("no run of a phase", "azure", ("expected Packer's variables",), lambda tree: tree.drop_block(_BASE_BLOCK)),
    Case(
        "no download of the report",
        "aws",
        (r"expected the download of C:\ProgramData\imagegen\report.json",),
        lambda tree: tree.drop_block(_REPORT_BLOCK),
    ),
    Case(
        "no generalising",
        "azure",
        ("the machine was never told the run of generalise",),
        lambda tree: tree.drop_block(_GENERALISE_BLOCK),
    ),
    Case(
        "a command more",
        "azure",
        ("came; expected the upload of Packer's variables",),
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
        ("a download of C:/Windows/win.ini came",),
        lambda tree: tree.add_block_after(_BUNDLE_BLOCK, _EXTRA_DOWNLOAD),
    ),
    Case(
        "a command after the end",
        "aws",
        ("nothing more: the image is finished",),
        lambda tree: tree.add_block_after(_GENERALISE_BLOCK, _EXTRA_COMMAND),
    ),
    Case(
        "a host more",
        "aws",
        ("unexpected host telemetry.example.net:443",),
        lambda tree: tree.files.update({"more.pkr.hcl": _EXTRA_HOST.encode()}),
        started=False,
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
