"""Images of registries that demand credentials, on the model machine: with Packer's variables, which nothing keeps."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.credentials_file import FILE, parse_file
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.network.registries import Registries
from tests.rehearsal.machine.image_support import (
    OTHER,
    PAUSE,
    docker_image,
    image,
    install_containerd,
    install_docker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench, Fields

AUTH = base64.b64encode(b"robot:the-password").decode()
REGISTRIES = Registries([PAUSE, OTHER], credentials={"docker.io": AUTH})
CASES = pytest.mark.parametrize(
    ("install", "wanted", "key"),
    [
        (install_containerd, lambda: image(OTHER, pinned=False), "docker.io"),
        (install_docker, docker_image, "https://index.docker.io/v1/"),
    ],
    ids=["containerd", "docker"],
)


def _browse(
    url: str, headers: Mapping[str, str], authorization: str, _proxy: str | None
) -> tuple[int, Mapping[str, str], bytes]:
    answer = REGISTRIES.ask(url, headers, authorization)
    return answer.status, answer.headers, answer.body


def _variables(key: str, auth: str = AUTH) -> bytes:
    """As Packer's powershell provisioner writes them."""
    value = base64.b64encode(json.dumps({"auths": {key: {"auth": auth}}}).encode()).decode()
    return (
        f'$env:IMAGEGEN_REGISTRIES="{value}"; $env:PACKER_BUILDER_TYPE="x"; $env:PACKER_BUILD_NAME="image"; '.encode()
    )


def _prepare(bench: Bench, install: Callable[[Machine], None], wanted: Callable[[], Fields]) -> None:
    install(bench.machine)
    bench.machine.browse = _browse
    bench.machine.files.make_folder(parent(FILE))
    bench.bundle({"phase-1": [("image", wanted())]})


def _kept(bench: Bench) -> list[str]:
    files = bench.machine.files
    return [path for path in files.below("C:") if files.is_file(path) and AUTH.encode() in files.read(path)]


@CASES
def test_an_image_is_pulled_with_credentials_that_nothing_keeps(
    bench: Bench, install: Callable[[Machine], None], wanted: Callable[[], Fields], key: str
) -> None:
    _prepare(bench, install, wanted)
    bench.machine.files.write(FILE, _variables(key))
    bench.done("phase-1")
    assert not bench.machine.files.exists(FILE)
    assert _kept(bench) == []
    assert not bench.machine.files.exists(r"C:\ProgramData\imagegen\docker")


@CASES
@pytest.mark.parametrize("auth", [None, "bm9ib2R5Om5vdGhpbmc="], ids=["none", "wrong"])
def test_without_them_the_pull_fails_and_nothing_is_kept(
    bench: Bench, install: Callable[[Machine], None], wanted: Callable[[], Fields], key: str, auth: str | None
) -> None:
    _prepare(bench, install, wanted)
    if auth:
        bench.machine.files.write(FILE, _variables(key, auth))
    outcome = bench.run("phase-1")
    assert outcome.exit_code == 6
    assert "failed to fetch a token: unexpected status 401" in outcome.output
    assert not bench.machine.files.exists(FILE)
    assert not bench.machine.files.exists(r"C:\ProgramData\imagegen\docker")


def test_the_file_is_deleted_before_anything_else_can_fail(bench: Bench) -> None:
    _prepare(bench, install_containerd, lambda: image(OTHER, pinned=False))
    bench.machine.files.write(FILE, _variables("docker.io"))
    bench.machine.files.remove(r"C:\Windows\Temp\imagegen-bundle.zip")
    assert bench.run("phase-1").exit_code == 2
    assert not bench.machine.files.exists(FILE)


# Nothing, parts of the file, and values that are not base64.
FORMS_OF_OTHERS = (
    b"",
    b'$env:IMAGEGEN_REGISTRIES="e30="',
    b'$env:IMAGEGEN_REGISTRIES="e3',
    b'$env:IMAGEGEN_REGISTRIES="e30"; ',
    b'$env:IMAGEGEN_REGISTRIES="e3$="; ',
    b'$env:IMAGEGEN_REGISTRIES="e30="; $env:IMAGEGEN_DOWNLOADS="e3_="; ',
    b"SECRET=1; ",
    b'$env:OTHER="e30="; ',
)


@pytest.mark.parametrize("text", FORMS_OF_OTHERS)
def test_another_form_of_the_file_is_not_taken(text: bytes) -> None:
    assert parse_file(text) is None
    assert parse_file(_variables("docker.io"))


def test_a_part_of_the_file_is_refused_before_anything_is_done(bench: Bench) -> None:
    _prepare(bench, install_containerd, lambda: image(OTHER, pinned=False))
    bench.machine.files.write(FILE, _variables("docker.io").rpartition(b'"')[0])
    outcome = bench.run("phase-1")
    assert (outcome.exit_code, "Packer did not upload all credentials" in outcome.output) == (1, True)
    assert not bench.machine.files.exists(FILE)
