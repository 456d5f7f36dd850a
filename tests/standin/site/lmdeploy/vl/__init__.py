"""Stand-in for LMDeploy's image loading."""

from pathlib import Path
from urllib.request import urlopen

from lmdeploy.engine import open_image


def load_image(source):  # type: ignore[no-untyped-def]
    """An image of a path, a URL or a data URL."""
    if not isinstance(source, str) or ("://" not in source[:10] and not source.startswith("data:")):
        return open_image(Path(source).read_bytes())
    with urlopen(source) as answer:
        return open_image(answer.read())
