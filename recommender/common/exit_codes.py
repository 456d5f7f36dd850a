"""Exit codes, and how to fail with one line."""

from __future__ import annotations

import sys
from typing import NoReturn

from recommender.common.text import one_line

CLEAN, NEGATIVE, BAD_REQUEST, MACHINE, KNOWLEDGE = 0, 1, 2, 3, 4
"""``NEGATIVE``: the answer is no, such as nothing that fits, drift, a finding or an empty list."""
DEFECT, INTERRUPTED, BROKEN_PIPE = 70, 130, 141


def fail(message: str, code: int) -> NoReturn:
    """Print one line on stderr and exit with the code."""
    print(f"recommend: {one_line(message)}", file=sys.stderr)
    sys.exit(code)
