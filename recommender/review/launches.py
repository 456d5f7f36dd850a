"""Makes a launch of the words of an ``lmdeploy serve`` command, as LMDeploy's own parser takes them apart."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from recommender.review.mapped import Field, Page
from recommender.review.script import Container, Launch, Option, Place, Starts, Word

# How the parser of each subcommand takes an option's values; tests hold these against LMDeploy's own.
# The records know which flags are switches; that several words may follow only the parser knows.
SEVERAL = frozenset(
    {
        "--adapters",
        "--allow-headers",
        "--allow-methods",
        "--allow-origins",
        "--allowed-media-domains",
        "--api-keys",
        "--cudagraph-capture-batch-sizes",
    }
)
PROXY_SWITCHES = frozenset({"--ssl", "--dummy-prefill", "--disable-cache-status", "--disable-gdr", "--help", "-h"})
PROXY_VALUES = frozenset(
    {
        "--server-name",
        "--server-port",
        "--serving-strategy",
        "--routing-strategy",
        "--strategy",
        "--migration-protocol",
        "--link-type",
        "--log-level",
    }
)
NEGATIVE = re.compile(r"-\d+(\.\d*)?|-\.\d+")
LIKE_ENOUGH = 0.8
# What may stand between an option and its values: blanks, quotes, the marks of lists, comments.
BETWEEN = re.compile(r"(?:[\s\\\"'=,]|(?<=[\s])-(?=\s)|#[^\n]*\n)*")
SUBCOMMANDS: Mapping[str, Starts] = {"api_server": "api_server", "proxy": "proxy"}
MODULES: Mapping[str, Starts] = {
    "lmdeploy.serve.openai.api_server": "api_server",
    "lmdeploy.serve.proxy.proxy": "proxy",
}
LONGEST_NAME = 60


@cache
def _switches(starts: Starts) -> tuple[frozenset[str], frozenset[str]]:
    """The switches of a subcommand, and all its options."""
    if starts == "proxy":
        return PROXY_SWITCHES, PROXY_SWITCHES | PROXY_VALUES | {"--api-keys"}
    from recommender.store import load

    flags = load().flags.values()
    switches = {flag.option for flag in flags if all(era.type == "bool" for era in flag.eras)} | {"--help", "-h"}
    return frozenset(switches), frozenset(switches | {flag.option for flag in flags})


@cache
def _takes(name: str, starts: Starts) -> int | None:
    """How many values an option takes, None for any number. A name cut short or misspelt is taken for the nearest."""
    switches, known = _switches(starts)
    meant = name.replace("_", "-")
    if meant not in known and len(meant) <= LONGEST_NAME:
        begun = [each for each in known if each.startswith(meant)] if len(meant) > len("--") else []
        near = begun if len(begun) == 1 else difflib.get_close_matches(meant, sorted(known), 1, LIKE_ENOUGH)
        meant = near[0] if near else meant
    if meant in switches:
        return 0
    return None if meant in SEVERAL else 1


@dataclass(frozen=True)
class Surroundings:
    """What holds for a command where it stands."""

    environment: Mapping[str, Word]
    container: Container | None = None
    background: bool = False
    guarded: bool = False
    place: Place | None = None
    """Of the command; without it the launch spans its words."""


def launch(page: Page, fields: Sequence[Field], around: Surroundings, starts: Starts | None = None) -> Launch | None:
    """The launch of ``lmdeploy serve …``; None for any other subcommand.

    ``starts``: the words begin with a program that is one server, not with ``lmdeploy``.
    """
    instead: Field | None = None
    rest = list(fields[1:])
    if starts is None:
        if len(fields) < 2 or fields[1].value != "serve":
            return None
        starts = SUBCOMMANDS.get(fields[2].value or "") if len(fields) > 2 else None
        rest = list(fields[3:])
        if starts is None and len(fields) > 2 and (fields[2].value or "").startswith("-"):
            starts, rest = "api_server", list(fields[2:])
        elif starts is None:
            starts, instead = "api_server", fields[2] if len(fields) > 2 else None
            # A path or a name in the place of the subcommand is the model that its author meant.
            rest = list(fields[2:]) if instead and re.search(r"[/.$]", page.text[instead.start : instead.end]) else rest
    read = _Arguments(page, starts).read(rest)
    return Launch(
        starts=starts,
        place=_place(page, fields, around.place),
        model=page.word(read.positional[0]) if read.positional and starts == "api_server" else None,
        options=tuple(read.options),
        environment=dict(around.environment),
        extra=tuple(page.word(each) for each in read.positional[1 if starts == "api_server" else 0 :]),
        unsure=read.unsure or (instead is not None and instead.value is None),
        background=around.background,
        container=around.container,
        instead=page.word(instead) if instead else None,
        guarded=around.guarded,
    )


def _place(page: Page, fields: Sequence[Field], command: Place | None) -> Place:
    """From the program to the last word that stands behind it, so that a further word may follow there."""
    start, end = fields[0].start, fields[0].end
    inside = command is not None and command.start <= start <= command.end
    for each in fields[1:]:
        if inside and command is not None:
            if command.start <= each.start and each.end <= command.end:
                end = max(end, each.end)
        elif each.start < end or each.many:
            break
        else:
            end = each.end
    return page.place(start, end)


class _Arguments:
    """Reads options and positional words."""

    def __init__(self, page: Page, starts: Starts) -> None:
        self.page = page
        self.starts = starts
        self.options: list[Option] = []
        self.positional: list[Field] = []
        self.unsure = False

    def read(self, fields: list[Field]) -> _Arguments:
        """Takes all words, in order."""
        at = 0
        while at < len(fields):
            field = fields[at]
            value, known = field.value, field.known
            at += 1
            if value == "--":
                self.positional += fields[at:]
                break
            if field.many:
                self.unsure = True
            elif known.startswith("-") and "=" in known:
                self._option(field, [field.after(known.index("=") + 1, self.page.text)], known.partition("=")[0])
            elif value is None and known.startswith("-"):
                self.unsure = True
            elif value is not None and self._is_option(value):
                taken = self._values(value, fields, at)
                self._option(field, taken, value)
                at += len(taken)
            else:
                self._plain(field)
        return self

    def _plain(self, field: Field) -> None:
        """A word that no option takes. An unknown one behind the model may hold options."""
        if field.value is None and field.loose and (self.positional or self.starts == "proxy"):
            self.unsure = True
        else:
            self.positional.append(field)

    @staticmethod
    def _is_option(value: str) -> bool:
        return len(value) > 1 and value.startswith("-") and not NEGATIVE.fullmatch(value) and " " not in value

    def _values(self, name: str, fields: list[Field], at: int) -> list[Field]:
        """The words behind an option that are its values."""
        most = _takes(name, self.starts)
        taken: list[Field] = []
        for field in fields[at:]:
            text = field.known if field.value is None else field.value
            if field.many or self._is_option(text) or (most is not None and len(taken) >= most):
                break
            taken.append(field)
        if at < len(fields) and fields[at].many and most == 1:
            return [fields[at]]
        return taken

    def _option(self, field: Field, values: list[Field], name: str) -> None:
        start = field.start + (self.page.text[field.start : field.start + 1] in ("'", '"'))
        place = self.page.place(start, start + len(name))
        if self.page.text[place.start : place.end] != name:
            place = self.page.place(field.start, field.end)
        words = tuple(self.page.word(each) for each in values)
        if any(each.many for each in values):
            self.unsure = True
        end = words[-1].place.end if words else place.end
        if "=" in field.known and values:
            end = max(end, field.end)
        # What a command and an array or a text of the same option hold apart is not one stretch.
        ends = [place.end, *(word.place.end for word in words)]
        behind = all(
            before <= word.place.start and BETWEEN.fullmatch(self.page.text, before, word.place.start)
            for before, word in zip(ends, words, strict=False)
        )
        whole = self.page.place(place.start, end if behind else place.end)
        self.options.append(Option(name, words, place, whole))
