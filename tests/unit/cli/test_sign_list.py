"""`imagegen sign-list` lists the scripts to sign, writes those that have no signed copy, and replaces no other file."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from typing import TYPE_CHECKING

from imagegen.samples.make import sample_scripts
from tests.authenticode.pki import make_authority
from tests.authenticode.signing import Options, sign_script
from tests.signing_support import SIGNED, listed, sign_all, signers, write_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]

# Pods of the samples run it: the build does not need it.
SAMPLE = "samples/"


def listed_by(run: Run, *arguments: object) -> list[dict[str, object]]:
    code, out, err = run("sign-list", *arguments, "--format", "json")
    assert (code, "error" in err) == (0, False), err
    rows: list[dict[str, object]] = json.loads(out)
    return rows


def test_each_line_is_one_of_sha256sum(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    code, out, _ = run("sign-list", config.file, "--target", "aws", "--out", tmp_path / "to-sign")
    assert code == 0
    *lines, empty, summary, _ = out.splitlines()
    rows = [re.fullmatch(r"([0-9a-f]{64})  (\S+)", line) for line in lines]
    scripts = {script.path: hashlib.sha256(script.data).hexdigest() for script in listed(config, "aws")}
    found = {row[2]: row[1] for row in rows if row}
    assert {path: digest for path, digest in found.items() if not path.startswith(SAMPLE)} == scripts
    count = len(found)
    assert (empty, summary) == ("", f"{count} scripts: 0 signed, {count} to sign, written to {tmp_path / 'to-sign'}")
    written = {
        path.relative_to(tmp_path / "to-sign").as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (tmp_path / "to-sign").rglob("*.ps*1")
    }
    assert written == found


def test_what_has_a_signed_copy_is_said_and_not_written_again(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    sign_all(config, "aws", lambda path, data: None if path == "start.ps1" else data)
    rows = listed_by(run, config.file, "--target", "aws", "--out", tmp_path / "to-sign")
    to_sign = {row["path"] for row in rows if not row["signed"]}
    assert {path for path in to_sign if not str(path).startswith(SAMPLE)} == {"start.ps1"}
    assert {path.name for path in (tmp_path / "to-sign").iterdir()} == {"start.ps1", "samples"}
    (row,) = [row for row in rows if row["path"] == "start.ps1"]
    assert row["reason"] == f"{tmp_path / SIGNED} has no signed copy of it"
    assert {row["needed_by"] for row in rows} == {"build", "samples"}
    sign_all(config, "aws")
    _, out, _ = run("sign-list", config.file, "--target", "aws")
    assert [line for line in out.splitlines() if line.endswith("  start.ps1  signed")]
    count, until = len(listed(config, "aws")), signers().signer.read.not_after.strftime("%Y-%m-%d")
    assert out.splitlines()[-2] == f"{count} signatures without a timestamp: PowerShell accepts them until {until}"


def test_a_signature_with_a_timestamp_does_not_end(run: Run, tmp_path: Path) -> None:
    """The root of the timestamps counts too, because the machine has it."""
    config = write_config(tmp_path)
    clock = make_authority(signers().root, valid=(signers().root.read.not_before, signers().root.read.not_after))
    stamped = Options(timestamps=[clock], stamped=datetime.datetime.now(datetime.UTC))
    entry = next(script.data for script in listed(config, "aws") if script.path == "start.ps1")
    sign_all(
        config,
        "aws",
        lambda path, data: sign_script(entry, signers().signer, stamped) if path == "start.ps1" else data,
    )
    rows = {row["path"]: row for row in listed_by(run, config.file, "--target", "aws")}
    assert (rows["start.ps1"]["signed"], rows["start.ps1"]["signed_until"]) == (True, None)
    assert rows["engine.psm1"]["signed_until"] is not None


def test_a_config_without_the_key_has_the_same_list(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    arguments = (config.file, "--target", "aws", "--set", "artifacts.signatures=null")
    with_key, without = listed_by(run, config.file, "--target", "aws"), listed_by(run, *arguments)
    assert [(row["path"], row["sha256"]) for row in without if not str(row["path"]).startswith("files/")] == [
        (row["path"], row["sha256"]) for row in with_key if not str(row["path"]).startswith("files/")
    ]


def test_signed_files_in_the_folder_stay_and_other_files_are_refused(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    sign_all(config, "aws", lambda path, data: data if path == "start.ps1" else None)
    folder = tmp_path / SIGNED
    signed = (folder / "start.ps1").read_bytes()
    assert run("sign-list", config.file, "--target", "aws", "--out", folder)[0] == 0
    assert (folder / "start.ps1").read_bytes() == signed
    assert (folder / "engine.psm1").is_file()
    other = tmp_path / "other"
    (other / "kinds").mkdir(parents=True)
    (other / "kinds" / "acl.ps1").write_text("mine")
    code, _, err = run("sign-list", config.file, "--target", "aws", "--out", other)
    assert (code, (other / "kinds" / "acl.ps1").read_text()) == (5, "mine")
    assert f"error: {other}/kinds/acl.ps1 exists, and has another text" in err
    assert not (other / "start.ps1").exists()


def test_several_targets_need_a_name(run: Run, tmp_path: Path) -> None:
    code, _, err = run("sign-list", write_config(tmp_path).file)
    assert (code, "hint: choose one: --target aws or --target azure" in err) == (2, True)


def reasons(run: Run, config: Path, *sets: str) -> list[str]:
    options = [word for text in sets for word in ("--set", text)]
    code, out, _ = run("sign-list", config, "--target", "aws", *options)
    assert code == 0
    lines = out.splitlines()
    return [line for line in lines[lines.index("") + 2 :] if " without a timestamp" not in line]


def test_each_reason_why_copies_do_not_count_is_told_once(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    count = len(listed(config, "aws"))
    samples = len(sample_scripts())
    folder = tmp_path / SIGNED
    assert reasons(run, config.file) == [f"{count + samples} scripts: the folder {folder} does not exist"]
    sign_all(config, "aws", lambda path, data: b"# mine\n" if path == "start.ps1" else data)
    missing = f"{samples} script{'s' if samples > 1 else ''}: {folder} has no signed copy"
    others = [missing, "1 script: the copy is not signed"]
    assert reasons(run, config.file)[:2] == others
    below = (
        f"{count - 1} scripts: the copy is signed by CN=Example Inc, O=Example Inc below CN=Example Root, which the "
        "machine does not trust: add that root to windows.trusted_roots"
    )
    assert reasons(run, config.file, "windows.trusted_roots=[]", "artifacts.signatures.roots=root.pem") == [
        below,
        *others,
    ]
    (by, *_) = reasons(run, config.file, "artifacts.signatures.signers=[CN=Other]")
    assert by.startswith(f"{count - 1} scripts: the copy is signed by CN=Example Inc, O=Example Inc, who is not an all")
    (untrusted, *_) = reasons(run, config.file, "windows.trusted_roots=[]")
    assert untrusted == (
        f'{count - 1} scripts: the copy has an invalid signature: untrusted: the certificate of "CN=Example Root" is '
        'missing, which issued "Example Code CA"; if the missing one is a root that you trust, add it to '
        "windows.trusted_roots; if it is another CA, sign it again with the certificates of its CAs (osslsigncode: -ac "
        "FILE, signtool: /ac FILE)"
    )


def test_lists_at_urls_are_not_checked_and_that_is_said(run: Run, tmp_path: Path) -> None:
    config = write_config(tmp_path)
    sign_all(config, "aws")
    url = "https://ca.example.com/signing.crl"
    *_, last = reasons(run, config.file, f'artifacts.signatures.crls=["{url}"]')
    assert last == f"not checked here: the CRLs at URLs ({url}), which `imagegen build` downloads"
