"""A change of a request, and the request with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recommender.request.resolved_request import ResolvedRequest


@dataclass(frozen=True, slots=True)
class RequestChange:
    """A change that makes the request fit: the options, and a description."""

    options: str
    """Options to pass."""
    text: str
    """What they change."""


Relaxation: TypeAlias = tuple[RequestChange, ResolvedRequest]


def ask(resolved: ResolvedRequest, **options: Any) -> ResolvedRequest:
    """Return the same case with other options in its request."""
    return replace(resolved, request=replace(resolved.request, **options))
