"""Draw the pictures that a link preview shows: one for each of the site's entry pages.

The social plugin of mkdocs-material needs Cairo's system libraries, and fonts from Google while it builds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from recommender.common.version import __version__

SIZE = (1200, 630)
PAPER, INK, SOFT, BRAND, MARK = "#10151d", "#e4e9f0", "#a3afbf", "#2b4fc7", "#ffd166"
DOORS = {
    "configure": ("Configure", "A complete launch script for your model, GPU and load"),
    "compare": ("Compare", "Who starts, who answers, who is fastest, at what memory"),
    "guides": ("Guides", "From the first deployment to fleets"),
    "fix": ("Fix", "Find the cause and the fix of a failure"),
    "reference": ("Reference", "Options, GPUs, models and releases, with sources"),
}
FOLDER = "assets/cards"


def files() -> Iterator[tuple[str, bytes]]:
    """Yield each picture by its path; none without Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        return
    for name, (title, line) in DOORS.items():
        image = Image.new("RGB", SIZE, PAPER)
        draw = ImageDraw.Draw(image)
        draw.rounded_rectangle((80, 80, 208, 208), 28, BRAND)
        for place, height in enumerate((144, 168, 122)):
            x = 112 + 32 * place
            draw.line((x, 104, x, 184), "#ffffff", 8)
            draw.ellipse((x - 13, height - 13, x + 13, height + 13), MARK)
        draw.text((240, 112), "LMDeploy recommender", SOFT, ImageFont.load_default(52))
        draw.text((80, 290), title, INK, ImageFont.load_default(112))
        draw.text((80, 440), line, SOFT, ImageFont.load_default(38))
        draw.text(
            (80, 530), f"with a reason and a source for every setting · {__version__}", SOFT, ImageFont.load_default(30)
        )
        buffer = io.BytesIO()
        image.quantize(32).save(buffer, "PNG", optimize=True)
        yield f"{FOLDER}/{name}.png", buffer.getvalue()


def address(site: str, name: str) -> str:
    """Return the address of a door's picture; a published version's address has no slash at its end."""
    return f"{site.rstrip('/')}/{FOLDER}/{name}.png"


def door(address: str) -> str:
    """Return the door of a page, by its address below its language's folder."""
    if address == "index.html":
        return "configure"
    if address.startswith(("compare", "claims", "advisers/", "runs")):
        return "compare"
    if address.startswith(("fix", "check", "threads", "rules/")):
        return "fix"
    return "guides" if address.startswith(("how-to/", "concepts/")) else "reference"
