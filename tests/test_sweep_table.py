"""The table of picks against other settings tells what the sweeps' records hold."""

import re
import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.run_figures import figures, late_rps
from recommender.smoke.campaign.plan import name_of_phase

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "site" / "concepts" / "predictions.md", ROOT / "site" / "concepts" / "predictions.vi.md")
ROW = re.compile(
    r"^\| (`?\w+`?), ([\w.-]+)(?: (?:on|trên) (PyTorch))? \| (\d+) \| ([\d.,]+)(?: ms|/s) \| ([\d.,]+) "
    r"\| ([\d.,]*)[^|]*\| (\d+) % \| (\d+) % \|$",
    re.MULTILINE,
)
SWEEPS = {
    "`chat`": "llama-chat", "`rag`": "qwen-rag", "`code`": "gpt-oss-code",
    "`chat`PyTorch": "pytorch-llama", "`caption`PyTorch": "pytorch-qwen3-vl",
}  # fmt: skip
IMAGES = {"`caption`": "640x480"}


def command(run: records.SmokeRun) -> list[str]:
    """What was started, whatever the port."""
    words = list(run.command)
    if "--server-port" in words:
        at = words.index("--server-port")
        del words[at : at + 2]
    return words


def values(sweep: str, load: str) -> dict[str, float]:
    """The median of each start's repeats: ms alone, else requests/s; of a pick those that started today's settings."""
    runs = defaultdict(list)
    for path in sorted((ROOT / "knowledge" / "evidence").glob(f"h100-sweep-{sweep}-2026-11-2?-*.yaml")):
        day, start, again = re.fullmatch(r".+-2026-11-(\d+)-(.+?)(?:-r(\d)-\d)?", path.stem).groups()
        runs[start].append(((day, again or "1"), read_record(path, records.SmokeRun)))
    found = defaultdict(list)
    for start, each in runs.items():
        newest = command(max(each, key=lambda one: one[0])[1])
        for _, run in each:
            for phase in run.phases if command(run) == newest or not start.startswith("pick") else ():
                if name_of_phase(phase) == load and not phase.failures:
                    got = figures(phase)
                    rate = got.rps if got.trusted else late_rps(phase)
                    found[start].append(got.p50_ms if phase.concurrency == 1 else rate)
    return {start: statistics.median(each) for start, each in found.items()}


@pytest.mark.parametrize("page", PAGES, ids=["English", "Vietnamese"])
def test_the_table_tells_what_was_measured(page: Path) -> None:
    """Pick, defaults, best, and what the first is of both, to the digits that are shown."""
    rows = ROW.findall(page.read_text("utf-8"))
    assert len(rows) == 17
    for what, _, engine, clients, *shown in rows:
        pick, defaults, best, of_best, of_defaults = (float(each.replace(",", "") or 0) for each in shown)
        image = what if "x" in what and "`" not in what else IMAGES.get(what, "")
        sweep, load = SWEEPS.get(what + engine, "internvl"), f"{clients}@{image or 'text'}"
        found = values(sweep, load)
        alone = clients == "1"
        ours = found["pick-64-720p" if what == "1280x720" else f"pick-{clients}"]
        top = (min if alone else max)(found.values())
        for told, is_ in ((pick, ours), (defaults, found["defaults"]), (best or pick, top)):
            assert told == pytest.approx(is_, rel=0.015), (what, clients, told, is_)
        for told, other in ((of_best, top), (of_defaults, found["defaults"])):
            assert told == round(100 * (other / ours if alone else ours / other)), (what, clients)
