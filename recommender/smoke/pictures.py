"""Photo-like pictures for the load: smooth colour under fine noise, so that JPEG and the tiler work as on a photo."""

from __future__ import annotations

import base64
import io
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image

QUALITY = 85
# Pixels of a whole pool: at up to 0.8 base64 bytes a pixel it stays under 256 MB, and is made in seconds.
POOL_PIXELS = 192_000_000
# Pixels in work at a time: Pillow holds four bytes for each.
BUSY_PIXELS = 64_000_000
PATCH = 40  # pixels between two colours of the smooth part
GRAIN = 17  # steps of brightness the noise spans
BAND = 128  # rows worked on at a time: they stay in the processor's cache
# Where Pillow's JPEG header keeps the first quantisation table, and how much of the base64 text covers it.
TABLE, HEAD = 25, 128
STEPS = 8


def pictures(width: int, height: int, count: int, seed: int) -> list[str]:
    """Distinct JPEG pictures as base64, the same for the same arguments; fewer than ``count`` where they are huge."""
    size = width * height
    count = max(1, min(count, POOL_PIXELS // size))
    threads = max(1, min(count, os.cpu_count() or 1, BUSY_PIXELS // size))
    # Threads, not processes: Pillow and numpy let go of the interpreter, and no process can outlive a Ctrl-C.
    pool = ThreadPoolExecutor(threads)
    try:
        return list(pool.map(lambda number: _picture(width, height, (seed, number)), range(count)))
    finally:
        pool.shutdown(cancel_futures=True)


def turned(picture: str, turn: int) -> str:
    """The picture with slightly other pixels and the same length, another for each turn below 4,096.

    A pool is smaller than a long load, and a server that caches by content must not profit from that. Two entries
    of the quantisation table differ, which costs nothing and changes nearly every block of the decoded picture.
    """
    if not turn:
        return picture
    head = bytearray(base64.b64decode(picture[:HEAD]))
    for place in range(4):
        head[TABLE + 10 + place] += turn % STEPS
        turn //= STEPS
    return base64.b64encode(head).decode() + picture[HEAD:]


def _picture(width: int, height: int, seed: tuple[int, int]) -> str:
    """One picture, made band by band: only the finished picture is held whole."""
    random = np.random.default_rng(seed)
    rows, columns = max(2, height // PATCH), max(2, width // PATCH)
    # Bilinear never overshoots, so that the noise added below cannot pass 255.
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
