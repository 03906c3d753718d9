"""`imagegen artifacts`: what it prints about a download."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING

from imagegen.cli.verbs.artifacts import VERBS, artifacts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members.items():
            made.writestr(f"bin/{name}.exe", content)
    return out.getvalue()


def test_every_command_has_its_line_and_is_loaded_when_it_runs(run: Run) -> None:
    code, out, _ = run("artifacts", "--help")
    assert code == 0
    assert list(artifacts.commands) == list(VERBS)
    assert [line for name, line in VERBS.items() if f"{name:<8} {line}" not in out] == []


def test_inspect_lists_the_files_of_an_archive(run: Run, tmp_path: Path) -> None:
    data = zipped(kubelet=b"MZ kubelet", kubeadm=b"MZ")
    file = tmp_path / "programs.zip"
    file.write_bytes(data)
    assert run("artifacts", "inspect", file) == (
        0,
        f"type     a .zip archive\nsize     {len(data)}\nsha256   {sha256(data)}\nmembers  2 files\n"
        f"             2  {sha256(b'MZ')}  bin/kubeadm.exe\n"
        f"            10  {sha256(b'MZ kubelet')}  bin/kubelet.exe\n",
        "",
    )
    code, out, _ = run("artifacts", "inspect", file, "--format", "json")
    assert code == 0
    assert json.loads(out) == {
        "content": {"type": "zip", "size": len(data), "sha256": sha256(data)},
        "members": {
            "bin/kubelet.exe": {"type": "program", "size": 10, "sha256": sha256(b"MZ kubelet")},
            "bin/kubeadm.exe": {"type": "program", "size": 2, "sha256": sha256(b"MZ")},
        },
    }


def test_inspect_tells_what_is_no_archive(run: Run, tmp_path: Path) -> None:
    for data, said in ((b"", "empty"), (b"MZ", "a Windows program"), (b"text", "a file of another type")):
        (tmp_path / "file").write_bytes(data)
        code, out, err = run("artifacts", "inspect", tmp_path / "file")
        assert (code, err) == (0, "")
        assert out == f"type     {said}\nsize     {len(data)}\nsha256   {sha256(data)}\n"
