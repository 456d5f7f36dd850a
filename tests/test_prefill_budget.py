"""Prefill budgets: which sizes of a pass are worth trying, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from variants import TEXT, resolve

from recommender.choose import prefill_budget


def image(concurrency: int = 1, output: int = 16, size: tuple[int, int] = (448, 448), **asked: Any) -> Any:
    """Images asked about: 330 tokens in for one of 448x448, 2,378 for one of 1280x720."""
    width, height = size
    asked = {"prompt_tokens": 24, "output_tokens": output, "concurrency": concurrency, **asked}
    return resolve(images=1, image_width=width, image_height=height, **asked)


def text(prompt: int, output: int, **asked: Any) -> Any:
    """A text request of so many tokens, 29 of them the template."""
    return resolve(model=TEXT, prompt_tokens=prompt - 29, output_tokens=output, **asked)


@pytest.mark.parametrize(
    ("prompt", "output", "batch", "sizes"),
    [
        (100, 28, 1, [512]),
        (512, 28, 1, [512]),
        (513, 28, 1, [512, 1024]),
        (1024, 28, 1, [512, 1024]),
        (1025, 28, 1, [512, 2048]),
        # From two at a time on, two prompts; 2 x 64 / 28 end in two passes, which is five.
        (1024, 28, 2, [512, 1024, 2048]),
        (1024, 28, 64, [512, 1024, 8192]),
        (1000, 64, 64, [512, 1024, 2048]),
        (1000, 63, 64, [512, 1024, 4096]),
        (300, 1, 4, [512, 4096]),
        # No budget above 8192, whatever the prompt.
        (8193, 28, 1, [512, 8192]),
        (30_000, 28, 64, [512, 8192]),
        (8192, 28, 1, [512, 8192]),
        (4097, 28, 1, [512, 8192]),
    ],
)
def test_budgets_of_texts(prompt: int, output: int, batch: int, sizes: list[int]) -> None:
    """512, the power of two that holds a prompt, and that for what joins a full batch in two passes."""
    assert prefill_budget.budgets(text(prompt, output), 0, batch) == sizes


def test_budgets_of_an_image_hold_the_largest_that_comes() -> None:
    """A 448x448 image has 330 tokens with its question; twelve tiles and the thumbnail 3,402; six and it 1,866."""
    assert prefill_budget.budgets(image(), 0, 1) == [512, 4096]
    assert prefill_budget.budgets(image(), 6, 1) == [512, 2048]
    assert prefill_budget.budgets(image(size=(1280, 720)), 0, 1) == [512, 4096]
    assert prefill_budget.budgets(image(size=(1280, 720)), 0, 2) == [512, 4096, 8192]
    # Cut to one tile it is 330 tokens, two such 660.
    assert prefill_budget.budgets(image(size=(1280, 720)), 1, 2) == [512, 1024]


@pytest.mark.parametrize(
    ("batch", "output", "tokens"),
    [
        (64, 16, 1024),  # four end in a pass: three prompts of 330 are 990, and whole blocks of 64
        (128, 16, 1984),  # eight: six prompts, 1980
        (48, 16, 704),  # three: two prompts, 660
        (47, 16, 0),
        (192, 16, 3008),  # twelve: nine prompts, 2970
        (198, 16, 3008),  # 12.375 x 2 x 330 = 8,168 still pays
        (199, 16, 0),  # 8,209: the largest budget holds few more than end
        (12, 4, 704),
        (3, 1, 704),
        (2, 1, 0),
        (56, 16, 1024),  # 3.5 end, three quarters of which are about three prompts
        (52, 16, 704),  # 3.25: about two
    ],
)
def test_a_steady_budget_has_room_for_three_quarters_of_what_ends(batch: int, output: int, tokens: int) -> None:
    """From three that end in a pass on, while the largest budget would hold twice as many or more."""
    assert prefill_budget.steady_budget(image(output=output), 0, batch) == tokens


def test_more_than_half_of_the_largest_budget_is_not_steady() -> None:
    """Exactly 8192 tokens of twice what ends: the largest budget is the best."""
    # 64 / 16 end in a pass; a prompt of 1024 tokens is 694 more than that of the small question.
    assert prefill_budget.steady_budget(image(prompt_tokens=24 + 694), 0, 64) == 0
    assert prefill_budget.steady_budget(image(prompt_tokens=24 + 693), 0, 64) == 3072


@pytest.mark.parametrize(("release", "tokens"), [("0.15.0", 0), ("0.16.0", 1024), ("0.18.0", 1024)])
def test_a_steady_budget_is_for_engines_that_encode_images(release: str, tokens: int) -> None:
    """TurboMind does so from 0.16.0 on (its src/turbomind/models/internvit)."""
    assert prefill_budget.steady_budget(image(lmdeploy=release), 0, 64) == tokens


def test_a_steady_budget_replaces_the_larger_ones() -> None:
    """With it neither the largest image nor many prompts have a budget of their own; texts have none such."""
    assert prefill_budget.budgets(image(concurrency=64), 0, 64) == [512, 1024]
    assert prefill_budget.budgets(image(concurrency=16), 0, 16) == [512, 1024, 4096]
    assert prefill_budget.budgets(image(concurrency=64, size=(1280, 720)), 1, 64) == [512, 1024]
    assert prefill_budget.steady_budget(image(size=(1280, 720)), 1, 64) == 1024
    assert prefill_budget.steady_budget(text(330, 16), 0, 64) == 0


@given(st.integers(30, 40_000), st.integers(1, 500), st.integers(1, 256))
@settings(max_examples=100)
def test_budgets_are_few_and_in_bounds(prompt: int, output: int, batch: int) -> None:
    """Sorted, none twice, each from 512 to 8192 tokens, and the largest holds the prompt or is 8192."""
    sizes = prefill_budget.budgets(text(prompt, output), 0, batch)
    assert sizes == sorted(set(sizes))
    assert 1 <= len(sizes) <= 3
    assert sizes[0] == 512
    assert min(prompt, 8192) <= sizes[-1] <= 8192
