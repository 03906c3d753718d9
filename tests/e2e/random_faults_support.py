"""The clouds of a rehearsal inside this process: the SDKs' requests reach them without a socket, and time is counted.

Everything that imagegen does around Packer is its own; Packer is what each cloud's `make_image` does with the cloud.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
import json
import types
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import botocore.endpoint
import botocore.exceptions
import requests
from azure.core.pipeline.transport import HttpTransport
from botocore.client import ClientCreator

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.base.errors import BuildError
from imagegen.build.tools import Plugin, Toolchain
from imagegen.fetch.lock import lock_bytes
from imagegen.leftovers import sweep
from imagegen.leftovers.sweep import read_runs
from imagegen.pipeline import BuildOptions
from imagegen.plan import loading
from imagegen.plan.model import BuildPlan
from imagegen.providers.aws import client
from imagegen.providers.aws import provider as aws_provider
from imagegen.providers.azure import provider as azure_provider
from imagegen.providers.azure.settings import Settings as AzureSettings
from imagegen.providers.tags import EXPIRES_AT, IMAGE_ID, NEVER, RUN_ID
from imagegen.providers.time_limits import Clock
from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.cloud import Aws, AwsOptions
from imagegen.rehearsal.clouds.aws.images import BuiltAmi
from imagegen.rehearsal.clouds.azure import arm, versions
from imagegen.rehearsal.clouds.azure.cloud import Azure, AzureOptions
from imagegen.rehearsal.clouds.azure.machines import MACHINE
from imagegen.rehearsal.clouds.azure.resources import GroupId, new_resource, region
from imagegen.rehearsal.clouds.azure.state import Call, VmState
from imagegen.rehearsal.network.journal import Injections
from imagegen.rehearsal.network.machine import MachineIdentity
from imagegen.rehearsal.network.messages import Request, Response, parse_target
from imagegen.rehearsal.preparation import prepare_setup
from imagegen.run import Run
from tests.conftest import TODAY, make_test_lock
from tests.e2e.rehearsal_support import options_of
from tests.unit.pipeline.test_build_and_publish import report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.httpsession import URLLib3Session
    from botocore.model import ServiceModel

    from imagegen.build.packer import PackerBuild
    from imagegen.fetch.lock import Lock
    from imagegen.leftovers.journal import RecordedRun
    from imagegen.plan.resolve import Decision
    from imagegen.plan.target import PreparedTarget
    from imagegen.providers.aws.settings import Auth
    from imagegen.record.manifest import ImageManifest
    from imagegen.trust.sources import CrlUse

LABELS = {"team": "web"}
# At an image that is on its way, until it is there.
_LOOKS = 4
KILLED = "Packer was killed"
_PLUGIN = Plugin("9.9.9", Path("plugin"))


class Time:
    """Seconds that pass where somebody waits, and only there."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> Clock:
        return Clock(now=lambda: self.now, pause=self.sleep)


class InProcessCloud:
    """One cloud for one example; `injections` are the faults of the run that is under way."""

    def __init__(self, host: Callable[[Request], Response]) -> None:
        self._host = host
        self.injections = Injections()
        self.made = 0
        self.packer_dies = False

    def answer(self, request: Request) -> Response:
        told = self.injections.exchange(request, lambda: self._host(request))
        assert not told.fault, told.fault
        return told

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """What others do in the cloud meets no fault."""
        disturbed, self.injections = self.injections, Injections()
        try:
            yield
        finally:
            self.injections = disturbed


class InProcessAws(InProcessCloud):
    """EC2 by moto, at the place where botocore would send."""

    def __init__(self, aws: Aws, home: str, away: str) -> None:
        super().__init__(aws)
        self._aws = aws
        self.environ = aws.credentials
        self.home, self.away = home, away

    def make_image(self, plan: BuildPlan, variables: Mapping[str, str]) -> str:
        """As Packer leaves it; where it dies too early, on its way, and with the builder's time. Its artifact's id."""
        self.made += 1
        name = f"capa-ami-{plan.short_id}-{self.made}"
        image = moto_call.ec2(self.home).register_image(name, "an image")
        image.__class__ = BuiltAmi
        image.root_device_type = "ebs"
        tags = {"Name": name, IMAGE_ID: plan.image_id, RUN_ID: variables["run_id"], **_label_tags(variables)}
        image.add_tags({**tags, EXPIRES_AT: variables["expires_at"] if self.packer_dies else NEVER})
        if self.packer_dies:
            self._aws._images._mark_pending(self.home, image, _LOOKS)
        return f"{self.home}:{image.id}"

    def make_newer(self, plan: BuildPlan, variables: Mapping[str, str]) -> str:
        """As the Packer of another machine leaves it, a moment later."""
        artifact = self.make_image(plan, variables)
        moto_call.ec2(self.home).amis[artifact.rpartition(":")[2]].creation_date += datetime.timedelta(1)
        return artifact

    def tags(self, artifact: str) -> dict[str, str]:
        image = moto_call.ec2(self.home).amis[artifact.rpartition(":")[2]]
        return {tag["key"]: tag["value"] for tag in image.get_tags()}

    def check_end(self) -> None:
        """No finished image ever expires."""
        for image in (*self._own(self.home, "available", "pending"), *self._own(self.away, "available", "pending")):
            assert {tag["key"]: tag["value"] for tag in image.get_tags()}[EXPIRES_AT] == NEVER
            assert image.state == "available"

    def usable(self) -> dict[str, int]:
        """How many images there are in each region."""
        return {region: len(self._own(region, "available", "pending")) for region in (self.home, self.away)}

    def follow_hints(self, clean_up: Callable[[], None]) -> None:
        """The janitor removes copies that failed, with their snapshots, and nothing else of the image."""
        ec2 = moto_call.ec2(self.away)
        failed = self._own(self.away, "failed")
        if not failed:
            return
        others = self._all_images() - {image.id for image in failed}
        clean_up()
        assert self._all_images() == others
        assert not {image.ebs_snapshot.id for image in failed} & ec2.snapshots.keys()

    def _all_images(self) -> set[str]:
        return {name for region in (self.home, self.away) for name in moto_call.ec2(region).amis}

    def _own(self, region: str, *states: str) -> list[moto_call.Moto]:
        images = moto_call.ec2(region).amis.values()
        return [image for image in images if image.owner_id == moto_call.ACCOUNT and image.state in states]


class InProcessAzure(InProcessCloud):
    """The small Resource Manager, at the place where requests would send."""

    def __init__(self, azure: Azure, failing: dict[str, str], home: str, away: str) -> None:
        super().__init__(azure)
        self.environ = azure.credentials
        self.home, self.away = home, away
        self.failing = failing
        self._state = azure._state

    def make_image(self, plan: BuildPlan, variables: Mapping[str, str]) -> str:
        """As Packer leaves it: captured from a machine that is deallocated and generalised, not in latest yet.

        Its artifact's id.
        """
        self.made += 1
        gallery, state = cast("BuildPlan[AzureSettings]", plan).settings.gallery, self._state
        builders = GroupId(state.application.subscription, "builders")
        machine = new_resource(builders, MACHINE, f"vm-{self.made}", self.home, {}, None)
        state.resources.put(machine)
        identity = MachineIdentity("azure", machine["id"], "203.0.113.9", "image", "packer", "password")
        state.machines[machine["id"].lower()] = VmState(identity, "V2", "", "", power="deallocated", generalized=True)
        names = {
            "subscription": state.application.subscription,
            "group": gallery.resource_group,
            "gallery": gallery.name,
            "image": gallery.definition,
            "version": variables["gallery_image_version"],
        }
        body = {
            "location": self.home,
            "tags": {
                **{IMAGE_ID: plan.image_id, RUN_ID: variables["run_id"], EXPIRES_AT: variables["expires_at"]},
                **_label_tags(variables),
            },
            "properties": {
                "storageProfile": {"source": {"virtualMachineId": machine["id"]}},
                "publishingProfile": {"excludeFromLatest": True, "targetRegions": [{"name": self.home}]},
            },
        }
        call = Call(Request("PUT", arm.HOST, "", body=json.dumps(body).encode()), names)
        versions.put(state, call)
        while (version := json.loads(versions.get(state, call).body))["properties"]["provisioningState"] == "Creating":
            pass
        return str(version["id"])

    def make_newer(self, plan: BuildPlan, variables: Mapping[str, str]) -> str:
        """As the Packer of another machine leaves it, with the next number."""
        major, minor, patch = variables["gallery_image_version"].split(".")
        return self.make_image(plan, {**variables, "gallery_image_version": f"{major}.{minor}.{int(patch) + 1}"})

    def tags(self, artifact: str) -> dict[str, str]:
        return next(dict(it["tags"]) for it in self._state.resources.of_type(versions.VERSION) if it["id"] == artifact)

    def usable(self) -> dict[str, int]:
        """How many versions there are in each region that are shown."""
        shown = [
            {region(target["name"]) for target in version["properties"]["publishingProfile"]["targetRegions"]}
            for version in self._state.resources.of_type(versions.VERSION)
            if version["properties"]["provisioningState"] == "Succeeded"
            and not version["properties"]["publishingProfile"]["excludeFromLatest"]
        ]
        return {name: sum(name in regions for regions in shown) for name in (self.home, self.away)}

    def check_end(self) -> None:
        """What is published does not expire."""
        for version in self._state.resources.of_type(versions.VERSION):
            assert RUN_ID in version["tags"]
            assert EXPIRES_AT not in version["tags"]

    def follow_hints(self, _clean_up: Callable[[], None]) -> None:
        """What made a replication fail is over."""
        self.failing.clear()


Cloud = InProcessAws | InProcessAzure


def _label_tags(variables: Mapping[str, str]) -> dict[str, str]:
    return {f"imagegen_label_{key}": value for key, value in json.loads(variables["labels"]).items()}


@dataclasses.dataclass
class Product:
    """imagegen on one config and target. What its pure parts make is made once."""

    target: str
    config: Path
    patch: pytest.MonkeyPatch
    time: Time = dataclasses.field(default_factory=Time)
    cloud: Cloud | None = None
    plan: BuildPlan | None = None

    def __post_init__(self) -> None:
        loaded = loading.load(loading.ConfigRequest(self.config, TODAY))
        vars(loaded)["steps"] = loading.load_steps()
        self.lock = make_test_lock(loaded, self.target).model_copy(update={"base_images": {}})
        self.loaded = loaded
        decide, render = pipeline.decide, pipeline.render_tree
        decisions: dict[bytes, Decision] = {}

        def decide_once(target: PreparedTarget, lock: Lock, crls: CrlUse) -> Decision:
            data = lock_bytes(lock)
            if data not in decisions:
                decisions[data] = decide(target, lock, crls)
            self.plan = decisions[data].plan
            return decisions[data]

        trees: dict[str, dict[str, bytes]] = {}

        def render_once(decision: Decision) -> dict[str, bytes]:
            if decision.plan.image_id not in trees:
                trees[decision.plan.image_id] = render(decision)
            return trees[decision.plan.image_id]

        self.prepared = pipeline.prepare_target(loaded, self.target)
        tools = Toolchain(self.config, "1.16.0", {"amazon": _PLUGIN, "azure": _PLUGIN}, {})
        for name, instead in {
            "decide": decide_once,
            "render_tree": render_once,
            "find_toolchain": lambda *_: tools,
            "check": lambda *_: None,
        }.items():
            self.patch.setattr(pipeline, name, instead)
        self.patch.setattr(pipeline, "build_tree", self._build_tree)
        for module in (aws_provider, azure_provider):
            self.patch.setattr(module, "Clock", self.time.clock)
        self.patch.setattr(botocore.endpoint, "time", types.SimpleNamespace(sleep=self.time.sleep))
        self._keep_what_is_costly()
        self.patch.setattr(HttpTransport, "sleep", lambda _, seconds: self.time.sleep(seconds))

    def _keep_what_is_costly(self) -> None:
        """A plan's identity, a session of boto3, the eight hundred methods of each client: each made once."""
        creator: Any = ClientCreator
        make_methods, make_session, identity = creator._create_methods, client.session_for, BuildPlan.image_id
        methods: dict[str, dict[str, object]] = {}
        sessions: dict[str, object] = {}
        identities: dict[int, str] = {}

        def kept_methods(creator: ClientCreator, service: ServiceModel) -> dict[str, object]:
            if service.service_name not in methods:
                methods[service.service_name] = make_methods(creator, service)
            return dict(methods[service.service_name])

        def kept_session(environ: Mapping[str, str], auth: Auth, region: str, *_: object) -> object:
            if region not in sessions:
                sessions[region] = make_session(environ, auth, region)
            return sessions[region]

        def kept_identity(plan: BuildPlan) -> str:
            if id(plan) not in identities:
                identities[id(plan)] = cast("str", identity.__get__(plan))
            return identities[id(plan)]

        self.patch.setattr(ClientCreator, "_create_methods", kept_methods)
        self.patch.setattr(client, "session_for", kept_session)
        self.patch.setattr(BuildPlan, "image_id", property(kept_identity))

    def open_cloud(self, scratch: Path) -> contextlib.AbstractContextManager[Cloud]:
        """A cloud as a rehearsal's, for one example."""
        return self._open_aws(scratch) if self.target == "aws" else self._open_azure(scratch)

    @contextlib.contextmanager
    def _open_aws(self, scratch: Path) -> Iterator[Cloud]:
        options = options_of(prepare_setup(self.loaded, "aws", scratch), AwsOptions)
        home, away = options.regions
        with Aws(options, lambda _: None) as aws:
            self.cloud = InProcessAws(aws, home, away)
            yield self.cloud

    @contextlib.contextmanager
    def _open_azure(self, scratch: Path) -> Iterator[Cloud]:
        options = options_of(prepare_setup(self.loaded, "azure", scratch), AzureOptions)
        settings = self.loaded.specs["azure"].settings
        assert isinstance(settings, AzureSettings)
        failing: dict[str, str] = {}
        azure = Azure(dataclasses.replace(options, failing_regions=failing), lambda _: None)
        self.cloud = InProcessAzure(azure, failing, settings.location, *settings.publish.regions)
        yield self.cloud

    def clean_up(self, folder: Path) -> None:
        """`imagegen janitor --delete`."""
        assert self.cloud is not None
        console = Console(io.StringIO(), plain=True)
        environ = {**self.cloud.environ, "HOME": str(folder)}
        run = Run(environ, LABELS, "2026-11-18T22:00:00Z", "janitor", console=console, out=folder / "out")

        def read() -> list[RecordedRun]:
            return read_runs(run.out, console.warn)

        swept = sweep.clean_up(sweep.places_of(read()), read, run, 50)
        assert swept.faults == []

    def build(self, folder: Path, hour: int, said: io.StringIO) -> ImageManifest:
        """`imagegen build`, from its first look to the record."""
        assert self.cloud is not None
        run = Run(
            *({**self.cloud.environ, "HOME": str(folder)}, LABELS, f"2026-11-18T{hour:02}:00:00Z", f"run-{hour}"),
            console=Console(said, plain=True),
            out=folder / "out",
        )
        return pipeline.build(self.prepared, BuildOptions(folder / "lock.json"), run)

    def _build_tree(self, _tools: object, job: PackerBuild, **_rest: object) -> str:
        assert self.cloud is not None
        assert self.plan is not None
        report = Path(job.variables["report_file"])
        report.parent.mkdir(exist_ok=True)
        report.write_text(json.dumps(report_of(self.plan)))
        made = self.cloud.make_image(self.plan, job.variables)
        if self.cloud.packer_dies:
            raise BuildError(KILLED)
        return made


def sent_by_botocore(product: Product, make_answer: Callable[[int, bytes], AWSResponse]) -> object:
    """What takes the place of botocore's HTTP."""

    def send(_: URLLib3Session, request: AWSPreparedRequest) -> AWSResponse:
        assert product.cloud is not None
        parts, body = urllib.parse.urlsplit(request.url), request.body or b""
        data = body.encode() if isinstance(body, str) else cast("bytes", body)
        sent: Any = request.headers
        headers = {key.lower(): value if isinstance(value, str) else value.decode() for key, value in sent.items()}
        told = product.cloud.answer(
            Request(request.method, parts.hostname or "", parts.path, {}, headers, data, parts.path)
        )
        if not told.status:
            raise botocore.exceptions.ConnectionClosedError(endpoint_url=request.url)
        return make_answer(told.status, told.body)

    return send


def sent_by_requests(product: Product) -> object:
    """What takes the place of requests' HTTP."""

    def request(_: requests.Session, method: str, url: str, **named: Any) -> requests.Response:  # noqa: ANN401 - as requests has them
        assert product.cloud is not None
        parts = urllib.parse.urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        path, query = parse_target(target)
        data = named.get("data") or b""
        text = urllib.parse.urlencode(data) if isinstance(data, dict) else data
        body = text.encode() if isinstance(text, str) else text
        headers = {key.lower(): value for key, value in (named.get("headers") or {}).items()}
        told = product.cloud.answer(Request(method, parts.netloc, path, query, headers, body, target))
        if not told.status:
            raise requests.exceptions.ConnectionError("Connection reset by peer")
        made = requests.Response()
        made.status_code, made.reason, made.url = told.status, "", url
        made.headers.update(dict(told.headers))
        made.raw = io.BytesIO(told.body)
        return made

    return request
