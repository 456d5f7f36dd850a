"""Regular expressions that are compiled when they are first used: compiling all of them takes a fifth of a start."""

import re
from typing import Any, cast


class _Lazy:
    """Stands for a pattern until one of its methods is asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self.text, self.flag_bits = text, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.text, self.flag_bits)
        for method in ("match", "fullmatch", "search", "finditer", "findall", "sub", "split", "pattern"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern, compiled at its first use."""
    return cast(re.Pattern[str], _Lazy(text, flags))
