"""Name an option in a message as the user typed it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def as_typed(message: str, options: Iterable[Sequence[str]], words: Sequence[str]) -> str:
    """Return a message that names each option as the user typed it; ``options`` lists each one's names."""
    there = {word.partition("=")[0] for word in words}
    for names in options:
        typed = [name for name in names if name in there and name.startswith("--")]
        if len(names) > 1 and len(typed) == 1:
            others = "|".join(re.escape(name) for name in names if name.startswith("--") and name != typed[0])
            message = re.sub(rf"(?<![\w-])(?:{others})(?![\w-])", typed[0], message) if others else message
    return message
