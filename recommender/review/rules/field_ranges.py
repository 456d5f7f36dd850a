"""What the configuration classes of LMDeploy accept in fields that no option of the command line fills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from recommender.common.pattern import pattern
from recommender.common.plain import Plain
from recommender.common.text import shorten
from recommender.knowledge import option_values
from recommender.review import accepted_options
from recommender.review.case import Case
from recommender.review.rule import Diagnostic, Diagnostics
from recommender.review.script.model import GivenOption

if TYPE_CHECKING:
    from recommender.knowledge import records


def _accepts(
    kind: str = "str",
    choices: tuple[str, ...] = (),
    minimum: str = "",
    maximum: str = "",
) -> records.Accepted:
    """Return what a field accepts, as the index holds it: the validated type takes a third of a run to import."""
    fields = {"type": kind, "choices": choices, "minimum": minimum, "maximum": maximum, "above": "", "zero": ""}
    return cast("records.Accepted", Plain(fields))


IN_PYTHON = pattern(r"|None|True|False|.*\s.*|[-+]?\d+\.0*")
"""Texts accepted in place of a whole number: defaults, lists, values that are converted or not read."""
ANSWERS, TURBOMIND = "GenerationConfig", "TurbomindEngineConfig"
FIELDS: Mapping[tuple[str, str], records.Accepted] = {
    (ANSWERS, "n"): _accepts("int", minimum="1"),
    (ANSWERS, "top_p"): _accepts("float", minimum="0", maximum="1"),
    (ANSWERS, "top_k"): _accepts("float", minimum="0"),
    (ANSWERS, "temperature"): _accepts("float", minimum="0", maximum="2"),
    (ANSWERS, "min_p"): _accepts("float", minimum="0", maximum="1"),
    (ANSWERS, "max_new_tokens"): _accepts("float", minimum="0"),
    (ANSWERS, "logprob_start_len"): _accepts("float", minimum="-1"),
    (TURBOMIND, "gemm_input_dtype"): _accepts(choices=("float16", "bfloat16", "float8_e4m3")),
    (TURBOMIND, "cache_prompt"): _accepts(choices=("all", "auto")),
    (TURBOMIND, "cache_generation"): _accepts(choices=("all", "auto", "none")),
    (TURBOMIND, "cache_checkpoint_interval"): _accepts("int", minimum="1"),
    (TURBOMIND, "cache_prompt_boundary_skip"): _accepts("int", minimum="1"),
}
"""By class and field. The releases that have a field check it alike (0.7.0, 0.15.0, 0.18.0 lmdeploy/messages.py),
but for ``max_new_tokens``, which a request checks (0.18.0 lmdeploy/serve/core/async_engine.py)."""


def refused(case: Case) -> Diagnostics:
    """Yield what the classes of a pipeline's configurations refuse."""
    given = dict(_fields(case))
    for (whose, field), option in given.items():
        text = option.values[0].value if len(option.values) == 1 else None
        accepted = FIELDS.get((whose, field))
        if accepted is None or text is None or IN_PYTHON.fullmatch(text):
            continue
        if option_values.refuse(accepted, text, python=True):
            use = option_values.describe(accepted)
            yield _wrong(option, f"{option.name} {shorten(text)} is out of range; use {use}.")
    start = given.get((ANSWERS, "logprob_start_len"))
    if start is not None and (start.values[0].value or "").isdecimal() and "**" not in case.script.text:
        count = given.get((ANSWERS, "logprobs"))
        text = count.values[0].value if count is not None and count.values else "None"
        if text is not None and (text == "None" or text.startswith("-")):
            yield _wrong(start, f"{start.name} {start.values[0].value} needs logprobs.")


def _fields(case: Case) -> Iterator[tuple[tuple[str, str], GivenOption]]:
    """Yield the class and name of each given field that the release has."""
    for option in case.launch.options:
        whose, dot, field = option.name.rpartition(".")
        whose = whose if dot else case.launch.engine
        if option.values and field in accepted_options.keywords(case.resolved.release.id, whose):
            yield (whose, field), option


def _wrong(option: GivenOption, message: str) -> Diagnostic:
    place = option.values[0].literal or option.values[0].place
    why = "The configuration refuses the value."
    return Diagnostic(
        place, message, why, sources=("https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/messages.py",)
    )
