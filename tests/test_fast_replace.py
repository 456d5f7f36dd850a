"""A changed copy is the one that ``dataclasses.replace`` makes."""

from dataclasses import dataclass, replace

import pytest
from variants import configuration, resolve

from recommender.common.fast_replace import fast_replace


def test_a_copy_has_the_values_and_the_original_stays() -> None:
    """Of the two types that an estimate copies by the thousand."""
    resolved, config = resolve(), configuration()
    before = resolved.prompt_tokens, config.tp
    assert fast_replace(resolved, prompt_tokens=7) == replace(resolved, prompt_tokens=7) != resolved
    assert fast_replace(config, tp=4, servers=2) == replace(config, tp=4, servers=2) != config
    assert hash(fast_replace(config, tp=4)) == hash(replace(config, tp=4))
    assert (resolved.prompt_tokens, config.tp) == before


def test_a_class_with_slots_is_refused() -> None:
    """It has no fields that could be copied at once; no copy is half a copy."""

    @dataclass(frozen=True, slots=True)
    class Pair:
        one: int
        other: int

    with pytest.raises(AttributeError):
        fast_replace(Pair(1, 2), one=3)
