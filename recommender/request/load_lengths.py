"""Resolve the lengths of a request's prompts and answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recommender.common.errors import RequestError
from recommender.request.lengths import read_lengths, spread
from recommender.request.request import MAX_TOKENS, Request

if TYPE_CHECKING:
    from recommender.knowledge import records


@dataclass(frozen=True, slots=True)
class LoadLengths:
    """Equally likely lengths, ascending, of a first prompt's text and of an answer, and what they mean over all turns.

    ``prompt_tokens`` and ``output_tokens`` are means over all requests.
    """

    prompts: tuple[int, ...]
    outputs: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    prefix: int
    turns: int
    max_context: int
    notes: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return the fields of a resolved request that hold these lengths."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "prompt_lengths": self.prompts if len(self.prompts) > 1 or self.turns > 1 else (),
            "output_lengths": self.outputs if len(self.outputs) > 1 else (),
            "prefix_tokens": self.prefix,
            "turns": self.turns,
            "max_context": self.max_context,
        }


def resolve_lengths(request: Request, workload: records.Workload, model: records.Model) -> LoadLengths:
    """Return the lengths that a request asks for; its workload fills what is not given. Raises RequestError.

    A named workload is cut where its longest conversation exceeds the model's context, and a note says so.
    """
    usual = (workload.prompt_tokens, workload.prompt_p90, workload.prompt_p99)
    prompts = _lengths(request.input_lengths, request.prompt_tokens, request.prompt_p99, usual)
    usual = (workload.output_tokens, workload.output_p90, workload.output_p99)
    outputs = _lengths(request.output_lengths, request.output_tokens, request.output_p99, usual)
    if request.tpot_ms and outputs[-1] == 1:
        raise RequestError("--tpot: answers of one token have no time per token; remove it, or ask for longer answers")
    turns = request.turns or workload.turns
    given = bool(request.prompt_tokens or request.input_lengths)
    prefix = request.prefix_tokens or (0 if given else min(workload.prefix_tokens, max(prompts[0] - 1, 0)))
    if prefix and prefix >= prompts[-1]:
        raise RequestError(
            f"--prefix-tokens {prefix}: the prompts of {workload.id} have {prompts[-1]} tokens at most; ask for fewer"
        )
    if prefix >= prompts[0]:  # each prompt holds the prefix and text of its own
        prompts = tuple(max(prompt, prefix + 1) for prompt in prompts)
    _check_context(request.max_context, prefix, prompts[0], outputs, turns)
    most, room = request.max_context, model.text.max_positions - model.chat_tokens
    if most > max(room, 0):
        raise RequestError(
            f"--max-context {most}: {model.id} has a context of {room:,} tokens without its chat template; "
            "ask for at most that"
        )
    longest = prompt_in_turn(prompts[-1], outputs[-1], turns - 1, prefix, most) + outputs[-1]
    notes: tuple[str, ...] = ()
    if longest < prompt_in_turn(prompts[-1], outputs[-1], turns - 1, prefix, 0) + outputs[-1]:
        notes = (f"longer prompts are cut so that prompt and answer fit --max-context {most}",)
    elif longest > room and request.workload and not most:
        most = _cut_to_context(workload, model, prefix, outputs[-1])
        notes = (
            f"longer prompts of {workload.id} are cut: {model.id} has a context of {room:,} tokens without its "
            "chat template",
        )
    mean_output = _mean(outputs)
    pairs = [prompt_in_turn(prompt, mean_output, turn, prefix, most) for prompt in prompts for turn in range(turns)]
    return LoadLengths(prompts, outputs, _mean(pairs), mean_output, prefix, turns, most, notes)


def _cut_to_context(workload: records.Workload, model: records.Model, prefix: int, answer: int) -> int:
    """Return the most tokens of prompt and answer in the model's context. Raises RequestError without room for both."""
    room = model.text.max_positions - model.chat_tokens
    most = room - 1  # a session holds a token more than prompt and answer
    if prefix + answer >= most:
        raise RequestError(
            f"--workload {workload.id}: its prompts begin with {prefix:,} tokens, but {model.id} has a context of "
            f"{room:,} without its chat template; name another workload or model"
        )
    return most


def exceeds_context(tokens: int, model: records.Model) -> RequestError:
    """Return the error of a prompt and answer that the model's context does not hold."""
    room = model.text.max_positions - model.chat_tokens
    return RequestError(
        f"prompt and answer take up to {tokens:,} tokens, but {model.id} has a context of {room:,} without its chat "
        f"template; ask for less, or cut prompts with --max-context {room}"
    )


def _check_context(most: int, prefix: int, prompt: int, outputs: tuple[int, ...], turns: int) -> None:
    """Raise RequestError if cutting prompts would drop the prefix, or the latest exchange in every later turn.

    ``most`` is --max-context; 0: none.
    """
    own, answer = prompt - prefix, outputs[0]
    if turns > 1 and 0 < most < (least := prefix + 2 * (own + answer)):
        raise RequestError(
            f"--max-context {most}: a later turn needs {least:,} tokens for the prefix ({prefix:,}), one exchange and "
            f"the next ({own:,} + {answer:,} each); allow more, or use --turns 1"
        )
    longest = outputs[-1]
    if 0 < most <= prefix + longest:
        raise RequestError(
            f"--max-context {most}: {'prefix and answer' if prefix else 'an answer'} alone may take "
            f"{prefix + longest:,} tokens; allow more, or ask for less"
        )


def prompt_in_turn(prompt: int, output: int, turn: int, prefix: int, most: int) -> int:
    """Return the text tokens of a conversation's turn; the first is 0.

    Each turn repeats what was said before and adds as much new text as the first had beside its prefix. ``most`` is the
    largest sum of prompt and answer; 0 is no limit.
    """
    said = prompt + turn * (prompt - prefix + output)
    return min(said, max(most - output, 1)) if most else said


@lru_cache(maxsize=1024)
def total_variance(prompts: tuple[int, ...], outputs: tuple[int, ...], turns: int, prefix: int, most: int) -> float:
    """Return the variance of the tokens of prompt and answer over all requests; arguments as in ``LoadLengths``."""
    if len(prompts) == len(outputs) == turns == 1:
        return 0.0
    import statistics

    output = _mean(outputs)
    said = [prompt_in_turn(prompt, output, turn, prefix, most) for prompt in prompts for turn in range(turns)]
    return statistics.pvariance(said) + statistics.pvariance(outputs)


def _lengths(listed: str, p50: int, p99: int, usual: tuple[int, int, int]) -> tuple[int, ...]:
    """Return the lengths that are listed or given by quantiles, else those of the ``usual`` p50, p90 and p99."""
    if listed:
        return read_lengths(listed, MAX_TOKENS)
    return spread(p50, 0, p99) if p50 else spread(*usual)


def _mean(lengths: tuple[int, ...] | list[int]) -> int:
    return max(round(math.fsum(lengths) / len(lengths)), 1)
