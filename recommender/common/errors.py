"""The errors that a user can cause: each message says what is wrong, where and how to fix it.

Two more are defined elsewhere, because they hold results: ``choose.recommend.NothingFits`` and
``smoke.failures.Failure``.
"""

from __future__ import annotations

from recommender.common.exit_codes import BAD_REQUEST, KNOWLEDGE, MACHINE


class UserError(Exception):
    """A mistake that the user can fix; ``exit_code`` is the command's. The message is one line."""

    exit_code = BAD_REQUEST


class RequestError(UserError):
    """The request makes no sense."""


class UnknownName(RequestError):
    """No record has this name; the message lists near matches."""


class CheckpointError(RequestError):
    """A local checkpoint folder cannot be used."""


class NoGpu(UserError):
    """No GPU was detected for ``--gpu auto``."""

    exit_code = MACHINE


class MaintenanceError(UserError):
    """A file that a maintenance command needs is missing or malformed."""

    exit_code = MACHINE


class KnowledgeError(UserError):
    """A record is broken. The message names the file, the field and the fix."""

    exit_code = KNOWLEDGE


class SettingsError(UserError):
    """A project's settings are invalid; the message names file, key and how to fix it."""


class UnknownRule(UserError):
    """No rule has this id; the message lists near matches."""


class PlanError(UserError):
    """A measurement plan cannot be run; ``problems`` holds one line each: file, place and fix."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems[0])
        self.problems = problems
