"""Options that a model needs in some releases, such as a chat template that LMDeploy does not find itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.estimate.configuration import Configuration
from recommender.knowledge.eras import within
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.knowledge import records


def list_needs(resolved: ResolvedRequest) -> Mapping[str, records.NeededOption]:
    """Return the needs of the request's model in its release, by the setting that carries the option."""
    return {
        resolved.store.flags[need.option].setting: need
        for need in resolved.model.needs
        if need.option in resolved.options and within(need.since, need.until, resolved.version)
    }


def apply_needs(resolved: ResolvedRequest, config: Configuration) -> Configuration:
    """Return a configuration with every needed option set."""
    values: dict[str, str] = {setting: need.value for setting, need in list_needs(resolved).items()}
    return replace(config, **values) if values else config  # type: ignore[arg-type]


def find_unmet(resolved: ResolvedRequest, config: Configuration) -> tuple[records.NeededOption, ...]:
    """Return the needs that a configuration does not meet."""
    needs = list_needs(resolved).items()
    return tuple(need for setting, need in needs if not meets(need, getattr(config, setting)))


def meets(need: records.NeededOption, value: str) -> bool:
    """Return whether a value meets a need. A file is its author's decision, so it counts."""
    return value in (need.value, *need.equal) or is_file(value)


def is_file(text: str) -> bool:
    """Return whether a value looks like a file name."""
    return "/" in text or text.endswith((".json", ".jinja", ".jinja2", ".txt"))


def write_needs(resolved: ResolvedRequest, needs: Iterable[records.NeededOption]) -> str:
    """Return needs as on the command line; empty if there are none."""
    return " ".join(f"{resolved.store.flags[need.option].option} {need.value}" for need in needs)
