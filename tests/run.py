"""Every check of this checkout: linter, types, the site, tests. README's second command ends here.

Runs all of them, also after one failed, and exits 1 if any did. Arguments go to pytest. Linter, types and site run side
by side; the tests begin when the site is built. They run in two parts: one file more at a time than there are cores,
because some wait for servers, and then, one after the other, those that keep time (marked ``alone``).
With RECORDS=<folder> each part writes its outcomes there as JUnit XML. COVERAGE=1 counts the lines that the tests
reach, which takes two to three times as long.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("bash", "chromium-headless-shell", "git", "haproxy", "promtool", "shellcheck", "systemd-analyze", "tmux")
OTHERS = {"chromium-headless-shell": ("chromium", "chromium-browser", "google-chrome")}
"""Names that will do as well."""
MOST_WORKERS = 4
ALONE = "tests alone"
NOTHING_CHOSEN = 5
"""pytest's exit code where its arguments left no test; right for one of the two parts."""


def checks(words: list[str], site: Path) -> dict[str, list[str]]:
    """What is run, by name: modules of this interpreter with their words, or a script of this folder."""
    workers = min((os.cpu_count() or 1) + 1, MOST_WORKERS)
    several = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"]
    commands = {"ruff": ["-m", "ruff", "check", "."], "mypy": ["-m", "mypy", "--strict"]}
    if not words:  # a few chosen tests build it only if they read it
        commands["site"] = ["tests/sitepages.py", str(site)]
    counted = ("--cov", "--cov-report="), ("--cov", "--cov-append", "--cov-report=term")
    first, second = counted if "COVERAGE" in os.environ else ((), ())
    commands["tests"] = ["-m", "pytest", "-rs", *several, "-m", "not alone", *first, *words]
    commands[ALONE] = ["-m", "pytest", "-rs", "-m", "alone", *second, *words]
    return commands


class Ended(NamedTuple):
    """A check's exit code, and the seconds it took."""

    code: int
    seconds: float


def run(name: str, command: list[str], env: Mapping[str, str]) -> Ended:
    """Run one check, saying its command before and what it says as it comes."""
    print(f"== {name}: {' '.join(command)}", flush=True)
    start = time.monotonic()
    code = subprocess.run([sys.executable, *command], cwd=ROOT, env=env, check=False).returncode
    return Ended(code, time.monotonic() - start)


def main() -> int:
    """Runs the checks and says how each ended."""
    # The tools and the recommend command installed beside this interpreter come first.
    env = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of processes would each compile the recommender
    ended: dict[str, Ended] = {}
    with tempfile.TemporaryDirectory() as folder:
        every = checks(sys.argv[1:], Path(folder, "site"))
        tests = {name: command for name, command in every.items() if "pytest" in command}
        others = {name: command for name, command in every.items() if name not in tests}
        with ThreadPoolExecutor(len(others)) as pool:
            started = {name: pool.submit(run, name, command, env) for name, command in others.items()}
            if "site" in started and started["site"].result().code == 0:
                env["BUILT_SITE"] = others["site"][-1]
            for name, command in tests.items():
                if name == ALONE:
                    wait(started.values())
                records = [f"--junitxml={env['RECORDS']}/{name.replace(' ', '-')}.xml"] if "RECORDS" in env else []
                ended[name] = run(name, [*command, *records], env)
        ended = {name: check.result() for name, check in started.items()} | ended
    if NOTHING_CHOSEN in (codes := [ended[name].code for name in tests]) and 0 in codes:
        ended |= {name: Ended(0, took) for name, (code, took) in ended.items() if code == NOTHING_CHOSEN}
    print("==")
    for name, (code, seconds) in ended.items():
        print(f"{name}: {'passed' if code == 0 else f'FAILED ({code})'}, {seconds:.0f} s")
    for tool in TOOLS:
        if not any(shutil.which(name, path=env["PATH"]) for name in (tool, *OTHERS.get(tool, ()))):
            print(f"NOT INSTALLED: {tool}. The tests that need it were SKIPPED; install it and run this again.")
    return int(any(code for code, _ in ended.values()))


if __name__ == "__main__":
    sys.exit(main())
