"""The providers by name. Each is a package, and its parts are modules that have the same names in every provider.

A part is imported where it is used, so that unused providers are never imported. A new provider is its package and one
line here.
"""

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

PROVIDERS: dict[str, str] = {"aws": "imagegen.providers.aws", "azure": "imagegen.providers.azure"}


def part(provider: str, name: str) -> ModuleType:
    """Import one module of a provider's package."""
    return importlib.import_module(f"{PROVIDERS[provider]}.{name}")


def provider_folder(provider: str) -> Path:
    """The folder of a provider's package."""
    return _package_folder(PROVIDERS[provider])


@cache
def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not a package")
    return Path(spec.submodule_search_locations[0])


def provider_folders() -> list[Path]:
    """The folder of each provider."""
    return [provider_folder(name) for name in PROVIDERS]


def parts(name: str) -> dict[str, ModuleType]:
    """Import a module of every provider that has it; by provider."""
    return {
        provider: part(provider, name)
        for provider, package in PROVIDERS.items()
        if importlib.util.find_spec(f"{package}.{name}")
    }
