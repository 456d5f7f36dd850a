"""Draw requests that differ: lengths, a shared prefix, turns and image sizes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from recommender.request.load_lengths import prompt_in_turn
from recommender.request.request import Replayed
from recommender.smoke.filler import write_filler

LEAST = 7
"""Characters of the shortest text: its number and a space."""
ROLES = ("user", "assistant")
SHORTEST = 16
"""Tokens that the shortest text has at most."""
GOLDEN = (math.sqrt(5) - 1) / 2
"""Its multiples, modulo 1, spread evenly: any run of requests has each image size by its share."""


class Ruler(NamedTuple):
    """Convert tokens to characters of text, calibrated on requests that the server counted.

    ``points``: input tokens of a request and characters of its text; ascending, at least one.
    """

    points: tuple[tuple[int, int], ...]

    def chars(self, tokens: int) -> int:
        """Return the text length in characters of a request with these input tokens, interpolated."""
        points = self.points if len(self.points) > 1 else ((self.points[0][0] - 1, self.points[0][1] - 1), *self.points)
        pairs = list(pairwise(points))
        place = min(max(bisect_left(points, (tokens, 0)) - 1, 0), len(pairs) - 1)
        (low, few), (high, many) = pairs[place]
        return max(round(few + (tokens - low) * (many - few) / (high - low)), LEAST)

    def span(self, tokens: int) -> int:
        """Return the characters that these tokens take inside a long text."""
        last = self.points[-1][0]
        return self.chars(last) - self.chars(last - tokens)


UNMEASURED = Ruler(((1, 1),))


@dataclass(frozen=True, slots=True)
class Drawn:
    """The distribution that a load's requests are drawn from.

    ``pairs``: tokens of a first prompt's text and of its answer, equally likely. All requests share the first
    ``prefix`` tokens. A conversation has ``turns`` requests; its oldest turns are cut so that text and answer fit
    ``max_context`` tokens (0: no limit). ``sizes``: width, height and share of the images. ``around``: input tokens of
    the template and the images. ``replay`` are a trace's requests, sent in its order instead.
    """

    pairs: tuple[tuple[int, int], ...]
    prefix: int = 0
    turns: int = 1
    max_context: int = 0
    sizes: tuple[tuple[int, int, float], ...] = ()
    around: int = 0
    ruler: Ruler = UNMEASURED
    replay: tuple[Replayed, ...] = ()

    def input_range(self) -> tuple[int, int]:
        """Return the fewest and the most input tokens of any request."""
        first = (prompt_in_turn(prompt, output, 0, self.prefix, self.max_context) for prompt, output in self.pairs)
        last = (
            prompt_in_turn(prompt, output, self.turns - 1, self.prefix, self.max_context)
            for prompt, output in self.pairs
        )
        return self.around + min(first), self.around + max(last)

    def prefix_text(self) -> str:
        """Return the beginning of every prompt."""
        return write_filler("", self.ruler.span(self.prefix)) if self.prefix else ""

    def size_of(self, number: int) -> tuple[int, int] | None:
        """Return the size of a request's images by its number, or None if all have the same."""
        if not self.sizes:
            return None
        place = number * GOLDEN % 1
        ends = accumulate(share for *_, share in self.sizes)
        return next((size[:2] for size, end in zip(self.sizes, ends, strict=True) if place < end), self.sizes[-1][:2])


class ChatRequest(NamedTuple):
    """One request: messages with their roles, tokens of the answer, and images.

    ``pictured`` is the number of the request whose images are sent. ``size`` None: the load has one image size.
    """

    messages: tuple[tuple[str, str], ...]
    output_tokens: int
    pictured: int
    size: tuple[int, int] | None = None


class _Exchange(NamedTuple):
    """A finished turn and the tokens that it added."""

    question: str
    answer: str
    tokens: int


class Conversation:
    """A client's successive requests; each repeats the conversation so far and adds new text."""

    def __init__(self, drawn: Drawn, pairs: Iterator[tuple[int, int]], turn: int) -> None:
        """Begin at a turn; earlier turns are invented."""
        self._drawn, self._pairs = drawn, pairs
        self._turn = turn % drawn.turns
        self._pair: tuple[int, int] | None = None
        self._exchanges: list[_Exchange] = []
        self._pictured = self._wanted = self._drift = 0
        self._around = drawn.around
        self._said = ""

    def ask(self, number: int) -> ChatRequest:
        """Return the next request; ``number`` makes its text unique."""
        drawn = self._drawn
        if self._pair is None:
            self._pair, self._pictured = next(self._pairs), number
            self._exchanges = [self._made_up(number) for _ in range(self._turn)]
        prompt, output = self._pair
        self._wanted = prompt_in_turn(prompt, output, self._turn, drawn.prefix, drawn.max_context)
        while drawn.max_context and self._exchanges and self._held() + self._drift + SHORTEST > self._wanted:
            self._exchanges.pop(0)
        prefix = drawn.prefix_text()
        if self._exchanges:
            chars = drawn.ruler.chars(drawn.around + self._wanted - self._held() - self._drift)
        else:
            chars = drawn.ruler.chars(drawn.around + self._wanted) - len(prefix)
        self._said = write_filler(f"{number:06d} ", max(chars, LEAST))
        return ChatRequest(self._messages(prefix), output, self._pictured, drawn.size_of(self._pictured))

    def hear(self, input_tokens: int, output_tokens: int, answer: str) -> None:
        """Add the server's answer to the conversation, with the tokens that it counted.

        An answer may take another number of tokens as input; the next turn's text compensates for that.
        """
        if self._exchanges:
            self._drift = max(self._drift + input_tokens - self._around - self._wanted, 0)
        else:
            self._around = input_tokens - self._wanted
        tokens = input_tokens + output_tokens - self._around - self._held()
        self._exchanges.append(_Exchange(self._said, answer, max(tokens, 0)))
        self._turn = (self._turn + 1) % self._drawn.turns
        if not self._turn:
            self.forget()

    def forget(self) -> None:
        """Start a new conversation with the next request."""
        self._turn, self._pair, self._exchanges = 0, None, []

    def _held(self) -> int:
        """Return the tokens of the conversation's text so far, with the prefix."""
        return self._drawn.prefix + sum(exchange.tokens for exchange in self._exchanges)

    def _made_up(self, number: int) -> _Exchange:
        """Return an invented exchange with the conversation's lengths."""
        assert self._pair is not None
        (prompt, output), ruler = self._pair, self._drawn.ruler
        own = prompt - self._drawn.prefix
        said = write_filler(f"{number:06d} ", max(ruler.span(own), LEAST))
        return _Exchange(said, write_filler("", ruler.span(output)), own + output)

    def _messages(self, prefix: str) -> tuple[tuple[str, str], ...]:
        users = [*(exchange.question for exchange in self._exchanges), self._said]
        answers = [exchange.answer for exchange in self._exchanges]
        users[0] = prefix + users[0]
        before = [message for pair in zip(users, answers, strict=False) for message in zip(ROLES, pair, strict=True)]
        return (*before, (ROLES[0], users[-1]))
