"""A missing value, or a word too many

## What it does
Reports options without the value they require, switches that are given a value, and words that belong to no option.

## Why
A switch such as `--enable-prefix-caching` takes no value. After `--enable-prefix-caching true` the word `true` is
left over, and the parser stops. It also stops at `--tp` without a value, and at a second word after an option that
takes one.

## Bad

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --enable-prefix-caching true

## Good
Add the missing value, or remove the extra word:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --enable-prefix-caching
"""

from recommender.common.text import shorten
from recommender.review import accepted_options, checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, Fix, launch_rule
from recommender.review.script.model import GivenOption, Word

WANTED = {"int": "a whole number", "float": "a number", "json": "a JSON object"}
TRUE = frozenset({"true", "1", "yes", "on"})
BOOLEAN = TRUE | {"false", "0", "no", "off"}
"""Before the model, such a word after a switch is taken for it."""


@launch_rule("error", sources=("flags/enable-prefix-caching", "flags/tp"))
def rule(case: Case) -> Diagnostics:
    if not checks.server(case):
        return
    accepted = accepted_options.values_taken(case.resolved.release.id)
    for option, flag in checks.options(case):
        era = checks.era(case, flag)
        if era is None:
            continue
        if era.type == "bool":
            if option.values and option.values[0].value is not None:
                yield _switch(case, option)._replace(sources=(f"flags/{flag.id}",))
        elif not option.values:
            if accepted.get(flag.option, "") in ("", "+") and not case.launch.unsure:
                yield Diagnostic(
                    option.place,
                    f"{option.name} has no value; it requires {WANTED.get(era.type, 'a word')}.",
                    "The parser stops at an option without its value.",
                    sources=(f"flags/{flag.id}",),
                )
        elif accepted.get(flag.option) == "" and len(option.values) > 1 and option.values[1].value is not None:
            yield _stray(case, option.values[1])
    if all(checks.accepts(case, option.name) for option in case.launch.options):
        model, extra = case.launch.model, case.launch.extra
        taken = model is not None and extra and (model.value or "").casefold() in BOOLEAN
        yield from (_stray(case, word) for word in ((model,) if taken and model else extra) if word.value)


def _switch(case: Case, option: GivenOption) -> Diagnostic:
    """Report a switch with a value; the fix removes a value that means true."""
    word = option.values[0]
    fix: Fix | None = None
    if (word.value or "").casefold() in TRUE and case.script.text[option.whole.start : option.place.end] == option.name:
        text, end = case.script.text, option.whole.end
        quoted = text[end - 1] in "\"'" and text[option.whole.start - 1 : option.whole.start] == text[end - 1]
        alone = case.script.place(option.place.end, end - quoted)  # the quote that ends the word stays
        fix = Fix(((alone, ""),), f"write {option.name} alone")
    return Diagnostic(
        word.place,
        f"{option.name} is a switch and takes no value: {shorten(word.value or '')} is left over.",
        "The parser stops at a word that belongs to no option.",
        fix if case.script.text[option.place.end : option.whole.end].count("\n") == 0 else None,
    )


def _stray(case: Case, word: Word) -> Diagnostic:
    value = word.value or ""
    switches = (option for option, flag in checks.options(case) if flag.eras[-1].type == "bool")
    after = next((option for option in switches if _right_before(case, option, word)), None)
    fix: Fix | None = None
    if after is not None and value.casefold() in TRUE:
        fix = Fix(((case.script.place(after.whole.end, word.place.end), ""),), f"write {after.name} alone")
    return Diagnostic(
        word.place,
        f"{shorten(value)} belongs to no option" + (f": {after.name} is a switch." if after else "."),
        "api_server takes one model and options; the parser stops at any other word.",
        fix,
    )


def _right_before(case: Case, option: GivenOption, word: Word) -> bool:
    """Return whether only blanks separate an option and a word."""
    start, end = option.whole.end, word.place.start
    return start < end and not case.script.text[start:end].strip(" \t")
