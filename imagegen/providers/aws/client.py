"""Creates clients of AWS' services with the credentials of a run.

They reject answers that are not from AWS, for example the web page of a proxy, a web filter or a captive portal. The
SDK cannot parse most of them, and treats a well-formed one as an empty result.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast
from xml.sax.saxutils import escape

from imagegen.base.errors import ConfigError
from imagegen.providers.aws.settings import AssumeRole, Auth
from imagegen.providers.time_limits import CONNECT_S, READ_S, RETRIES, Deadline

if TYPE_CHECKING:
    import boto3
    import botocore.session
    from botocore.client import BaseClient
    from botocore.loaders import Loader
    from mypy_boto3_ec2.client import EC2Client

# Quoted: the types of AWS' services are there only for the type checker.
Clients = Callable[[str], "EC2Client"]
ServiceClients = Callable[[str, str], Any]


# By the variable of botocore's sessions.
_FILES: Final = {
    "config_file": "AWS_CONFIG_FILE",
    "credentials_file": "AWS_SHARED_CREDENTIALS_FILE",
    "ca_bundle": "AWS_CA_BUNDLE",
}
# For all services, or for the service whose name is its suffix; a profile may also set endpoint_url.
_ENDPOINT_VARIABLE: Final = "AWS_ENDPOINT_URL"
_HTML = re.compile(rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)


class _Answer(TypedDict):
    body: bytes
    status_code: int


class PageError(Exception):
    """Another host answered instead of AWS."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


@contextlib.contextmanager
def ec2_clients(environ: Mapping[str, str], auth: Auth) -> Iterator[Clients]:
    """Yield a function that returns the EC2 client of a region."""
    with service_clients(environ, auth) as clients:
        yield lambda region: clients("ec2", region)


@contextlib.contextmanager
def service_clients(
    environ: Mapping[str, str], auth: Auth, deadline: Deadline | None = None
) -> Iterator[ServiceClients]:
    """Yield a function that returns the client of a service in a region, and close all clients at the end.

    After the deadline no request is sent; before it, a failed request is retried once.
    """
    session: boto3.Session | None = None
    with contextlib.ExitStack() as opened:

        @functools.cache
        def client(service: str, region: str) -> Any:  # noqa: ANN401 - each service has a class of its own
            # Created late, so that its errors are explained where the first client is needed.
            nonlocal session
            session = session or session_for(environ, auth, region, deadline)
            return opened.enter_context(contextlib.closing(_new_client(session, service, region, environ)))

        yield client


@functools.cache
def _service_models() -> Loader:
    """The loader that all sessions share, because EC2's service model has megabytes of JSON."""
    import botocore.loaders

    return botocore.loaders.create_loader()


def session_for(environ: Mapping[str, str], auth: Auth, region: str, deadline: Deadline | None = None) -> boto3.Session:
    """A session with the same credentials as Packer's plugin: profile or credential chain, then the role, if any."""
    import boto3

    # Without keys or a profile, botocore uses its own chain (web identity, containers, instance roles), which reads the
    # environment of the process, and so do its proxies: it accepts no other environment.
    credentials: dict[str, str | None] = {"profile_name": auth.profile or environ.get("AWS_PROFILE") or None}
    if environ.get("AWS_ACCESS_KEY_ID") and auth.profile is None:
        credentials = {
            "aws_access_key_id": environ["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": environ.get("AWS_SECRET_ACCESS_KEY"),
            "aws_session_token": environ.get("AWS_SESSION_TOKEN") or None,
        }
    owner = boto3.Session(region_name=region, botocore_session=_core(environ, deadline), **credentials)
    if auth.assume_role is None:
        return owner
    core = _core(environ, deadline)
    _assume_role(core, owner, auth.assume_role, region, environ)
    return boto3.Session(region_name=region, botocore_session=core)


def _assume_role(
    core: botocore.session.Session, owner: boto3.Session, role: AssumeRole, region: str, environ: Mapping[str, str]
) -> None:
    """Give `core` the credentials of a role that the session `owner` can assume."""
    from botocore import credentials

    request = {"RoleArn": role.role_arn, "RoleSessionName": role.session_name}

    def refresh() -> dict[str, Any]:
        with contextlib.closing(_new_client(owner, "sts", region, environ)) as sts:
            return dict(credentials.create_assume_role_refresher(sts, request)())

    class Role(credentials.CredentialProvider):
        METHOD = "assume-role"

        def load(self) -> credentials.DeferredRefreshableCredentials:
            return credentials.DeferredRefreshableCredentials(refresh_using=refresh, method=self.METHOD)

    core.register_component("credential_provider", credentials.CredentialResolver([Role()]))


def _core(environ: Mapping[str, str], deadline: Deadline | None) -> botocore.session.Session:
    """A session whose clients have the limits of this run."""
    import botocore.config
    import botocore.session

    core = botocore.session.get_session()
    core.register_component("data_loader", _service_models())
    for variable, name in _FILES.items():
        # An empty path of the CA bundle would turn off the verification of certificates.
        if environ.get(name):
            core.set_config_variable(variable, environ[name])
    connect_s, read_s, attempts = (CONNECT_S, READ_S, RETRIES + 1) if deadline else (10, 60, 6)
    core.set_default_client_config(
        botocore.config.Config(
            connect_timeout=connect_s,
            read_timeout=read_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
        )
    )
    if deadline is not None:
        core.register("before-send", functools.partial(_check_deadline, deadline))
    return core


def _check_deadline(deadline: Deadline, **_: object) -> None:
    import botocore.exceptions as sdk

    class DeadlineError(sdk.BotoCoreError):
        """Not an error of the network, because botocore would retry that."""

        fmt = "the limit of {limit_s:g} seconds has passed"

    if not deadline.left_s:
        raise DeadlineError(limit_s=deadline.limit_s)


def _new_client(session: boto3.Session, service: str, region: str, environ: Mapping[str, str]) -> Any:  # noqa: ANN401 - each service has a class of its own
    """A client that raises PageError for answers that do not have the format of its service."""
    try:
        # The stubs accept only literal names of services.
        client: BaseClient = session.client(cast("Any", service), region_name=region)
    except ValueError as error:
        guilty = next(
            (
                name
                for name, value in sorted(environ.items())
                if name.startswith(_ENDPOINT_VARIABLE) and value and value in str(error)
            ),
            f"endpoint_url of the profile, or {_ENDPOINT_VARIABLE}",
        )
        raise ConfigError(
            f"{guilty} is not valid: {error}",
            hint=f"write a complete URL, for example https://host.example, or leave {guilty} out",
        ) from error
    host = urllib.parse.urlsplit(client.meta.endpoint_url).hostname or client.meta.endpoint_url
    is_json = "json" in client.meta.service_model.resolved_protocol
    client.meta.events.register("before-parse", functools.partial(_check_answer, host, is_json))
    return client


def _check_answer(host: str, is_json: bool, response_dict: _Answer, **_: object) -> None:
    content = _wrong_content(response_dict["body"], is_json)
    if not content:
        return
    status = response_dict["status_code"]
    message = f"{host} answered {status} with {content}"
    if status < 500:
        raise PageError(f"{message}: a proxy or web filter answered instead of AWS", host)
    # A gateway of AWS may have answered. The SDK retries server errors, but parses the body first.
    text = f"<Response><Errors><Error><Message>{escape(message)}</Message></Error></Errors></Response>"
    response_dict["body"] = json.dumps({"__type": "", "message": message}).encode() if is_json else text.encode()


def _wrong_content(body: bytes, is_json: bool) -> str:
    """What an answer contains instead of JSON or XML; empty for an answer in the right format."""
    text = body.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        return "an empty body"
    if _HTML.match(text):
        return "an HTML page"
    if not is_json:
        return "" if text.startswith(b"<") else "something that is not XML"
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "something that is not JSON"
    return "" if isinstance(answer, dict) else "something that is not a JSON object"
