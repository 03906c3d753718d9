"""What real programs and machines demand of a node (docs/reality.md), as the steps make it for each version."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base import contents
from imagegen.catalog.facts import catalogue_text, table
from imagegen.config.model import ImageConfig
from imagegen.config.own_files import OwnFile
from imagegen.config.yaml import Document, dotted, parse_yaml
from imagegen.plan.context import evaluate_steps
from imagegen.rehearsal.releases import find_published
from imagegen.settle.spec import settle
from imagegen.steps.kinds import KINDS
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from imagegen.steps.evaluate import Draft, EvaluatedStep

STEPS = load_steps(contents.SHIPPED.step_roots)
ONLY_SYSTEM_AND_ADMINISTRATORS = [
    {"sid": "S-1-5-18", "rights": "full"},
    {"sid": "S-1-5-32-544", "rights": "full"},
]


def evaluated(
    kubernetes: str,
    containerd: str,
    *,
    source: str = "binaries",
    **asked: Any,  # noqa: ANN401 - any section
) -> tuple[EvaluatedStep, ...]:
    """The steps of a node with these versions."""
    config = ImageConfig.model_validate(
        {
            "name": "node",
            "windows": {"release": "2022"},
            "kubernetes": asked.pop("section", None) or {"version": kubernetes, "source": source},
            "runtime": {"containerd": {"version": containerd}},
            "targets": {"aws": {"region": "us-east-1"}},
            **asked,
        }
    )
    # The content of each file is its key.
    files = {
        dotted(path): OwnFile(name.rpartition("/")[2], dotted(path).encode())
        for path, name in config.own_files().items()
    }
    return evaluate_steps(settle(config, Document("config.yaml", {}, {}), "aws", files), STEPS)


def drafts_on(cloud: str, **asked: Any) -> list[Draft]:  # noqa: ANN401 - any section
    """The resources of a node on this cloud."""
    gallery = {"resource_group": "i", "name": "i", "definition": "windows"}
    target = {"region": "us-east-1"} if cloud == "aws" else {"location": "westeurope", "gallery": gallery}
    found = {
        "name": "node",
        "windows": {"release": "2022"},
        "kubernetes": {"version": "1.34.0"},
        "runtime": {"containerd": {"version": "2.3.4"}},
        "targets": {cloud: target},
        **asked,
    }
    spec = settle(ImageConfig.model_validate(found), Document("config.yaml", {}, {}), cloud, {})
    return [draft for step in evaluate_steps(spec, STEPS) for draft in step.drafts]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def resources(kubernetes: str = "1.36.4", containerd: str = "2.3.4") -> list[tuple[str, dict[str, Any]]]:
    """The kind and the fields of every resource of a node with these versions."""
    return [(draft.kind, draft.fields) for step in evaluated(kubernetes, containerd) for draft in step.drafts]


@pytest.mark.parametrize(
    ("kubernetes", "arguments"),
    [("1.30.14", []), ("1.31.0", ["RUN_SERVICE_AS_LOCAL_SYSTEM=1"]), ("1.36.4", ["RUN_SERVICE_AS_LOCAL_SYSTEM=1"])],
)
def test_kubeadm_before_1_31_does_not_run_as_local_system(kubernetes: str, arguments: list[str]) -> None:
    """It looks up the groups of its account, and Windows has none for LocalSystem."""
    (package,) = [fields for kind, fields in resources(kubernetes) if kind == "package"]
    assert package["arguments"] == arguments


@pytest.mark.parametrize("kubernetes", ["1.33.13", "1.34.0", "1.36.4"])
def test_no_log_runner_rotates_a_log(kubernetes: str) -> None:
    """It renames the log, which Windows refuses while a Go program reads it. Then it writes no more. An older log
    runner ends with 2 at the flag."""
    drafts = [draft for step in evaluated(kubernetes, "2.3.4", kube_proxy="service") for draft in step.drafts]
    commands = [draft.fields.get("command", "") for draft in drafts if draft.kind == "service"]
    by_runner = [command for command in commands if "kube-log-runner.exe --log-file=" in command]
    assert len(by_runner) == 2
    assert [command for command in by_runner if "--log-file-" in command] == []


def test_a_reset_knows_the_files_of_azures_plugin() -> None:
    """They name networks of HNS by ids, which are gone after a reset."""
    drafts = drafts_on("azure", cni={"plugin": "azure", "version": "1.6.21"})
    assert [draft for draft in drafts if draft.fields.get("path") == r"C:\k\cni\state.txt"]
    listed = catalogue_text("cni-state.txt").splitlines()
    assert {rf"{folder}\azure-vnet.json" for folder in (r"C:\k", r"C:\Windows\System32")} < {*listed}
    assert [path for path in listed if not re.fullmatch(r"C:\\[^*?]+\\azure-vnet[a-z0-9-]*\.json(\.lock)?", path)] == []


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_routes_to_addresses_of_the_cloud_are_added_again(cloud: str) -> None:
    """The adapter had them, and a network of pods replaces it. On Azure the default route leads to these addresses."""
    found = {draft.fields["name"]: draft.fields for draft in drafts_on(cloud) if draft.kind == "task"}
    addresses = table("machines")["link_local_routes"]["aws"]["addresses"]
    system32 = r"C:\Windows\System32"
    assert "169.254.169.254" in addresses
    assert found.get("imagegen-link-local-routes") == (
        {
            "name": "imagegen-link-local-routes",
            "program": rf"{system32}\cmd.exe",
            "arguments": rf"/d /c for %a in ({' '.join(addresses)}) do ({system32}\route.exe -4 print %a | "
            rf'{system32}\find.exe "%a" || {system32}\route.exe add %a mask 255.255.255.255 0.0.0.0)',
            "every_s": 60,
            "limit_s": 60,
        }
        if cloud == "aws"
        else None
    )


@pytest.mark.parametrize(
    ("cni", "is_restored"),
    [
        ({"plugin": "win-bridge"}, True),
        ({"plugin": "win-overlay"}, True),
        ({"plugin": "flannel"}, False),
        ({"plugin": "none"}, False),
    ],
    ids=lambda value: value["plugin"] if isinstance(value, dict) else "",
)
def test_a_network_of_the_script_is_made_again_at_each_start(cni: dict[str, Any], *, is_restored: bool) -> None:
    """flanneld makes its own."""
    drafts = drafts_on("aws", cni=cni)
    has_network = any(str(draft.fields.get("path")).endswith(r"\network.json") for draft in drafts)
    found = [draft.fields for draft in drafts if draft.fields.get("name") == "imagegen-pod-network"]
    assert has_network is is_restored
    assert [(fields["arguments"].partition("-File ")[2], "every_s" in fields) for fields in found] == (
        [(r"C:\k\set-pod-network.ps1 -Restore", False)] if is_restored else []
    )


@pytest.mark.parametrize("containerd", ["1.4.13", "1.6.36", "2.3.4"])
def test_containerds_log_is_kept_where_users_cannot_read_it(containerd: str) -> None:
    """Every containerd since 1.4 has the flag. Without it, the log of a service goes to NUL."""
    found = resources("1.22.17" if containerd == "1.4.13" else "1.30.14", containerd)
    folder = r"C:\var\log\containerd"
    (service,) = [fields for kind, fields in found if kind == "service" and fields["name"] == "containerd"]
    assert rf' --log-file "{folder}\containerd.log"' in service["command"]
    closed = found.index(("acl", {"path": folder, "entries": ONLY_SYSTEM_AND_ADMINISTRATORS}))
    assert closed < found.index(("service", service))


@pytest.mark.parametrize(
    ("kubernetes", "runner"),
    [("1.14.10", "1.23.17"), ("1.22.17", "1.23.17"), ("1.23.0", "1.23.0"), ("1.36.4", "1.36.4")],
)
def test_kubelets_log_runner_comes_from_a_release_that_has_it(kubernetes: str, runner: str) -> None:
    """Up to 1.22 no release has one. A log runner starts a program of any version."""
    public, own = "https://dl.k8s.io/release/v{}/bin/windows/amd64", "https://artifacts.example.com/kubernetes"
    for overrides, folders in (
        ({}, {"kube-log-runner": public.format(runner), "kubelet": public.format(kubernetes)}),
        ({"kubernetes_base_url": own}, {"kube-log-runner": own, "kubelet": own}),
    ):
        steps = evaluated(kubernetes, "1.6.36", overrides=overrides)
        requests = {name: request for step in steps for name, request in step.requests.items()}
        assert {name: requests[name].url for name in folders} == {
            name: f"{folder}/{name}.exe" for name, folder in folders.items()
        }
        (step,) = [step for step in steps if step.step.name == "kubernetes"]
        assert find_published(step.step, requests["kube-log-runner"]) is not None


PROGRAMS = ("kubeadm", "kubectl", "kubelet", "kube-log-runner")


def test_a_base_may_be_a_template_or_an_archive_and_one_program_may_come_from_elsewhere() -> None:
    own = "https://artifacts.example.com"
    template, archive, single = f"{own}/{{name}}/{{version}}/{{name}}.zip", f"{own}/all.tar.gz", f"{own}/kubelet.exe"
    for base, runner in ((template, f"{own}/kube-log-runner/1.23.17/kube-log-runner.zip"), (archive, archive)):
        overrides = {"kubernetes_base_url": base, "kubelet_url": single}
        steps = evaluated("1.22.17", "1.6.36", overrides=overrides)
        requests = {name: request for step in steps for name, request in step.requests.items()}
        assert (requests["kube-log-runner"].url, requests["kubelet"].url) == (runner, single)
        assert requests["kubeadm"].url == base.format(name="kubeadm", version="1.22.17")
        assert [requests[name].key for name in ("kubelet", "kubeadm")] == [
            *("overrides.kubelet_url", "overrides.kubernetes_base_url")
        ]
        assert requests["kubeadm"].file_key == "overrides.kubeadm_url"
        assert [file.name for file in requests["kubelet"].files] == ["kubelet.exe"]


@pytest.mark.parametrize("kubernetes", ["1.14.10", "1.18.20", "1.20.15", "1.22.17", "1.23.0", "1.30.14", "1.36.4"])
def test_the_tarball_gives_the_same_programs_at_the_same_paths(kubernetes: str) -> None:
    """Up to 1.22 it has no kube-log-runner, which then comes from a later release."""
    runner = "file" if kubernetes.startswith(("1.1", "1.20", "1.22")) else "extract"
    for source, kinds in (
        ("binaries", dict.fromkeys(PROGRAMS, "file")),
        ("node-tarball", {**dict.fromkeys(PROGRAMS, "extract"), "kube-log-runner": runner}),
    ):
        drafts = [draft for step in evaluated(kubernetes, "1.6.36", source=source) for draft in step.drafts]
        found = {draft.fields["path"]: draft for draft in drafts if draft.kind in ("file", "extract")}
        assert {name: found[rf"C:\k\{name}.exe"].kind for name in PROGRAMS} == kinds


@pytest.mark.parametrize("kubernetes", ["1.14.10", "1.18.20", "1.20.15", "1.22.17", "1.23.0", "1.30.14", "1.36.4"])
def test_the_tarball_has_the_programs_that_are_taken_from_it(kubernetes: str) -> None:
    own = "https://artifacts.example.com/kubernetes"
    for overrides, folder in (({}, f"https://dl.k8s.io/v{kubernetes}"), ({"kubernetes_base_url": own}, own)):
        steps = evaluated(kubernetes, "1.6.36", overrides=overrides, source="node-tarball")
        (step,) = [step for step in steps if step.step.name == "kubernetes"]
        request = step.requests["kubernetes-node"]
        assert request.url == f"{folder}/kubernetes-node-windows-amd64.tar.gz"
        assert request.form == "archive"
        assert step.components == (("kubernetes", kubernetes),)
        published = find_published(step.step, request)
        assert published is not None
        taken = {draft.fields["member"] for draft in step.drafts if draft.kind == "extract"}
        assert taken <= set(published.release.members)
        assert not {"kubelet", "kubeadm", "kubectl"} & set(step.requests)


def test_kubelet_under_nssm_is_no_service_itself() -> None:
    """It cannot connect to the service manager, and would end. Its log is nssm's: nothing else may empty it."""
    asked = {"version": "1.30.14", "service_manager": "nssm"}
    (step,) = [s for s in evaluated("1.30.14", "2.3.4", section=asked) if s.step.name == "kubernetes"]
    assert step.texts["files/kubernetes/kubelet-arguments.txt"].startswith(b"--windows-service=false\n")
    assert b"kubelet.log" not in step.texts["files/kubernetes/rotated-logs.txt"]
    extracted = {draft.fields["path"]: draft.fields["member"] for draft in step.drafts if draft.kind == "extract"}
    assert extracted == {r"C:\k\nssm.exe": "nssm-2.24/win64/nssm.exe"}
    (service,) = [draft.fields for draft in step.drafts if draft.kind == "service"]
    assert (service["command"], service["start"]) == (r"C:\k\nssm.exe", "automatic")
    request = step.requests["nssm"]
    published = find_published(step.step, request)
    assert published is not None
    assert request.form == "archive"
    assert "nssm-2.24/win64/nssm.exe" in published.release.members


PROVIDERS: list[dict[str, Any]] = [
    {
        "name": "acr-credential-provider",
        "url": "https://artifacts.example.com/acr.exe",
        "match_images": ["*.azurecr.io"],
        "cache": "10m",
        "args": [r"C:\k\it's.json"],
        "env": {"B": "2", "A": "1 # no comment"},
    },
    {
        "name": "ecr-credential-provider",
        "url": "https://artifacts.example.com/ecr",
        "sha256": "0" * 64,
        "match_images": ["*.dkr.ecr.*.amazonaws.com", "public.ecr.aws"],
    },
]
PRIORITY = "--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS"
PROVIDERS_FOLDER = r"C:\var\lib\kubelet\credential-provider"


@pytest.mark.parametrize(
    ("kubernetes", "version", "has_plain_names"),
    [
        *(("1.20.15", "v1alpha1", True), ("1.23.17", "v1alpha1", True), ("1.24.17", "v1beta1", True)),
        *(("1.25.16", "v1beta1", True), ("1.26.15", "v1", True), ("1.29.15", "v1", True)),
        *(("1.30.14", "v1", False), ("1.36.4", "v1", False)),
    ],
)
def test_kubelet_finds_its_credential_providers(kubernetes: str, version: str, has_plain_names: bool) -> None:
    """Templates of Cluster API look for the program and its configuration at these paths (N14)."""
    steps = evaluated(kubernetes, "1.6.36", credential_providers=PROVIDERS)
    (step,) = [step for step in steps if step.step.name == "credential-providers"]
    assert (step.drafts[0].kind, step.drafts[0].fields) == ("directory", {"path": PROVIDERS_FOLDER})
    programs = {draft.fields["path"]: draft.fields["artifact"] for draft in step.drafts if "artifact" in draft.fields}
    assert programs == {
        rf"{PROVIDERS_FOLDER}\{name}{ending}": f"credential-provider-{number}"
        for number, name in ((1, "acr-credential-provider"), (2, "ecr-credential-provider"))
        for ending in (".exe", "")[: 1 + has_plain_names]
    }
    assert step.drafts[-1].fields["path"] == r"C:\var\lib\kubelet\credential-provider-config.yaml"
    (text,) = step.texts.values()
    request = f"credentialprovider.kubelet.k8s.io/{version}"
    assert parse_yaml(text, "config").data == {
        "apiVersion": f"kubelet.config.k8s.io/{version}",
        "kind": "CredentialProviderConfig",
        "providers": [
            {
                "name": "acr-credential-provider",
                "apiVersion": request,
                "matchImages": ["*.azurecr.io"],
                "defaultCacheDuration": "10m",
                "args": [r"C:\k\it's.json"],
                "env": [{"name": "A", "value": "1 # no comment"}, {"name": "B", "value": "2"}],
            },
            {
                "name": "ecr-credential-provider",
                "apiVersion": request,
                "matchImages": ["*.dkr.ecr.*.amazonaws.com", "public.ecr.aws"],
                "defaultCacheDuration": "12h",
            },
        ],
    }
    assert [(request.url, request.sha256) for request in step.requests.values()] == [
        ("https://artifacts.example.com/acr.exe", None),
        ("https://artifacts.example.com/ecr", "0" * 64),
    ]


@pytest.mark.parametrize("kubernetes", ["1.20.15", "1.23.17", "1.24.17", "1.36.4"])
def test_kubelet_is_told_of_its_credential_providers(kubernetes: str) -> None:
    """Before 1.24 it ignores the flags without the feature gate."""
    steps = evaluated(kubernetes, "1.6.36", credential_providers=PROVIDERS)
    (step,) = [step for step in steps if step.step.name == "kubernetes"]
    authority = [r"--client-ca-file=C:\etc\kubernetes\pki\ca.crt"] if kubernetes < "1.23" else []
    gate = ["--feature-gates=KubeletCredentialProviders=true"] if kubernetes < "1.24" else []
    assert step.texts["files/kubernetes/kubelet-arguments.txt"].decode().splitlines() == [
        PRIORITY,
        *authority,
        *gate,
        f"--image-credential-provider-bin-dir={PROVIDERS_FOLDER}",
        r"--image-credential-provider-config=C:\var\lib\kubelet\credential-provider-config.yaml",
    ]
    (service,) = [draft.fields for draft in step.drafts if draft.kind == "service"]
    assert service["command"].endswith(r"-ArgumentsFile C:\k\kubelet-arguments.txt")


AUTHORITY = r"--client-ca-file=C:\etc\kubernetes\pki\ca.crt"


@pytest.mark.parametrize(
    ("kubernetes", "arguments"),
    [
        ("1.14.10", [AUTHORITY]),
        ("1.19.16", [AUTHORITY]),
        ("1.20.0", [PRIORITY, AUTHORITY]),
        ("1.22.17", [PRIORITY, AUTHORITY]),
        ("1.23.0", [PRIORITY]),
        ("1.36.4", [PRIORITY]),
    ],
)
def test_what_kubelet_is_always_told(kubernetes: str, arguments: list[str]) -> None:
    """Up to 1.22 kubeadm writes /etc/kubernetes/pki/ca.crt, which kubelet takes as relative to its own folder. The flag
    for its priority came with 1.20: an older kubelet ends at a flag that it does not know."""
    (step,) = [step for step in evaluated(kubernetes, "1.6.36") if step.step.name == "kubernetes"]
    (service,) = [draft.fields for draft in step.drafts if draft.kind == "service"]
    assert step.texts["files/kubernetes/kubelet-arguments.txt"].decode().splitlines() == arguments
    assert service["command"].endswith(r" -ArgumentsFile C:\k\kubelet-arguments.txt")


@pytest.mark.parametrize("kubernetes", ["1.14.10", "1.20.15", "1.23.17"])
def test_kubelet_up_to_1_23_can_ask_docker_itself(kubernetes: str) -> None:
    docker = {"containerd": None, "docker": {"version": "20.10.9"}}
    (step,) = [s for s in evaluated(kubernetes, "", runtime=docker) if s.step.name == "kubernetes"]
    lines = step.texts["files/kubernetes/kubelet-arguments.txt"].decode().splitlines()
    assert lines[-5:] == [
        "--network-plugin=cni",
        r"--cni-bin-dir=C:\opt\cni\bin",
        r"--cni-conf-dir=C:\etc\cni\net.d",
        "--image-pull-progress-deadline=20m",
        "--pod-infra-container-image=registry.k8s.io/pause:3.6",
    ]
    fields = {draft.kind: draft.fields for draft in step.drafts}
    assert "-RuntimeEndpoint npipe:////./pipe/dockershim -ArgumentsFile" in fields["service"]["command"]
    assert fields["service"]["depends_on"] == ["docker"]
    assert fields["environment"]["value"] == "npipe:////./pipe/dockershim"
    assert b"containerd" not in step.texts["files/kubernetes/rotated-logs.txt"]


def test_kubelet_finds_cri_dockerd() -> None:
    docker = {"containerd": None, "docker": {"version": "28.5.1", "cri_dockerd": "0.3.20"}}
    (step,) = [s for s in evaluated("1.36.4", "", runtime=docker) if s.step.name == "kubernetes"]
    fields = {draft.kind: draft.fields for draft in step.drafts}
    assert " -RuntimeEndpoint npipe:////./pipe/cri-dockerd -ArgumentsFile" in fields["service"]["command"]
    assert fields["service"]["depends_on"] == ["cri-dockerd"]
    assert fields["environment"]["value"] == "npipe:////./pipe/cri-dockerd"


def test_csi_proxy_is_a_service_with_a_closed_log() -> None:
    """Its log grows for ever, and the task that rotates it needs a program that appends."""
    steps = evaluated("1.36.4", "2.3.4", csi_proxy={})
    (step,) = [step for step in steps if step.step.name == "csi-proxy"]
    fields = [(draft.kind, draft.fields) for draft in step.drafts]
    folder, program = r"C:\var\log\csi-proxy", r"C:\k\csi-proxy.exe"
    assert fields[:2] == [
        ("directory", {"path": folder}),
        ("acl", {"path": folder, "entries": ONLY_SYSTEM_AND_ADMINISTRATORS}),
    ]
    assert ("extract", {"path": program, "artifact": "csi-proxy", "member": "bin/csi-proxy.exe"}) in fields
    ((_, service),) = [item for item in fields if item[0] == "service"]
    assert service["command"] == (
        rf"{program} -windows-service -log_file={folder}\csi-proxy.log -logtostderr=false -log_file_max_size=0"
    )
    assert (service["start"], service["state"], service["recovery"]["restart_after_s"]) == ("automatic", "running", 10)
    (kubernetes,) = [step for step in steps if step.step.name == "kubernetes"]
    assert rf"104857600 5 {folder}\csi-proxy.log".encode() in kubernetes.texts["files/kubernetes/rotated-logs.txt"]


def test_the_service_manager_is_patient_at_first_boot() -> None:
    key = r"HKLM:\SYSTEM\CurrentControlSet\Control"
    assert ("registry", {"key": key, "name": "ServicesPipeTimeout", "type": "DWord", "data": 120000}) in resources()


@pytest.mark.parametrize("path", [r"C:\run\cluster-api", r"C:\run\kubeadm"])
def test_a_folder_of_user_data_is_closed_before_user_data_writes_to_it(path: str) -> None:
    found = resources()
    closed = found.index(("acl", {"path": path, "entries": ONLY_SYSTEM_AND_ADMINISTRATORS}))
    assert found.index(("directory", {"path": path})) < closed


@pytest.mark.parametrize("name", ["conf", "log"])
def test_cloudbase_inits_settings_and_logs_are_closed(name: str) -> None:
    """With debug on, its log holds the bootstrap token, and below Program Files every user may read."""
    path = rf"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\{name}"
    assert ("acl", {"path": path, "entries": ONLY_SYSTEM_AND_ADMINISTRATORS}) in resources()


def test_the_api_server_reaches_kubelet() -> None:
    """It opens connections to the node: a rule for those that the node opens would not admit them."""
    (rule,) = [fields for kind, fields in resources() if kind == "firewall" and fields["name"] == "kubelet"]
    assert rule == {
        **{"name": "kubelet", "display_name": "kubelet API", "port": 10250},
        **{"direction": "in", "action": "allow", "protocol": "TCP"},
    }


def test_no_node_updates_itself() -> None:
    """Windows would restart a node with its pods. Each of the two values keeps it from that: 1 is off, 2 only tells."""
    values = {fields["name"]: fields["data"] for kind, fields in resources() if kind == "registry"}
    assert (values["NoAutoUpdate"], values["AUOptions"]) == (1, 2)


EXECUTABLES: dict[str, Any] = {"executables": [{"url": "https://one.example.com/a", "path": "C:\\tools\\a.exe"}]}


@pytest.mark.parametrize(("path", "is_open"), [("C:\\tools\\a.exe", True), ("C:\\K\\a.exe", False)])
def test_a_program_of_the_operator_is_changed_by_administrators_only(path: str, is_open: bool) -> None:
    """Users may run it, but not where the folder is closed to them."""
    steps = evaluated("1.36.4", "2.3.4", executables=[EXECUTABLES["executables"][0] | {"path": path}])
    [step] = [step for step in steps if step.step.name == "executables"]
    found = [(draft.kind, draft.fields) for draft in step.drafts]
    closed = [*ONLY_SYSTEM_AND_ADMINISTRATORS, {"sid": "S-1-5-32-545", "rights": "read"}]
    folder = path.rpartition("\\")[0]
    assert found == [
        ("directory", {"path": folder}),
        *([("acl", {"path": folder, "entries": closed})] if is_open else []),
        ("file", {"path": path, "artifact": "executable-1"}),
        *([("acl", {"path": path, "entries": closed})] if is_open else []),
    ]


def test_no_mirror_replaces_the_url_of_a_program_of_the_operator() -> None:
    mirror: dict[str, Any] = {"artifacts": {"mirror": "https://mirror.example.com"}}
    steps = evaluated("1.36.4", "2.3.4", **(EXECUTABLES | mirror))
    urls = {name: request.url for step in steps for name, request in step.requests.items()}
    assert urls["executable-1"] == "https://one.example.com/a"
    assert urls["cloudbase-init"].startswith("https://mirror.example.com/github.com/")


OWN_SCRIPTS: dict[str, Any] = {
    "kubeadm_scripts": {"pre": ["one/a.ps1", "two/a.ps1"], "post": ["b.ps1"]},
    "scripts": [
        "c.ps1",
        {"file": "c.ps1", "arguments": ["-Level", "2"], "good_exit_codes": [0, 3010], "timeout_s": 90},
    ],
}


def test_scripts_for_kubeadm_are_at_their_documented_paths_in_their_order() -> None:
    (step,) = [item for item in evaluated("1.36.4", "2.3.4", **OWN_SCRIPTS) if item.step.name == "kubeadm-scripts"]
    found = [(draft.kind, draft.fields["path"], draft.fields.get("sha256")) for draft in step.drafts]
    assert found == [
        ("directory", r"C:\k\pre-kubeadm", None),
        ("file", r"C:\k\pre-kubeadm\01-a.ps1", sha256("kubeadm_scripts.pre[0]")),
        ("file", r"C:\k\pre-kubeadm\02-a.ps1", sha256("kubeadm_scripts.pre[1]")),
        ("directory", r"C:\k\post-kubeadm", None),
        ("file", r"C:\k\post-kubeadm\01-b.ps1", sha256("kubeadm_scripts.post[0]")),
    ]


def test_scripts_run_after_everything_else_in_their_order() -> None:
    steps = evaluated("1.36.4", "2.3.4", **EXECUTABLES, **OWN_SCRIPTS)
    assert steps[-1].earlier == set(STEPS) - {"scripts"}
    first, second = (draft.fields for draft in steps[-1].drafts)
    usual = {"arguments": [], "good_exit_codes": [0], "timeout_s": 600}
    asked = {"arguments": ["-Level", "2"], "good_exit_codes": [0, 3010], "timeout_s": 90}
    for number, fields, run in ((1, first, usual), (2, second, asked)):
        digest = sha256(f"scripts[{number - 1}]")
        source = f"files/scripts/c-{digest[:16]}.ps1"
        assert fields == {"name": f"0{number}-c.ps1", "source": source, "sha256": digest, **run}
    assert [KINDS["script"].model_validate(fields).may_restart for fields in (first, second)] == [False, True]


@pytest.mark.parametrize(
    ("runtime", "pipe"),
    [
        ({"containerd": {"version": "1.6.39"}}, "containerd-containerd"),
        ({"docker": {"version": "20.10.9", "cri_dockerd": "0.3.20"}}, "cri-dockerd"),
        ({"docker": {"version": "20.10.9"}}, "dockershim"),
    ],
)
def test_crictl_finds_the_runtime_without_the_variable(runtime: dict[str, Any], pipe: str) -> None:
    """A session that began before the variable was set does not have it. crictl then reads the file beside it."""
    version = "1.23.17" if pipe == "dockershim" else "1.30.14"
    steps = evaluated(version, "", section={"version": version}, runtime=runtime)
    (kubernetes,) = [step for step in steps if step.step.name == "kubernetes"]
    drafts = {(draft.kind, draft.fields.get("path") or draft.fields.get("name")): draft for draft in kubernetes.drafts}
    file = drafts["file", r"C:\k\crictl.yaml"].fields["source"]
    endpoint = f"npipe:////./pipe/{pipe}"
    assert parse_yaml(kubernetes.texts[file], file).data == {"runtime-endpoint": endpoint, "image-endpoint": endpoint}
    assert drafts["environment", "CONTAINER_RUNTIME_ENDPOINT"].fields["value"] == endpoint
