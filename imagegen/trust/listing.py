"""Lists the scripts of an image and of its samples, by the paths that `imagegen sign-list` shows. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.plan.resolve import needed_files
from imagegen.steps.kinds import PLANNED_AS
from imagegen.trust.block import is_script

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from imagegen.steps.evaluate import EvaluatedStep

SAMPLES: Final = "samples/"


@dataclasses.dataclass(frozen=True)
class ListedScript:
    """A script, as imagegen or the operator wrote it."""

    path: str
    data: bytes

    @property
    def on_image(self) -> bool:
        """Whether the build needs it. The others run in pods of the samples."""
        return not self.path.startswith(SAMPLES)


@dataclasses.dataclass(frozen=True)
class Sources:
    """The scripts of the engine and of the cloud by their paths. Those of `boot_names` the cloud's own agent runs when
    the builder starts: it gets them as text, before any policy is in force."""

    guest: Mapping[str, bytes]
    scripts: Mapping[str, bytes]
    boot_names: Collection[str]


def list_scripts(
    steps: Iterable[EvaluatedStep], sources: Sources, samples: Mapping[str, bytes]
) -> tuple[ListedScript, ...]:
    """The scripts of these steps, of the engine and of the cloud, and of the samples, sorted by path."""
    steps = list(steps)
    kinds = {PLANNED_AS.get(draft.kind, draft.kind) for step in steps for draft in step.drafts}
    if "archive" in kinds:
        # An override can have a layout of its own. Then the plan has single files instead of the archive.
        kinds.add("file")
    texts = {path: text for step in steps for path, text in step.texts.items()}
    in_pods = {SAMPLES + path: data for path, data in samples.items()}
    sent = {path: data for path, data in sources.scripts.items() if path.rpartition("/")[2] not in sources.boot_names}
    files = {**needed_files(sources.guest, kinds), **texts, **sent, **in_pods}
    return tuple(ListedScript(path, files[path]) for path in sorted(files) if is_script(path))
