"""Ten thousand generated configs, valid, mutated and hostile: each gives a result or a listed problem, no traceback,
and none takes a second. A few of them run with the fast tests, all of them with the end-to-end ones."""

from __future__ import annotations

import copy
import gc
import json
import os
import time
import types
import typing
from typing import TYPE_CHECKING, Any

import hypothesis
import pydantic
import pytest
from hypothesis import strategies as st

from imagegen import pipeline
from imagegen.base.errors import ConfigError, ImagegenError
from imagegen.config.fields import keys
from imagegen.config.model import ConfigFile
from imagegen.plan import loading

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.fetch.lock import Lock

FEW = 20
# `make nightly-tests` makes ten times as many.
_TIMES = 10 if os.environ.get("IMAGEGEN_NIGHTLY") else 1
MANY = {"valid": 300 * _TIMES, "mutated": 400 * _TIMES, "hostile": 300 * _TIMES}
LIMIT_S = 1.0
# A problem is read by people.
LONGEST = 3000


def section(model: type[pydantic.BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    """A section of the right form: what is required, and some of the rest."""
    required = {name: value(field) for name, field in model.model_fields.items() if field.is_required()}
    optional = {
        name: value(field)
        for name, field in model.model_fields.items()
        if not field.is_required() and name not in ("extends", "overrides")
    }
    if model is ConfigFile:
        optional["overrides"] = overrides()
    return st.fixed_dictionaries(required, optional=optional)


def value(field: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - pydantic's FieldInfo
    """Examples and the default where the field has them; else what its type says."""
    choices = [st.sampled_from([*field.examples])] if field.examples else []
    if not field.is_required() and field.default is not None and field.default_factory is None:
        choices.append(st.just(field.default))
    return st.one_of(*choices, typed(field.annotation)) if choices else typed(field.annotation)


def typed(annotation: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - any annotation
    """A value that the type takes, as far as a type alone can tell."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return typed(arguments[0])
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(typed(part) for part in arguments))
    if origin is list:
        return st.lists(typed(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(st.sampled_from(["a", "B", "us-west-2", "docker.io"]), typed(arguments[1]), max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return st.deferred(lambda: section(annotation))
    return {
        str: st.sampled_from(["a", "1.36.4", "https://artifacts.example.com/a", "C:\\a", "us-west-2", ""]),
        int: st.integers(-1, 5000),
        bool: st.booleans(),
        types.NoneType: st.none(),
    }[annotation]


def overrides() -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["containerd_url", "kubernetes_base_url", "crictl_url", "cloudbase_init_url", "nosuch_url"])
    pinned = st.fixed_dictionaries(
        {"url": st.just("https://artifacts.example.com/a.tar.gz")},
        optional={"sha256": st.sampled_from(["0" * 64, "short"]), "signer": st.just("CN=Example")},
    )
    return st.dictionaries(names, st.one_of(st.just("https://artifacts.example.com/a"), pinned), max_size=2)


ANYTHING = st.recursive(
    st.one_of(
        *(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(max_size=20),
        ),
        st.sampled_from(["", "~", "null", "1.30", "2026-11-18", "x" * 5000, "\u2028", "🪟", "a: b", "*a", "!!x"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


PLAIN: dict[str, Any] = {
    "name": "example",
    "windows": {"release": "2022"},
    "kubernetes": {"version": "1.36.4"},
    "runtime": {"containerd": {"version": "2.3.4"}},
    "targets": {
        "aws": {"region": "eu-west-1", "network": {"allowed_cidrs": ["192.0.2.0/24"]}},
        "azure": {
            "location": "westeurope",
            "gallery": {"resource_group": "images", "name": "images", "definition": "windows"},
        },
    },
}
# A key of a section that a plain config has, and its examples.
SAID = [
    (key.path.split("."), key.field.examples)
    for key in keys()
    if not key.inner and "[" not in key.path and "*" not in key.path
]


@st.composite
def valid(draw: st.DrawFn) -> dict[str, Any]:
    """A plain config that says something of a few keys more, as their examples do."""
    config = copy.deepcopy(PLAIN)
    for path, examples in draw(st.lists(st.sampled_from(SAID), max_size=4)):
        inner: Any = config
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
        inner[path[-1]] = draw(st.sampled_from(examples))
    return config


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A valid config of which something was renamed, dropped, doubled or replaced."""
    # A whole section of everything takes long to make: most start from a plain config.
    config = copy.deepcopy(draw(section(ConfigFile) if draw(st.integers(0, 7)) == 0 else valid()))
    for _ in range(draw(st.integers(1, 3))):
        inner: Any = config
        while isinstance(inner, dict) and inner:
            key = draw(st.sampled_from(sorted(inner)))
            child = inner[key]
            if isinstance(child, dict) and child and draw(st.booleans()):
                inner = child
                continue
            match draw(st.sampled_from(["drop", "rename", "replace", "wrap"])):
                case "drop":
                    del inner[key]
                case "rename":
                    inner[f"{key}{draw(st.sampled_from('sx_'))}"] = inner.pop(key)
                case "wrap":
                    inner[key] = [child]
                case _:
                    inner[key] = draw(ANYTHING)
            break
    return config


FRAGMENTS = [
    *("a: &a [x]\n", "b: *a\n", "c: !!python/object/apply:os.system [ls]\n", "d: !custom x\n", "<<: {a: b}\n"),
    *("name: a\nname: b\n", "windows: {release: 2022}\n", "? [a]\n: b\n", "e: |\n  text\n", "f: >-\n  text\n", "---\n"),
    *("...\n", "%YAML 1.1\n", 'g: "\\ud800"\n', "h: 'it''s'\n", "\ti: x\n", "j: 0x" + "f" * 400 + "\n", "k: 1e999\n"),
    *("l: " + "[" * 300 + "\n", "m: " + "{a: " * 300 + "\n", "n: " + "9" * 6000 + "\n", "o: " + "x" * 60000 + "\n"),
    *("p: \x00\n", "q: \x07\n", "\ufeffr: x\n", "s: 12:30:45\n", "t: 2026-02-30\n", "u: .inf\n", "v: 0o9\n", "w: =\n"),
    *("extends: ../../../etc/passwd\n", "extends: config.yaml\n", "extends: /etc/passwd\n", "extends: {a: b}\n"),
    *("runtime: {containerd: {version: 1.7}}\n", "targets:\n  aws:\n  azure:\n", "kubernetes: 1.36\n", "- list\n"),
    *("overrides: {containerd_url: [https://a/b]}\n", "x" * 2000 + ": y\n", "y: [" + "a," * 5000 + "]\n", "\r\n\r\n"),
]
HOSTILE = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5).map("".join).map(str.encode),
    st.tuples(section(ConfigFile).map(json.dumps), st.sampled_from(FRAGMENTS)).map("\n".join).map(str.encode),
    st.tuples(section(ConfigFile).map(json.dumps), st.integers(0, 400), st.binary(max_size=4)).map(
        lambda cut: cut[0].encode()[: cut[1]] + cut[2] + cut[0].encode()[cut[1] :]
    ),
    st.binary(max_size=200),
)
KINDS: dict[str, st.SearchStrategy[bytes]] = {
    "valid": st.one_of(valid(), valid(), valid(), section(ConfigFile)).map(lambda config: json.dumps(config).encode()),
    "mutated": mutated().map(lambda config: json.dumps(config).encode()),
    "hostile": HOSTILE,
}


def spelt_otherwise(value: Any, depth: int = 0) -> str:  # noqa: ANN401 - any part of a config
    """The same value in block style, its keys the other way round, with comments and the other quotes."""
    indent = "  " * depth
    if isinstance(value, dict) and value:
        return "".join(
            f"\n{indent}{json.dumps(key)}: # a comment{spelt_otherwise(inner, depth + 1)}"
            if isinstance(inner, dict) and inner
            else f"\n{indent}{key if key.isidentifier() else json.dumps(key)}: {spelt_otherwise(inner, depth + 1)}"
            for key, inner in reversed(value.items())
        )
    if isinstance(value, list) and value:
        return "".join(f"\n{indent}- {json.dumps(item)}" for item in value)
    if isinstance(value, str) and "\n" not in value:
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)


@hypothesis.given(config=valid())
@hypothesis.settings(
    max_examples=FEW,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_two_spellings_have_one_plan(
    config: dict[str, Any], tmp_path: Path, decide: Callable[[Path, str], Any]
) -> None:
    files = [tmp_path / "one.yaml", tmp_path / "other.yaml"]
    for file, text in zip(files, (json.dumps(config), spelt_otherwise(config)), strict=True):
        file.write_text(text)

    def outcome(file: Path, target: str) -> object:
        try:
            return decide(file, target).decision.plan
        except ImagegenError as refused:
            return sorted((problem.path, problem.message) for problem in refused.problems)

    for target in ("aws", "azure"):
        assert outcome(files[0], target) == outcome(files[1], target)


@pytest.fixture(name="complaints")
def complaints_of(
    load: Callable[[Path], loading.Loaded], make_lock: Callable[..., Lock]
) -> Callable[[Path, dict[str, int]], None]:
    """Takes a config as far as its plan, and judges what is said where that does not go."""
    steps = loading.load_steps()

    def complaints(file: Path, outcomes: dict[str, int]) -> None:
        try:
            loaded = load(file)
            vars(loaded)["steps"] = steps
            outcomes["loaded"] += 1
            for target in loaded.config.targets.named():
                pipeline.decide(pipeline.prepare_target(loaded, target), make_lock(loaded, target))
        except ImagegenError as wrong:
            error = wrong
        else:
            return
        outcomes["refused"] += 1
        assert error.message
        assert error.problems or error.hint or not isinstance(error, ConfigError), error.message
        assert all(problem.message and len(str(problem)) < LONGEST for problem in error.problems)

    return complaints


@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        *((kind, FEW) for kind in MANY),
        *(pytest.param(kind, examples, marks=pytest.mark.e2e) for kind, examples in MANY.items()),
    ],
)
def test_a_result_or_listed_problems(
    kind: str, examples: int, tmp_path: Path, complaints: Callable[[Path, dict[str, int]], None]
) -> None:
    file = tmp_path / "config.yaml"
    outcomes = {"loaded": 0, "refused": 0}

    def judge(raw: bytes) -> None:
        file.write_bytes(raw)
        # This thread's own time, without its garbage collection, which the command line does not have either: what else
        # the machine does is no fault of the config.
        gc.disable()
        began = time.thread_time()
        try:
            complaints(file, outcomes)
        finally:
            gc.enable()
        assert time.thread_time() - began < LIMIT_S

    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    settings(hypothesis.given(KINDS[kind])(judge))()
    assert outcomes["refused"]
    if kind == "valid" and examples > FEW:
        assert outcomes["loaded"] > examples // 5
