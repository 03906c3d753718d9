"""What a config says about the toy cloud."""

from typing import Final, Literal

import pydantic

from imagegen.providers.settings import TargetSettings

TITLE: Final = "Toy"


class Settings(TargetSettings):
    """Build and publishing on the toy cloud."""

    provider: Literal["toy"] = pydantic.Field(default="toy", description="The cloud.", examples=["toy"])
    street: str = pydantic.Field(description="Where the machine stands.", examples=["main"])

    def build_json(self) -> dict[str, object]:
        """What decides how the image is made."""
        return {"street": self.street}

    def publish_json(self) -> dict[str, object]:
        """What decides where it goes: nothing."""
        return {}
