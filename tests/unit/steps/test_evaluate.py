"""A step in, its resources, texts and addresses out; it sees what it says that it reads, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.contents import StepRoot
from imagegen.base.errors import ConfigError
from imagegen.config.own_files import OwnFile
from imagegen.fetch.request import Override
from imagegen.plan.context import components_of
from imagegen.steps.evaluate import EvaluatedStep, applies, evaluate_step
from imagegen.steps.kinds import File
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.steps.model import Step

CONTEXT: dict[str, Any] = {
    "paths": {"home": "C:\\home"},
    "target": "aws",
    "kubernetes": {"version": "1.36.4"},
    "runtime": {"containerd": {"mirrors": {"b": ["1"], "a": ["2"], "c": ["1"]}}, "docker": None},
    "facts": {"pause": "pause:1", "fixes": [{"name": "a", "data": 1}, {"name": "b", "data": 2}]},
}
META = {"summary": "a step of the tests", "timeout_s": 60}


@pytest.fixture
def step(tmp_path: Path) -> Callable[..., Step]:
    """A step of these parts, as a folder of its own."""

    def made(resources: str, files: dict[str, str] | None = None, **meta: object) -> Step:
        texts = {"resources.yml": resources, **(files or {})}
        texts["meta/step.yml"] = "".join(f"{key}: {value}\n" for key, value in {**META, "reads": "[]", **meta}.items())
        for path, text in texts.items():
            (tmp_path / "extra" / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "extra" / path).write_text(text)
        return load_steps([StepRoot(tmp_path, "steps")])["extra"]

    return made


def _fields(evaluated: EvaluatedStep) -> list[dict[str, Any]]:
    return [draft.fields for draft in evaluated.drafts]


def test_paths_are_always_there(step: Callable[..., Step]) -> None:
    found = evaluate_step(step('- directory: {path: "{{ paths.home }}\\\\x"}\n'), CONTEXT, {})
    assert _fields(found) == [{"path": "C:\\home\\x"}]


@pytest.mark.parametrize(
    ("reads", "expression", "fine"),
    [
        ("[]", "target", False),
        ("[target]", "target", True),
        ("[target]", "kubernetes.version", False),
        ("[kubernetes]", "kubernetes.version", True),
        ("[kubernetes.version]", "kubernetes.version", True),
        ("[facts.pause]", "facts.pause", True),
        ("[facts.pause]", "facts.fixes | length", False),
        ("[target]", "environ", False),
        ("[target]", "''.__class__.__mro__", False),
        ("[target]", "target.__class__", False),
        ("[target]", "range(3) | length", False),
    ],
)
def test_a_step_sees_what_it_reads(step: Callable[..., Step], reads: str, expression: str, fine: bool) -> None:
    made = step(f'- environment: {{name: X, value: "{{{{ {expression} }}}}"}}\n', reads=reads)
    if fine:
        assert _fields(evaluate_step(made, CONTEXT, {}))[0]["value"]
    else:
        with pytest.raises(ConfigError, match="step extra cannot be used"):
            evaluate_step(made, CONTEXT, {})


def test_context_is_not_changed_by_what_a_step_sees(step: Callable[..., Step]) -> None:
    made = step("- directory: {path: C:\\x}\n", reads="[facts.pause, facts.fixes, kubernetes.version]")
    before = repr(CONTEXT)
    evaluate_step(made, CONTEXT, {})
    assert repr(CONTEXT) == before


def test_when_and_each(step: Callable[..., Step]) -> None:
    resources = """\
- registry: {key: "HKLM:\\\\SOFTWARE\\\\X", name: "{{ item.name }}", type: DWord, data: "{{ item.data }}"}
  each: facts.fixes
  when: item.data > 1
- directory: {path: C:\\never}
  when: target == 'azure'
- directory: {path: C:\\always}
  when: target == 'aws'
"""
    found = evaluate_step(step(resources, reads="[facts.fixes, target]"), CONTEXT, {})
    assert [(draft.kind, draft.path) for draft in found.drafts] == [
        ("registry", (0, "registry")),
        ("directory", (2, "directory")),
    ]
    assert found.drafts[0].fields["name"] == "b"
    assert found.drafts[0].fields["data"] == 2, "a whole expression keeps its type"


def test_template_becomes_a_bundled_text(step: Callable[..., Step]) -> None:
    made = step(
        "- file: {path: C:\\x.conf, template: x.conf.j2}\n- file: {path: C:\\y.cmd, source: y.cmd}\n",
        {"templates/x.conf.j2": "pause={{ facts.pause }}\n", "files/y.cmd": "echo {{ facts.pause }}\n"},
        reads="[facts.pause]",
    )
    found = evaluate_step(made, CONTEXT, {})
    expected = {"files/extra/x.conf": b"pause=pause:1\n", "files/extra/y.cmd": b"echo {{ facts.pause }}\n"}
    assert found.texts == expected
    assert [(item["source"], item["sha256"]) for item in _fields(found)] == [
        (path, hashlib.sha256(data).hexdigest()) for path, data in expected.items()
    ]


def test_each_text_of_a_template_has_a_name_of_its_own(step: Callable[..., Step]) -> None:
    resources = """\
- file: {path: "C:\\\\{{ item }}\\\\hosts.toml", template: hosts.toml.j2}
  each: runtime.containerd.mirrors
"""
    templates = {"templates/hosts.toml.j2": "host = {{ runtime.containerd.mirrors[item] | join }}\n"}
    made = step(resources, templates, reads="[runtime.containerd.mirrors]")
    found = evaluate_step(made, CONTEXT, {})
    names = {item["path"]: item["source"] for item in _fields(found)}
    digests = {text: hashlib.sha256(f"host = {text}\n".encode()).hexdigest() for text in "12"}
    one, two = (f"files/extra/hosts-{digests[text][:16]}.toml" for text in "12")
    assert names == {"C:\\a\\hosts.toml": two, "C:\\b\\hosts.toml": one, "C:\\c\\hosts.toml": one}
    assert found.texts == {one: b"host = 1\n", two: b"host = 2\n"}
    for fields in _fields(found):
        File.model_validate(fields)


def test_two_texts_cannot_have_one_name(step: Callable[..., Step]) -> None:
    resources = "- file: {path: C:\\x, template: x.conf.j2}\n- file: {path: C:\\y, source: x.conf}\n"
    made = step(resources, {"templates/x.conf.j2": "one\n", "files/x.conf": "another\n"})
    with pytest.raises(ConfigError) as caught:
        evaluate_step(made, CONTEXT, {})
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (2, "two different files of this step have the same path files/extra/x.conf in the bundle")
    ]


@pytest.mark.parametrize(
    ("meta", "expected", "because"),
    [
        ({}, True, "always"),
        ({"reads": "[target]", "when": "target == 'aws'"}, True, "target == 'aws'"),
        ({"reads": "[target]", "when": "target == 'azure'"}, False, None),
        ({"reads": "[runtime.containerd]", "when": "runtime.containerd"}, True, "runtime.containerd"),
        ({"reads": "[runtime.docker]", "when": "runtime.docker"}, False, None),
        ({"reads": "[runtime.docker.version, runtime.docker.edition]", "when": "runtime.docker"}, False, None),
    ],
)
def test_step_applies(step: Callable[..., Step], meta: dict[str, str], expected: bool, because: str | None) -> None:
    made = step(
        "- directory: {path: C:\\x}\n",
        **{key: value if key == "reads" else f'"{value}"' for key, value in meta.items()},
    )
    assert applies(made, CONTEXT) is expected
    if expected:
        assert evaluate_step(made, CONTEXT, {}).because == because


@pytest.mark.parametrize("when", ["target == 'aws'", "runtime.docker.version", "1 +"])
def test_when_that_cannot_be_judged(step: Callable[..., Step], when: str) -> None:
    made = step("- directory: {path: C:\\x}\n", reads="[runtime.docker.version]", when=f'"{when}"')
    with pytest.raises(ConfigError) as caught:
        applies(made, CONTEXT)
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [("when", 4)]


def test_artifact_that_is_left_out(step: Callable[..., Step]) -> None:
    artifacts = """
  one: {url: "https://example.com/one.zip", override: one_url, when: target == 'aws'}
  two: {url: "https://example.com/{{ runtime.docker.version }}/two.zip", override: two_url, when: target == 'azure'}"""
    resources = (
        "- file: {path: C:\\x, artifact: one}\n- file: {path: C:\\y, artifact: two}\n  when: target == 'azure'\n"
    )
    reads = "[target, runtime.docker.version]"
    found = evaluate_step(step(resources, artifacts=artifacts, reads=reads), CONTEXT, {})
    assert list(found.requests) == ["one"]
    careless = step(resources.replace("  when: target == 'azure'\n", ""), artifacts=artifacts, reads=reads)
    with pytest.raises(ConfigError) as caught:
        evaluate_step(careless, CONTEXT, {})
    assert [(problem.line, problem.message) for problem in caught.value.problems] == [
        (2, 'the artifact "two" is not used here: its `when` is false')
    ]


ARTIFACTS = """
  one: {url: "https://example.com/v{{ kubernetes.version }}/one.zip", override: one_url}
  two: {base: "https://example.com/v{{ kubernetes.version }}", path: two.exe, override: base_url}
  three: {base: "https://example.com/v{{ kubernetes.version }}", path: three.tar.gz, override: base_url}"""


@pytest.mark.parametrize(
    ("overrides", "urls", "sha256"),
    [
        (
            {},
            [
                "https://example.com/v1.36.4/one.zip",
                "https://example.com/v1.36.4/two.exe",
                "https://example.com/v1.36.4/three.tar.gz",
            ],
            None,
        ),
        (
            {"one_url": Override("https://mirror.example.com/1.bin", "a" * 64)},
            [
                "https://mirror.example.com/1.bin",
                "https://example.com/v1.36.4/two.exe",
                "https://example.com/v1.36.4/three.tar.gz",
            ],
            "a" * 64,
        ),
        (
            {"base_url": Override("https://mirror.example.com/k/")},
            [
                "https://example.com/v1.36.4/one.zip",
                "https://mirror.example.com/k/two.exe",
                "https://mirror.example.com/k/three.tar.gz",
            ],
            None,
        ),
    ],
)
def test_addresses(
    step: Callable[..., Step], overrides: dict[str, Override], urls: list[str], sha256: str | None
) -> None:
    made = step("- directory: {path: C:\\x}\n", reads="[kubernetes]", artifacts=ARTIFACTS)
    requests = evaluate_step(made, CONTEXT, overrides).requests
    assert [item.url for item in requests.values()] == urls
    assert requests["one"].sha256 == sha256
    assert [item.published for item in requests.values()] == [
        "https://example.com/v1.36.4/one.zip",
        "https://example.com/v1.36.4/two.exe",
        "https://example.com/v1.36.4/three.tar.gz",
    ]
    assert {name: item.key for name, item in requests.items()} == {
        "one": "overrides.one_url",
        "two": "overrides.base_url",
        "three": "overrides.base_url",
    }
    overridden = {item.key for item in requests.values() if item.own}
    assert overridden == {f"overrides.{name}" for name in overrides}


def test_the_kind_of_resource_says_what_an_artifact_is(step: Callable[..., Step]) -> None:
    artifacts = "".join(
        f'\n  {name}: {{url: "https://repo.example/c/download", override: one_url}}'
        for name in ("unpacked", "installed", "copied", "searched", "elsewhere", "unused")
    )
    resources = """\
- archive: {artifact: unpacked, into: C:\\x}
- file: {path: C:\\x\\whole.tar.gz, artifact: unpacked}
- package: {artifact: installed, product: P, version: "1"}
- file: {path: C:\\x\\y.zip, artifact: "{{ item }}"}
  each: "['copied']"
- file: {path: C:\\x\\z, artifact: searched, member: z}
- archive: {artifact: elsewhere, into: C:\\x}
  when: target == 'azure'
"""
    found = evaluate_step(step(resources, reads="[target]", artifacts=artifacts), CONTEXT, {})
    assert {name: request.form for name, request in found.requests.items()} == {
        "unpacked": "archive",
        "installed": "package",
        "copied": "file",
        "searched": "archive",
        "elsewhere": "archive",
        "unused": "file",
    }


def test_every_fault_is_told_at_once(step: Callable[..., Step]) -> None:
    made = step(
        "- direktory: {path: C:\\x}\n- file: {path: C:\\y, source: y}\n- file: {path: C:\\z, artifact: z}\n- [1]\n",
        artifacts='\n  one: {url: "https://example.com/{{ nothing }}", override: one_url}',
    )
    with pytest.raises(ConfigError) as caught:
        evaluate_step(made, CONTEXT, {})
    places = [(problem.file.rpartition("/")[2], problem.line, problem.path) for problem in caught.value.problems]
    assert places == [
        ("step.yml", 5, "artifacts.one"),
        ("resources.yml", 1, "[0].direktory"),
        ("resources.yml", 2, "[1].file.source"),
        ("resources.yml", 3, "[2].file"),
        ("resources.yml", 4, "[3]"),
    ]


@pytest.mark.parametrize(
    "artifacts",
    [
        "{url: 'https://x/y', base: 'https://x', path: y, override: x_url}",
        "{base: 'https://x', override: x_url}",
        "{override: x_url}",
    ],
)
def test_an_address_has_one_form(step: Callable[..., Step], artifacts: str) -> None:
    with pytest.raises(ConfigError) as caught:
        step("- directory: {path: C:\\x}\n", artifacts=f"\n  one: {artifacts}")
    assert [problem.message for problem in caught.value.problems] == ["must have either url, or base and path"]


PROGRAMS = """
  program:
    each: facts.programs
    url: "{{ item.url }}"
    sha256: item.sha256
    key: programs[{{ number - 1 }}].url
    component: program
    version: "{{ item.version }}\""""
TWO = [
    {"url": "https://example.com/a.exe", "sha256": None, "version": "1", "path": "C:\\x\\a.exe"},
    {"url": "https://example.com/b.exe", "sha256": "b" * 64, "version": "1", "path": "C:\\X\\b.exe"},
]
WITH_TWO = CONTEXT | {"facts": {"programs": TWO}}


def test_each_item_of_a_list_is_an_artifact(step: Callable[..., Step]) -> None:
    resources = '- file: {path: "{{ item.path }}", artifact: "program-{{ number }}"}\n  each: facts.programs\n'
    found = evaluate_step(step(resources, reads="[facts]", artifacts=PROGRAMS), WITH_TWO, {})
    assert [(item.name, item.url, item.sha256, item.key, item.own) for item in found.requests.values()] == [
        ("program-1", "https://example.com/a.exe", None, "programs[0].url", True),
        ("program-2", "https://example.com/b.exe", "b" * 64, "programs[1].url", True),
    ]
    assert [fields["artifact"] for fields in _fields(found)] == ["program-1", "program-2"]
    assert found.components == (("program", "1"), ("program", "1"))


def test_an_item_that_the_list_does_not_have_is_no_artifact(step: Callable[..., Step]) -> None:
    made = step("- file: {path: C:\\x, artifact: program-3}\n", reads="[facts]", artifacts=PROGRAMS)
    with pytest.raises(ConfigError) as caught:
        evaluate_step(made, WITH_TWO, {})
    assert [problem.message for problem in caught.value.problems] == ['unknown artifact "program-3"']


def test_folders_of_paths_are_named_once(step: Callable[..., Step]) -> None:
    resources = "- directory: {path: \"{{ item }}\"}\n  each: facts.programs | map(attribute='path') | folders\n"
    context = CONTEXT | {"facts": {"programs": [*TWO, {"path": "C:\\a.exe"}, {"path": "C:\\y\\z\\c.exe"}]}}
    found = evaluate_step(step(resources, reads="[facts]"), context, {})
    assert _fields(found) == [{"path": "C:\\x"}, {"path": "C:\\y\\z"}]


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        ("{url: 'https://x/y'}", "must have either override or each"),
        ("{url: 'https://x/y', override: x_url, each: facts, key: x}", "must have either override or each"),
        ("{url: 'https://x/y', each: facts}", "must have each, key and url together"),
        ("{url: 'https://x/y', override: x_url, key: x}", "must have each, key and url together"),
        ("{base: 'https://x', path: y, each: facts, key: x}", "must have each, key and url together"),
        ("{url: 'https://x/y', override: x_url, sha256: x}", "must have each with sha256"),
    ],
)
def test_a_list_of_artifacts_says_where_its_urls_come_from(
    step: Callable[..., Step], artifact: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        step("- directory: {path: C:\\x}\n", artifacts=f"\n  one: {artifact}")
    assert [message in problem.message for problem in caught.value.problems] == [True]


OWN = '- file: {path: C:\\y, own: "scripts[{{ number - 1 }}]"}\n  each: "[1, 2]"\n'


def test_a_file_of_the_config_is_bundled_by_its_digest(step: Callable[..., Step]) -> None:
    files = {"scripts[0]": OwnFile("a.ps1", b"1"), "scripts[1]": OwnFile("a.ps1", b"2")}
    found = evaluate_step(step(OWN), CONTEXT, {}, files)
    digests = [hashlib.sha256(data).hexdigest() for data in (b"1", b"2")]
    sources = [f"files/extra/a-{digest[:16]}.ps1" for digest in digests]
    expected = zip(sources, digests, strict=True)
    assert _fields(found) == [{"path": "C:\\y", "source": source, "sha256": digest} for source, digest in expected]
    assert found.texts == dict(zip(sources, (b"1", b"2"), strict=True))


def test_a_script_of_a_step_is_bundled_like_its_other_files(step: Callable[..., Step]) -> None:
    found = evaluate_step(step("- script: {name: a.ps1, source: a.ps1}\n", {"files/a.ps1": "1"}), CONTEXT, {})
    digest = hashlib.sha256(b"1").hexdigest()
    assert _fields(found) == [{"name": "a.ps1", "source": "files/extra/a.ps1", "sha256": digest}]
    assert found.texts == {"files/extra/a.ps1": b"1"}


def test_a_file_that_the_config_does_not_have_is_a_problem(step: Callable[..., Step]) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate_step(step(OWN), CONTEXT, {}, {"scripts[0]": OwnFile("a.ps1", b"1")})
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [
        ("[0].file.own", 'the config has no file "scripts[1]"')
    ]


def test_a_step_cannot_be_changed(step: Callable[..., Step]) -> None:
    made = step("- directory: {path: C:\\x}\n")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "another"  # type: ignore[misc]  # what is tested


KUBELET = (
    '{url: "https://example.com/{{ kubernetes.version }}", override: kubelet_url,'
    ' component: kubernetes, version: "{{ kubernetes.version }}"}'
)


def test_artifacts_and_resources_say_which_components_they_bring(step: Callable[..., Step]) -> None:
    resources = """\
- feature: {name: Containers}
  component: windows_containers
  version: "{{ facts.pause }}"
- feature: {name: Hyper-V}
  component: hyper_v
  version: "1"
  when: kubernetes.version == '1.0.0'
"""
    made = step(resources, reads="[kubernetes.version, facts.pause]", artifacts=f"{{kubelet: {KUBELET}}}")
    found = evaluate_step(made, CONTEXT, {"kubelet_url": Override("https://example.org/k", None)})
    assert found.components == (("windows_containers", "pause:1"), ("kubernetes", "1.36.4"))


@pytest.mark.parametrize("given", ["component: hyper_v", 'version: "1"'])
def test_a_component_has_a_version(step: Callable[..., Step], given: str) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate_step(step(f"- feature: {{name: Hyper-V}}\n  {given}\n"), CONTEXT, {})
    message = "must have both component and version, or neither"
    assert [problem.message for problem in caught.value.problems] == [message]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("url: https://example.com/x, override: x_url, component: x", "must have version with component"),
        ("url: https://example.com/x, override: x_url, release: v1", "must have product with release and values"),
        ("url: https://example.com/x, product: crictl, version: '1'", "must have either product or url"),
        ("override: x_url, product: crictl, version: '1'", "must have either product or override"),
        ("product: crictl", "must have version with product"),
        ("product: crictle, version: '1'", 'unknown product "crictle" (known: calico, '),
        ("product: crictl, version: '1', path: x.exe", "must have either url, or base and path"),
        ("product: kubernetes, version: '1'", "must have either url, or base and path"),
    ],
)
def test_an_artifact_has_a_product_or_an_address(step: Callable[..., Step], given: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        step("[]", artifacts=f"{{x: {{{given}}}}}")
    assert message in caught.value.problems[0].message


def test_one_component_has_one_version(step: Callable[..., Step]) -> None:
    resources = """\
- feature: {name: Containers}
  component: one
  version: "1"
- feature: {name: Hyper-V}
  component: one
  version: "2"
"""
    evaluated = evaluate_step(step(resources), CONTEXT, {})
    with pytest.raises(ConfigError) as caught:
        components_of([evaluated])
    assert caught.value.problems[0].message == "one has two versions: 1 and 2"
