"""What was read out of the LMDeploy wheels: options, configuration fields, requirements.

``knowledge/extracted/api_server.json`` holds these facts for all covered releases; it is
written by :func:`dump_extracted` and read by :func:`load_extracted`. Everything equal in
several releases is stored once and referred to by its index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

CONFIGS = ("TurbomindEngineConfig", "PytorchEngineConfig", "VisionConfig", "SpeculativeConfig")
FORMAT = 1


class MaintenanceError(Exception):
    """Something kept by hand or downloaded is not as it must be; the message is one line."""


@dataclass(frozen=True)
class Definition:
    """One option (or positional, then without ``options``) of the api_server parser.

    ``default`` is the text argparse would parse: empty for None, lists joined by a space.
    ``choices`` is empty where any value of ``type`` is taken.
    """

    options: tuple[str, ...]
    dest: str
    action: str
    type: str
    nargs: str
    default: str
    choices: tuple[str, ...]
    required: bool
    groups: tuple[str, ...]

    @property
    def name(self) -> str:
        """The long option, or the destination of a positional."""
        return max(self.options, key=len) if self.options else self.dest


@dataclass(frozen=True)
class ConfigField:
    """One field of one of LMDeploy's configuration dataclasses, its type and default as written there."""

    config: str
    field: str
    type: str
    default: str


@dataclass(frozen=True)
class ReleaseFacts:
    """What one wheel says. ``flexible``: its parser takes ``--a_b`` for ``--a-b``."""

    version: str
    options: tuple[Definition, ...]
    fields: tuple[ConfigField, ...]
    requires_python: str
    requires: Mapping[str, str] = field(hash=False)
    cuda: tuple[str, ...] = ()
    flexible: bool = False


@dataclass(frozen=True)
class Facts:
    """All releases that were read, in order of version."""

    releases: tuple[ReleaseFacts, ...]

    def release(self, version: str) -> ReleaseFacts:
        """Facts of one release; MaintenanceError where it was never read."""
        for release in self.releases:
            if release.version == version:
                return release
        raise MaintenanceError(f"release {version} is not among the extracted facts; extract its wheel first")

    def names(self) -> tuple[str, ...]:
        """Every long option that ever occurred, sorted."""
        return tuple(sorted({item.name for release in self.releases for item in release.options if item.options}))


def _definition_lines(items: Iterable[Definition | ConfigField]) -> str:
    return ",\n".join(json.dumps(asdict(item), separators=(",", ":")) for item in items)


def _release_line(release: ReleaseFacts, options: list[Definition], fields: list[ConfigField]) -> str:
    body = {
        "options": sorted(options.index(item) for item in release.options),
        "fields": sorted(fields.index(item) for item in release.fields),
        "requires_python": release.requires_python,
        "requires": dict(sorted(release.requires.items())),
        "cuda": list(release.cuda),
        "flexible": release.flexible,
    }
    return f"{json.dumps(release.version)}:{json.dumps(body, separators=(',', ':'))}"


def dump_extracted(releases: Iterable[ReleaseFacts]) -> str:
    """Write facts as the text of the extracted file: the same facts give the same bytes.

    What a later release adds stands after all that earlier ones had, so that a new release
    adds lines and moves none.
    """
    ordered = sorted(releases, key=lambda release: Version(release.version))
    options: list[Definition] = []
    fields: list[ConfigField] = []
    for release in ordered:
        options += sorted(set(release.options) - set(options), key=lambda item: (item.name, item.dest))
        fields += sorted(set(release.fields) - set(fields), key=lambda item: (item.config, item.field))
    lines = ",\n".join(_release_line(release, options, fields) for release in ordered)
    return (
        f'{{"format":{FORMAT},\n"definitions":[\n{_definition_lines(options)}\n],\n'
        f'"fields":[\n{_definition_lines(fields)}\n],\n"releases":{{\n{lines}\n}}}}\n'
    )


def definition_from(raw: Mapping[str, Any]) -> Definition:
    """A definition from its JSON object; KeyError where a key is missing."""
    return Definition(
        options=tuple(raw["options"]),
        dest=raw["dest"],
        action=raw["action"],
        type=raw["type"],
        nargs=raw["nargs"],
        default=raw["default"],
        choices=tuple(raw["choices"]),
        required=raw["required"],
        groups=tuple(raw["groups"]),
    )


def load_extracted(path: Path) -> Facts:
    """Read the extracted file; MaintenanceError with the file's name where it is not of this form."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise MaintenanceError(f"{path}: format {raw['format']}, this program reads {FORMAT}; extract again")
        options = [definition_from(item) for item in raw["definitions"]]
        fields = [ConfigField(**item) for item in raw["fields"]]
        releases = [
            ReleaseFacts(
                version=version,
                options=tuple(options[index] for index in body["options"]),
                fields=tuple(fields[index] for index in body["fields"]),
                requires_python=body["requires_python"],
                requires=body["requires"],
                cuda=tuple(body["cuda"]),
                flexible=body["flexible"],
            )
            for version, body in raw["releases"].items()
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise MaintenanceError(f"{path}: not a file of extracted facts ({error!r}); extract again") from error
    return Facts(tuple(sorted(releases, key=lambda release: Version(release.version))))


Ranged = tuple[str, str, Definition]


def eras(facts: Facts, option: str) -> list[Ranged]:
    """Half-open ranges (since, until, definition) in which an option is defined the same way.

    ``until`` is empty for what is so in the newest release. Ranges are adjacent unless the
    option was away in between. Unknown options give an empty list.
    """
    found: list[Ranged] = []
    running: Definition | None = None
    for release in facts.releases:
        here = next((item for item in release.options if option in item.options), None)
        if here == running:
            continue
        if running is not None:
            since, _, definition = found[-1]
            found[-1] = (since, release.version, definition)
        if here is not None:
            found.append((release.version, "", here))
        running = here
    return found
