"""A value that is missing, or one word too many

Finds options that want a value and have none, switches that are given one, and words that belong to no option.

A switch such as `--enable-prefix-caching` stands alone: `--enable-prefix-caching true` leaves the word `true` over,
and the parser stops. So it does at `--tp` with nothing after it, and at a second word after an option that takes one.

Give the value, or take the word away.

Bad:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --enable-prefix-caching true

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --enable-prefix-caching
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.review import support as s
from recommender.review import wheels
from recommender.review.rule import Case, Fix, Rule, Said
from recommender.review.script import Option, Word
from recommender.store import shorten

if TYPE_CHECKING:
    from recommender import records as r

TRUE = frozenset({"true", "1", "yes", "on"})


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    taken = wheels.values_taken(case.facts.release.id)
    for option, flag in s.options(case):
        era = s.era(case, flag)
        if era is None:
            continue
        if era.type == "bool":
            if option.values and option.values[0].value is not None:
                yield _switch(case, option)
        elif not option.values:
            if taken.get(flag.option, "") in ("", "+") and not case.launch.unsure:
                yield Said(
                    option.place,
                    f"{option.name} has no value; it wants {_wants(era.type)}.",
                    "The parser stops at an option whose value is missing.",
                )
        elif taken.get(flag.option) == "" and len(option.values) > 1 and option.values[1].value is not None:
            yield _stray(case, option.values[1])
    if all(s.accepts(case, option.name) for option in case.launch.options):
        yield from (_stray(case, word) for word in case.launch.extra if word.value)


def _wants(kind: str) -> str:
    return {"int": "a whole number", "float": "a number", "json": "a JSON object"}.get(kind, "a word")


def _switch(case: Case, option: Option) -> Said:
    """A switch with a value; one that says true says what the switch says alone."""
    word = option.values[0]
    fix: Fix | None = None
    if (word.value or "").casefold() in TRUE and case.script.text[option.whole.start : option.place.end] == option.name:
        alone = case.script.place(option.place.end, option.whole.end)
        fix = Fix(((alone, ""),), f"write {option.name} alone")
    return Said(
        word.place,
        f"{option.name} is a switch and takes no value; {shorten(word.value or '')} is left over.",
        "The parser stops at a word that belongs to no option.",
        fix if case.script.text[option.place.end : option.whole.end].count("\n") == 0 else None,
    )


def _stray(case: Case, word: Word) -> Said:
    value = word.value or ""
    after = next((each for each, flag in s.options(case) if _right_before(case, each, word) and _is_switch(flag)), None)
    fix: Fix | None = None
    if after is not None and value.casefold() in TRUE:
        fix = Fix(((case.script.place(after.whole.end, word.place.end), ""),), f"write {after.name} alone")
    return Said(
        word.place,
        f"{shorten(value)} belongs to no option" + (f": {after.name} is a switch." if after else "."),
        "The api_server takes one model and options; the parser stops at any other word.",
        fix,
    )


def _is_switch(flag: r.Flag) -> bool:
    return flag.eras[-1].type == "bool"


def _right_before(case: Case, option: Option, word: Word) -> bool:
    """Whether nothing but blanks stands between an option and a word."""
    start, end = option.whole.end, word.place.start
    return start < end and not case.script.text[start:end].strip(" \t")


RULE = Rule(
    id="LMD103",
    name="missing-or-stray-value",
    family="starts",
    severity="error",
    sources=("flags/enable-prefix-caching", "flags/tp"),
    check=_check,
)
