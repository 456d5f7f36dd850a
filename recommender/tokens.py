"""Images to tokens, by the dynamic tiling that InternVL publishes and LMDeploy follows.

An image is cut into a grid of square tiles whose shape is nearest to its own, at most
``max_tiles`` of them, and a small copy of the whole joins when there is more than one. Read
in LMDeploy's wheel 0.18.0, ``lmdeploy/vl/model/internvl.py`` (find_closest_aspect_ratio,
dynamic_preprocess). The work depends on ``max_tiles`` only, never on the image's size.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.records import VisionShape


@cache
def _grids(least: int, most: int) -> tuple[tuple[float, int], ...]:
    """Width-to-height ratio and number of tiles of every allowed grid, fewest tiles first."""
    return tuple(
        (columns / rows, columns * rows)
        for columns, rows in sorted(
            (
                (columns, rows)
                for columns in range(1, most + 1)
                for rows in range(-(-least // columns), most // columns + 1)
                if rows >= 1
            ),
            key=lambda grid: grid[0] * grid[1],
        )
    )


@lru_cache(maxsize=4096)
def tiles(vision: VisionShape, width: int, height: int, max_tiles: int | None = None) -> int:
    """Tiles that the encoder sees for an image of ``width`` by ``height`` pixels, the small copy included.

    ``max_tiles`` is a request's own limit (``max_dynamic_patch``); without it the model's
    holds. Of grids equally near in shape, the larger wins if the image has more than half
    its pixels.
    """
    if width < 1 or height < 1:
        raise ValueError(f"an image has at least one pixel a side, not {width}x{height}")
    ratio = width / height
    nearest = float("inf")
    best = 1
    for grid_ratio, count in _grids(vision.min_tiles, vision.max_tiles if max_tiles is None else max_tiles):
        away = abs(ratio - grid_ratio)
        if away < nearest:
            nearest, best = away, count
        elif away == nearest and width * height > 0.5 * vision.image * vision.image * count:
            best = count
    return best + 1 if vision.thumbnail and best > 1 else best


def image_tokens(vision: VisionShape, width: int, height: int, max_tiles: int | None = None) -> int:
    """Tokens that one image's tiles become in the prompt, without the markers around them."""
    return tiles(vision, width, height, max_tiles) * vision.tokens_per_tile


def prompt_image_tokens(vision: VisionShape, width: int, height: int, max_tiles: int | None = None) -> int:
    """Tokens that one image adds to a prompt: its tiles and its markers."""
    return image_tokens(vision, width, height, max_tiles) + vision.wrapper_tokens
