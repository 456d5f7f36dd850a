"""Tiles and tokens of an image agree with the published preprocessing.

The expected counts came from LMDeploy 0.18.0's own tiling function, run once on these sizes.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recommender.records import Model, VisionShape
from recommender.tokens import image_tokens, prompt_image_tokens, tiles

RECORD = Path(__file__).parent.parent / "knowledge" / "models" / "internvl3-8b-awq.yaml"
MODEL = Model.model_validate_json(json.dumps(yaml.safe_load(RECORD.read_text("utf-8"))))
VISION: VisionShape = MODEL.vision[0]
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


@pytest.mark.parametrize(("width", "height", "limit", "expected"), TABLE)
def test_tiles(width: int, height: int, limit: int, expected: int) -> None:
    """The table holds."""
    assert tiles(VISION, width, height, limit) == expected


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
        assert prompt_image_tokens(VISION, width, height) - image_tokens(VISION, width, height) == 3


def test_without_thumbnail() -> None:
    """A model that adds no small copy sees the grid only."""
    assert tiles(VISION.model_copy(update={"thumbnail": False}), 1280, 720) == 8


def test_least_number_of_tiles() -> None:
    """A model that asks for two tiles cuts even a square image."""
    assert tiles(VISION.model_copy(update={"min_tiles": 2}), 448, 448) == 5


def test_no_grid_fits() -> None:
    """A limit that admits no grid leaves the image whole."""
    assert tiles(VISION, 1280, 720, 0) == 1


@pytest.mark.parametrize(("width", "height"), [(0, 448), (448, 0), (-1, 1)])
def test_an_image_without_pixels_is_refused(width: int, height: int) -> None:
    """A side of no pixels is an error."""
    with pytest.raises(ValueError, match="at least one pixel"):
        tiles(VISION, width, height)


@given(width=SIDE, height=SIDE, limit=st.integers(1, 40))
def test_tiles_stay_within_the_limit(width: int, height: int, limit: int) -> None:
    """Never more than the limit and the small copy; never two tiles in all."""
    count = tiles(VISION, width, height, limit)
    assert 1 <= count <= limit + 1
    assert count != 2


@given(width=SIDE, height=SIDE, limit=st.integers(1, 40))
def test_scaling_a_large_image_changes_nothing(width: int, height: int, limit: int) -> None:
    """Shape alone decides once an image has more pixels than any grid."""
    big, bigger = (
        tiles(VISION, width * 2**20, height * 2**20, limit),
        tiles(VISION, width * 2**21, height * 2**21, limit),
    )
    assert big == bigger


def test_large_images_are_no_slower() -> None:
    """Ten thousand images of a million pixels a side take well under two seconds."""
    start = time.perf_counter()
    for step in range(10_000):
        tiles(VISION, 10**6 - step, 10**6)
    assert time.perf_counter() - start < 2
