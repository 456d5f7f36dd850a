"""Describe one launch under review: its context, settings and estimates.

``cases(script, {"gpu": "A100-80G", "load": "single"})`` creates them; the mapping's keys are option names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

from recommender.choose.arrival_rate import arrive_at
from recommender.common.units import read_number
from recommender.review.context import Context, context, on_each_release
from recommender.review.known_values import configuration, known_values
from recommender.review.launch_settings import LaunchSetting, launch_settings

if TYPE_CHECKING:
    from recommender.choose.constraints import ParsedConstraint
    from recommender.choose.select import Candidate
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge.conditions import Value
    from recommender.request.resolved_request import ResolvedRequest
    from recommender.review.script.model import Launch, Script

MOST_KINDS = 100
"""How many different servers of a file are judged: each takes an estimate; equal ones share it."""


@dataclass(frozen=True, eq=False)
class Case:
    """Hold one launch under review. Hashed by identity, so that functions can cache by it.

    ``settings`` are the launch's known flags and variables, by record id. If ``gpu_known``, ``model_known`` or
    ``load_known`` is False, ``resolved`` holds an assumption that no rule may use. If ``release_known`` is False,
    the release is the newest one.
    """

    script: Script
    launch: Launch
    context: Context
    settings: Mapping[str, LaunchSetting]
    twin: Case | None = None
    """An earlier launch with the same settings: what follows from them is computed once."""

    @property
    def resolved(self) -> ResolvedRequest:
        """Return GPU, model, release and workload."""
        return self.context.resolved

    @property
    def answered(self) -> frozenset[str]:
        """Return the questions that something answers: keys of ``context.ANSWERS``."""
        return self.context.answered

    @property
    def visible_gpus(self) -> int | None:
        """Return how many GPUs the launch sees; None if unknown."""
        return self.context.visible_gpus

    @property
    def gpu_known(self) -> bool:
        """Return whether the GPU is given."""
        return "gpu" in self.answered

    @property
    def model_known(self) -> bool:
        """Return whether the model is given."""
        return "model" in self.answered

    @property
    def load_known(self) -> bool:
        """Return whether the load is given."""
        return not self.answered.isdisjoint({"load", "rps"})

    @property
    def release_known(self) -> bool:
        """Return whether the release is given."""
        return "lmdeploy" in self.answered

    @cached_property
    def known(self) -> Mapping[str, Value]:
        """Return the known values of the condition vocabulary, by name."""
        return self.twin.known if self.twin else known_values(self)

    @cached_property
    def violated(self) -> dict[Hashable, tuple[tuple[ParsedConstraint, str], ...]]:
        """Return the constraints already found violated, by what was asked; ``checks.broken`` fills it."""
        return self.twin.violated if self.twin else {}

    @cached_property
    def configuration(self) -> Configuration | None:
        """Return the launch's whole configuration; None if a needed value is unknown."""
        return self.twin.configuration if self.twin else configuration(self)

    @cached_property
    def candidate(self) -> Candidate | None:
        """Return the configuration with estimates; an unknown load counts as 1."""
        from recommender.choose.select import predict

        if self.twin:
            return self.twin.candidate
        try:
            return predict(self.loaded, self.configuration) if self.configuration else None
        except (ValueError, ArithmeticError):  # an impossible value; another rule reports it
            return None

    @cached_property
    def loaded(self) -> ResolvedRequest:
        """Return ``resolved`` with the load that its rate leads to, where a rate is all that is known of it."""
        if self.twin:
            return self.twin.loaded
        try:
            return arrive_at(self.resolved, self.configuration) if self.configuration else self.resolved
        except (ValueError, ArithmeticError):
            return self.resolved

    @cached_property
    def _releases(self) -> tuple[Case, ...]:
        contexts = (self.context._replace(resolved=resolved) for resolved in on_each_release(self.resolved))
        return tuple(
            Case(self.script, self.launch, other, launch_settings(other.resolved, self.launch)) for other in contexts
        )

    def on_each_release(self) -> Iterator[Case]:
        """Yield the same launch on each release, the oldest first."""
        for twin in (self.twin or self)._releases:
            settings = launch_settings(twin.resolved, self.launch)
            yield Case(self.script, self.launch, twin.context, settings, twin) if self.twin else twin

    def text(self, flag: str) -> str | None:
        """Return the value that the launch gives a flag; None if none or unknown."""
        setting = self.settings.get(flag)
        return setting.text if setting else None

    def number(self, flag: str) -> float | None:
        """Return a flag's value as a finite number; None if it is not one."""
        number = read_number(self.text(flag) or "")
        return number if number is not None and isfinite(number) else None

    def effective(self, name: str) -> str | None:
        """Return a setting's value or its release default; None if unknown."""
        if name in self.settings:
            return self.text(name)
        era = self.resolved.options.get(name)
        return None if era is None or self.launch.unsure else era.default


def cases(
    script: Script,
    options: Mapping[str, Any],
    project: Mapping[str, Any] | None = None,
    launches: tuple[Launch, ...] | None = None,
    judged: Iterable[Case] = (),
) -> list[Case]:
    """Return one case per launch of a script.

    ``options`` are the command line's and win over the script; the script wins over ``project``, the project's
    settings. The model is the one that the script starts, where that is known. ``launches`` are those of the script.
    ``judged``: other cases of the script, whose estimates equal launches share.
    Of more than ``MOST_KINDS`` different servers, the later ones are left out.
    Raise RequestError or UnknownName for invalid options.
    """
    launches = script.launches if launches is None else launches
    shared = {_alike(case): case.twin or case for case in judged}
    first: dict[Hashable, Case] = {}
    launch_cases: list[Case] = []
    for launch in launches:
        known = context(script, launch, options, project or {})
        case = Case(script, launch, known, launch_settings(known.resolved, launch))
        key = _alike(case)
        if key not in first and len(first) >= MOST_KINDS:
            continue
        twin = first.setdefault(key, shared.get(key, case))
        launch_cases.append(case if twin is case else replace(case, twin=twin))
    return launch_cases


def _alike(case: Case) -> Hashable:
    """Return what determines a launch's known values, configuration and estimates."""
    launch, known = case.launch, case.context
    settings = frozenset((name, setting.text) for name, setting in case.settings.items())
    model = launch.model.value if launch.model else None
    of_launch = (launch.starts, launch.engine, launch.unsure, bool(launch.unread), model, settings)
    return (id(known.resolved), known.answered, known.visible_gpus, known.uncovered, of_launch)
