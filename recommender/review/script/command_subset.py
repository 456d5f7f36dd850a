"""Say which of the possible commands of a launch something is about, if it is not about all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from recommender.review.script.model import GivenOption, Launch, Script, Span

LONGEST = 80
Groups = Mapping[int, tuple[Launch, ...]]


class CommandSubset(NamedTuple):
    """The commands in words, empty if the place shows them; and the options that they alone have."""

    words: str
    options: tuple[GivenOption, ...]

    def holds(self, places: Iterable[Span]) -> bool:
        """Return whether places are in the words of these commands, so that no other command has them."""
        return not self.words and all(
            any(option.place.line == place.line for option in self.options) for place in places
        )


def group_commands(script: Script) -> Groups:
    """Return the commands of each launch that differ in their options only, by the id of each."""
    found: dict[int, tuple[Launch, ...]] = {}
    for launch in () if script.generated else script.launches:
        group = (launch, *launch.alternatives)
        if len(group) > 1 and all(_same_but_options(launch, other) for other in group):
            found |= {id(each): group for each in group}
    return found


def _same_but_options(launch: Launch, other: Launch) -> bool:
    one, two = (each._replace(options=(), alternatives=(), turns=()) for each in (launch, other))
    return one == two


def find_subset(groups: Groups, owners: Collection[int], place: Span) -> CommandSubset | None:
    """Return which commands something at a place is about, by their ids; None if it is about all of a launch."""
    partly = [groups[owner] for owner in owners if owner in groups]
    if (
        len(partly) < len(owners)
        or not partly
        or any({id(launch) for launch in group} <= set(owners) for group in partly)
    ):
        return None
    group = partly[0]
    holders, others = ([launch for launch in group if (id(launch) in owners) == mine] for mine in (True, False))
    varying = _varying(group)
    present = [option for option in varying if all(_has(launch, option) for launch in holders)]
    absent = [option for option in varying if not any(_has(launch, option) for launch in holders)]
    exact = not any(_chosen(launch, present, absent) for launch in others)
    present, absent = (present, []) if not any(_chosen(launch, present, []) for launch in others) else (present, absent)
    present, absent = ([], absent) if not any(_chosen(launch, [], absent) for launch in others) else (present, absent)
    if not exact:
        return CommandSubset(f"for {len(holders)} of the {len(group)} commands that the branches make", ())
    beyond = [option for option in present if option.place.line != place.line]
    parts = [f"{word} {_named(those)}" for word, those in (("with", beyond), ("without", absent)) if those]
    return CommandSubset(" and ".join(parts), tuple(present))


def _varying(group: Sequence[Launch]) -> list[GivenOption]:
    """Return the options that some commands have and others lack, in the order of the file."""
    every = {_given(option): option for each in group for option in each.options}
    varying = (option for option in every.values() if not all(_has(each, option) for each in group))
    return sorted(varying, key=lambda option: option.place)


def _has(launch: Launch, option: GivenOption) -> bool:
    return _given(option) in map(_given, launch.options)


def _chosen(launch: Launch, present: Sequence[GivenOption], absent: Sequence[GivenOption]) -> bool:
    """Return whether a command has the first options, and none of the second."""
    return all(_has(launch, option) for option in present) and not any(_has(launch, option) for option in absent)


def _given(option: GivenOption) -> tuple[str, tuple[str, ...], Span]:
    return option.name, tuple(word.raw for word in option.values), option.place


def _named(options: Sequence[GivenOption]) -> str:
    """Return options as they are written, with their lines."""
    lines: dict[int, list[str]] = {}
    for option in options:
        lines.setdefault(option.place.line, []).extend((option.name, *(word.raw for word in option.values)))
    texts = ((line, " ".join(words)) for line, words in lines.items())
    shown = ((line, text if len(text) <= LONGEST else f"{text[:LONGEST]}…") for line, text in texts)
    return " and ".join(f"{text} (line {line})" for line, text in shown)
