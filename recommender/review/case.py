"""Describe one launch under review: its context, settings and estimates.

``cases(script, {"gpu": "A100-80G", "load": "single"})`` creates them; the mapping's keys are option names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

from recommender.review.context import Context, context, on_each_release
from recommender.review.known_values import configuration, known_values
from recommender.review.launch_settings import LaunchSetting, launch_settings

if TYPE_CHECKING:
    from recommender.choose.select import Candidate
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge.conditions import Value
    from recommender.request.resolved_request import ResolvedRequest
    from recommender.review.script.model import Launch, Script


@dataclass(frozen=True)
class Case:
    """Hold one launch under review.

    ``settings`` are the launch's known flags and variables, by record id. If ``gpu_known``, ``model_known`` or
    ``load_known`` is False, ``resolved`` holds an assumption that no rule may use. If ``release_known`` is False,
    the release is the newest one.
    """

    script: Script
    launch: Launch
    context: Context
    settings: Mapping[str, LaunchSetting]

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
        return known_values(self)

    @cached_property
    def configuration(self) -> Configuration | None:
        """Return the launch's whole configuration; None if a needed value is unknown."""
        return configuration(self)

    @cached_property
    def candidate(self) -> Candidate | None:
        """Return the configuration with estimates; an unknown load counts as 1."""
        from recommender.choose.select import predict

        try:
            return predict(self.resolved, self.configuration) if self.configuration else None
        except (ValueError, ArithmeticError):  # an impossible value; another rule reports it
            return None

    def on_each_release(self) -> Iterator[Case]:
        """Yield the same launch on each release, the oldest first."""
        for resolved in on_each_release(self.resolved):
            other = self.context._replace(resolved=resolved)
            yield Case(self.script, self.launch, other, launch_settings(resolved, self.launch))

    def text(self, flag: str) -> str | None:
        """Return the value that the launch gives a flag; None if none or unknown."""
        setting = self.settings.get(flag)
        return setting.text if setting else None

    def number(self, flag: str) -> float | None:
        """Return a flag's value as a finite number; None if it is not one."""
        try:
            number = float(self.text(flag) or "")
        except ValueError:
            return None
        return number if isfinite(number) else None

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
) -> list[Case]:
    """Return one case per launch of a script.

    ``options`` are the command line's and win over the script; the script wins over ``project``, the project's
    settings. The model is the one that the script starts, where that is known. ``launches`` are those of the script.
    Raise RequestError or UnknownName for invalid options.
    """
    launches = script.launches if launches is None else launches
    contexts = [context(script, launch, options, project or {}) for launch in launches]
    return [
        Case(script, launch, known, launch_settings(known.resolved, launch))
        for launch, known in zip(launches, contexts, strict=True)
    ]
