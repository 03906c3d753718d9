"""Hands a request to moto inside this process; moto's state is the process's, so one caller at a time owns it."""

from __future__ import annotations

import threading
from typing import Any

import moto.ec2.models
from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from botocore.model import OperationNotFoundError
from moto.core.base_backend import BackendDict
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.model_instances import reset_model_data
from moto.core.models import DEFAULT_ACCOUNT_ID

from imagegen.rehearsal.network.messages import Request, Response

# moto's models have no types that say much: what comes from them is checked by the tests.
Moto = Any

ACCOUNT = DEFAULT_ACCOUNT_ID
_OWNED = threading.Lock()
# What moto answers for a request that it has no code for.
_NOT_IMPLEMENTED = "Not yet implemented"


def acquire() -> None:
    """Own moto's state, from empty."""
    if not _OWNED.acquire(blocking=False):
        raise RuntimeError("moto keeps its state per process: another network that plays AWS is open in this one")
    reset()


def release() -> None:
    """Leave moto's state, empty."""
    reset()
    _OWNED.release()


def reset() -> None:
    BackendDict.reset()
    reset_model_data()


def ec2(region: str) -> Moto:
    """moto's EC2 of one region."""
    return moto.ec2.models.ec2_backends[ACCOUNT][region]


def ask(request: Request, body: bytes) -> Response:
    """moto's answer to a request, with another body where the edge took something out of it."""
    headers = HTTPHeaders()
    for name, value in request.headers.items():
        if name not in ("content-length", "transfer-encoding"):
            headers[name] = value
    prepared = AWSPreparedRequest(request.method, f"https://{request.host}{request.target}", headers, body, False)
    try:
        answer = BotocoreStubber().process_request(prepared)
    except NotImplementedError as error:
        return _unknown(request, str(error))
    except OperationNotFoundError:
        return _unknown(request, "")
    if answer is None or answer[2] == _NOT_IMPLEMENTED:
        return _unknown(request, "")
    status, answer_headers, content = answer
    content = content.encode() if isinstance(content, str) else content
    kept = ((key, str(value)) for key, value in answer_headers.items() if key.lower() != "content-length")
    return Response(int(status), content, tuple(kept))


def _unknown(request: Request, why: str) -> Response:
    text = f"unexpected AWS request {request.method} {request.host}{request.path} {why}".rstrip()
    return Response(501, text.encode(), fault=text)
