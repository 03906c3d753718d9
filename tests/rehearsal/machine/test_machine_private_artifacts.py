"""Private artifacts on the model machine: downloaded with the addresses of Packer's variables, which nothing keeps."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.credentials_file import FILE, parse_file
from imagegen.rehearsal.machine.files import parent

if TYPE_CHECKING:
    from tests.rehearsal.machine.conftest import Bench

SIGNED = "https://artifacts.example/tool?sig=marker-1"
PLAIN = "https://artifacts.example/tool"
TOKEN = "Bearer marker-2"  # noqa: S105 - a token of the test


def _variables(**addresses: tuple[str, str]) -> bytes:
    """As Packer's powershell provisioner writes them."""
    rows = {name: {"url": url, "authorization": authorization} for name, (url, authorization) in addresses.items()}
    value = base64.b64encode(json.dumps(rows).encode()).decode()
    return f'$env:IMAGEGEN_DOWNLOADS="{value}"; $env:PACKER_BUILD_NAME="image"; '.encode()


def _prepare(bench: Bench, url: str, authorization: str) -> None:
    """A plan with the address without query, and a host that has the file only for one that has everything."""
    bench.bundle({"phase-1": [bench.folder(r"C:\k"), bench.binary("tool")], "phase-2": [bench.value("b")]})
    bench.plan["artifacts"]["tool"]["url"] = PLAIN
    bench.upload()
    bench.web = {url: b"MZ"}
    bench.demanded = {url: authorization}
    bench.machine.files.make_folder(parent(FILE))


def _kept(bench: Bench) -> list[str]:
    files = bench.machine.files
    found = [path for path in files.below("C:") if files.is_file(path)]
    return [path for path in found if b"marker" in files.read(path) or b"Bearer" in files.read(path)]


@pytest.mark.parametrize(("url", "authorization"), [(SIGNED, ""), (PLAIN, TOKEN)], ids=["query", "header"])
def test_a_private_artifact_is_downloaded_and_its_address_not_kept(bench: Bench, url: str, authorization: str) -> None:
    _prepare(bench, url, authorization)
    bench.machine.files.write(FILE, _variables(tool=(url, authorization)))
    bench.done("phase-1")
    assert bench.fetched == [url]
    assert not bench.machine.files.exists(FILE)
    assert _kept(bench) == []


@pytest.mark.parametrize(("url", "authorization"), [(SIGNED, ""), (PLAIN, TOKEN)], ids=["query", "header"])
@pytest.mark.parametrize("given", [None, ("other",), ("tool",)], ids=["none", "another", "wrong"])
def test_without_its_address_the_download_fails_and_names_the_url_of_the_plan(
    bench: Bench, url: str, authorization: str, given: tuple[str, ...] | None
) -> None:
    _prepare(bench, url, authorization)
    if given:
        addresses = dict.fromkeys(given, ("https://artifacts.example/tool?sig=marker-9", "Bearer marker-9"))
        bench.machine.files.write(FILE, _variables(**addresses))
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert f"artifact tool from {PLAIN}: HTTP 40" in outcome.output
    assert "marker" not in outcome.output
    assert not bench.machine.files.exists(FILE)
    assert _kept(bench) == []


@pytest.mark.parametrize("cut", [8, 40, None], ids=["in the name", "in the value", "nothing"])
def test_a_repeated_upload_is_refused_because_packer_sends_only_the_rest(bench: Bench, cut: int | None) -> None:
    _prepare(bench, SIGNED, "")
    data = _variables(tool=(SIGNED, ""))
    bench.machine.files.write(FILE, b"" if cut is None else data[cut:])
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 1
    assert "Packer did not upload all credentials" in outcome.output
    assert bench.fetched == []
    assert _kept(bench) == []
    assert not bench.machine.files.exists(FILE)


def test_a_check_reads_no_file_that_anybody_may_have_put_there(bench: Bench) -> None:
    _prepare(bench, SIGNED, "")
    bench.machine.files.write(FILE, b"of another account")
    assert bench.run("phase-1", "-Check").exit_code == 5
    assert bench.machine.files.read(FILE) == b"of another account"


def test_both_variables_are_read() -> None:
    auths = base64.b64encode(b'{"auths": {}}').decode()
    data = f'$env:IMAGEGEN_REGISTRIES="{auths}"; '.encode() + _variables(tool=(SIGNED, ""))
    delivered = parse_file(data)
    assert delivered is not None
    assert delivered.registries == '{"auths": {}}'
    assert delivered.downloads["tool"].url == SIGNED
    # A tree that somebody builds without imagegen has empty variables.
    empty = parse_file(b'$env:IMAGEGEN_DOWNLOADS=""; ')
    assert empty is not None
    assert empty.downloads == {}
