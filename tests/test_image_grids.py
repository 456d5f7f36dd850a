"""Grids of the processors of Llama 4, Phi-3.5-vision and MiniCPM-V, against what these print or what a hand counts."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_shapes import load

from recommender.request.image_grids import RULES, canvas, rows, slices
from recommender.request.image_tokens import image_tokens, most_image_tokens, tiles

SCOUT, PHI, MINICPM = (
    load(name).vision[0] for name in ("llama-4-scout-17b-16e-instruct", "phi-3.5-vision-instruct", "minicpm-v-2.6")
)


@pytest.mark.parametrize(
    ("size", "side", "most", "grid"),
    [
        ((300, 200), 224, 3, (2, 1)),  # the example of transformers' get_best_fit: 224 by 448 for 200 by 300
        ((336, 336), 336, 16, (1, 1)),
        ((100, 50), 336, 16, (1, 1)),  # enlarged least: to one square
        ((337, 336), 336, 16, (2, 1)),
        ((1000, 1000), 336, 16, (3, 3)),
        ((1280, 720), 336, 16, (4, 3)),
        ((4000, 4000), 336, 16, (4, 4)),  # none is large enough: shrunk least
        ((4000, 1000), 336, 16, (8, 2)),
    ],
)
def test_canvas(size: tuple[int, int], side: int, most: int, grid: tuple[int, int]) -> None:
    """The smallest canvas that holds the image enlarged least; of a large one, the canvas that shrinks it least."""
    assert canvas(*size, side, most) == grid


@pytest.mark.parametrize(
    ("size", "most", "grid"),
    [
        ((1000, 1000), 4, (2, 2)),
        ((1280, 720), 4, (2, 2)),  # 672 wide is 378 high: a second row
        ((2000, 500), 4, (4, 1)),
        ((500, 2000), 4, (1, 4)),  # turned
        ((1344, 1008), 16, (4, 3)),
        ((100, 100), 16, (4, 4)),  # enlarged too
    ],
)
def test_rows(size: tuple[int, int], most: int, grid: tuple[int, int]) -> None:
    """Columns of 336 pixels as many as their rows allow."""
    assert rows(*size, 336, most) == grid


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((448, 448), (1, 1)),
        ((400, 300), (1, 1)),
        ((500, 500), (1, 2)),  # 1.25 squares round up to 2; of 2 by 1 and 1 by 2 the first
        ((1280, 720), (3, 2)),  # 4.6: 4, 5 or 6 squares; 3 by 2 is nearest to 16:9
        ((1000, 2000), (2, 4)),
        ((4000, 3000), (3, 3)),  # at most 9; 9 or 8
    ],
)
def test_slices(size: tuple[int, int], grid: tuple[int, int]) -> None:
    """Squares of about 448 pixels a side, nearest in shape."""
    assert slices(*size, 448, 9) == grid


def test_tokens_of_a_canvas() -> None:
    """1280 by 720: 12 squares and the whole image, 144 tokens each, a mark after each square, three around."""
    assert tiles(SCOUT, 1280, 720) == 13
    assert image_tokens(SCOUT, 1280, 720) + SCOUT.wrapper_tokens == 13 * 144 + 12 + 3
    assert image_tokens(SCOUT, 300, 300) + SCOUT.wrapper_tokens == 144 + 3


def test_tokens_of_rows() -> None:
    """As the model's own processor counts: (w h + 1) 144 + 1 + (h + 1) 12, with w and h in squares."""
    assert image_tokens(PHI, 1000, 1000) == (2 * 2 + 1) * 144 + 1 + (2 + 1) * 12 == 757
    assert image_tokens(PHI, 500, 2000) == (4 + 1) * 144 + 1 + (4 + 1) * 12
    assert tiles(PHI, 100, 100) == 5


def test_tokens_of_slices() -> None:
    """64 tokens for the whole image and for each slice; two marks a slice, a line's end between rows, six around."""
    assert image_tokens(MINICPM, 1280, 720) + MINICPM.wrapper_tokens == 7 * 64 + 6 * 2 + 1 + 6
    assert image_tokens(MINICPM, 400, 300) + MINICPM.wrapper_tokens == 64 + 6


@pytest.mark.parametrize("name", ["gemma-3-4b-it", "llava-1.5-7b-hf"])
def test_one_square_whatever_the_image(name: str) -> None:
    """Gemma 3 and LLaVA 1.5 resize each image to their square."""
    vision = load(name).vision[0]
    sizes = [(64, 64), (4000, 300), (1280, 720)]
    assert {image_tokens(vision, *size) for size in sizes} == {vision.tokens_per_tile}
    assert vision.tokens_per_tile == {"gemma-3-4b-it": 256, "llava-1.5-7b-hf": 576}[name]


@given(
    cut=st.sampled_from(sorted(RULES)),
    width=st.integers(1, 6000),
    height=st.integers(1, 6000),
    most=st.integers(1, 20),
)
def test_a_grid_has_no_more_squares_than_allowed(cut: str, width: int, height: int, most: int) -> None:
    """And at least one."""
    assert 1 <= math.prod(RULES[cut](width, height, 336, most)) <= most


@given(width=st.integers(20, 6000), height=st.integers(20, 6000), vision=st.sampled_from([SCOUT, PHI, MINICPM]))
def test_no_image_has_more_tokens_than_the_most(width: int, height: int, vision: object) -> None:
    """What a session is sized for holds every image."""
    assert image_tokens(vision, width, height) <= most_image_tokens(vision)  # type: ignore[arg-type]
