"""Find the text length for a number of input tokens by asking the server."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from recommender.smoke.client.completion import BadCompletion
from recommender.smoke.client.conversation import LEAST, Ruler
from recommender.smoke.client.http import Client, Shape, Target, open_session, picture_pools
from recommender.smoke.client.interruption import run_interruptible
from recommender.smoke.failures import Failure

SIZINGS = 6  # requests for each length, at most
NUMBERS = itertools.count(1)
"""Request numbers continue from load to load, so that no prompt or image repeats."""


def size_prompt(target: Target, shape: Shape, wanted_tokens: int) -> int:
    """Return the prompt length in characters that yields ``wanted_tokens`` of input, within one.

    Return the shortest prompt if template and image alone take as many. Raise Failure for a failed request.
    """
    tried = _try_lengths(target, shape, (wanted_tokens,))
    return min(tried, key=lambda chars: abs(wanted_tokens - tried[chars]))


def measure_ruler(target: Target, shape: Shape, wanted_tokens: Iterable[int]) -> Ruler:
    """Measure text lengths over this range of input tokens. Raise Failure for a failed request."""
    tried = _try_lengths(target, shape, wanted_tokens)
    return Ruler(tuple(sorted({tokens: chars for chars, tokens in tried.items()}.items())))


def _try_lengths(target: Target, shape: Shape, wanted_tokens: Iterable[int]) -> dict[int, int]:
    """Return the input tokens of the texts tried, by their characters."""
    picture_pools(shape)
    return run_interruptible(lambda: _try(target, shape, wanted_tokens))


async def _try(target: Target, shape: Shape, wanted_tokens: Iterable[int]) -> dict[int, int]:
    """Try lengths until one fits each number of tokens, starting at one token a character to stay below."""
    async with open_session(target) as opened:

        async def measure(chars: int) -> int:
            client = Client(opened, target, replace(shape, prompt_chars=chars, output_tokens=1))
            try:
                reply = await client.send(target.urls[0], client.body(next(NUMBERS), False), False, lambda: None)
            except BadCompletion as trouble:
                raise Failure(trouble.cause, trouble.message) from None
            return reply.input_tokens

        shortest = await measure(LEAST)
        tried, slope = {LEAST: shortest}, 1.0
        for wanted in wanted_tokens:
            chars = LEAST
            for _ in range(1, SIZINGS):
                if abs(wanted - tried[chars]) <= 1:
                    break
                chars = max(LEAST, chars + round((wanted - tried[chars]) / slope))
                if chars in tried:
                    break
                tried[chars] = await measure(chars)
                # Measured from the shortest prompt: a short step says little about the tokenizer.
                slope = (tried[chars] - shortest) / (chars - LEAST) or slope
        return tried
