"""Fixtures and settings that all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from artefacts import Machine
from hypothesis import HealthCheck, settings
from seeds import Seeds, folder
from sitepages import build

# Under nohup, or behind a shell's &, these are ignored, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
settings.register_profile("search", parent=settings.get_profile("house"), derandomize=False, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine of stand-ins in a folder of its own."""
    return Machine(tmp_path / "machine")


@pytest.fixture(scope="module")
def shared_machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One machine of stand-ins for many scripts that only launch and end."""
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="session")
def seeds() -> Seeds:
    """The users' five texts; what needs them is skipped, and says so, where they are missing."""
    where = folder()
    if not list(where.glob("000_*.txt")):
        if "SEEDS_DIR" in os.environ:
            pytest.fail(f"SEEDS_DIR names {where}, where no seed text lies")
        pytest.skip(f"the seed texts are not at {where}: nothing was compared with them")
    return Seeds(where)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew, once for all that read it; or the folder that BUILT_SITE names."""
    if "BUILT_SITE" in os.environ:
        return Path(os.environ["BUILT_SITE"])
    target = tmp_path_factory.mktemp("site") / "built"
    build(target)
    return target
