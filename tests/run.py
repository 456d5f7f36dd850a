"""Every check of this checkout: linter, types, tests with coverage. README's second command ends here.

Runs all of them, also after one failed, and exits 1 if any did. Arguments go to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("bash", "git", "shellcheck", "tmux")
CHECKS = {
    "ruff": ["ruff", "check", "."],
    "mypy": ["mypy", "--strict"],
    "pytest": ["pytest", "-rs", "--cov", "--cov-report=term", *sys.argv[1:]],
}


def main() -> int:
    """Runs the checks and says how each ended."""
    # The tools and the recommend command installed beside this interpreter come first.
    env = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    ended = {}
    for name, command in CHECKS.items():
        print(f"== {' '.join(command)}", flush=True)
        start = time.monotonic()
        code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=env, check=False).returncode
        ended[name] = (code, time.monotonic() - start)
    print("==")
    for name, (code, seconds) in ended.items():
        print(f"{name}: {'passed' if code == 0 else f'FAILED ({code})'}, {seconds:.0f} s")
    for tool in TOOLS:
        if not shutil.which(tool, path=env["PATH"]):
            print(f"NOT INSTALLED: {tool}. The tests that need it were SKIPPED; install it and run this again.")
    return int(any(code for code, _ in ended.values()))


if __name__ == "__main__":
    sys.exit(main())
