"""What the advisers' configurations and ours measured on the same card: a table and a picture, from the evidence."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender import measured
from recommender.render import render
from recommender.request import Request
from recommender.site import markup as m
from recommender.site.book import Book
from recommender.smoke import launch

if TYPE_CHECKING:
    from recommender import records as r

GPU = "H100-80G"
LOADS = (("448x448", 1), ("448x448", 16), ("1280x720", 1), ("1280x720", 16))
OURS: Mapping[str, Mapping[str, object]] = {
    "ours, one at a time": {"gpu": GPU, "load": "single"},
    "ours, 16 in flight": {"gpu": GPU, "concurrency": 16},
    "ours, 16 in flight, 1280x720": {
        "gpu": GPU,
        "concurrency": 16,
        "images": 1,
        "image_width": 1280,
        "image_height": 720,
    },
}
"""The requests whose recommendations are held against the advisers."""
DEFAULTS = "defaults"
UNCHANGED = {"trust-remote-code"}
"""What may be added to a configuration that is called an adviser's own: without it none starts."""


@dataclass(frozen=True)
class Line:
    """One configuration, and the runs of it."""

    name: str
    title: str
    link: str
    ours: bool
    runs: tuple[r.SmokeRun, ...]

    def memory(self) -> list[float]:
        """MiB of the ready server above the idle card, of each run."""
        return [float(each.ready_mib - each.idle_mib) for each in self.runs]

    def figures(self, image: str, concurrency: int) -> list[float]:
        """Of each run that had this load and answered: alone the median in ms, else requests a second."""
        got = [measured.figures(each) for each in self._phases(image, concurrency)]
        return [each.p50_ms if concurrency == 1 else each.rps for each in got if each.requests]

    def refused(self, image: str, concurrency: int) -> bool:
        """Whether the load was tried and nothing answered."""
        return bool(self._phases(image, concurrency)) and not self.figures(image, concurrency)

    def _phases(self, image: str, concurrency: int) -> list[r.Phase]:
        wanted = (image, concurrency)
        return [each for run in self.runs for each in run.phases if (each.image, each.concurrency) == wanted]


def lines(book: Book) -> list[Line]:
    """LMDeploy's defaults, each adviser and ours, as far as somebody measured them."""
    found = [Line(DEFAULTS, book.t("LMDeploy's defaults"), "", False, _followed(book, DEFAULTS))]
    for each in book.store.advisers.values():
        link = f"/advisers/{each.id}.md"
        found.append(Line(each.id, book.t(each.name), link, False, _followed(book, each.id)))
    found += [Line(name, book.t(name), "", True, _asked(book, request)) for name, request in OURS.items()]
    return [each for each in found if each.runs]


def _comparable(book: Book) -> Iterator[tuple[r.SmokeRun, dict[str, object]]]:
    for run in book.runs.values():
        asked = json.loads(run.request)
        if run.kind != "python" and run.copies == 1 and asked.get("gpu") == GPU and run.model == Request(gpu=GPU).model:
            yield run, asked


def _followed(book: Book, adviser: str) -> tuple[r.SmokeRun, ...]:
    def as_given(asked: dict[str, object]) -> bool:
        added = asked.get("with", {})
        return asked.get("follow") == adviser and isinstance(added, dict) and set(added) <= UNCHANGED

    return tuple(run for run, asked in _comparable(book) if as_given(asked))


def _asked(book: Book, request: Mapping[str, object]) -> tuple[r.SmokeRun, ...]:
    """Runs of that request whose launch is still what is recommended for it."""
    found = [run for run, asked in _comparable(book) if asked == request and run.kind == "bash"]
    now = _now(found[0]) if found else ""  # the same for all
    return tuple(run for run in found if run.launch_sha256 == now)


def _now(run: r.SmokeRun) -> str:
    """The digest of the launch that is recommended today for what a run was asked."""
    asked = launch.asked(launch.Artefact(run.kind, "", "", json.loads(run.request)), {})
    made = launch.remake(*asked)
    return launch.of(render(made, run.kind), "serve.sh").launch_sha256(made.facts)


def _ends(book: Book, values: Sequence[float], digits: int) -> str:
    low, high = (f"{each:,.{digits}f}" for each in (min(values), max(values)))
    return low if low == high else book.t("{0} to {1}").format(low, high)


def measured_table(book: Book) -> Iterator[str]:
    """Memory and speed of each configuration; over several runs the lowest and the highest."""
    head = [book.t("Configuration"), "VRAM, MiB"]
    head += [f"{image}, {count}: {book.t('p50 ms' if count == 1 else 'requests/s')}" for image, count in LOADS]
    known = lines(book)
    yield from m.table([*head, book.t("Runs")], (_cells(book, each) for each in known))
    first = known[0].runs[0]
    yield book.t(
        "{model} (weights: {weights}) on one {card}, LMDeploy {release}, {cores} CPU cores. "
        "Two figures are the lowest and the highest of several runs. Advisers' configurations are as "
        "given, with two changes, without which none starts: `--trust-remote-code` is added, and the chat template "
        "file, which nobody has, is left out."
    ).format(
        model=m.text(book.store.models[first.model].hub),
        weights=m.text(book.t(first.checkpoint)),
        card=m.text(first.gpu_name),
        release=first.lmdeploy,
        cores=first.cpus,
    )


def _cells(book: Book, each: Line) -> list[str]:
    shown = []
    for image, count in LOADS:
        values = each.figures(image, count)
        none = book.t("refused") if each.refused(image, count) else "–"
        shown.append(_ends(book, values, 0 if count == 1 else 1) if values else none)
    title = f"[{m.text(each.title)}]({each.link})" if each.link else m.text(each.title)
    runs = " ".join(f"[{number + 1}](/evidence/{run.id}.md)" for number, run in enumerate(each.runs))
    return [f"**{title}**" if each.ours else title, _ends(book, each.memory(), 0), *shown, runs]


STEP, LONGEST = 36, 66
"""Height of a row, and of the longest bar its share of the width: behind it stands its figure."""


def picture(book: Book) -> Iterator[str]:
    """Two bar charts: requests a second with 16 in flight, and memory."""
    known = lines(book)
    rates = [(each, each.figures("448x448", 16)) for each in known]
    memory = [(each, each.memory()) for each in known]
    yield '\n<div class="pair">'
    yield _chart(book, book.t("Requests a second, 16 in flight, 448x448 images (more is better)"), rates, 1)
    yield _chart(book, book.t("Memory of the ready server, MiB (less is better)"), memory, 0)
    yield "</div>\n"


def _chart(book: Book, title: str, rows: Sequence[tuple[Line, list[float]]], digits: int) -> str:
    """Bars whose lengths are shares of the width: words keep their size on a screen of any width."""
    most = max(max(values, default=0.0) for _, values in rows)
    told = ((line, _ends(book, values, digits) if values else book.t("none answered")) for line, values in rows)
    said = ". ".join(f"{line.title}: {figures}" for line, figures in told)
    parts = [f"<title>{html.escape(title)}</title><desc>{html.escape(said)}</desc>"]
    for number, (line, values) in enumerate(rows):
        parts += _bar(book, line, values, number * STEP, LONGEST / most, digits)
    return (
        f'<figure class="chart"><figcaption>{html.escape(title)}</figcaption>'
        f'<svg style="height: {len(rows) * STEP}px" role="img">{"".join(parts)}</svg></figure>'
    )


def _bar(book: Book, line: Line, values: list[float], top: int, scale: float, digits: int) -> Iterator[str]:
    strong = ' class="strong"' if line.ours else ""
    yield f'<text{strong} x="0" y="{top + 13}">{html.escape(line.title)}</text>'
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    kind = "ours" if line.ours else "theirs"
    yield f'<rect class="{kind}" x="0" y="{top + 18}" width="{low * scale:.1f}%" height="14"/>'
    if high > low:
        place = f'x="{low * scale:.1f}%" y="{top + 18}" width="{(high - low) * scale:.1f}%"'
        yield f'<rect class="{kind} more" {place} height="14"/>'
    said = _ends(book, values, digits) if values else book.t("every request refused")
    yield f'<text class="small" x="{high * scale:.1f}%" dx="{6 if values else 0}" y="{top + 29}">{said}</text>'
