"""Convert images to tokens, by the rule of the model's family as LMDeploy applies it.

Tiles (InternVL): an image is cut into a grid of square tiles whose shape is nearest to
its own, of at most ``max_tiles``, and a thumbnail is added when there is more than one.
Read in LMDeploy's wheel 0.18.0, ``lmdeploy/vl/model/internvl.py``
(find_closest_aspect_ratio, dynamic_preprocess). The search depends on ``max_tiles``
only, not on the image's size.

Pixels (Qwen2-VL to Qwen3-VL, GLM-4.1V): an image keeps its shape; both sides are rounded to whole
merged patches, and it is scaled where its area would leave the model's limits. LMDeploy hands
this to the checkpoint's own processor (0.18.0 ``lmdeploy/vl/model/qwen2.py``, preprocess), of
which smart_resize is in transformers, ``models/qwen2_vl/image_processing_qwen2_vl.py``.

Other cuts (``VisionShape.cut``): image_grids.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from recommender.request.image_grids import RULES, Grid, marks

if TYPE_CHECKING:
    from recommender.knowledge.records import VisionShape


@cache
def _grids(least: int, most: int) -> tuple[tuple[float, int], ...]:
    """Return width-to-height ratio and number of tiles of every allowed grid, fewest tiles first."""
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


def _side(vision: VisionShape) -> int:
    """Return the pixels of one side of a token: a patch and those merged with it."""
    return round(vision.patch / vision.downsample)


@lru_cache(maxsize=4096)
def resized(vision: VisionShape, width: int, height: int) -> tuple[int, int]:
    """Return width and height in pixels after a model without tiles resizes; unchanged for one with tiles.

    The processor rejects images more than 200 times as long as wide; they are counted anyway.
    """
    _check(width, height)
    if not vision.pixels:
        return width, height
    side, rule = _side(vision), vision.pixels[0]
    across, down = round(width / side) * side, round(height / side) * side
    if across * down > rule.most:
        shrink = math.sqrt(width * height / rule.most)
        across = max(side, math.floor(width / shrink / side) * side)
        down = max(side, math.floor(height / shrink / side) * side)
    elif across * down < rule.least:
        grow = math.sqrt(rule.least / (width * height))
        across, down = math.ceil(width * grow / side) * side, math.ceil(height * grow / side) * side
    return across, down


@lru_cache(maxsize=4096)
def tiles(vision: VisionShape, width: int, height: int, max_tiles: int | None = None) -> int:
    """Return the tiles that the encoder sees for an image in pixels, the thumbnail included.

    ``max_tiles`` is a request's own limit; see ``most_tiles``. If grids are equally near in shape, the larger one
    wins if the image has more than half its pixels.

    For a model without tiles, which has no such limit, return the squares of ``image`` pixels a side
    that the resized image fills, rounded up, as a measure of the encoder's work.
    """
    _check(width, height)
    if vision.pixels:
        across, down = resized(vision, width, height)
        return -(-across * down // vision.image**2)
    if vision.cut in RULES:
        squares = math.prod(_cut(vision, width, height))
        return squares + 1 if squares > 1 or vision.cut == "rows" else squares
    ratio = width / height
    nearest = float("inf")
    best = 1
    for grid_ratio, count in _grids(vision.min_tiles, most_tiles(vision, max_tiles)):
        away = abs(ratio - grid_ratio)
        if away < nearest:
            nearest, best = away, count
        elif away == nearest and width * height > 0.5 * vision.image * vision.image * count:
            best = count
    return best + 1 if vision.thumbnail and best > 1 else best


def _cut(vision: VisionShape, width: int, height: int) -> Grid:
    return RULES[vision.cut](width, height, vision.image, vision.max_tiles)


def most_tiles(vision: VisionShape, limit: int | None) -> int:
    """Return an image's tile limit: the request's ``max_dynamic_patch``, else the model's own."""
    return limit if limit is not None and reads_limit(vision) else vision.max_tiles


def reads_limit(vision: VisionShape) -> bool:
    """Return whether LMDeploy reads ``max_dynamic_patch``: only where it cuts tiles, not for the -hf layout.

    [0.18.0 lmdeploy/vl/model/internvl3_hf.py:68]
    """
    return vision.request_tiles and not vision.pixels


def _check(width: int, height: int) -> None:
    if width < 1 or height < 1:
        raise ValueError(f"an image has at least one pixel a side, not {width}x{height}")


@lru_cache(maxsize=4096)
def image_tokens(vision: VisionShape, width: int, height: int, max_tiles: int | None = None) -> int:
    """Return the prompt tokens of one image, without the markers around it; those between its tiles are counted."""
    if vision.pixels:
        across, down = resized(vision, width, height)
        return across * down // _side(vision) ** 2
    tokens = tiles(vision, width, height, max_tiles) * vision.tokens_per_tile
    if vision.cut not in RULES:
        return tokens
    return tokens + marks(vision.cut, _cut(vision, width, height), vision.tokens_per_tile)


def most_image_tokens(vision: VisionShape, max_tiles: int | None = None) -> int:
    """Return the tokens of an image of the most tiles, without the markers around it."""
    most = most_tiles(vision, max_tiles)
    tokens = (most + (1 if vision.thumbnail and most > 1 else 0)) * vision.tokens_per_tile
    return tokens + (marks(vision.cut, (1, most), vision.tokens_per_tile) if vision.cut in RULES else 0)
