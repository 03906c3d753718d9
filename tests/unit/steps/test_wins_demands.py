"""How the versions of wins get their configuration, and the samples that keep pods off its pipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imagegen.config.yaml import parse_yaml
from imagegen.rehearsal.releases import find_published
from tests.samples_support import CASES, make, texts
from tests.unit.steps.test_node_demands import evaluated

if TYPE_CHECKING:
    from imagegen.steps.evaluate import EvaluatedStep

FOLDER = r"C:\etc\rancher\wins"


def wins_step(version: str = "0.4.11", **asked: Any) -> EvaluatedStep:  # noqa: ANN401 - any section
    section = {"version": version, **asked.pop("wins", {})}
    steps = evaluated("1.22.17", "1.6.39", wins=section, **{"kube_proxy": "none", **asked})
    (step,) = [step for step in steps if step.step.name == "wins"]
    return step


@pytest.mark.parametrize("version", ["0.0.4", "0.4.11", "0.15.0"])
def test_wins_comes_from_its_release(version: str) -> None:
    own = "https://artifacts.example.com/signed/wins.exe"
    public = f"https://github.com/rancher/wins/releases/download/v{version}/wins.exe"
    for overrides, url in (({}, public), ({"wins_url": own}, own)):
        step = wins_step(version, overrides=overrides)
        request = step.requests["wins"]
        assert (request.url, request.form) == (url, "file")
        assert ("file", {"path": r"C:\k\wins.exe", "artifact": "wins"}) in [
            (draft.kind, draft.fields) for draft in step.drafts
        ]
        assert step.components == (("wins", version),)
        assert find_published(step.step, request) is not None


KUBE_PROXY = r"C:\k\kube-proxy\kube-proxy.exe"
FLANNEL = (r"C:\k\flannel\setup.exe", r"C:\k\flannel\flanneld.exe")


@pytest.mark.parametrize(
    ("asked", "programs"),
    [
        ({"kube_proxy": "wins"}, (KUBE_PROXY, *FLANNEL)),
        ({"kube_proxy": "none"}, FLANNEL),
        ({"kube_proxy": "wins", "cni": {"plugin": "flannel"}}, (KUBE_PROXY, *FLANNEL)),
        ({"kube_proxy": "wins", "cni": {"plugin": "win-bridge"}}, (KUBE_PROXY,)),
        (
            {"kubernetes": {"version": "1.22.17", "install_path": r"C:\opt\kube"}, "cni": {"plugin": "flannel"}},
            (r"C:\opt\kube\flannel\setup.exe", r"C:\opt\kube\flannel\flanneld.exe"),
        ),
    ],
)
@pytest.mark.parametrize(
    ("version", "key", "upgrade"),
    [
        ("0.0.4", "whiteList", True),
        ("0.1.1", "whiteList", True),
        ("0.1.2", "white_list", True),
        ("0.4.17", "white_list", True),
        ("0.4.18", "white_list", False),
        ("0.15.0", "white_list", False),
    ],
)
def test_wins_starts_the_programs_that_the_config_uses(
    version: str, key: str, upgrade: bool, asked: dict[str, Any], programs: tuple[str, ...]
) -> None:
    section = asked.get("kubernetes")
    others = {name: value for name, value in asked.items() if name != "kubernetes"}
    (text,) = wins_step(version, **others, **({"section": section} if section else {})).texts.values()
    config = parse_yaml(text, "config").data
    assert config == {
        "listen": "rancher_wins",
        **({"upgrade": {"mode": "none"}} if upgrade else {}),
        key: {"processPaths": list(programs)},
    }


def test_a_policy_of_the_operator_replaces_the_configuration() -> None:
    step = wins_step(wins={"policy": "policies/wins.yaml"})
    (fields,) = [draft.fields for draft in step.drafts if draft.fields.get("path") == rf"{FOLDER}\config"]
    assert step.texts[fields["source"]] == b"wins.policy"
    assert len(step.texts) == 1


def test_the_sample_keeps_pods_off_the_pipe() -> None:
    """The pipe is a volume of type hostPath. Only pods of kube-system may have one."""
    text = texts(make(CASES["wins-1.22"]))["wins-pipe.yaml"].encode()
    objects = [parse_yaml(part, "sample").data for part in text.split(b"---\n")]
    named = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    closed = named["PodSecurityPolicy", "without-host-paths"]["spec"]
    assert not {"hostPath", "*"} & set(closed["volumes"])
    assert (closed["privileged"], closed["hostNetwork"]) == (False, False)
    opened = named["PodSecurityPolicy", "with-host-paths"]["spec"]
    assert opened["volumes"] == ["*"]
    bindings = {name: item for (kind, name), item in named.items() if kind in ("ClusterRoleBinding", "RoleBinding")}
    everybody = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
    assert bindings["use-pods-without-host-paths"]["subjects"] == [everybody]
    assert bindings["use-pods-with-host-paths"]["kind"] == "RoleBinding"
    assert bindings["use-pods-with-host-paths"]["metadata"]["namespace"] == "kube-system"
    for name, binding in bindings.items():
        (rule,) = named["ClusterRole", binding["roleRef"]["name"]]["rules"]
        assert rule["resourceNames"] == [name.removeprefix("use-pods-")]


def test_later_samples_keep_pods_off_the_pipe() -> None:
    (file,) = [parse_yaml(texts(make(CASES["wins-1.28"]))["wins-pipe.yaml"].encode(), "sample").data]
    (plugin,) = file["plugins"]
    assert plugin["configuration"]["defaults"]["enforce"] == "baseline"
    assert plugin["configuration"]["exemptions"] == {"namespaces": ["kube-system"]}
    parts = texts(make(CASES["wins-1.34"]))["wins-pipe.yaml"].encode().split(b"---\n")
    policy, binding = (parse_yaml(part, "sample").data for part in parts)
    (rule,) = policy["spec"]["validations"]
    assert rule["expression"] == "!has(object.spec.volumes) || object.spec.volumes.all(volume, !has(volume.hostPath))"
    (other,) = policy["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert other == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    assert (policy["spec"]["failurePolicy"], binding["spec"]["validationActions"]) == ("Fail", ["Deny"])
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
