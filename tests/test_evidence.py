"""Test predictions against held-out runs, and the consistency of each record."""

import functools
import json
import statistics
from itertools import accumulate

import pytest
from artefacts import KNOWLEDGE
from scipy.stats import binom

from recommender.calibration.first_probe import measured_configuration, probe_observations
from recommender.choose.recommend import Recommendation, recommend, recommend_adviser
from recommender.common.units import MIB
from recommender.estimate import memory
from recommender.fleet import FORMS, write
from recommender.fleet.layout import Layout
from recommender.knowledge import records, run_figures
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load
from recommender.render import artefact
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request
from recommender.site.pages.measured_table import is_same_launch
from recommender.smoke import fleet_folder
from recommender.smoke.session import SINGLE

STORE = load()
FITTED = "h100-2026-11-21"
ENDED = {"server-died"}
"""Outcomes of a run that was over before its first load: what it shows is that the server ends."""


def test_the_free_memory_that_the_cache_share_is_taken_of() -> None:
    """What is free when the KV region is sized is within 1 % of what the engine's log said."""
    record = read_record(KNOWLEDGE / "evidence" / "earlier" / f"{FITTED}.yaml", records.Measurement)
    for start in record.starts:
        if "--language-model-only" not in start.flags:
            resolved = resolve_request(Request(gpu=record.gpu, model=start.model), STORE)
            predicted = memory.estimate(resolved, measured_configuration(start, resolved)).free / MIB
            assert predicted == pytest.approx(start.free_before_cache_mib, rel=0.01), start.flags


def test_what_the_fit_takes_of_the_first_runs() -> None:
    """Memory of each start with an image encoder; a rate only of loads of several at once, else latency says it."""
    for seen in probe_observations(KNOWLEDGE / "evidence" / "earlier", STORE):
        assert ("rps" in seen.measured) == (seen.concurrency > 1)
        assert ("latency" in seen.measured) == (seen.concurrency > 0)
        assert "memory" not in seen.measured or not seen.concurrency


def test_memory_of_runs_left_out() -> None:
    """All memory predictions of unseen models and configurations are within 5 %."""
    assert STORE.residuals["memory"].starts >= 40
    assert STORE.residuals["memory"].worst <= 0.05


@pytest.mark.parametrize(
    ("name", "predictions", "median"), [("memory", 40, 0.02), ("latency-alone", 40, 0.08), ("rps-load", 60, 0.1)]
)
def test_half_of_the_predictions_of_runs_left_out_are_near(name: str, predictions: int, median: float) -> None:
    """Of unseen models and configurations: memory, latency of one request at a time, throughput."""
    residual = STORE.residuals[name]
    assert residual.predictions >= predictions
    assert max(residual.by_model, residual.by_configuration) <= median


@pytest.mark.parametrize("name", ["latency-alone", "latency-load", "rps-load", "memory"])
def test_ranges_hold_four_fifths_of_what_was_left_out(name: str) -> None:
    """The share inside the range lies within the 95 % interval of a binomial of that many predictions."""
    residual = STORE.residuals[name]
    low, high = binom.interval(0.95, residual.predictions, 0.8)
    assert low <= round(residual.covered * residual.predictions) <= high


# --- what recommend smoke wrote

SMOKED = sorted(STORE.evidence)


@functools.cache
def raw(name: str) -> records.SmokeRun:
    return read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun)


def rerendered(run: records.SmokeRun, *, own_settings: bool) -> artefact.Artefact:
    """The artefact made anew: from its request, or from the settings that it ran with."""
    if own_settings:
        request, given = artefact.read_run(run, STORE)
        return from_settings(run.kind, request, tuple(given.items()))
    return from_head(run.kind, run.request)


@functools.cache
def from_settings(kind: str, request: Request, given: tuple[tuple[str, str], ...]) -> artefact.Artefact:
    """Two of five runs are a further start of the same."""
    return rendered(kind, recommend_adviser(request, "defaults", dict(given)))


@functools.cache
def from_head(kind: str, head: str) -> artefact.Artefact:
    again = artefact.Artefact(kind, "serve.sh", "", json.loads(head))
    return rendered(kind, artefact.remake(*artefact.parse_request(again, {})))


def rendered(kind: str, recommendation: Recommendation) -> artefact.Artefact:
    if kind in FORMS:
        return fleet_folder.from_texts(write.render_files(Layout(recommendation), kind), kind, "fleet")
    return artefact.parse(render(recommendation, kind), "serve.sh" if kind == "bash" else "pipeline.py")


@pytest.mark.parametrize("name", SMOKED)
def test_the_artefact_of_each_run_renders_again(name: str) -> None:
    """What a record ran with renders to the launch that its digest names; a followed one from its request too.

    The digest is over environment and command: reasons and predictions in the comments may have moved since.
    """
    run = raw(name)
    resolved = resolve_request(Request(gpu=run.gpu, model=run.model, lmdeploy=run.lmdeploy), STORE)
    if run.kind != "python":
        assert rerendered(run, own_settings=True).launch_sha256(resolved) == run.launch_sha256
    if "follow" in json.loads(run.request):
        assert rerendered(run, own_settings=False).launch_sha256(resolved) == run.launch_sha256


@pytest.mark.parametrize("name", SMOKED)
def test_the_runs_of_each_record_hold_together(name: str) -> None:
    """Times and counts of a record agree with each other: Little's law, windows, streams, memory."""
    run = raw(name)
    assert run.memory_mib > run.ready_mib > run.idle_mib
    assert run.start_peak_mib >= run.ready_mib
    if run.outcome in ENDED:
        assert run.said
        assert run.killed or not run.phases
        if not run.phases:
            return
    assert (run.outcome == "ok") == (not any(each.failures for each in run.phases)) or run.outcome in SINGLE | ENDED
    for phase in run.phases:
        figures = run_figures.figures(phase)
        every, first, steps = (
            run_figures.numbers(each) for each in (phase.latencies_ms, phase.ttft_ms, phase.streamed)
        )
        places = [place - 1 for place in accumulate(steps)] or range(len(first))
        assert all(step > 0 for step in steps)
        assert all(start <= every[place] for start, place in zip(first, places, strict=True))
        if run.kind != "python":
            assert phase.window_requests <= len(every)
        if phase.concurrency and len(every) >= 50:
            # Little: what is in flight is rate times time, both without the first round. Answers come in waves,
            # so a window of few rounds may hold up to one of them too many or too few. Where lengths vary, the answers
            # that run on when it closes are longer than the others: without them the mean is too short, with them too
            # long.
            counted = every[phase.concurrency if len(every) > phase.window_requests else 0 :]
            short = (every[phase.concurrency : phase.window_requests] if phase.drawn else []) or counted
            most, least = (figures.rps * statistics.fmean(each) / 1000 / phase.concurrency for each in (counted, short))
            wave = phase.concurrency / len(counted)
            assert 1 - max(0.2, wave) <= most
            assert least <= 1 + max(0.05, wave)


def measured_by(image: str, concurrency: int) -> dict[str, float]:
    """Requests a second of every record of an H100 that has this load, by record."""
    return {
        name: run_figures.figures(phase).rps
        for name in SMOKED
        for phase in raw(name).phases
        if phase.image == image and phase.concurrency == concurrency and raw(name).copies == 1
        if run_figures.figures(phase).trusted
        if raw(name).gpu == "h100-sxm-80g"
    }


@pytest.mark.parametrize(("image", "least"), [("448x448", 1.6), ("1280x720", 2.0)])
def test_ours_beats_every_adviser_at_16_in_flight(image: str, least: float) -> None:
    """The recommended configuration carries 1.6 times (448x448) or twice (1280x720) the load of the best other one."""
    rates = measured_by(image, 16)
    ours = {"448x448": ("ours-16", "rec-16"), "1280x720": ("ours-16-1280x720",)}[image]
    others = {name: rate for name, rate in rates.items() if advised(name)}
    assert {json.loads(raw(name).request)["follow"] for name in others} == set(STORE.advisers) | {"defaults"}
    assert min(rates[f"h100-2026-11-21-{each}"] for each in ours) >= least * max(others.values())


def advised(name: str) -> bool:
    """Whether a record is an adviser's configuration or LMDeploy's own, changed in nothing but what lets it start."""
    request = json.loads(raw(name).request)
    return "follow" in request and not {*request.get("with", {})} - {"trust-remote-code"}


def test_ours_is_no_slower_alone() -> None:
    """One request at a time takes no longer than with the fastest other configuration."""
    alone = {
        name: run_figures.figures(phase).p50_ms
        for name in SMOKED
        for phase in raw(name).phases
        if (phase.image, phase.concurrency) == ("448x448", 1) and phase.latencies_ms
        if (raw(name).gpu, raw(name).model) == ("h100-sxm-80g", "internvl3-8b-awq")
    }
    others = [ms for name, ms in alone.items() if advised(name)]
    assert alone["h100-2026-11-21-ours-single"] <= min(others)


TABLE = {
    "LMDeploy defaults": "defaults", "ChatGPT": "chatgpt", "Gemini": "gemini", "Claude": "claude", "Kimi": "kimi",
    "Grok": "grok", "the baseline": "baseline", "the guide": "guide", "the hybrid": "hybrid",
    "ours, `--load single`": "ours-single", "ours, `--load 16`": "ours-16",
    "ours, `--load 16 --image 1280x720`": "ours-16-1280x720", "ours, `--load 16 --goal memory`": "ours-memory",
}  # fmt: skip


def cell(run: records.SmokeRun, image: str, concurrency: int) -> str:
    """A figure of the table of measurements: the median latency for one request at a time, else the rate."""
    (phase,) = [each for each in run.phases if (each.image, each.concurrency) == (image, concurrency)]
    figures = run_figures.figures(phase)
    if not figures.requests:
        return "refused"
    return f"{figures.p50_ms:.0f}" if concurrency == 1 else f"{figures.rps:.1f}"


@pytest.mark.parametrize("line", TABLE)
def test_the_table_of_measurements_is_computed(line: str) -> None:
    """Each row on the page, and its twin in Vietnamese, follow from the record."""
    run = raw(f"h100-2026-11-21-{TABLE[line]}")
    loads_shown = (("448x448", 1), ("448x448", 16), ("1280x720", 1), ("1280x720", 16))
    cells = " | ".join(cell(run, *each) for each in loads_shown)
    figures = f"| {run.ready_mib - run.idle_mib:,} | {cells} |"
    root = KNOWLEDGE.parent
    page = root / "site" / "concepts" / "what-limits-speed.md"
    assert f"| {line} {figures}" in page.read_text("utf-8").splitlines()
    assert figures.replace("refused", "bị từ chối") in page.with_suffix(".vi.md").read_text("utf-8")


FIGURES = {
    "memory": "memory",
    "one image at a time: latency": "latency-alone",
    "one text at a time: first token": "ttft-text-alone",
    "text under load: requests/s": "rps-text",
    "text under load: first token": "ttft-text",
    "text under load: time per token": "token-text",
    "images under load: requests/s": "rps-load",
    "images under load: first token": "ttft-load",
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_errors_in_the_readme_are_the_residuals(name: str) -> None:
    """Each line of README's table of errors is the record's."""
    known = STORE.residuals[FIGURES[name]]
    row = f"| {name} | {known.by_model:.1%} | {known.by_configuration:.1%} | {known.worst:.0%} |"
    assert row in (KNOWLEDGE.parent / "README.md").read_text("utf-8").splitlines()


def test_two_servers_and_the_death_of_one() -> None:
    """With 32 in flight each two servers answer 1.8 times what one does; the page has these figures."""
    one, two = (
        read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun)
        for name in ("h200-2026-11-21-fleet-one", "h200-x2-2026-11-21-fleet-two")
    )
    alone = next(run_figures.figures(each).rps for each in one.phases if each.concurrency == 32)
    both = next(run_figures.figures(each).rps for each in two.phases if each.concurrency == 64)
    assert both >= 1.8 * alone
    (death,) = two.killed
    assert (death.lost, death.lost_later) == (death.in_flight, 0)
    assert death.rps_after >= 0.9 * death.rps_before
    root = KNOWLEDGE.parent
    sent = death.answered + death.lost
    page = " ".join((root / "site" / "concepts" / "front.md").read_text("utf-8").split())
    assert f"| one server | {alone:.0f} |" in page
    assert f"| two servers | {both:.0f} |" in page
    rates = f"{death.rps_before:.1f} | {death.rps_down:.1f} | {death.rps_after:.1f}"
    assert f"fleet-two) | {rates} | {death.lost} of {sent:,} | 0 |" in page


LOADS = [(1, "448x448"), (1, "1280x720"), (16, "448x448"), (16, "1280x720"), (64, "448x448")]
"""Those with enough long runs: at 64 in flight and 1280x720 none has three starts whose rate and times agree."""


def picked(request: Request) -> tuple[str, int, bool]:
    """The one launch among the runs that is what is recommended, on one server, as a key of the medians."""
    script = artefact.parse(render(recommend(request, STORE), "bash"), "serve.sh")
    words = script.words(resolve_request(request, STORE), {})
    (launch,) = {run.launch_sha256 for run in map(raw, SMOKED) if is_same_launch(script.exported({}), words, run)}
    return launch, 1, False


@functools.cache
def medians(concurrency: int, image: str) -> dict[tuple[str, int, bool], tuple[float, int]]:
    """Of each launch on an H100 that had this load 5 s or longer: the median of its starts, and how many they were.

    ms a request for one in flight, else requests a second; the reference model at all its tiles, one image, 16 tokens.
    """
    scores: dict[tuple[str, int, bool], list[float]] = {}
    for run in map(raw, SMOKED):
        if (run.gpu, run.model, run.max_tiles, run.pinned) != ("h100-sxm-80g", "internvl3-8b-awq", 0, ""):
            continue
        for phase in run.phases if run.kind == "bash" else ():
            if (phase.concurrency, phase.image, phase.images, phase.output_tokens) != (concurrency, image, 1, 16):
                continue
            if (
                phase.window_s >= 4.9
                and phase.latencies_ms
                and not phase.failures
                and phase.input_tokens in (330, 2378)
            ):
                figures = run_figures.figures(phase)
                if not figures.trusted:
                    continue
                score = figures.p50_ms if concurrency == 1 else figures.rps
                scores.setdefault((run.launch_sha256, run.copies, run.mps), []).append(score)
    return {launched: (statistics.median(values), len(values)) for launched, values in scores.items()}


@pytest.mark.parametrize(("concurrency", "image"), LOADS)
def test_the_pick_is_within_a_twentieth_of_the_best(concurrency: int, image: str) -> None:
    """What is recommended for a load was started twice or more, and is near the best of all that three starts had."""
    width, height = map(int, image.split("x"))
    request = Request(gpu="H100-80G", concurrency=concurrency, images=1, image_width=width, image_height=height)
    every = medians(concurrency, image)
    value, starts = every[picked(request)]
    assert starts >= 2
    others = [each for each, count in every.values() if count >= 3]
    assert others
    assert value <= min(others) / 0.95 if concurrency == 1 else value >= 0.95 * max(others)


def test_64_in_flight_carry_as_much_as_anything_that_ran() -> None:
    """No arrangement, however often it ran, has a median that beats the pick for 64 in flight by a twentieth."""
    request = Request(gpu="H100-80G", concurrency=64)
    recommendation = recommend(request, STORE)
    assert (recommendation.config.servers, recommendation.config.prefill_tokens) == (1, 1024)
    every = medians(64, "448x448")
    assert len(every) >= 20
    assert every[picked(request)][0] >= 0.95 * max(value for value, _ in every.values())
