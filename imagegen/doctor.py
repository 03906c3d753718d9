"""What stands in a build's way, asked before it begins: of this machine, and of the cloud. Nothing is made by it.

`build` asks the quick part first and refuses; `imagegen doctor` asks everything and tells it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.errors import Problem, RefusedError, ToolError
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, failed_check, is_stopped

if TYPE_CHECKING:
    from imagegen.config.model import ImageConfig
    from imagegen.console import Console
    from imagegen.providers import Run


def examine(config: ImageConfig, target: str, run: Run, console: Console) -> list[Check]:
    """Everything that can be known without a lock: tools, sign-in, regions, sizes, quotas, permissions, names."""
    from imagegen.catalog.facts import windows_for
    from imagegen.plan.context import image_versions, versions_of
    from imagegen.providers import provider

    cloud, settings = provider(target), config.targets.named()[target]
    checks = [_tools(config, target, run, console)]
    with console.task(f"asking {target}", None):
        checks += cloud.quick_checks(settings, run)
        if is_stopped(checks):
            return [*checks, Check("everything else", UNKNOWN, "was not asked: the above comes first")]
        request = cloud.base_request(settings, windows_for(versions_of(config), target, cloud.generation(settings)))
        return checks + cloud.thorough_checks(settings, request, image_versions(config), run)


def refuse_wrong(config: ImageConfig, target: str, run: Run, console: Console, *, with_publish: bool = True) -> None:
    """Refuse what the quick part shows to be wrong; a warning of what could not be asked, or is not needed now."""
    from imagegen.providers import provider

    with console.task(f"asking {target} whether it can be built", None):
        checks = provider(target).quick_checks(config.targets.named()[target], run)
    wrong = [check for check in checks if check.verdict == WRONG and (with_publish or not check.of_publishing)]
    for check in checks:
        if check.verdict != OK and check not in wrong:
            kind = "not known: " if check.verdict == UNKNOWN else ""
            console.warn(f"{check.subject}: {kind}{check.message}{f' (hint: {check.hint})' if check.hint else ''}")
    if wrong:
        problems = [Problem(check.subject, 0, "", check.message, check.hint) for check in wrong]
        raise RefusedError(f"{target} would fail this build", problems=problems)


def _tools(config: ImageConfig, target: str, run: Run, console: Console) -> Check:
    """Packer and the plugin, as a build would find them; nothing is built now."""
    from imagegen.build.tools import can_be_provided, find_tools
    from imagegen.plan.context import image_versions
    from imagegen.providers import provider

    cloud = provider(target)
    settings = cloud.build_settings(config.targets.named()[target])
    needed = {cloud.PLUGIN: cloud.plugin_since(settings, len(image_versions(config)))}
    try:
        found = find_tools(environ=run.environ, console=console, build=False, needed=needed)
    except ToolError as error:
        if can_be_provided(needed):
            message = "not there yet: `imagegen build` downloads them first, or builds them with Go"
            return Check("tools", UNKNOWN, message, "run `imagegen tools`, which does it now")
        check = failed_check("tools", error)
        return check._replace(message="; ".join([check.message, *error.details]))
    plugin = found.plugins[cloud.PLUGIN]
    return Check("tools", OK, f"packer {found.packer_version}, plugin {cloud.PLUGIN} {plugin.version}")
