"""The errors that a user can cause: each message says what is wrong, where and how to fix it."""

from __future__ import annotations

from recommender.common.exits import BAD_REQUEST, KNOWLEDGE, MACHINE


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
