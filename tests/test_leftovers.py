"""Work folders go with their run, or with the next one where it was killed; no other folder goes."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from artefacts import KNOWLEDGE

from recommender.common import leftovers

STUCK = (
    "import sys; from recommender.common.leftovers import work_folder\n"
    "with work_folder('smoke') as folder:\n"
    "    (folder / 'server.log').write_text('ready')\n"
    "    print(folder, flush=True)\n"
    "    sys.stdin.read()"
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def started() -> subprocess.Popen[str]:
    """A process that has a work folder until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], cwd=KNOWLEDGE.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline()
    return process


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_a_folder_goes_with_its_run(root: Path) -> None:
    """Also where the run fails."""
    with leftovers.work_folder("smoke") as folder:
        assert folder.parent == root
        assert leftovers.FOLDER.fullmatch(folder.name)
        (folder / "deep").mkdir()
        (folder / "deep/file").touch()
    with pytest.raises(KeyError), leftovers.work_folder("smoke"):
        raise KeyError
    assert names(root) == set()


def test_the_next_run_removes_what_a_killed_one_left(root: Path) -> None:
    """Those of runs that are alive stay, of whatever command; two killed ones go at once."""
    with started() as first, started() as second, started() as alive:
        first.kill()
        second.kill()
        first.wait()
        second.wait()
        assert len(names(root)) == 1 + 2
        with leftovers.work_folder("campaign") as own:
            (others,) = names(root) - {own.name}
            assert (root / others / "server.log").read_text() == "ready"
        alive.communicate()
    assert names(root) == set()


def test_what_looks_alike_stays(root: Path) -> None:
    """A folder of the user's, one of an older version that has no lock file, a link, a lock that is no file."""
    (root / "recommend-smoke-mynotes1").mkdir()
    (root / "recommend-smoke-mynotes1/notes").touch()
    (root / "recommend-campaign-kept-abcdefgh").mkdir()
    (root / "recommend-campaign-kept-abcdefgh" / leftovers.LOCK).touch()
    (root / "recommend-smoke-linked00").symlink_to(root / "recommend-campaign-kept-abcdefgh")
    (root / "recommend-smoke-pipe0000").mkdir()
    os.mkfifo(root / "recommend-smoke-pipe0000" / leftovers.LOCK)
    before = sorted(root.rglob("*"))
    with leftovers.work_folder("smoke"):
        pass
    assert sorted(root.rglob("*")) == before


def test_runs_that_start_together_do_not_remove_each_other(root: Path) -> None:
    """Each keeps its folder while all the others look for abandoned ones."""
    lost: list[Path] = []

    def run() -> None:
        for _ in range(30):
            with leftovers.work_folder("smoke") as folder:
                (folder / "file").write_text("own")
                if not (folder / leftovers.LOCK).exists():
                    lost.append(folder)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not lost
    assert names(root) == set()
