"""Detect the GPUs of this machine for ``--gpu auto``."""

from __future__ import annotations

import subprocess
from collections import Counter

from recommender.common.errors import NoGpu, RequestError
from recommender.common.text import clip

QUERY = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


def detect() -> tuple[str, int]:
    """Return name (as the driver prints it) and number of GPUs. Raises NoGpu, or RequestError for a mix."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=20, check=True)
    except FileNotFoundError:
        raise NoGpu("--gpu auto: no nvidia-smi on this machine; name the GPU, such as --gpu A100-80G") from None
    except (subprocess.SubprocessError, OSError) as error:
        raise NoGpu(f"--gpu auto: nvidia-smi failed ({type(error).__name__}); name the GPU instead") from None
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if not names:
        raise NoGpu("--gpu auto: nvidia-smi lists no GPU; name the GPU, such as --gpu A100-80G")
    kinds = Counter(names).most_common()
    if len(kinds) > 1:
        listed = ", ".join(f"{count} x {name}" for name, count in kinds)
        raise RequestError(
            f"--gpu auto: {clip(listed, 160)} found; all GPUs of a server must be the same model (tp); "
            f"name one, such as --gpu '{clip(kinds[0][0], 60)}:{kinds[0][1]}'"
        )
    return kinds[0][0], len(names)
