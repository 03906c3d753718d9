"""Private artifacts in a whole rehearsed build, for each way to sign in: they are downloaded by imagegen and by the
builder, and nothing keeps the credentials."""

from __future__ import annotations

import base64
import dataclasses
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from tests.conftest import load_today
from tests.e2e.rehearsal_support import CONFIG, DEADLINE_S, imagegen, sandbox_of, setup_of, user_environ
from tests.e2e.secrets_support import command_lines, kept_in, markers_of

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.network.messages import Request
    from imagegen.rehearsal.sandbox import Sandbox, SandboxSetup

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

HOST = "artifacts.example.com"
TOKEN = "ARTIFACTS_TOKEN"  # noqa: S105 - the name of a variable
USER, PASSWORD = "ARTIFACTS_USERNAME", "ARTIFACTS_PASSWORD"
QUERY = "ARTIFACTS_SAS"


@dataclasses.dataclass(frozen=True)
class Case:
    """A way to sign in: the host, the keys of the config, and the target's cloud."""

    host: str
    way: str
    target: str = "aws"


CASES = {
    "token": Case(HOST, f"token_env: {TOKEN}"),
    "basic": Case(HOST, f"username_env: {USER}, password_env: {PASSWORD}", "azure"),
    "query": Case(HOST, f"query_env: {QUERY}"),
    "presigned": Case(
        HOST, f"path: /files/containerd.tar.gz, query_env: {QUERY}}}, {{host: {HOST}, token_env: {TOKEN}"
    ),
    "s3": Case("private.s3.eu-west-1.amazonaws.com", "sign_in: aws"),
    "s3-for-azure": Case("s3.eu-west-1.amazonaws.com", "sign_in: aws", "azure"),
    "blob": Case("private.blob.core.windows.net", "sign_in: azure", "azure"),
    "blob-for-aws": Case("private.blob.core.windows.net", "sign_in: azure"),
}


def _sets(case: Case) -> tuple[str, ...]:
    return (
        f"overrides.containerd_url=https://{case.host}/files/containerd.tar.gz",
        f"overrides.crictl_url=https://{case.host}/files/crictl.tar.gz",
        f"artifacts.credentials=[{{host: {case.host}, {case.way}}}]",
    )


def _record(sandbox: Sandbox, host: str) -> list[Request]:
    """The requests for files of this host, as they come."""
    asked: list[Request] = []

    def note(request: Request) -> bool:
        if request.method == "GET":
            asked.append(request)
        return False

    # It changes no answer, because it matches no request.
    sandbox.network.inject(host, when=note, mutate=lambda _request, response: response)
    return asked


def _secrets(setup: SandboxSetup, asked: list[Request]) -> list[str]:
    """The values of the variables, and everything in the requests that opens a private file."""
    values = setup.secret_variables
    pair = base64.b64encode(f"{values.get(USER)}:{values.get(PASSWORD)}".encode()).decode()
    signatures = [
        request.query[name] for request in asked for name in ("sig", "X-Amz-Signature") if name in request.query
    ]
    return [*(value for name, value in values.items() if name != USER), pair, *signatures]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_private_artifacts_are_used_and_their_credentials_nowhere_afterwards(case: Case, tmp_path: Path) -> None:
    sets, out = _sets(case), tmp_path / "out"
    setup = setup_of(case.target, out, load_today(CONFIG, *sets))
    options = [word for value in sets for word in ("--set", value)]
    words = imagegen("build", CONFIG, "--target", case.target, "--no-publish", *options)
    with sandbox_of(setup, tmp_path) as sandbox, command_lines() as lines:
        asked = _record(sandbox, case.host)
        environ = {**sandbox.child_environ(user_environ(tmp_path)), "PACKER_LOG": "1"}
        done = process.run(
            [*words, "--out", str(out), "--lock", str(out / "lock.json")],
            environ=environ,
            cwd=tmp_path,
            timeout=DEADLINE_S,
        )
        assert (sandbox.faults, done.returncode) == ([], ExitCode.OK), done.stderr
        assert sandbox.missing == []
        # Two artifacts, for the lock and for the builder. The lock also asks for published digests beside them.
        assert len([request for request in asked if request.path.endswith(".tar.gz")]) == 4
        # A key of the account signs all addresses of the lock, and another one those of the builder.
        keys = [note for note in sandbox.network.notes(case.host) if note == "blob:userdelegationkey"]
        assert len(keys) in ((2,) if "azure" in case.way else (0,))
        markers = markers_of(_secrets(setup, asked))
        assert len(markers) > 6
        assert sandbox.captured is not None
        assert kept_in(sandbox.captured, tmp_path, markers) == []
        assert not any(marker in (done.stdout + done.stderr).encode() for marker in markers)
        assert any(b"packer" in line for line in lines.seen)
        assert lines.having(markers) == []
        # The same search finds what a build would have left.
        sandbox.captured.files.write(r"C:\left.txt", base64.b64encode(f"x{_secrets(setup, asked)[0]}".encode()))
        assert kept_in(sandbox.captured, tmp_path, markers) == [r"C:\left.txt"]
