"""The rules for kubelet's credential providers. Pure."""

from collections.abc import Iterator
from typing import Final

from imagegen.catalog.facts import minor, numbers, table
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule

_FLAGS: Final = ("image-credential-provider-bin-dir", "image-credential-provider-config")


@rule("credential-providers-kubernetes", ERROR, "kubelet of this Kubernetes must support credential providers")
def credential_providers_kubernetes(given: RuleInput) -> Iterator[Finding]:
    first, version = table("kubelet")["credential_providers"][0]["first"], minor(given.config.kubernetes.version)
    if given.config.credential_providers and numbers(version) < numbers(first):
        yield Finding(
            ("credential_providers",),
            f"kubelet supports credential providers from Kubernetes {first} on, and this is {version}",
            "leave credential_providers out",
        )


@rule(
    "credential-providers-enabled", ERROR, "The feature gate of credential providers must not be disabled beside them"
)
def credential_providers_enabled(given: RuleInput) -> Iterator[Finding]:
    gates = {row["gate"] for row in table("kubelet")["credential_providers"]} - {None}
    for gate in sorted(gates):
        if given.config.credential_providers and given.config.kubernetes.feature_gates.get(gate) is False:
            yield Finding(
                ("kubernetes", "feature_gates", gate),
                f"without {gate}, kubelet ignores credential_providers",
                "leave the feature gate out",
            )


@rule("credential-provider-flags", ERROR, "kubelet_flags must not replace the flags of credential_providers")
def credential_provider_flags(given: RuleInput) -> Iterator[Finding]:
    for flag in _FLAGS:
        if given.config.credential_providers and flag in given.config.kubernetes.kubelet_flags:
            yield Finding(
                ("kubernetes", "kubelet_flags", flag),
                f"credential_providers sets --{flag}, and kubelet would use only this value",
                "leave the flag out, or leave credential_providers out",
            )
