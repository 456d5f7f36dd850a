"""Make photo-like images: smooth colour under fine noise, so JPEG and tiling cost the same."""

from __future__ import annotations

import base64
import io
import os
from concurrent.futures import ThreadPoolExecutor

QUALITY = 85
# Pixels of a pool: at most 0.8 base64 bytes a pixel keep it under 256 MB and quick to make.
POOL_PIXELS = 192_000_000
# Pixels in work at a time; Pillow needs four bytes each.
BUSY_PIXELS = 64_000_000
PATCH = 40  # pixels between two colours of the smooth part
GRAIN = 17  # steps of brightness the noise spans
BAND = 128  # rows worked on at a time: they stay in the processor's cache
# Where Pillow's JPEG header keeps the first quantisation table, and how much of the base64 text covers it.
TABLE, HEAD = 25, 128
STEPS = 8


def pictures(width: int, height: int, count: int, seed: int) -> list[str]:
    """Return distinct JPEG images as base64, reproducibly; fewer if they are huge."""
    size = width * height
    count = max(1, min(count, POOL_PIXELS // size))
    threads = max(1, min(count, os.cpu_count() or 1, BUSY_PIXELS // size))
    # Threads: Pillow and numpy release the GIL, and no process can outlive a Ctrl-C.
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(lambda number: _picture(width, height, (seed, number)), range(count)))
    finally:
        pool.shutdown(cancel_futures=True)


def vary(picture: str, turn: int) -> str:
    """Return the image with slightly different pixels, distinct for 4,096 turns.

    A pool is smaller than a long load, and a cache by content must not help the server. Changing four entries of the
    quantisation table costs nothing, keeps the length and alters nearly every decoded block.
    """
    if not turn:
        return picture
    head = bytearray(base64.b64decode(picture[:HEAD]))
    for place in range(4):
        head[TABLE + 10 + place] += turn % STEPS
        turn //= STEPS
    return base64.b64encode(head).decode() + picture[HEAD:]


def _picture(width: int, height: int, seed: tuple[int, int]) -> str:
    """Return one image, made band by band to keep memory low."""
    import numpy as np  # of the extra ``smoke``, as Pillow is
    from PIL import Image

    random = np.random.default_rng(seed)
    rows, columns = max(2, height // PATCH), max(2, width // PATCH)
    # Bilinear never overshoots, so the noise added below stays within 255.
    colours = Image.fromarray(random.integers(0, 257 - GRAIN, (rows, columns, 3), dtype=np.uint8))
    whole = Image.new("RGB", (width, height))
    for top in range(0, height, BAND):
        deep = min(BAND, height - top)
        box = (0.0, top * rows / height, float(columns), (top + deep) * rows / height)
        band = np.array(colours.resize((width, deep), Image.Resampling.BILINEAR, box=box))
        band += random.integers(0, GRAIN, (deep, width, 1), dtype=np.uint8)
        whole.paste(Image.fromarray(band), (0, top))
    out = io.BytesIO()
    whole.save(out, "JPEG", quality=QUALITY)
    return base64.b64encode(out.getvalue()).decode()
