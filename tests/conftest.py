"""Fixtures and settings that all tests share."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from artefacts import KNOWLEDGE, Called, Machine, command
from browser import Visit, chromium, served, visiting
from hypothesis import HealthCheck, settings
from seeds import Seeds, folder
from sitepages import build, why_no_npm

from recommender.calibration import observations
from recommender.common.parse import duplicate_keys
from recommender.estimate import arrivals
from recommender.estimate.scheduler import typical_arrivals
from recommender.fleet.sizing import size_fleet
from recommender.knowledge import index
from recommender.knowledge.index import read_record
from recommender.knowledge.records import Record
from recommender.maintenance import knowledge_folder
from recommender.maintenance.linters import files

# Under nohup, or behind a shell's &, these are ignored, and every process that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# LibYAML's parser gives the same as Python's and is ten times as fast.
yaml.safe_load = partial(yaml.load, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

# The records and modules of a session stay to its end: looking through them for garbage took a tenth of its time.
gc.set_threshold(100_000, 50, 100)

settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
settings.register_profile("search", parent=settings.get_profile("house"), derandomize=False, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


FIRST = ("test_site_configurator", "test_smoke", "test_site_browser", "test_fit", "test_smoke_fleet", "test_render",
         "test_fleet_plan", "test_fleet_front", "test_fleet_queueing", "test_properties", "test_campaign",
         "test_option_values", "test_streams", "test_bench_prompt", "test_schema", "test_hostile_files", "test_weights",
         "test_linters", "test_review_readers", "test_fleet_monitoring", "test_driven_loads",
         "test_reviews_fuzz", "test_guard")  # fmt: skip
"""Files that take longest: begun last, one of them would be waited for while the other cores idle. Those that wait for
servers are between those that compute."""
CLOCKS = ("test_load", "test_reviews_speed")
"""Files that keep time: tests/run.py lets nothing else run beside them."""
SERVERS = ("test_bench_prompt", "test_campaign", "test_fleet_front", "test_guard", "test_smoke", "test_smoke_fleet",
           "test_smoke_parts", "test_standin")  # fmt: skip
"""Files that start servers or kill what they started; a busy machine makes them slow, not wrong."""

REPEATING = {
    "test_properties",
    "test_reviews_artefacts",
    "test_reviews_fixing",
    "test_a_hostile_text_takes_no_longer_than_any",
    "test_every_question_has_the_commands_bytes",
    "test_every_script_of_the_grid_is_bash_and_its_command_is_the_releases",
    "test_many_choices_are_quick",
    "test_json_keeps_the_published_schema",
    "test_no_command_line_is_a_defect_or_takes_long",
    "test_the_committed_files_are_the_fit",
    "test_what_is_written_now_has_no_drift",
}
"""Files, and tests of others, that do over and over what further tests do too, as all by Hypothesis do. Counting
which lines they reach would make them two to three times as long, and adds none. Some hold a time of this process."""
COUNTED_CASES = 10
"""Of a test with many cases the first ones count which lines they reach, and every so manieth of the rest."""
seen_cases: Counter[tuple[str, str]] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: keeps time, and so runs after the others, one at a time")
    config.addinivalue_line("markers", "servers: starts servers, which is tried with one Python")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Passes over the files that have no test to run alone, where those are asked for: reading all takes long."""
    if config.option.markexpr != "alone" or collection_path.suffix != ".py" or collection_path.stem in CLOCKS:
        return None
    return "pytest.mark.alone" not in collection_path.read_text("utf-8") or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the files that need the machine for themselves or start servers, and puts the long ones first."""
    for item in items:
        for marker, files_marked in (("alone", CLOCKS), ("servers", SERVERS)):
            if item.path.stem in files_marked:
                item.add_marker(marker)
    items.sort(key=lambda item: FIRST.index(item.path.stem) if item.path.stem in FIRST else len(FIRST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Lets coverage pass over the tests that repeat; pytest-cov's own mark for it does nothing in a worker of xdist."""
    if _counts_lines(item):
        return (yield)
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)


def _counts_lines(item: pytest.Item) -> bool:
    test = item.path.stem, getattr(item, "originalname", "")
    case = seen_cases[test]
    seen_cases[test] += 1
    if REPEATING.intersection(test) or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return False
    return case < COUNTED_CASES or not case % COUNTED_CASES


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine of stand-ins in a folder of its own."""
    return Machine(tmp_path / "machine")


@pytest.fixture(scope="module")
def shared_machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One machine of stand-ins for many scripts that only launch and end."""
    return Machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def few_simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Simulates a tenth of the requests: for tests that hold whatever a plan's times are."""
    count = arrivals._count
    monkeypatch.setattr(arrivals, "_count", lambda *load: max(count(*load) // 10, 20))
    monkeypatch.setattr(typical_arrivals, "MOST_DRAWN", typical_arrivals.MOST_DRAWN // 10)
    monkeypatch.setattr(arrivals, "_simulate", lru_cache(maxsize=1024)(arrivals._simulate.__wrapped__))
    size_fleet.cache_clear()
    yield
    size_fleet.cache_clear()


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Called:
    """Runs ``recommend review`` in a folder of its own: status, stdout, stderr."""
    from recommender.review import settings

    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    settings._upward.cache_clear()

    def run(*words: str) -> tuple[int, str, str]:
        answer = command("review", *words)
        assert capfd.readouterr() == ("", "")
        return answer

    return run


@pytest.fixture(scope="session")
def _knowledge(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, tuple[bytes, os.stat_result]]:
    """One copy of the knowledge for all tests: its files, what is in each, and its state."""
    folder = shutil.copytree(KNOWLEDGE, tmp_path_factory.mktemp("checkout") / "knowledge")
    return {path: (path.read_bytes(), path.stat()) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def copy(_knowledge: dict[Path, tuple[bytes, os.stat_result]]) -> Iterator[Path]:
    """That copy; whatever a test changes in it is put back."""
    folder = next(path for path in _knowledge if path.name == "GUIDELINES.md").parent
    yield folder
    for path in [path for path in folder.rglob("*") if path.is_file() and path not in _knowledge]:
        path.unlink()
    for path, (content, state) in _knowledge.items():
        if not path.is_file() or _state(path.stat()) != _state(state):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            _knowledge[path] = content, path.stat()


def _state(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns


_read: dict[tuple[str, bytes, type[Record]], Record] = {}


def _read_once(path: Path, kind: type[Record]) -> Record:
    key = (path.name, path.read_bytes(), kind)
    if key not in _read:
        _read[key] = read_record(path, kind)
    return _read[key]


@cache
def _duplicate_keys(text: str) -> list[tuple[int, str]]:
    return list(duplicate_keys(text))


@pytest.fixture(scope="module")
def _records_are_read_once() -> Iterator[None]:
    """Reading a file that did not change gives the record that was read before: the same, and ten times faster."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (index, knowledge_folder, observations):
            patch.setattr(module, "read_record", _read_once)
        patch.setattr(files, "duplicate_keys", _duplicate_keys)
        yield


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
    """The folder that BUILT_SITE names, or the site built now, once for all workers."""
    if "BUILT_SITE" in os.environ:
        return Path(os.environ["BUILT_SITE"])
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "site").exists():
            build(folder / "site.new")
            (folder / "site.new").rename(folder / "site")
    return folder / "site"


# Playwright keeps an event loop running in this thread, which other files' asyncio.run would stumble over: it ends
# with the file that asks for it.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def base(browser: Any, site: Path) -> Iterator[str]:
    """The address of the site below a host, as a published release has it."""
    with served(site) as address:
        yield address


@pytest.fixture
def visit(browser: Any, base: str) -> Iterator[Visit]:
    """A fresh page; an error, a failed request or a request to another host fails the test."""
    with visiting(browser, base) as started:
        yield started


@pytest.fixture
def reading(visit: Visit) -> Visit:
    """The page of a reader who saves data: it loads the recommender only for a question that needs it."""
    visit.page.add_init_script("Object.defineProperty(navigator.connection, 'saveData', { value: true })")
    return visit


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe, which finds what readers with disabilities cannot use."""
    engine = pytest.importorskip("axe_playwright_python.base", reason="NO AXE: accessibility was not tried")
    return str(engine.AXE_SCRIPT)


@pytest.fixture(scope="session")
def npm_packages() -> None:
    """The packages of npm that run the recommender in a browser; what needs them is skipped, and says so, without."""
    if why_no_npm():
        pytest.skip(why_no_npm())
