"""Join what every page loads, so that a page names one style sheet and one script instead of nine files.

What only scripts use, such as the theme's settings and its texts, is in the script and not on each page.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recommender.site import search
from recommender.site.html_templates import to_json
from recommender.site.i18n.translation import ENGLISH, LANGUAGES

SCRIPT = "assets/page.js"
PARTS = {
    "assets/page.css": ("stylesheets/main.*", "stylesheets/palette.*", "theme.css", "site.css", "configure.css"),
    SCRIPT: ("frame.js", "javascripts/bundle.*", "reach.js", "tables.js", "search.js"),
}
"""The files below ``assets`` that are joined, in their order; those of the theme have a digest in their names."""
TEXTS = ("clipboard.copied", "clipboard.copy", "search.reset", "search.result.none", "select.version", "top")
"""The theme's texts that scripts show."""
MAP = re.compile(r"^/[/*]# sourceMappingURL=.*\n?", re.MULTILINE)


def files(
    parts: Mapping[str, str], theme: Mapping[str, Any], translate: Callable[[str, str], str]
) -> Iterator[tuple[str, str]]:
    """Yield the joined files of the parts; ``translate`` gives a text of the theme in a language."""
    texts = {
        language: {name: translate(language, name) for name in TEXTS}
        | {"index": ("" if language == ENGLISH else f"{language}/") + search.FILE}
        for language in LANGUAGES
    }
    for path, names in PARTS.items():
        scripts = [MAP.sub("", parts[script]) for name in names for script in fnmatch.filter(parts, f"assets/{name}")]
        if path == SCRIPT:
            # Each script is in a block, so that its names do not clash with others'.
            settings = f"const THEME = {to_json({**theme, 'texts': texts})};"
            scripts = ['"use strict";', settings, *(f"{{\n{text}\n}}" for text in scripts)]
        yield path, "\n".join(scripts)


def is_part(path: str) -> bool:
    """Whether a file below the site's root is joined with others."""
    return any(fnmatch.fnmatch(path, f"assets/{name}") for names in PARTS.values() for name in names)
