"""A value that the parser does not take

Finds values that are no number where one is wanted, and words that are not among an option's choices in the release.

The choices change: `--quant-policy int8` is known from 0.14.0 on, before it is 8; `--communicator cuda-ipc` from
0.10.0 on, before it is `native`; `--log-level` takes capitals only. The parser stops at anything else.

Write a value that the release has.

Bad:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --log-level info

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --log-level INFO
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.review import mend, wheels
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said
from recommender.review.script import Option, Word
from recommender.store import shorten

if TYPE_CHECKING:
    from recommender import records as r

READERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "json": (json.loads, "a JSON object"),
}


def _check(case: Case) -> Iterator[Said]:
    if not s.server(case):
        return
    for option, flag in s.options(case):
        era = s.era(case, flag)
        if era is None or era.type == "bool":
            continue
        several = wheels.values_taken(case.facts.release.id).get(flag.option) != ""
        for word in option.values if several else option.values[:1]:
            said = None if word.value is None else _judged(case, option, word, era)
            if said is not None:
                yield said


def _judged(case: Case, option: Option, word: Word, era: r.Era) -> Said | None:
    value = word.value or ""
    place = word.written or word.place
    if era.choices:
        if value in era.choices or _as_number(value) in era.choices:
            return None
        same = next((each for each in era.choices if each.casefold() == value.casefold()), "")
        fix = mend.give(word, same, f"{option.name} {same}") if same else None
        choices = ", ".join(era.choices)
        message = f"{option.name} takes {choices} in {s.release(case)}, not {shorten(value)}."
        return Said(place, message, "The parser stops at a value that is not among the choices.", fix)
    reader, wanted = READERS.get(era.type, (str, ""))
    try:
        reader(value)
    except ValueError:
        message = f"{option.name} wants {wanted}; {shorten(value)} is none."
        return Said(place, message, "The parser stops at a value that it cannot read.")
    return None


def _as_number(value: str) -> str:
    """A whole number as the parser reads it: 08 is 8."""
    try:
        return str(int(value))
    except ValueError:
        return value


RULE = Rule(
    id="LMD104",
    name="value-not-accepted",
    family="starts",
    severity="error",
    sources=("flags/quant-policy", "flags/communicator", "flags/log-level", "constraints/log-level-names"),
    check=_check,
)
