"""Facts from the LMDeploy wheels: options, configuration fields, tables of models, requirements.

``knowledge/extracted/api_server.json`` holds these facts for all covered releases; it is
written by :func:`dump_extracted` and read by :func:`load_extracted`. Everything equal in
several releases is stored once and referred to by its index.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from packaging.version import Version

from recommender.common.errors import MaintenanceError

CONFIGS = (
    "TurbomindEngineConfig",
    "PytorchEngineConfig",
    "VisionConfig",
    "SpeculativeConfig",
    "ChatTemplateConfig",
    "GenerationConfig",
)
FORMAT = 2
Value = TypeVar("Value")


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
class Listed:
    """One entry of the tables by which an engine decides what it loads.

    ``table`` is ``turbomind`` or ``pytorch`` (architectures), ``inside`` (language parts that TurboMind
    loads inside an InternVL model) or ``format`` (quantisation methods that TurboMind loads).
    """

    table: str
    name: str


@dataclass(frozen=True)
class ReleaseFacts:
    """What one wheel says. ``flexible``: its parser takes ``--a_b`` for ``--a-b``."""

    version: str
    options: tuple[Definition, ...]
    fields: tuple[ConfigField, ...]
    listed: tuple[Listed, ...]
    requires_python: str
    requires: Mapping[str, str] = field(hash=False)
    cuda: tuple[str, ...] = ()
    flexible: bool = False
    commands: Mapping[str, tuple[Definition, ...]] = field(default_factory=dict, hash=False, compare=False)
    """Options of the other commands, such as ``lite auto_awq``; kept in a file of their own."""

    def entries(self, table: str) -> frozenset[str]:
        """Return the names in one of its tables of models."""
        return self._tables.get(table, frozenset())

    @cached_property
    def _tables(self) -> Mapping[str, frozenset[str]]:
        tables: dict[str, set[str]] = {}
        for item in self.listed:
            tables.setdefault(item.table, set()).add(item.name)
        return {table: frozenset(names) for table, names in tables.items()}


@dataclass(frozen=True)
class WheelFacts:
    """All releases that were read, in order of version."""

    releases: tuple[ReleaseFacts, ...]

    def release(self, version: str) -> ReleaseFacts:
        """Return the facts of one release. Raises MaintenanceError where it was never read."""
        for release in self.releases:
            if release.version == version:
                return release
        raise MaintenanceError(f"release {version} is not among the extracted facts; extract its wheel first")

    def names(self) -> tuple[str, ...]:
        """Return every long option that any release has, sorted."""
        return tuple(sorted({item.name for release in self.releases for item in release.options if item.options}))


def _definition_lines(items: Iterable[Definition | ConfigField | Listed]) -> str:
    return ",\n".join(json.dumps(asdict(item), separators=(",", ":")) for item in items)


def _release_line(
    release: ReleaseFacts, options: list[Definition], fields: list[ConfigField], listed: list[Listed]
) -> str:
    body = {
        "options": sorted(options.index(item) for item in release.options),
        "fields": sorted(fields.index(item) for item in release.fields),
        "listed": sorted(listed.index(item) for item in release.listed),
        "requires_python": release.requires_python,
        "requires": dict(sorted(release.requires.items())),
        "cuda": list(release.cuda),
        "flexible": release.flexible,
    }
    return f"{json.dumps(release.version)}:{json.dumps(body, separators=(',', ':'))}"


def dump_extracted(releases: Iterable[ReleaseFacts]) -> str:
    """Return facts as the text of the extracted file: the same facts give the same bytes.

    What a later release adds comes after everything of earlier ones, so that a new release adds lines and moves none.
    """
    ordered = sorted(releases, key=lambda release: Version(release.version))
    options: list[Definition] = []
    fields: list[ConfigField] = []
    listed: list[Listed] = []
    for release in ordered:
        options += sorted(set(release.options) - set(options), key=lambda item: (item.name, item.dest))
        fields += sorted(set(release.fields) - set(fields), key=lambda item: (item.config, item.field))
        listed += sorted(set(release.listed) - set(listed), key=lambda item: (item.table, item.name))
    lines = ",\n".join(_release_line(release, options, fields, listed) for release in ordered)
    return (
        f'{{"format":{FORMAT},\n"definitions":[\n{_definition_lines(options)}\n],\n'
        f'"fields":[\n{_definition_lines(fields)}\n],\n"listed":[\n{_definition_lines(listed)}\n],\n'
        f'"releases":{{\n{lines}\n}}}}\n'
    )


def definition_from(raw: Mapping[str, Any]) -> Definition:
    """Return a definition from its JSON object. Raises TypeError where a key is missing."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in raw.items()}
    return Definition(**fields)


def load_extracted(path: Path) -> WheelFacts:
    """Read the extracted file. Raises MaintenanceError with the file's name where it has another form."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["format"] != FORMAT:
            raise MaintenanceError(f"{path}: format {raw['format']}, this program reads {FORMAT}; extract again")
        options = [definition_from(item) for item in raw["definitions"]]
        fields = [ConfigField(**item) for item in raw["fields"]]
        listed = [Listed(**item) for item in raw["listed"]]
        releases = [
            ReleaseFacts(
                version,
                **body
                | {
                    "options": tuple(options[index] for index in body["options"]),
                    "fields": tuple(fields[index] for index in body["fields"]),
                    "listed": tuple(listed[index] for index in body["listed"]),
                    "cuda": tuple(body["cuda"]),
                },
            )
            for version, body in raw["releases"].items()
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise MaintenanceError(f"{path}: not a file of extracted facts ({error!r}); extract again") from error
    return WheelFacts(tuple(sorted(releases, key=lambda release: Version(release.version))))


def ranges(facts: WheelFacts, describe: Callable[[ReleaseFacts], Value | None]) -> list[tuple[str, str, Value]]:
    """Return half-open ranges (since, until, value) of releases that are described by the same value.

    ``until`` is empty for what holds in the newest release. Releases without a value are in no range.
    """
    found: list[tuple[str, str, Value]] = []
    current: Value | None = None
    for release in facts.releases:
        value = describe(release)
        if value == current:
            continue
        if current is not None:
            found[-1] = (found[-1][0], release.version, current)
        if value is not None:
            found.append((release.version, "", value))
        current = value
    return found


def eras(facts: WheelFacts, option: str) -> list[tuple[str, str, Definition]]:
    """Return the ranges of releases in which an option is defined the same way; none for an unknown one."""
    return ranges(facts, lambda release: next((item for item in release.options if option in item.options), None))
