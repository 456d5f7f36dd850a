"""Find the values that a benchmark's loop gives to an option, and the launch that each of them makes."""

import re
from collections.abc import Iterator
from itertools import islice

from recommender.review.script.mentions import SWEPT, variables_of
from recommender.review.script.model import GivenOption, Launch, Script, Word

MOST = 12


def launches(script: Script) -> list[Launch]:
    """Return a launch for each value that a loop over whole numbers lists; the value's place is in the loop."""
    return list(islice(_launches(script), MOST))


def _launches(script: Script) -> Iterator[Launch]:
    loops = list(SWEPT.finditer(script.text)) if script.launches else []
    for launch in script.launches:
        for loop in loops:
            if not any(_takes(option, loop[1]) for option in launch.options):
                continue
            for number in re.finditer(r"\d+", script.text[loop.end(1) : loop.end()]):
                place = script.place(loop.end(1) + number.start(), loop.end(1) + number.end())
                word = Word(number[0], number[0], place)
                options = (
                    option._replace(values=(word,)) if _takes(option, loop[1]) else option for option in launch.options
                )
                yield launch._replace(options=tuple(options))


def _takes(option: GivenOption, name: str) -> bool:
    return len(option.values) == 1 and option.values[0].value is None and variables_of(option.values[0]) == [name]
