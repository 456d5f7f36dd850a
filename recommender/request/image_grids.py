"""Cut an image into a grid of squares by the rules of Llama 4, Phi-3.5-vision and MiniCPM-V.

LMDeploy hands images to the checkpoint's own processor (0.18.0 ``lmdeploy/vl/model/llama4.py:75``,
``phi3_vision.py:40``, ``minicpmv.py:111``) and puts the marks of the squares into the prompt (``minicpmv.py:206-214``).
Each rule returns columns and rows. ``marks`` counts the tokens that divide the squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

Grid = tuple[int, int]


def _divisors(number: int) -> Iterator[Grid]:
    """Return every grid of ``number`` squares, the tallest first."""
    return ((columns, number // columns) for columns in range(1, number + 1) if number % columns == 0)


@lru_cache(maxsize=4096)
def canvas(width: int, height: int, side: int, most: int) -> Grid:
    """Return the canvas that the image fits with the least enlarging, else the one that shrinks it least.

    Among equal canvases, return the smallest. [transformers models/llama4/image_processing_llama4.py, get_best_fit]
    """
    grids = [grid for number in range(1, most + 1) for grid in _divisors(number)]
    scales = {grid: min(grid[0] * side / width, grid[1] * side / height) for grid in grids}
    larger = [scale for scale in scales.values() if scale >= 1]
    scale = min(larger) if larger else max(scales.values())
    return min((grid for grid in grids if scales[grid] == scale), key=math.prod)


def rows(width: int, height: int, side: int, most: int) -> Grid:
    """Return the most columns that fit, and the rows that the image's shape then needs; swapped for an upright image.

    [the processor of microsoft/Phi-3.5-vision-instruct, as vLLM repeats it: models/phi3v.py, _calc_hd_transform_size]
    """
    ratio = max(width, height) / min(width, height)
    columns = max(count for count in range(1, most + 1) if count * math.ceil(count / ratio) <= most)
    grid = (columns, max(1, math.ceil(int(columns * side / ratio) / side)))
    return grid if width >= height else (grid[1], grid[0])


def slices(width: int, height: int, side: int, most: int) -> Grid:
    """Return the grid nearest in shape among those with about as many squares as the image has area.

    [the processor of openbmb/MiniCPM-V-2_6, get_sliced_grid]
    """
    area = min(math.ceil(width * height / side**2), most)
    if area <= 1:
        return (1, 1)
    counts = [count for count in (area - 1, area, area + 1) if 1 < count <= most]
    grids = [grid for count in counts for grid in _divisors(count)]
    return min(grids, key=lambda grid: abs(math.log(width / height) - math.log(grid[0] / grid[1])))


RULES: Mapping[str, Callable[[int, int, int, int], Grid]] = {"canvas": canvas, "rows": rows, "slices": slices}


def marks(cut: str, grid: Grid, tile_tokens: int) -> int:
    """Return the tokens between the squares of an image, without the markers around it.

    Canvas: one after each square. Rows: one at the end of each line of tokens, in the overview too, and one between.
    Slices: two around each square, and a line's end between rows.
    """
    squares, down = math.prod(grid), grid[1]
    if cut == "rows":
        return 1 + (down + 1) * math.isqrt(tile_tokens)
    if squares == 1:
        return 0
    return squares if cut == "canvas" else 2 * squares + down - 1
