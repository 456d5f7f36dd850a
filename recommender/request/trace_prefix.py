"""Repeated beginnings of prompts: what a prefix cache without limits would find."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

NEARLY_ALL = 0.9
"""Share of requests from which their prefix counts as shared by all."""
MOST_PARTS = 1_000_000
"""Distinct beginnings kept, about 100 bytes each."""


class Beginning(NamedTuple):
    """A prompt's beginnings, each longer than the one before: a hash of each, and the prompt's tokens up to its end."""

    hashes: Sequence[int] = ()
    ends: Sequence[int] = ()


class Prefixes:
    """Counts each beginning of each prompt, by a hash of all its parts."""

    def __init__(self) -> None:
        """Start without a prompt."""
        self.found = 0
        """Input tokens that were in the cache."""
        self.tokens = 0
        """Input tokens of the prompts that were added."""
        self.left_out = 0
        """Prompts that came after the table was full."""
        self._count: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def add(self, parts: Sequence[Any], ends: Sequence[int], tokens: int) -> Beginning:
        """Add a prompt of this many tokens: its parts in order, and the tokens of the prompt up to the end of each.

        What comes after a part that cannot be one (a list, an object) is left out. Return the prompt's beginnings; none
        of a prompt that is left out.
        """
        if len(self._count) >= MOST_PARTS:
            self.left_out += 1
            return Beginning()
        whole = hits = 0
        hashes = array("q")
        counts = self._count
        for place, part in enumerate(parts):
            try:
                whole = hash((whole, part))
            except TypeError:
                break
            hashes.append(whole)
            before = counts.get(whole, 0)
            counts[whole] = before + 1
            if before:
                hits = place + 1
                if before == 1:
                    self._ends[whole] = min(ends[place], tokens)
        self.found += min(ends[hits - 1], tokens) if hits else 0
        self.tokens += tokens
        return Beginning(hashes, ends)

    def share(self) -> float:
        """Return the share of input tokens that were in the cache."""
        return self.found / self.tokens if self.tokens else 0.0

    def common(self, requests: int) -> int:
        """Return the tokens of the longest beginning that nearly all of these requests share; 0 for none."""
        return max((end for key, end in self._ends.items() if self._count[key] >= NEARLY_ALL * requests), default=0)
