"""The GPUs of this machine, as ``--gpu auto`` asks for them."""

from __future__ import annotations

import subprocess
from collections import Counter

from recommender.request import RequestError

QUERY = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


class NoGpu(Exception):
    """This machine shows no usable NVIDIA GPU. One line: what is missing and what to do."""


def detect() -> tuple[str, int]:
    """Name (as the driver prints it) and number of this machine's GPUs. Raises NoGpu, or RequestError for a mix."""
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
            f"--gpu auto: {_line(listed, 160)} are here, and the cards of a server must be alike (tp); "
            f"name one kind in a --gpu, such as --gpu '{_line(kinds[0][0], 60)}:{kinds[0][1]}'"
        )
    return kinds[0][0], len(names)


def _line(text: str, most: int) -> str:
    shown = "".join(each if each.isprintable() else "?" for each in text)
    return shown if len(shown) <= most else shown[:most] + "..."
