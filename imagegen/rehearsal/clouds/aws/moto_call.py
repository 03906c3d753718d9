"""Sends requests to moto in this process. moto's state belongs to the process, so only one network can use it."""

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

# moto's models have no useful types. The tests check what they return.
Moto = Any

ACCOUNT = DEFAULT_ACCOUNT_ID
_OWNED = threading.Lock()
# moto's answer to an unsupported request.
_NOT_IMPLEMENTED = "Not yet implemented"


def acquire() -> None:
    """Take moto's state, and empty it."""
    if not _OWNED.acquire(blocking=False):
        raise RuntimeError("another network with AWS is open in this process, and moto has only one state")
    reset()


def release() -> None:
    """Empty moto's state, and release it."""
    reset()
    _OWNED.release()


def reset() -> None:
    BackendDict.reset()
    reset_model_data()


def ec2(region: str) -> Moto:
    """moto's EC2 of one region."""
    return moto.ec2.models.ec2_backends[ACCOUNT][region]


def send(request: Request, body: bytes) -> Response:
    """Send a request to moto, with another body if it was changed."""
    headers = HTTPHeaders()
    for name, value in request.headers.items():
        if name not in ("content-length", "transfer-encoding"):
            headers[name] = value
    prepared = AWSPreparedRequest(request.method, f"https://{request.host}{request.target}", headers, body, False)
    try:
        answer = BotocoreStubber().process_request(prepared)
    except NotImplementedError as error:
        return _unsupported(request, str(error))
    except OperationNotFoundError:
        return _unsupported(request, "")
    if answer is None or answer[2] == _NOT_IMPLEMENTED:
        return _unsupported(request, "")
    status, answer_headers, content = answer
    content = content.encode() if isinstance(content, str) else content
    # Of a HEAD request it is the size of the object, which the answer does not have.
    dropped = () if request.method == "HEAD" else ("content-length",)
    response_headers = ((key, str(value)) for key, value in answer_headers.items() if key.lower() not in dropped)
    return Response(int(status), content, tuple(response_headers))


def _unsupported(request: Request, reason: str) -> Response:
    text = f"unexpected AWS request {request.method} {request.host}{request.path} {reason}".rstrip()
    return Response(501, text.encode(), fault=text)
