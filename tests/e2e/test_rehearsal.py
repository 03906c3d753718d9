"""The rehearsal as its users have it: the command line in a process of its own, real Packer, and what it leaves."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from imagegen.base.console import make_console
from imagegen.base.errors import BuildError, ExitCode
from imagegen.base.files import scratch_folder
from imagegen.base.locks import locked
from imagegen.build import process
from imagegen.fetch.lock import lock_bytes
from imagegen.record.store import LocalStore
from imagegen.rehearsal import rehearse
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.clouds.aws.cloud import Aws
from tests.conftest import load_today
from tests.e2e.boot_support import capture
from tests.e2e.rehearsal_support import (
    CAPTURES,
    CONFIG,
    DEADLINE_S,
    TARGETS,
    imagegen,
    loaded,
    processes_with,
    sandbox_of,
    setup_of,
    stock_lock,
    user_environ,
)
from tests.unit.record.test_manifest_store import manifest as make_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.build.process import Completed
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.messages import Request, Response
    from imagegen.rehearsal.sandbox import Sandbox

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

# What a killed rehearsal leaves has two seconds, and five more after a second SIGINT.
_GONE_S = 15
_REGIONS = {"aws": {"us-east-1", "us-west-2"}, "azure": {"eastus2", "westus3"}}
_MADE = {
    "aws": ("ec2:RunInstances", "ec2:CreateImage", "ec2:CopyImage"),
    "azure": ("PUT deployments", "PUT galleries/images/versions"),
}
BOOT_LOG = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log\cloudbase-init.log"
_USERS_SECRETS = ("AKIAUSERSOWN00000000", "users-own-aws-secret-key", "users-own-azure-secret")


def _run(argv: Sequence[str | Path], environ: dict[str, str], cwd: Path) -> Completed:
    return process.run(argv, environ=environ, cwd=cwd, timeout=DEADLINE_S)


def _manifest(done: Completed) -> dict[str, Any]:
    assert done.returncode == ExitCode.OK, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _assert_nothing_left(environ: dict[str, str]) -> None:
    temporary = Path(environ["TMPDIR"])
    assert sorted(path.name for path in temporary.iterdir()) == []
    # A process that was just killed may still be on its way out.
    _assert_gone_within(5, str(temporary))


def _a_users_own(folder: Path) -> dict[str, str]:
    """Credentials, a profile that leaves a file when it is asked, and a proxy behind which nothing is."""
    profile = folder / "aws-config"
    profile.write_text(f"[profile production]\nregion = eu-west-3\ncredential_process = touch {folder}/asked\n")
    return {
        "AWS_PROFILE": "production",
        "AWS_CONFIG_FILE": str(profile),
        "AWS_ACCESS_KEY_ID": _USERS_SECRETS[0],
        "AWS_SECRET_ACCESS_KEY": _USERS_SECRETS[1],
        "AWS_REGION": "eu-west-3",
        "AWS_ENDPOINT_URL": "https://127.0.0.1:9",
        "AZURE_CLIENT_ID": "users-own-client",
        "AZURE_CLIENT_SECRET": _USERS_SECRETS[2],
        "AZURE_TENANT_ID": "users-own-tenant",
        "ARM_SUBSCRIPTION_ID": "users-own-subscription",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "NO_PROXY": "*",
        "PKR_VAR_created": "2001-01-01T00:00:00Z",
    }


def test_two_rehearsals_at_once(tmp_path: Path) -> None:
    folders = {target: tmp_path / target for target in TARGETS}
    environs = {}
    for target, folder in folders.items():
        folder.mkdir()
        # One user's profile would be asked, the other's is not even there.
        users_own = _a_users_own(folder) | ({"AWS_PROFILE": "nowhere"} if target == "azure" else {})
        environs[target] = user_environ(folder, **users_own)
    with concurrent.futures.ThreadPoolExecutor(len(TARGETS)) as pool:
        futures = {
            target: pool.submit(
                _run,
                imagegen(
                    "build", CONFIG, "--target", target, "--rehearse", "--out", folder / "my out", "--format", "json"
                ),
                environs[target],
                folder,
            )
            for target, folder in folders.items()
        }
    for target, folder in folders.items():
        done = futures[target].result()
        _assert_tells_all(_manifest(done), target)
        _assert_last_line_shows_it(done, environs[target], folder)
        _assert_nothing_left(environs[target])
        written = [path for path in folder.rglob("*") if path.is_file() and path.name != "aws-config"]
        assert any(path.name == "packer.log" for path in written)
        assert folder / "asked" not in written
        told = [done.stdout.encode(), done.stderr.encode(), *(path.read_bytes() for path in written)]
        assert [secret for secret in _USERS_SECRETS for text in told if secret.encode() in text] == []


def _assert_last_line_shows_it(done: Completed, environ: dict[str, str], folder: Path) -> None:
    last = done.stderr.splitlines()[-1]
    told = re.search(r"rehearsal passed in [0-9.hms]+: `imagegen (manifest list .+)` shows its manifest$", last)
    assert told is not None, last
    shown = _run(imagegen(*shlex.split(told[1])), environ, folder)
    assert shown.returncode == ExitCode.OK, shown.stderr
    assert shown.stdout.count("\n") == 1
    assert _manifest(done)["image_id"][:16] in shown.stdout


def _assert_tells_all(manifest: dict[str, Any], target: str) -> None:
    assert manifest["target"] == target
    assert manifest["labels"] == {"rehearsal": "true"}
    assert {image["region"] for image in manifest["published"]["images"]} == _REGIONS[target]
    assert "20010101" not in manifest["published"]["version"]
    note = manifest["notes"]["rehearsal"]
    assert 0 < note["seconds"] < DEADLINE_S
    assert len(note["not_checked"]) >= 3
    assert note["winrm"]["commands"] > 10
    assert note["winrm"]["bytes_in"] > 30_000
    report = manifest["report"]
    assert [phase["status"] for phase in report["phases"]] == ["finished", "finished"]
    services = [item["facts"] for item in report["resources"] if item["kind"] == "service"]
    assert services
    assert all(facts is not None for facts in services)


@pytest.mark.parametrize("target", TARGETS)
def test_a_tree_depends_on_nothing_but_config_and_lock(target: str, tmp_path: Path) -> None:
    shells = (
        {"LANG": "C", "LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "1"},
        {"LANG": "de_DE.UTF-8", "LC_ALL": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "2"},
    )
    trees = []
    ids = []
    began = time.time()
    for number, shell in enumerate(shells):
        folder = tmp_path / f"folder {number}"
        folder.mkdir()
        config = folder / f"{number}.yaml"
        shutil.copyfile(CONFIG, config)
        (folder / "lock").write_bytes(lock_bytes(stock_lock(loaded())))
        # A zip counts time in steps of two seconds: the second tree is made in another step than the first.
        threading.Event().wait(max(0.0, began + 2.1 * number - time.time()))
        words = imagegen("render", config, "--target", target, "--lock", folder / "lock", "--out", folder / "out")
        done = _run(words, user_environ(folder, **shell), folder)
        assert done.returncode == ExitCode.OK, done.stderr
        tree = Path(done.stdout.strip())
        trees.append({path.relative_to(tree): path.read_bytes() for path in tree.rglob("*") if path.is_file()})
        ids.append(tree.parent.name)
    assert len(trees[0]) > 6
    assert trees[0] == trees[1]
    assert ids[0] == ids[1]


@contextlib.contextmanager
def _sandbox(target: str, folder: Path, config: Path = CONFIG) -> Iterator[Sandbox]:
    setup = setup_of(target, folder / "out", load_today(config))
    with sandbox_of(setup, folder) as sandbox:
        yield sandbox
    assert (sandbox.faults, sandbox.missing) == ([], [])


def _made(sandbox: Sandbox, target: str) -> dict[str, int]:
    counted = collections.Counter(sandbox.network.notes())
    return {note: counted[note] for note in _MADE[target]}


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_there_is_found_by_the_clouds_tags_and_not_made_again(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    text = CONFIG.read_text(encoding="utf-8")
    assert text.count("version: date") == 1
    config.write_text(text.replace("version: date", "version: kubernetes"), encoding="utf-8")
    signers: set[str] = set()
    answer = Aws.__call__

    def noting_who_signs(self: Aws, request: Request) -> Response:
        signers.update(re.findall(r"Credential=([^/]+)/", request.headers.get("authorization", "")))
        return answer(self, request)

    monkeypatch.setattr(Aws, "__call__", noting_who_signs)
    environ = user_environ(tmp_path, **_a_users_own(tmp_path))
    words = imagegen("build", config, "--target", target, "--out", tmp_path / "out", "--format", "json")
    with _sandbox(target, tmp_path, config) as sandbox:
        child = sandbox.child_environ(environ)
        first = _manifest(_run(words, child, tmp_path))
        made = _made(sandbox, target)
        assert all(made.values()), sandbox.network.notes()
        shutil.rmtree(tmp_path / "out")
        second = _manifest(_run(words, child, tmp_path))
        assert _made(sandbox, target) == made
        assert len(sandbox.network.machines) == 1
        if target == "azure":
            _assert_version_is_taken(_run([*words, "--label", "other=build"], child, tmp_path))
            assert _made(sandbox, target) == made
    assert signers == ({"AKIAREHEARSAL0000000"} if target == "aws" else set())
    for name in ("image_id", "built", "published", "versions"):
        assert second[name] == first[name]
    assert first["report"] is not None
    assert second["report"] is None
    assert second["report_missing"]
    assert not (tmp_path / "asked").exists()
    _assert_nothing_left(environ)


def _assert_version_is_taken(done: Completed) -> None:
    assert done.returncode == ExitCode.REFUSED, done.stderr
    assert "clusterapi/capi-win-2022-containerd/1.36.4 exists already" in done.stderr
    assert "never overwrites a version" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("target", TARGETS)
def test_a_rendered_tree_builds_with_a_plain_packer_again_and_again(target: str, tmp_path: Path) -> None:
    environ = user_environ(tmp_path)
    lock = tmp_path / "lock.json"
    lock.write_bytes(lock_bytes(stock_lock(loaded())))
    words = imagegen("render", CONFIG, "--target", target, "--lock", lock, "--out", tmp_path / "out")
    rendered = _run(words, environ, tmp_path)
    assert rendered.returncode == ExitCode.OK, rendered.stderr
    tree = Path(rendered.stdout.strip())
    exports = _run(imagegen("tools", "--env"), environ, tmp_path)
    assert exports.returncode == ExitCode.OK, exports.stderr
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    with _sandbox(target, tmp_path) as sandbox:
        child = sandbox.child_environ(environ)
        for times in (1, 2):
            done = _run(["/bin/sh", "-c", f"{exports.stdout}exec packer build '{tree}'"], child, tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            assert len(sandbox.network.machines) == times
            assert (sandbox.faults, sandbox.missing) == ([], [])
            assert set(sandbox.network.notes()) >= CAPTURES[target]
            # Each run has its own report.
            reports = sorted((tree.parent / "reports").glob("*-packer.json"))
            assert [json.loads(report.read_bytes())["target"] for report in reports] == [target] * times
    assert {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()} == before
    _assert_nothing_left(environ)


def test_a_quiet_rehearsal_that_fails_says_why(tmp_path: Path) -> None:
    wanted = ("--set", "targets.azure.security_type=TrustedLaunch", "--quiet")
    words = imagegen("build", CONFIG, "--target", "azure", "--rehearse", "--out", tmp_path / "out", *wanted)
    environ = user_environ(tmp_path) | {"PATH": "/usr/bin:/bin"}
    done = _run(words, environ, tmp_path)
    assert (done.returncode, done.stdout) == (ExitCode.TOOL, "")
    assert "Packer finds no plugin azure >= 2.0.5" in done.stderr
    assert "rehearsal in" not in done.stderr


@pytest.mark.parametrize("verb", ["plan", "render"])
def test_a_plan_and_a_tree_can_be_had_without_an_account(verb: str, tmp_path: Path) -> None:
    words = imagegen(verb, CONFIG, "--target", "azure", "--rehearse")
    done = _run(words, user_environ(tmp_path, **_a_users_own(tmp_path)), tmp_path)
    assert done.returncode == ExitCode.OK, done.stderr
    if verb == "plan":
        assert "phase-1, then a restart\n" in done.stdout
    else:
        assert f"{tmp_path}/out/rehearsal/" in done.stdout
        assert (tmp_path / done.stdout.strip() / "build.pkr.hcl").is_file()
    assert list(CONFIG.parent.glob("*.lock.json")) == []
    assert not (tmp_path / "asked").exists()


def test_only_the_newest_rehearsals_are_kept_and_none_that_may_still_run(tmp_path: Path) -> None:
    now = time.time()
    names = [f"image-aws-{number:08}" for number in range(8)]
    running = "image-aws-run_ning"
    new = rehearse._new_folder
    # Those of another config or target, and what somebody put there: a tree, a folder of his own.
    others = ["image-aws-prod-aws-abcdefgh", "image-aws-prod", "image-azure-abcdefgh", "other"]
    for number, name in enumerate([*names, running, *others]):
        (tmp_path / name / "manifests").mkdir(parents=True)
        (tmp_path / name / "lock.json").touch()
        os.utime(tmp_path / name, (now - 10_000 - number, now - 10_000 - number))
    (tmp_path / "image-aws-folder12" / "0123456789abcdef" / "tree").mkdir(parents=True)
    os.utime(tmp_path / "image-aws-folder12", (now - 20_000, now - 20_000))
    others.append("image-aws-folder12")
    # This one failed before it had a lock.
    (tmp_path / "image-aws-emptyone").mkdir()
    os.utime(tmp_path / "image-aws-emptyone", (now - 20_000, now - 20_000))
    with contextlib.ExitStack() as held:
        held.enter_context(locked(tmp_path / running / ".lock", wait_s=0, waiting=pytest.fail))
        # A rehearsal that takes long is older than those that ended.
        os.utime(tmp_path / running, (now - 90_000, now - 90_000))
        made = held.enter_context(new(tmp_path, "image-aws-"))
        kept = {path.name for path in tmp_path.iterdir()}
        assert kept == {made.name, *names[:4], running, *others, ".lock"}
        for name in names[:4]:
            os.utime(tmp_path / name, (now + 60, now + 60))
        # Neither has a lock of artifacts yet, and both still run.
        with new(tmp_path, "image-aws-") as again, new(tmp_path, "image-aws-") as third:
            assert {path.name for path in tmp_path.iterdir()} == kept | {again.name, third.name}
    # They have ended, and so has the one that took long.
    with new(tmp_path, "image-aws-") as last:
        assert {path.name for path in tmp_path.iterdir()} == {last.name, *names[:4], *others, ".lock"}


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="what still runs is read from Linux' /proc")
@pytest.mark.parametrize("target", TARGETS)
def test_an_interrupt_in_the_middle_leaves_nothing(target: str, tmp_path: Path) -> None:
    environ = user_environ(tmp_path)
    words = imagegen("build", CONFIG, "--target", target, "--rehearse", "--out", tmp_path / "out", "--plain")
    heard: list[str] = []
    running: list[int] = []
    with subprocess.Popen(  # noqa: S603 - the checkout's own command line
        words, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        # A rehearsal that hangs is ended with all its children, and the test with it.
        guard = threading.Timer(DEADLINE_S, _kill_all, [environ["TMPDIR"]])
        guard.start()
        try:
            for line in child.stderr:
                heard.append(line)
                if f"{target}  phase-1  finished" in line:
                    running.extend(processes_with(environ["TMPDIR"]))
                    # As a terminal does it: to the whole foreground group, once.
                    os.killpg(child.pid, signal.SIGINT)
        finally:
            guard.cancel()
    said = "".join(heard)
    # The two imagegens, Packer and its plugin: what is counted afterwards can be seen at all.
    assert len(running) >= 4
    assert child.returncode == ExitCode.INTERRUPTED, said
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ interrupted", heard[-1].strip())
    assert (said.count("interrupted"), said.count("imagegen validate")) == (1, 1)
    assert "Traceback" not in said
    assert "phase-2  finished" not in said
    assert ("Terminating the source AWS instance" if target == "aws" else "Resource group has been deleted") in said
    _assert_nothing_left(environ)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="what still runs is read from Linux' /proc")
def test_a_killed_rehearsal_ends_with_all_its_children_and_the_next_removes_its_folder(tmp_path: Path) -> None:
    environ = user_environ(tmp_path)
    temporary = Path(environ["TMPDIR"])
    words = imagegen("build", CONFIG, "--target", "azure", "--rehearse", "--out", tmp_path / "out", "--plain")
    with subprocess.Popen(  # noqa: S603 - the checkout's own command line
        words, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stderr is not None
        guard = threading.Timer(DEADLINE_S, _kill_all, [environ["TMPDIR"]])
        guard.start()
        try:
            said = "".join(itertools.takewhile(lambda line: "azure  phase-1  finished" not in line, parent.stderr))
            running = list(processes_with(str(temporary)))
            parent.kill()
        finally:
            guard.cancel()
    # The two imagegens with their supervisors, Packer's two processes and its plugin.
    assert len(running) >= 6, said
    _assert_gone_within(_GONE_S, str(temporary))
    (left,) = temporary.glob("imagegen-rehearsal-*")
    with scratch_folder(temporary, "imagegen-rehearsal-"):
        assert not left.exists()


OPEN_STEP = {
    "steps/agent/meta/step.yml": """\
summary: opens a folder of secrets
reads: []
after: [cloudbase-init, kubernetes]
timeout_s: 600
""",
    "steps/agent/resources.yml": """\
- directory: {path: 'C:\\etc\\kubernetes\\agent'}
- acl:
    path: 'C:\\etc\\kubernetes\\agent'
    entries: [{sid: S-1-5-18, rights: full}, {sid: S-1-5-32-545, rights: read}]
""",
}


def test_the_manifest_of_an_image_from_which_no_node_comes_up_says_so(tmp_path: Path) -> None:
    for name, text in OPEN_STEP.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    config, environ = tmp_path / "config.yaml", user_environ(tmp_path)
    config.write_text(f"steps_path: steps\n{CONFIG.read_text()}")
    words = imagegen("build", config, "--target", "aws", "--rehearse", "--plain", "--out", tmp_path / "out")
    done = _run(words, environ, tmp_path)
    reason = r"others than administrators may read or write C:\etc\kubernetes\agent (S-1-5-32-545: ReadAndExecute)"
    assert done.returncode == ExitCode.BUILD, done.stderr
    assert f"  closed-folders: {reason}\n" in done.stderr
    (folder,) = (tmp_path / "out" / "rehearsal").glob("*-aws-*")
    assert "Plugins execution done" in (folder / "cloudbase-init.log").read_text()
    listed = json.loads(_run(imagegen("manifest", "list", folder, "--format", "json"), environ, tmp_path).stdout)
    note = listed[0]["notes"]["rehearsal"]
    assert note["failed"] == {"closed-folders": [reason]}
    assert {"setup", "node", "second-boot"} < set(note["boot"]["passed"])
    assert "closed-folders" not in note["boot"]["passed"]
    shown = _run(imagegen("manifest", "show", listed[0]["image_id"], folder), environ, tmp_path)
    assert f"failed: closed-folders {reason}\n" in shown.stdout
    _assert_nothing_left(environ)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return capture("aws", tmp_path_factory.mktemp("captured"))


def _boot(captured: Machine, folder: Path, timeout_s: float) -> dict[str, Any]:
    """Boot a node as `--rehearse` does. What the manifest says of the rehearsal, which also holds if that fails."""
    store = LocalStore(folder / "manifests")
    store.put(make_manifest())
    scratch = folder / "scratch"
    scratch.mkdir()
    runner = Runner(scratch, os.environ, timeout_s=timeout_s)
    sandbox = cast("Sandbox", types.SimpleNamespace(captured=captured))
    try:
        rehearse._boot(
            sandbox, loaded().specs["aws"], runner, folder, make_console(plain=True, quiet=True), {"winrm": 1}
        )
    finally:
        [manifest] = store.list().records
        [noted] = manifest.notes.values()
        assert isinstance(noted, dict)
        (folder / "note.json").write_text(json.dumps(noted))
    return noted


def test_a_boot_that_an_error_ends_keeps_the_log_and_says_so_in_the_manifest(captured: Machine, tmp_path: Path) -> None:
    captured.files.write(BOOT_LOG, b"of an earlier start\n")
    with pytest.raises(BuildError, match=r"did not end within 0\.01 s") as caught:
        _boot(captured, tmp_path, timeout_s=0.01)
    assert caught.value.hint == f"the log of cloudbase-init is {tmp_path / 'cloudbase-init.log'}"
    assert (tmp_path / "cloudbase-init.log").read_text().startswith("of an earlier start\n")
    note = json.loads((tmp_path / "note.json").read_bytes())
    assert note == {
        "winrm": 1,
        "failed": {"boot": ["cloudbase-init did not end within 0.01 s in the rehearsal"]},
    }


def test_a_boot_that_is_interrupted_did_not_pass(
    captured: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearse, "boot_image", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _boot(captured, tmp_path, timeout_s=60)
    note = json.loads((tmp_path / "note.json").read_bytes())
    assert note["failed"] == {"boot": ["it did not come to its end"]}


# Ends between two children of the boot.
_SIGNALLED = """
import os, signal, sys, time
from imagegen.cli.arguments import import_rehearsal
from imagegen.cli.main import main
number = signal.Signals[sys.argv.pop(1)]
def boot_image(*_, **__):
    os.kill(os.getpid(), number)
    time.sleep(10)
import_rehearsal().boot_image = boot_image
sys.exit(main())
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_between_two_children_leaves_nothing(tmp_path: Path, name: str) -> None:
    environ = user_environ(tmp_path)
    words = ["build", str(CONFIG), "--target", "aws", "--rehearse", "--plain", "--out", str(tmp_path / "out")]
    done = _run([sys.executable, "-c", _SIGNALLED, name, *words], environ, tmp_path)
    assert done.returncode == ExitCode.INTERRUPTED, done.stderr
    assert "starting a node" in done.stderr
    assert "Traceback" not in done.stderr
    _assert_nothing_left(environ)


@pytest.mark.parametrize(("boots", "named"), [(True, "kubeadm, kubelet"), (False, "did not run")])
def test_what_is_not_checked_depends_on_the_boot(boots: bool, named: str) -> None:
    told = rehearse._list_unchecked(loaded(), "aws", boots=boots)
    [about_boot] = [text for text in told if "Windows Setup" in text]
    assert named in about_boot
    assert ("model" in about_boot) is boots


def _assert_gone_within(seconds: float, marked: str) -> None:
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while left := list(processes_with(marked)):
        assert time.monotonic() < deadline, left
        pause.wait(0.1)


def _kill_all(marked: str) -> None:
    for pid in processes_with(marked):
        os.kill(pid, signal.SIGKILL)
