"""Find the values that a loop gives to an option or to the model, and the launch that each of them makes."""

import re
from collections.abc import Iterator
from itertools import islice
from math import prod

from recommender.common.pattern import pattern
from recommender.review.script.model import GivenOption, Launch, Script, Word

MOST, MOST_LAUNCHES, MOST_ALTERNATIVES = 12, 30, 80
FILLED = pattern(
    r"\"?\$\{(?P<array>\w+)\[\$?\{?\w+\}?\]\}\"?|str\((?P<cast>[\w \t+*-]+)\)|\"?\$\(\((?P<sum>[\w$ \t+*-]+)\)\)\"?"
    r"|(?:[fF][\"'])?\{(?P<shown>[\w \t+*-]+)\}[\"']?"
)
"""An element of a shell's array, or a sum of variables as text."""
FACTOR = pattern(r"\s*([+-]?)\s*(\d{1,9})((?:\s*\*\s*\d{1,9})*)\s*")
SWEPT = pattern(r"\bfor[ \t]+(\w+)[ \t]+in[ \t]+(?:[\[(](?:\d++,?[ \t]*+)++[\])]:|\d+(?:[ \t]+\d+)*[ \t]*(?:;|\n))")
"""A loop over whole numbers that the script lists."""
VARIABLE = pattern(r"\"?\$\{?(\w+)\}?\"?")
ARRAY = pattern(r"\"?\$\{(\w+)\[@\]\}\"?")
ELEMENT = pattern(r"\"?\$\{(\w+)\[\$?\{?[A-Za-z_]\w*\}?\]\}\"?")
"""An element of an array, by a counter."""
OTHERWISE = pattern(r"(?m)(?:^|;)[ \t]*else\b|(?:^|[;\s(])\*\)")
"""A last branch, without which the caller's environment may give another value."""
NAME = pattern(r"#[^\n]*|[\"']?(?P<name>[\w.-]+(?:/[\w.-]+)+|/[\w./-]+)[\"']?")
"""A model in a list of words; comments aside."""


def launches(script: Script) -> list[Launch]:
    """Return a launch for each value that a loop over whole numbers lists, and for each turn of one that calls it.

    The place of a whole number is in the loop.
    """
    turns = (turn for launch in script.launches[:MOST_LAUNCHES] for turn in launch.turns)
    return [*islice(_of_numbers(script), MOST), *islice(turns, MOST)]


def of_models(script: Script) -> list[Launch]:
    """Return a launch for each model that a shell's loop lists, or an array that it goes through."""
    return list(islice(_of_models(script), MOST))


def of_branches(script: Script) -> list[Launch]:
    """Return the launches that other branches make; none of a generated file, which documents its variables."""
    if script.generated:
        return []
    return [other for launch in script.launches[:MOST_LAUNCHES] for other in launch.alternatives][:MOST_ALTERNATIVES]


def _of_numbers(script: Script) -> Iterator[Launch]:
    loops = list(SWEPT.finditer(script.text)) if script.launches else []
    for launch in script.launches[:MOST_LAUNCHES]:
        for loop in loops:
            if not any(_takes(option, loop[1]) for option in launch.options):
                continue
            for number in re.finditer(r"\d+", script.text[loop.end(1) : loop.end()]):
                place = script.place(loop.end(1) + number.start(), loop.end(1) + number.end())
                options = (
                    option._replace(values=(_computed(option.values[0], loop[1], number[0])._replace(place=place),))
                    if _takes(option, loop[1])
                    else option
                    for option in launch.options
                )
                yield launch._replace(options=tuple(options))


def _takes(option: GivenOption, name: str) -> bool:
    return len(option.values) == 1 and option.values[0].value is None and variables_of(option.values[0]) == [name]


def _computed(word: Word, name: str, number: str) -> Word:
    """Return a sum, or the number alone, with a loop's number in place of its variable."""
    filled = FILLED.fullmatch(word.raw)
    given = filled[filled.lastgroup] if filled and filled.lastgroup not in (None, "array") else name
    text = re.sub(rf"\$?\b{name}\b", number, given or name)
    if "".join(match[0] for match in FACTOR.finditer(text)) != text:
        return Word(word.raw, None, word.place)
    products = (
        (match[1], [int(number) for number in re.findall(r"\d+", match[2] + match[3])])
        for match in FACTOR.finditer(text)
    )
    total = str(sum((-1 if sign == "-" else 1) * prod(factors) for sign, factors in products))
    return Word(total, total, word.place)


def _of_models(script: Script) -> Iterator[Launch]:
    for launch in script.launches[:MOST_LAUNCHES]:
        raw = launch.model.raw if launch.model and launch.model.value is None else ""
        used, element = VARIABLE.fullmatch(raw), ELEMENT.fullmatch(raw)
        if not (used or element) or script.kind == "python":
            continue
        name, (start, end) = element[1] if element else "", (0, 0)
        if used is not None:
            loops = list(re.finditer(rf"\bfor[ \t]+{used[1]}[ \t]+in[ \t]+([^;\n]+)", script.text))
            if not loops:
                yield from (launch._replace(model=word) for word in _of_branches(script, used[1]))
            if len(loops) != 1:
                continue
            start, end = loops[0].span(1)
            array = ARRAY.fullmatch(loops[0][1].strip())
            name = array[1] if array else ""
        if name:
            given = [assignment.word.place for assignment in script.assignments if assignment.name == name]
            if len(given) != 1:
                continue
            start, end = given[0].start, given[0].end
        for match in NAME.finditer(script.text, start, end):
            if match["name"]:
                place = script.place(*match.span("name"))
                yield launch._replace(model=Word(match["name"], match["name"], place, place))


def _of_branches(script: Script, name: str) -> list[Word]:
    """Return the models of which a shell's branches choose one; none if another value is possible."""
    words = [each.word for each in script.assignments if each.name == name]
    models = {word.value: word for word in words if word.value and NAME.fullmatch(word.value)}
    listed = len(words) > 1 and len(models) == len(words) and OTHERWISE.search(script.text) is not None
    return list(models.values()) if listed else []


def variables_of(word: Word) -> list[str]:
    """Return the variables that a word is made of."""
    filled = FILLED.fullmatch(word.raw)
    return re.findall(r"[A-Za-z_]\w*", filled[filled.lastgroup or 0]) if filled else [word.variable]
