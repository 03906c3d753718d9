"""Checks before a build whether this machine and the cloud are ready for it. Creates nothing.

`build` runs the quick checks and refuses to start if one fails. `imagegen doctor` runs and prints all checks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from imagegen.base.errors import Problem, RefusedError, ToolError
from imagegen.build.tools import can_be_provided, find_tools
from imagegen.plan.context import components_of
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, failed_check, is_stopped
from imagegen.providers.provider import provider
from imagegen.settle.spec import with_keys_of

if TYPE_CHECKING:
    from imagegen.run import Run
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import EvaluatedStep


def examine(spec: Spec, steps: Iterable[EvaluatedStep], run: Run) -> list[Check]:
    """Run all checks that need no lock: tools, sign-in, regions, sizes, quotas, permissions, names."""
    cloud, components = provider(spec.provider), components_of(steps)
    checks = [_tools(spec, components, run)]
    with run.console.task(f"asking {spec.target}", None):
        checks += _for_target(spec, cloud.quick_checks(spec.settings, run))
        if is_stopped(checks):
            return [*checks, Check("everything else", UNKNOWN, "not checked: correct the above first")]
        request = cloud.base_request(spec.settings, spec.offered_image)
        return checks + _for_target(spec, cloud.thorough_checks(spec, request, run))


def reject_failed_checks(spec: Spec, run: Run, *, with_publish: bool = True) -> None:
    """Run the quick checks. A failed check is an error; an unknown one, or one only for publishing, is a warning."""
    with run.console.task(f"asking {spec.target} whether it can be built", None):
        checks = _for_target(spec, provider(spec.provider).quick_checks(spec.settings, run))
    wrong = [check for check in checks if check.verdict == WRONG and (with_publish or not check.of_publishing)]
    for check in checks:
        if check.verdict != OK and check not in wrong:
            kind = "unknown: " if check.verdict == UNKNOWN else ""
            run.console.warn(f"{check.subject}: {kind}{check.message}{f' (hint: {check.hint})' if check.hint else ''}")
    if wrong:
        problems = [Problem(check.subject, 0, "", check.message, check.hint) for check in wrong]
        raise RefusedError(f"{spec.target} would fail this build", problems=problems)


def _for_target(spec: Spec, checks: Iterable[Check]) -> list[Check]:
    return [
        dataclasses.replace(check, message=with_keys_of(spec, check.message), hint=with_keys_of(spec, check.hint))
        for check in checks
    ]


def _tools(spec: Spec, components: Mapping[str, str], run: Run) -> Check:
    """Check Packer and the plugin as a build would find them. Builds nothing."""
    needed = provider(spec.provider).plugin_for(spec.settings, components)
    try:
        found = find_tools(environ=run.environ, console=run.console, build=False, needed=[needed])
    except ToolError as error:
        if can_be_provided([needed]):
            message = "not installed yet: `imagegen build` first downloads them, or builds them with Go"
            return Check("tools", UNKNOWN, message, "run `imagegen tools` to install them now")
        check = failed_check("tools", error)
        return dataclasses.replace(check, message="; ".join([check.message, *error.details]))
    plugin = found.plugins[needed.name]
    return Check("tools", OK, f"packer {found.packer_version}, plugin {needed.name} {plugin.version}")
