"""Tiles and tokens of an image agree with the published preprocessing.

The expected counts of InternVL came from LMDeploy 0.18.0's own tiling function, run once on these
sizes; those of Qwen2-VL, Qwen2.5-VL and Qwen3-VL are worked out here a second time, from what transformers'
smart_resize promises, in whole numbers only.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from cpu_time import is_within
from hypothesis import assume, given
from hypothesis import strategies as st

from recommender.choose.candidates import tiers
from recommender.knowledge.load import load as load_store
from recommender.knowledge.records import Model, VisionShape
from recommender.request.image_tokens import image_tokens, resized, tiles
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request

STORE = load_store()
MODELS = Path(__file__).parent.parent / "knowledge" / "models"


def load(name: str) -> Model:
    return Model.model_validate_json(json.dumps(yaml.safe_load((MODELS / f"{name}.yaml").read_text("utf-8"))))


VISION: VisionShape = load("internvl3-8b-awq").vision[0]
SEEING = {name: load(name).vision[0] for name in sorted(path.stem for path in MODELS.glob("*vl*.yaml"))}
SIDE = st.integers(1, 10**6)

TABLE = [
    # width, height, limit, tiles with the small copy
    (448, 448, 12, 1),
    (1, 1, 12, 1),
    (224, 224, 12, 1),
    (633, 633, 12, 1),
    (634, 634, 12, 5),
    (896, 896, 12, 5),
    (2000, 2000, 12, 10),
    (4000, 4000, 12, 10),
    (640, 480, 12, 13),
    (800, 600, 12, 13),
    (1024, 768, 12, 13),
    (900, 600, 12, 7),
    (1200, 400, 12, 4),
    (1344, 896, 12, 7),
    (1280, 720, 12, 9),
    (720, 1280, 12, 9),
    (1920, 1080, 12, 9),
    (1080, 1920, 12, 9),
    (3840, 2160, 12, 9),
    (2480, 3508, 12, 7),
    (1000, 10, 12, 13),
    (10, 1000, 12, 13),
    (1000000, 1, 12, 13),
    (1000000, 1000000, 12, 10),
    (999999, 1000000, 12, 10),
    (448, 448, 1, 1),
    (1280, 720, 1, 1),
    (1280, 720, 6, 3),
    (1280, 720, 24, 16),
    (1920, 1080, 24, 16),
    (1920, 1080, 40, 29),
]


@pytest.mark.parametrize(
    ("width", "height", "limit", "expected"),
    [(448, 448, None, 256), (1280, 720, None, 2304), (1280, 720, 1, 256)],
)
def test_image_tokens(width: int, height: int, limit: int | None, expected: int) -> None:
    """256 tokens a tile; without a limit of the request the model's holds."""
    assert image_tokens(VISION, width, height, limit) == expected


def test_markers_are_counted_once_an_image() -> None:
    """Begin mark, end mark and line break, whatever the number of tiles."""
    for width, height in ((448, 448), (1280, 720)):
        case = resolve_request(Request(gpu="h100-sxm", images=1, image_width=width, image_height=height), STORE)
        without = case.prompt_tokens + case.model.chat_tokens
        assert case.input_tokens() - without - image_tokens(VISION, width, height) == 3


def test_without_thumbnail() -> None:
    """A model that adds no small copy sees the grid only."""
    assert tiles(VISION.model_copy(update={"thumbnail": False}), 1280, 720) == 8


def test_least_number_of_tiles() -> None:
    """A model that asks for two tiles cuts even a square image."""
    assert tiles(VISION.model_copy(update={"min_tiles": 2}), 448, 448) == 5


def test_no_grid_fits() -> None:
    """A limit that admits no grid leaves the image whole."""
    assert tiles(VISION, 1280, 720, 0) == 1


@pytest.mark.parametrize("limit", [1, 6])
def test_a_checkpoint_that_reads_no_limit_keeps_its_own(limit: int) -> None:
    """Of the -hf layout LMDeploy passes images only to transformers: nine tiles, whatever the request asks for."""
    asked = {"gpu": "l4-24g", "images": 1, "image_width": 1280, "image_height": 720}
    converted, tiled = (
        resolve_request(Request(**asked, model=name), STORE) for name in ("internvl3-8b-hf", "internvl3-8b")
    )
    assert converted.tiles(limit) == converted.tiles() == 9
    assert converted.largest_tokens(limit) == converted.largest_tokens()
    assert tiled.tiles(limit) < 9
    assert {config.max_tiles for tier in tiers(converted) for config in tier} == {0}
    assert {config.max_tiles for tier in tiers(tiled) for config in tier} == {0, 6, 1}


@pytest.mark.parametrize(("width", "height"), [(0, 448), (448, 0), (-1, 1)])
def test_an_image_without_pixels_is_refused(width: int, height: int) -> None:
    """A side of no pixels is an error, with tiles and without."""
    for vision in (VISION, SEEING["qwen2-vl-7b-instruct"]):
        with pytest.raises(ValueError, match="at least one pixel"):
            image_tokens(vision, width, height)


@given(width=SIDE, height=SIDE, limit=st.integers(1, 40))
def test_tiles_stay_within_the_limit(width: int, height: int, limit: int) -> None:
    """Never more than the limit and the small copy; never two tiles in all."""
    count = tiles(VISION, width, height, limit)
    assert 1 <= count <= limit + 1
    assert count != 2


@given(width=SIDE, height=SIDE, limit=st.integers(1, 40))
def test_scaling_a_large_image_changes_nothing(width: int, height: int, limit: int) -> None:
    """Shape alone decides once an image has more pixels than any grid."""
    large, larger = (tiles(VISION, width * scale, height * scale, limit) for scale in (2**20, 2**21))
    assert large == larger


def test_large_images_are_no_slower() -> None:
    """Ten thousand images of a million pixels a side take well under two seconds of computing."""
    start = time.process_time()
    for step in range(10_000):
        tiles(VISION, 10**6 - step, 10**6)
    assert is_within(time.process_time() - start, 2)


# --- InternVL2.5 and InternVL3.5 --------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SEEING if name.startswith("internvl")])
@pytest.mark.parametrize(("width", "height", "limit", "expected"), TABLE)
def test_every_internvl_tiles_alike(name: str, width: int, height: int, limit: int, expected: int) -> None:
    """The same rule from 2.5 to 3.5, whatever the models in it and whoever sets the limit; 256 tokens a tile."""
    shape = SEEING[name]
    if not shape.request_tiles:
        shape = shape.model_copy(update={"max_tiles": limit})
    assert tiles(shape, width, height, limit) == expected
    assert image_tokens(shape, width, height, limit) == 256 * expected


# --- Qwen2-VL and Qwen2.5-VL, Qwen3-VL --------------------------------------------------------


class Squares(NamedTuple):
    """Squares that an image keeps its shape in: their side in pixels, and the limits of the image's area."""

    side: int
    least: int
    most: int


QWEN2_VL = Squares(28, 4 * 28 * 28, 16384 * 28 * 28)
QWEN3_VL = Squares(32, 256 * 256, 4096 * 4096)
FREE = {
    name: QWEN2_VL if name.startswith("qwen2") else QWEN3_VL
    for name, shape in SEEING.items()
    if name.startswith("qwen")
}

RESIZED = [
    # width, height, width and height in squares of 28 pixels
    (448, 448, 16, 16),
    (224, 224, 8, 8),
    (56, 56, 2, 2),
    (28, 28, 2, 2),
    (14, 14, 2, 2),
    (1, 1, 2, 2),
    (42, 42, 2, 2),
    (70, 70, 2, 2),
    (71, 71, 3, 3),
    (98, 98, 4, 4),
    (640, 480, 23, 17),
    (800, 600, 29, 21),
    (1024, 768, 37, 27),
    (1280, 720, 46, 26),
    (720, 1280, 26, 46),
    (1920, 1080, 69, 39),
    (3840, 2160, 137, 77),
    (2480, 3508, 89, 125),
    (3584, 3584, 128, 128),
    (3585, 3585, 128, 128),
    (4000, 3000, 143, 107),
    (6000, 4000, 156, 104),
    (10000, 10000, 127, 127),
    (100, 20, 4, 1),
    (20, 100, 1, 4),
    (56, 14, 4, 1),
    (2000, 10, 29, 1),
    (10, 2000, 1, 29),
    (20000, 100, 714, 4),
    (50000, 250, 1786, 9),
    (40000, 1000, 809, 20),
]


LARGER_SQUARES = [
    # width, height, width and height in squares of 32 pixels
    (448, 448, 14, 14),
    (224, 224, 8, 8),
    (16, 16, 8, 8),
    (100, 20, 18, 4),
    (640, 480, 20, 15),
    (1280, 720, 40, 22),
    (1920, 1080, 60, 34),
    (3840, 2160, 120, 68),
    (4096, 4096, 128, 128),
    (6000, 4000, 156, 104),
]
RESIZED_OF = {QWEN2_VL: RESIZED, QWEN3_VL: LARGER_SQUARES}


def near(size: int, side: int) -> int:
    """The number of squares nearest to a size; of two equally near the even one."""
    whole, rest = divmod(size, side)
    if 2 * rest == side:
        return whole + whole % 2
    return whole + (2 * rest > side)


def expected_squares(width: int, height: int, rule: Squares) -> tuple[set[int], set[int]]:
    """The published rule in whole numbers: round; too large: the most that fits; too small: the least that covers.

    Where a side divides exactly, the published code's square root may lose or add one square, so both are right.
    """
    across, down, area = near(width, rule.side), near(height, rule.side), width * height
    pixels = across * down * rule.side**2
    if rule.least <= pixels <= rule.most:
        return {across}, {down}
    limit = rule.most if pixels > rule.most else rule.least

    def squares(size: int) -> set[int]:
        # The most squares n with n * side <= size * sqrt(limit / area), by squaring both sides.
        fits = math.isqrt(size * size * limit // (rule.side**2 * area))
        exact = (fits * rule.side) ** 2 * area == size * size * limit
        step = -1 if limit == rule.most else 1
        counts = {fits, fits + step} if exact else {fits if limit == rule.most else fits + 1}
        return {max(1, count) for count in counts}

    return squares(width), squares(height)


@pytest.mark.parametrize(
    ("name", "width", "height", "across", "down"),
    [(name, *row) for name, rule in FREE.items() for row in RESIZED_OF[rule]],
)
def test_resized(name: str, width: int, height: int, across: int, down: int) -> None:
    """The table holds for every model of the family, and agrees with the rule worked out a second time."""
    vision, side = SEEING[name], FREE[name].side
    wide, high = expected_squares(width, height, FREE[name])
    assert across in wide
    assert down in high
    assert resized(vision, width, height) == (side * across, side * down)
    assert image_tokens(vision, width, height) == across * down
    assert vision.wrapper_tokens == 2
    assert tiles(vision, width, height) == -(-across * down // 256)


@given(width=st.integers(1, 40_000), height=st.integers(1, 40_000), name=st.sampled_from(sorted(FREE)))
def test_resizing_keeps_its_promises(width: int, height: int, name: str) -> None:
    """Whole squares, an area within the limits, the same shape; no request can ask for fewer tiles."""
    vision, rule = SEEING[name], FREE[name]
    assume(max(width, height) <= 200 * min(width, height))
    across, down = resized(vision, width, height)
    assert across % rule.side == down % rule.side == 0 < min(across, down)
    assert rule.least <= across * down <= rule.most
    wide, high = expected_squares(width, height, rule)
    assert across // rule.side in wide
    assert down // rule.side in high
    assert tiles(vision, width, height, 1) == tiles(vision, width, height) <= vision.max_tiles
    assert resized(vision, height, width) == (down, across)


def test_models_with_tiles_are_not_resized() -> None:
    """An image keeps its size until it is cut."""
    assert resized(VISION, 1280, 720) == (1280, 720)
