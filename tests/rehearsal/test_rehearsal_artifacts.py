"""Stand-ins hold what their release is recorded with: a step that expects something else fails, without any golden."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.base.contents import ROLES, SHIPPED, Contents, StepRoot
from imagegen.base.errors import ImagegenError
from imagegen.plan import loading
from imagegen.rehearsal.artifacts import make_artifacts, make_digests
from imagegen.rehearsal.machine import run_entry, stock_windows
from imagegen.rehearsal.machine.msi import read_msi
from imagegen.rehearsal.releases import find_published
from imagegen.rehearsal.signing.program import make_program
from imagegen.render import bundle_zip, guest_plan
from tests.conftest import TODAY, load_today

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Decided

    Decide = Callable[[Path, str, Contents], Decided]

CONFIG = Path(__file__).parents[2] / "configs" / "windows-2022-containerd.yaml"
DOWNLOAD = "https://repo.example/artifactory/c/download"
FOLDER = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init"
ZIP = r"C:\Windows\Temp\imagegen-bundle.zip"
RESTART_DUE = 3010


def _stand_ins(loaded: loading.Loaded) -> dict[str, bytes]:
    return make_artifacts(pipeline.prepare_target(loaded, "aws").steps)


def _unpacked(data: bytes) -> dict[str, bytes]:
    """Every member of a tar.gz; a folder's name ends with a slash."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        streams = {entry.name: archive.extractfile(entry) for entry in archive}
        return {name if stream else f"{name}/": stream.read() if stream else b"" for name, stream in streams.items()}


def _installed(data: bytes) -> dict[str, bytes]:
    """Every file and folder that a package makes, below its folder."""
    tables, files = read_msi(data)
    made = {**files, **{f"{folder}\\": b"" for folder in tables.folders}}
    assert [path for path in made if not path.startswith(f"{FOLDER}\\")] == []
    return {path.removeprefix(f"{FOLDER}\\").replace("\\", "/"): content for path, content in made.items()}


def test_stand_ins_hold_exactly_what_is_recorded() -> None:
    names = []
    steps = pipeline.prepare_target(load_today(CONFIG), "aws").steps
    asked = {request.url: (step.step, request) for step in steps for request in step.requests.values()}
    for url, data in make_artifacts(steps).items():
        published = find_published(*asked[url])
        assert published is not None
        if url.endswith(".tar.gz"):
            held = _unpacked(data)
            assert list(held) == published.release.members
        elif url.endswith(".msi"):
            held = _installed(data)
            assert sorted(held) == published.release.members
        else:
            held = {published.name: data}
        assert [path for path, content in held.items() if content.startswith(b"MZ") != path.endswith(".exe")] == []
        names.append(published.name)
    assert sorted(names) == [
        "CloudbaseInitSetup_1_1_8_x64.msi",
        "containerd-2.3.4-windows-amd64.tar.gz",
        "crictl-v1.36.0-windows-amd64.tar.gz",
        "kube-log-runner.exe",
        "kubeadm.exe",
        "kubectl.exe",
        "kubelet.exe",
    ]


def test_a_package_registers_as_it_is_recorded() -> None:
    data = next(data for url, data in _stand_ins(load_today(CONFIG)).items() if url.endswith(".msi"))
    tables, _ = read_msi(data)
    assert (tables.product, tables.version) == ("Cloudbase-Init 1.1.8", "1.1.8.0")
    (service,) = tables.services
    assert service.command == (
        rf'"{FOLDER}\bin\OpenStackService.exe" cloudbase-init "{FOLDER}\Python\Scripts\cloudbase-init.exe"'
        rf' --config-file "{FOLDER}\conf\cloudbase-init.conf"'
    )


def test_an_override_and_a_mirror_bring_the_same_release() -> None:
    usual = _stand_ins(load_today(CONFIG))
    containerd = next(url for url in usual if "/containerd/" in url)
    mirrored = {f"https://mirror.example/{url.removeprefix('https://')}": data for url, data in usual.items()}
    moved = load_today(CONFIG, f"overrides.containerd_url={DOWNLOAD}", "artifacts.mirror=https://mirror.example")
    data = mirrored.pop(f"https://mirror.example/{containerd.removeprefix('https://')}")
    assert _stand_ins(moved) == {**mirrored, DOWNLOAD: data}


def _carry_out(decided: Decided, disk: Path) -> str:
    """What the model machine says when it carries the plan out: empty where it ends well."""
    plan, stand_ins = decided.decision.plan, _stand_ins(decided.loaded)
    said = guest_plan(plan)
    bundle = bundle_zip(said, decided.decision.bundle)
    machine = stock_windows(disk, release="2022", cloud="aws")
    machine.files.write(ZIP, bundle)
    pins = ["-BundleSha256", hashlib.sha256(bundle).hexdigest(), "-PlanSha256", hashlib.sha256(said).hexdigest()]
    for phase in plan.image.phases:
        outcome = run_entry(machine, ["-Phase", phase.name, "-Bundle", ZIP, *pins], lambda url, *_: stand_ins[url])
        if outcome.exit_code not in (0, RESTART_DUE):
            return outcome.output
        machine.restart()
    return ""


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    """The steps, to be changed."""
    shutil.copytree(ROLES, tmp_path / "roles")
    return tmp_path / "roles"


@pytest.fixture
def changed(roles: Path) -> Contents:
    """The content with these steps."""
    return Contents(SHIPPED.packer, (StepRoot(roles, "ansible-win/roles"),))


def test_the_shipped_steps_get_what_they_expect(tmp_path: Path, decide: Decide) -> None:
    assert _carry_out(decide(CONFIG, "aws", SHIPPED), tmp_path / "disk") == ""


@dataclasses.dataclass(frozen=True)
class Mistake:
    """One text of a step that is written otherwise, and what is said of it."""

    file: str
    old: str
    new: str
    says: str


MISTAKES = (
    Mistake("containerd/resources.yml", "[containerd.exe, ", "[containered.exe, ", "add a directory, file, "),
    Mistake("containerd/resources.yml", "strip: 1", "strip: 0", "has no ctr.exe after 0 folders"),
    Mistake("containerd/resources.yml", "    strip: 1\n", "", "has no containerd.exe after 0 folders"),
    Mistake("containerd/resources.yml", 'exe" --run', '2.exe" --run', "makes C:\\Program Files\\containerd\\"),
    Mistake(
        "kubernetes/resources.yml", "expect: [crictl.exe]", "expect: [critcl.exe]", "crictl 1.36.0 has no critcl.exe"
    ),
    Mistake("kubernetes/meta/step.yml", "path: kubelet.exe", "path: kubelets.exe", "/bin/windows/amd64/kubelets.exe"),
    Mistake("kubernetes/meta/step.yml", "product: crictl", "product: critcl", 'unknown product "critcl"'),
    Mistake("kubernetes/meta/step.yml", "{{ facts.crictl }}", "1.11.0", "no release is recorded for https://github"),
    Mistake("cloudbase-init/resources.yml", "OpenStackService.exe", "OpenstackSrv.exe", "bin\\OpenstackSrv.exe"),
    Mistake("cloudbase-init/resources.yml", "services: [cloudbase-init]", "services: [cbi]", "there is no service cbi"),
    Mistake("cloudbase-init/resources.yml", "facts.cloudbase_init_product", "cloudbase_init.user", "is not installed"),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=[f"{item.file}: {item.new.strip()}" for item in MISTAKES])
def test_a_step_that_expects_something_else_fails(
    mistake: Mistake, roles: Path, changed: Contents, tmp_path: Path, decide: Decide
) -> None:
    file = roles / mistake.file
    assert mistake.old in file.read_text()
    file.write_text(file.read_text().replace(mistake.old, mistake.new))
    try:
        said = _carry_out(decide(CONFIG, "aws", changed), tmp_path / "disk")
    except ImagegenError as error:
        said = "\n".join([error.message, *(f"{problem.message} {problem.hint}" for problem in error.problems)])
    assert mistake.says in said


OWN_STEP = """\
summary: a step of the operator's own
after: [kubernetes]
reads: []
timeout_s: 60
artifacts:
  tool:
    url: https://repo.example/tools/4.2/download
    version: "4.2"
    override: tool_url
"""
OWN_RESOURCES = "- archive: {artifact: tool, into: 'C:\\Windows\\Temp', strip: 1, expect: [tool.exe]}\n"
OWN_RELEASES = """\
archives:
  tool:
    address: https://repo.example/tools/{version}
    file: download
    since: "4.0"
    members: [tool/, tool/README.txt, tool/tool.exe]
    format: zip
    unconfirmed: null
    source: unzip -l of 4.2
"""


def _own_step(roles: Path, releases: str | None) -> None:
    (roles / "extra" / "meta").mkdir(parents=True)
    (roles / "extra" / "meta" / "step.yml").write_text(OWN_STEP)
    (roles / "extra" / "resources.yml").write_text(OWN_RESOURCES)
    if releases is not None:
        (roles / "extra" / "meta" / "releases.yml").write_text(releases)


def test_an_operators_own_step_records_its_releases(
    roles: Path, changed: Contents, tmp_path: Path, decide: Decide
) -> None:
    _own_step(roles, OWN_RELEASES)
    decided = decide(CONFIG, "aws", changed)
    with zipfile.ZipFile(io.BytesIO(_stand_ins(decided.loaded)["https://repo.example/tools/4.2/download"])) as held:
        assert held.namelist() == ["tool/", "tool/README.txt", "tool/tool.exe"]
    assert _carry_out(decided, tmp_path / "disk") == ""


@pytest.mark.parametrize(
    ("releases", "says"),
    [
        (None, "extra/meta/step.yml:6: artifacts.tool: no release is recorded for https://repo.example/"),
        (OWN_RELEASES.replace("4.0", "4.3"), "no release is recorded for https://repo.example/tools/4.2/"),
        (OWN_RELEASES.replace("format: zip", "format: rar"), "extra/meta/releases.yml:7: archives.tool.format"),
        (OWN_RELEASES.replace("source:", "sauce:"), "extra/meta/releases.yml:9: archives.tool.sauce: unknown key"),
    ],
    ids=["none", "another version", "unknown format", "misspelt"],
)
def test_a_release_that_is_not_recorded_has_no_stand_in(
    roles: Path, changed: Contents, releases: str | None, says: str
) -> None:
    _own_step(roles, releases)
    loaded = loading.load(loading.ConfigRequest(CONFIG, TODAY, contents=changed))
    with pytest.raises(ImagegenError) as raised:
        _stand_ins(loaded)
    assert says in "\n".join(f"{item.file}:{item.line}: {item.path}: {item.message}" for item in raised.value.problems)


def test_a_single_file_needs_no_record(roles: Path, changed: Contents, tmp_path: Path, decide: Decide) -> None:
    _own_step(roles, None)
    (roles / "extra" / "resources.yml").write_text("- file: {artifact: tool, path: 'C:\\Windows\\Temp\\tool.exe'}\n")
    decided = decide(CONFIG, "aws", changed)
    assert _stand_ins(decided.loaded)["https://repo.example/tools/4.2/download"].startswith(b"a stand-in for download")
    assert _carry_out(decided, tmp_path / "disk") == ""


KUBELET = make_program(b"a stand-in for kubelet.exe 1.36.4, made for a rehearsal\n")
AKS = "https://packages.aks.azure.com/dalec-packages/{name}/{version}/windows/amd64/{name}_{version}-1_amd64.zip"
OWN = "https://artifacts.example.com"


def test_the_url_of_an_override_says_how_it_is_packed() -> None:
    """The contents are those of the published release. Which of them a step takes is not asked."""
    sets = [
        f"overrides.kubernetes_base_url={OWN}/all.zip",
        f"overrides.kubelet_url={OWN}/kubelet.tar.gz",
        f"overrides.containerd_url={OWN}/containerd.zip",
        f"overrides.crictl_url={OWN}/crictl.exe",
    ]
    made = _stand_ins(load_today(CONFIG, *sets))
    assert _unpacked(made[f"{OWN}/kubelet.tar.gz"])["kubelet.exe"] == KUBELET
    with zipfile.ZipFile(io.BytesIO(made[f"{OWN}/all.zip"])) as held:
        assert "kubectl-convert.exe" in held.namelist()
        assert held.read("kubelet.exe") == KUBELET
    usual = next(data for url, data in _stand_ins(load_today(CONFIG)).items() if "/containerd/" in url)
    with zipfile.ZipFile(io.BytesIO(made[f"{OWN}/containerd.zip"])) as held:
        assert {name: held.read(name) for name in held.namelist()} == _unpacked(usual)
    assert made[f"{OWN}/crictl.exe"] == make_program(b"a stand-in for crictl.exe 1.36.0, made for a rehearsal\n")


def test_an_override_that_is_a_template_brings_each_program() -> None:
    made = _stand_ins(load_today(CONFIG, f"overrides.kubernetes_base_url={AKS}"))
    for name in ("kubelet", "kubeadm", "kubectl", "kube-log-runner"):
        with zipfile.ZipFile(io.BytesIO(made[AKS.format(name=name, version="1.36.4")])) as held:
            assert f"{name}.exe" in held.namelist()


def test_a_program_of_the_config_is_a_program_whatever_its_url() -> None:
    program = "executables=[{path: 'C:\\tools\\agent.exe', url: 'https://artifacts.example.com/%s'}]"
    for url in ("download", "agent.zip", "agent.exe"):
        data = _stand_ins(load_today(CONFIG, program % url))[f"https://artifacts.example.com/{url}"]
        assert data.startswith(b"PK" if url == "agent.zip" else b"MZ")
        assert f"a stand-in for {'agent.exe' if url == 'agent.zip' else url}".encode() in data


def test_digests_are_published_as_their_projects_do() -> None:
    steps = pipeline.prepare_target(load_today(CONFIG), "aws").steps
    artifacts = make_artifacts(steps)
    digests = make_digests(steps, artifacts)
    for request in (request for step in steps for request in step.requests.values()):
        if request.digest is None:
            assert not [url for url in digests if url.startswith(request.url)]
            continue
        sha256 = hashlib.sha256(artifacts[request.url]).hexdigest()
        name = request.url.rpartition("/")[2]
        alone = request.url.startswith(("https://dl.k8s.io/", "https://github.com/kubernetes-sigs/cri-tools/"))
        assert digests[request.digest.url].decode() == (f"{sha256}\n" if alone else f"{sha256}  {name}\n")
    assert len(digests) == 6


def test_artifacts_with_one_url_have_one_published_digest() -> None:
    """All programs of a node tarball come from it, and a document of one file has one line."""
    loaded = load_today(CONFIG, "kubernetes.source=node-tarball", "kube_proxy=service", "cni.plugin=flannel")
    steps = pipeline.prepare_target(loaded, "aws").steps
    digests = make_digests(steps, make_artifacts(steps))
    (tarball,) = [url for url in digests if url.endswith("kubernetes-node-windows-amd64.tar.gz.sha256")]
    assert re.fullmatch(rb"[0-9a-f]{64}\n", digests[tarball])
