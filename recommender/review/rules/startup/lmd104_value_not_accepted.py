"""A value that the parser rejects

## What it does
Reports text where an option requires a number, and words that are not among the option's choices in the release.

## Why
The parser stops at such a value, and the choices differ between releases. `--quant-policy int8` works since 0.14.0;
before, write `8`. `--communicator cuda-ipc` works since 0.10.0; before, write `native`. `--log-level` takes upper
case only.

## Bad

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --log-level info

## Good
Use a value that the release accepts:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --log-level INFO
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.common.text import shorten
from recommender.knowledge import option_values
from recommender.review import accepted_options, checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.script.model import GivenOption, Word

if TYPE_CHECKING:
    from recommender.knowledge import records


PLACEHOLDER = pattern(r"\{\}|\{\{.*\}\}|\$\{\w+\..*\}")
"""Placeholders that another program (parallel, xargs, just, Jinja, Terraform) replaces before the shell reads them."""


@launch_rule(
    "error",
    sources=(
        "flags/quant-policy",
        "flags/communicator",
        "flags/log-level",
        "constraints/log-level-names",
        "constraints/log-level-names-request",
    ),
)
def rule(case: Case) -> Diagnostics:
    if not checks.server(case):
        return
    for option, flag in checks.options(case):
        era = checks.era(case, flag)
        if era is None or era.type == "bool":
            continue
        several = accepted_options.values_taken(case.resolved.release.id).get(flag.option) != ""
        for word in option.values if several else option.values[:1]:
            finding = _unquoted(option, word, era) if word.value is None else _judged(case, option, word, era)
            if finding is not None:
                yield finding._replace(sources=(f"flags/{flag.id}",))


def _unquoted(option: GivenOption, word: Word, era: records.Era) -> Diagnostic | None:
    """Return the finding on JSON without quotes around it: a shell takes its quotes away, and splits it at commas."""
    if era.type != "json" or word.quoted or not word.raw.startswith('{"'):
        return None
    return Diagnostic(
        word.place,
        f"{option.name} gets no JSON: the shell removes the quotes within it.",
        "The parser stops at a value that it cannot convert; put the JSON in single quotes.",
    )


def _judged(case: Case, option: GivenOption, word: Word, era: records.Era) -> Diagnostic | None:
    value = word.value or ""
    refusal = option_values.refuse(era, value)
    if refusal is None or refusal.by != "parser":
        return None
    place = word.literal or word.place
    if PLACEHOLDER.search(value):
        return Diagnostic(
            place,
            f"{option.name} {shorten(value)} was not judged: another program fills it in.",
            "It depends on what that program gives.",
            severity="info",
        )
    if not era.choices:
        message = f"{option.name} requires {refusal.expectation}, not {shorten(value)}."
        return Diagnostic(place, message, "The parser stops at a value that it cannot convert.")
    same = next((choice for choice in era.choices if choice.casefold() == value.casefold()), "")
    fix = edits.give(word, same, f"{option.name} {same}") if same else None
    message = f"{option.name} accepts {', '.join(era.choices)} in {checks.release(case)}, not {shorten(value)}."
    return Diagnostic(place, message, "The parser stops at a value that is not among the choices.", fix)
