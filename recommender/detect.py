"""The GPUs of this machine, as ``--gpu auto`` asks for them."""

from __future__ import annotations

import subprocess

QUERY = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


class NoGpu(Exception):
    """This machine shows no usable NVIDIA GPU. One line: what is missing and what to do."""


def detect() -> tuple[str, int]:
    """Name (as the driver prints it) and number of this machine's GPUs. Raises NoGpu."""
    try:
        done = subprocess.run(QUERY, capture_output=True, text=True, timeout=20, check=True)
    except FileNotFoundError:
        raise NoGpu("--gpu auto: no nvidia-smi on this machine; name the GPU, such as --gpu A100-80G") from None
    except (subprocess.SubprocessError, OSError) as error:
        raise NoGpu(f"--gpu auto: nvidia-smi failed ({type(error).__name__}); name the GPU instead") from None
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if not names:
        raise NoGpu("--gpu auto: nvidia-smi lists no GPU; name the GPU, such as --gpu A100-80G")
    if len(set(names)) > 1:
        raise NoGpu(f"--gpu auto: different GPUs here ({', '.join(sorted(set(names)))[:120]}); name one kind")
    return names[0], len(names)
