"""The errors of Azure Resource Manager (ARM)."""

from __future__ import annotations

from imagegen.rehearsal.network.messages import Response


class ArmError(Exception):
    """A rejected request. With a `fault`, the request itself fails the rehearsal."""

    def __init__(self, status: int, code: str, message: str, *, fault: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fault = fault

    def response(self) -> Response:
        body = Response.of_json(self.status, {"error": {"code": self.code, "message": self.message}})
        return Response(body.status, body.body, body.headers, fault=self.fault)


def not_found(resource_id: str) -> ArmError:
    return ArmError(404, "ResourceNotFound", f"The Resource '{resource_id}' was not found.")
