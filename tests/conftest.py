"""What every test stands on: unit tests cannot reach a network or start a process, and locks are made of test bytes."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import gc
import hashlib
import marshal
import os
import platform
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hypothesis
import pytest

from imagegen import pipeline
from imagegen.base.contents import SHIPPED, Contents
from imagegen.config import yaml
from imagegen.fetch.http import Answer
from imagegen.fetch.lock import Lock, LockedArtifact, LockedBase
from imagegen.inspect.archive import find_type, read_members
from imagegen.oci.names import LockedImage
from imagegen.oci.registry import ImageMirror, look_up_image, tarball_requests
from imagegen.oci.tarball import read_image_tarball
from imagegen.plan import context, loading
from imagegen.plan.context import artifact_requests
from imagegen.providers.provider import provider
from imagegen.rehearsal import artifacts
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.network.image_mirror import make_image_mirror
from imagegen.rehearsal.network.registries import Registries
from imagegen.steps import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from botocore.awsrequest import AWSResponse

    from imagegen.config.own_files import OwnFile
    from imagegen.fetch.request import ArtifactRequest, Override
    from imagegen.inspect.archive import ArchiveFormat
    from imagegen.plan.resolve import Decision
    from imagegen.plan.target import PreparedTarget
    from imagegen.rehearsal.artifacts import Sign
    from imagegen.rehearsal.releases import PublishedFile
    from imagegen.steps.evaluate import EvaluatedStep
    from imagegen.steps.model import Step

# As the command line does: moto's sample images take long to load, and no test wants them.
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
# moto reads a developer's profile while it is imported; no test wants it.
for _variable in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"):
    os.environ.pop(_variable, None)

# How fast examples are made says more about the machine than about a test.
hypothesis.settings.register_profile(
    "any-machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any-machine")

# A script's `&` starts programs that ignore Ctrl-C, and tests interrupt themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

REPOSITORY = Path(__file__).parent.parent
# Support ends with time; tests judge on a day of their own, and so do the commands that they run.
TODAY = datetime.date(2026, 11, 18)
os.environ["SOURCE_DATE_EPOCH"] = str(int(datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC).timestamp()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast tests do not read the others, which import most of the rehearsal only to be left out."""
    unwanted = config.getoption("markexpr") == "not e2e" and collection_path == REPOSITORY / "tests" / "e2e"
    return unwanted or None


# Seldom: looking through all that lives for garbage took a sixth of a run. What is not in a cycle goes at once anyway.
gc.set_threshold(100_000, 20, 50)


def pytest_collection_finish() -> None:
    """What was imported and collected is no garbage until the end."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """A finalizer that fails makes the run fail. pytest looks for such garbage ten times, as PyPy needs it; on CPython
    the first search finds it, and this one leaves nothing to the others."""
    gc.collect()
    gc.freeze()


_SHIPPED_STEPS = REPOSITORY / "ansible-win"
# A document and a stand-in follow from their text and their record, and nobody changes them: tests have the same ones
# again and again.
yaml._parse = functools.lru_cache(maxsize=512)(yaml._parse)
_make_stand_in, _stand_ins = artifacts._stand_in, dict[str, bytes]()


def _stand_in_once(published: PublishedFile) -> bytes:
    record = repr(published)
    if record not in _stand_ins:
        _stand_ins[record] = _make_stand_in(published)
    return _stand_ins[record]


artifacts._stand_in = _stand_in_once
_evaluate_step = evaluate.evaluate_step
_evaluated_steps: dict[tuple[str, bytes], EvaluatedStep] = {}


def _evaluate_step_once(
    step: Step, values: Mapping[str, object], overrides: Mapping[str, Override], own_files: Mapping[str, OwnFile]
) -> EvaluatedStep:
    """A step's result follows from the values that it may see, the overrides and the config's own files, and nobody
    changes it: most configs of tests differ in what one step sees."""
    if not step.folder.is_relative_to(_SHIPPED_STEPS):
        return _evaluate_step(step, values, overrides, own_files)
    with_types = marshal.dumps(
        (
            evaluate._visible(step, values),
            [(name, repr(one)) for name, one in overrides.items()],
            [(name, one.name, one.data) for name, one in own_files.items()],
        ),
        2,  # later versions write equal values in several ways
    )
    key = step.name, with_types
    if key not in _evaluated_steps:
        _evaluated_steps[key] = _evaluate_step(step, values, overrides, own_files)
    return _evaluated_steps[key]


vars(context)["evaluate_step"] = _evaluate_step_once

# Open until the first test: pytest's own workers are processes.
_guarded = {"world": False}
_connect = socket.socket.connect
_popen = subprocess.Popen.__init__


# Azure's SDK asks for the name of the machine when it is imported, which starts a program once.
platform.platform()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What the test that comes may touch. The guard stands for the whole run: putting it up each time is slow."""
    _guarded["world"] = item.get_closest_marker("e2e") is None


def _guarded_connect(sock: socket.socket, address: Any) -> None:  # noqa: ANN401 - any family's address
    if _guarded["world"]:
        pytest.fail(f"a unit test connects to {address}")
    _connect(sock, address)


def _guarded_popen(*arguments: Any, **named: Any) -> None:  # noqa: ANN401 - as the original takes
    if _guarded["world"]:
        pytest.fail("a unit test starts a process")
    _popen(*arguments, **named)


socket.socket.connect = _guarded_connect  # type: ignore[method-assign,assignment]  # that is the guard
subprocess.Popen.__init__ = _guarded_popen  # type: ignore[method-assign]  # that is the guard


@functools.cache
def locked(request: ArtifactRequest, data: bytes) -> LockedArtifact:
    """What a lock says about these bytes; computed from them."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        form, path = find_type(data[:1024]), Path(file.name)
        is_archive = request.may_be_archive and form in ("zip", "tar.gz", "tar")
        contents = read_members(path, cast("ArchiveFormat", form), request.name) if is_archive else None
        images = read_image_tarball(path, "tar", request.name) if request.form == "image" else None
    return LockedArtifact(
        url=request.url,
        sha256=_sha256(data),
        size=len(data),
        members=contents.digests if contents else None,
        sizes=contents.sizes if contents else None,
        dotted=contents.dotted if contents else None,
        images=images,
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def looked_up(cloud: str, request: Mapping[str, str]) -> LockedBase:
    """What a cloud might answer: the identity follows from what was asked for."""
    if cloud == "aws":
        identity = {"owner": request["owner"], "name": request["name"].replace("*", "2026.11.11")}
        place = {"region": request["region"], "ami_id": "ami-0123456789abcdef0"}
    else:
        identity = {name: request[name] for name in ("publisher", "offer", "sku")}
        identity["version"] = request.get("version", "20348.5499.260809")
        place = {"location": request["location"]}
    return LockedBase(request=dict(request), identity=identity, place=place)


def make_test_lock(loaded: loading.Loaded, *targets: str, sign: Sign | None = None) -> Lock:
    """A lock whose digests were computed from test bytes; for all targets unless some are named."""
    named = targets or loaded.config.targets.named()
    return _lock_for([pipeline.prepare_target(loaded, name) for name in named], sign)


def _lock_for(prepared: Iterable[PreparedTarget], sign: Sign | None = None) -> Lock:
    files: dict[str, LockedArtifact] = {}
    bases: dict[str, LockedBase] = {}
    images: dict[str, LockedImage] = {}
    for target in prepared:
        stand_ins = make_artifacts(target.steps, sign)
        files |= {name: locked(item, stand_ins[item.url]) for name, item in artifact_requests(target.steps).items()}
        spec = target.spec
        request = provider(spec.provider).base_request(spec.settings, spec.offered_image)
        bases[target.name] = looked_up(spec.provider, request)
        for name, image in target.images.items():
            if image.mirror:
                copies = make_image_mirror(image.mirror, [image.name])
                mirror = ImageMirror(image.mirror, functools.partial(_answer, copies))
                images[name] = mirror.look_up(image)
                tarballs = tarball_requests({name: image}, images)
                files |= {key: locked(request, copies[request.url]) for key, request in tarballs.items()}
            else:
                images[name] = look_up_image(image, Registries([name], image.mirrors).ask)
    return Lock(artifacts=files, base_images=bases, images=images)


def _answer(files: Mapping[str, bytes], url: str, _headers: Mapping[str, str], _authorization: str) -> Answer:
    return Answer(200, {}, files[url]) if url in files else Answer(404, {}, b"")


@dataclasses.dataclass(frozen=True)
class Decided:
    """A config's decision for one target, with what it was made from."""

    target: PreparedTarget
    lock: Lock
    decision: Decision

    @property
    def loaded(self) -> loading.Loaded:
        return self.target.loaded


def load_today(file: Path, *sets: str) -> loading.Loaded:
    """A config judged on the tests' day."""
    return loading.load(loading.ConfigRequest(file, TODAY, sets))


@pytest.fixture
def load() -> Callable[..., loading.Loaded]:
    """How a test loads a config."""
    return load_today


@pytest.fixture
def make_lock() -> Callable[[loading.Loaded], Lock]:
    """How a test makes a lock of its own."""
    return make_test_lock


@pytest.fixture
def decide(request: pytest.FixtureRequest) -> Callable[..., Decided]:
    """A config file decided for a target under a test lock. Nobody changes what it gives: others may hold it too.

    The repository stays as it is while tests run: its steps are read once, and its configs are decided once. A test
    that may patch something has steps and decisions of its own.
    """
    if "monkeypatch" in request.fixturenames:
        return lambda file, target: _decided(load_today(file), target)

    def decided(file: Path, target: str, contents: Contents = SHIPPED) -> Decided:
        if contents is not SHIPPED:
            return _decided(loading.load(loading.ConfigRequest(file, TODAY, contents=contents)), target)
        if file.is_relative_to(REPOSITORY):
            return _decided_once(file, target)
        return _decided(_loaded(file), target)

    return decided


@functools.cache
def _decided_once(file: Path, target: str) -> Decided:
    return _decided(_loaded(file), target)


def _decided(loaded: loading.Loaded, target: str) -> Decided:
    prepared = pipeline.prepare_target(loaded, target)
    lock = _lock_for([prepared])
    return Decided(prepared, lock, pipeline.decide(prepared, lock))


_steps_once = functools.cache(loading.load_steps)


def _loaded(file: Path) -> loading.Loaded:
    loaded = load_today(file)
    if loaded.contents != SHIPPED:
        return loaded
    vars(loaded)["steps"] = _steps_once()  # where the cached property would put them
    return loaded


@pytest.fixture(scope="session")
def cloud_descriptions() -> Iterator[None]:
    """Megabytes of JSON describe AWS's services, and each session of boto3 reads them anew; moto has many sessions."""
    from botocore.loaders import JSONFileLoader

    read_once = functools.cache(JSONFileLoader().load_file)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(JSONFileLoader, "load_file", lambda _, path: read_once(path))
        yield


@pytest.fixture(scope="session")
def aws_answer() -> Callable[[int, bytes], AWSResponse]:
    """What botocore has in its hands when an answer came: status and body."""
    from botocore.awsrequest import AWSResponse
    from botocore.compat import HTTPHeaders

    class Body:
        def __init__(self, data: bytes) -> None:
            self._data = data

        def stream(self) -> Iterator[bytes]:
            yield self._data

    return lambda status, body: AWSResponse("https://aws.invalid", status, HTTPHeaders(), Body(body))
