"""The estimates against the measured runs: memory of every start, speed of every load."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import replace

import pytest
from artefacts import KNOWLEDGE

from recommender import memory, records, speed
from recommender.candidates import tiers
from recommender.compiling import read_record
from recommender.configuration import Configuration
from recommender.facts import MIB, Facts, gather
from recommender.render import render
from recommender.request import Request
from recommender.smoke import launch, record
from recommender.smoke.run import SINGLE
from recommender.store import load

STORE = load()
FITTED = "h100-2026-11-21"
# Starts of whole scripts, whose memory was predicted before they ran.
PREDICTED = ("h100-2026-11-21-scripts", "h100-2026-11-21-scripts-2")
SETTINGS = {
    "--session-len": ("session_len", int),
    "--max-batch-size": ("max_batch_size", int),
    "--max-prefill-token-num": ("prefill_tokens", int),
    "--cache-max-entry-count": ("cache_ratio", float),
}
KV_BITS = {"0": 16, "8": 8, "4": 4}


def configured(start: records.MeasuredStart, facts: Facts) -> Configuration:
    """The configuration that a measured command line asked for."""
    words = list(start.flags)
    values = {name: kind(words[words.index(flag) + 1]) for flag, (name, kind) in SETTINGS.items()}
    if "--quant-policy" in words:
        values["kv_bits"] = KV_BITS[words[words.index("--quant-policy") + 1]]
    return replace(next(tiers(facts))[0], **{"kv_bits": 16, "omp_threads": start.omp_threads, **values})


def memory_errors(evidence: str) -> list[float]:
    """Predicted over measured memory of each start, less one; a server without its image encoder left out."""
    taken = STORE.probes[evidence]
    errors = []
    for start in taken.starts:
        if "--language-model-only" in start.flags:
            continue
        facts = gather(Request(gpu=taken.gpu, model=start.model), STORE)
        predicted = memory.estimate(facts, configured(start, facts)).total / MIB
        errors.append(predicted / (start.ready_mib - taken.idle_mib) - 1)
    return errors


@pytest.mark.parametrize("evidence", PREDICTED)
def test_memory_of_scripts_was_predicted(evidence: str) -> None:
    """Of scripts that no coefficient of the ready memory was fitted to: median within 1 %, worst within 2 %."""
    errors = [abs(each) for each in memory_errors(evidence)]
    assert len(errors) >= 5
    assert statistics.median(errors) <= 0.01
    assert max(errors) <= 0.02


def test_memory_of_the_fitted_starts() -> None:
    """The fit reproduces its own starts within 3 %."""
    errors = memory_errors(FITTED)
    assert len(errors) >= 12
    assert max(abs(each) for each in errors) <= 0.03


def test_the_free_memory_that_the_cache_share_is_taken_of() -> None:
    """What is free when the KV region is sized is within 1 % of what the engine's log said."""
    taken = STORE.probes[FITTED]
    for start in taken.starts:
        if "--language-model-only" not in start.flags:
            facts = gather(Request(gpu=taken.gpu, model=start.model), STORE)
            predicted = memory.estimate(facts, configured(start, facts)).free / MIB
            assert predicted == pytest.approx(start.free_before_cache_mib, rel=0.01), start.flags


def loads() -> list[tuple[str, str, float, float, speed.Speed]]:
    """(evidence, what, measured median ms, measured requests/s, predicted) of every measured load."""
    found = []
    for evidence, taken in STORE.probes.items():
        for start in taken.starts:
            for one in start.loads:
                width, height = (int(side) for side in one.image.split("x")) if one.image else (0, 0)
                asked = Request(
                    gpu=taken.gpu,
                    model=start.model,
                    concurrency=one.concurrency,
                    images=1 if one.image else 0,
                    image_width=width,
                    image_height=height,
                    output_tokens=one.output_tokens,
                    cpus=taken.cpus,
                )
                facts = gather(asked, STORE)
                text = one.input_tokens - (facts.input_tokens() - facts.prompt_tokens)
                facts = replace(facts, prompt_tokens=text)
                predicted = speed.estimate(facts, configured(start, facts))
                what = f"{start.model} {one.image or 'text'} x{one.concurrency}"
                found.append((evidence, what, float(statistics.median(one.latencies_ms)), one.rps, predicted))
    return found


def test_speed_of_the_measured_loads() -> None:
    """Half of all loads are within 10 % in latency and in throughput, and each lies in its printed range.

    The largest errors are known (64 in flight: throughput up to 37 % too high) and not bounded here.
    """
    every = loads()
    latency = [abs(each.latency_ms.value / ms - 1) for _, _, ms, _, each in every]
    rate = [abs(each.rps.value / rps - 1) for _, _, _, rps, each in every]
    assert len(every) >= 35
    assert statistics.median(latency) <= 0.10
    assert statistics.median(rate) <= 0.10
    for _, what, ms, rps, each in every:
        assert each.latency_ms.low <= ms <= each.latency_ms.high, what
        assert each.rps.low <= rps <= each.rps.high, what


# --- what recommend smoke wrote

SMOKED = sorted(STORE.evidence)


def raw(name: str) -> records.SmokeRun:
    """A record as its file has it."""
    return read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun)


def rerendered(run: records.SmokeRun, *, own_settings: bool) -> launch.Artefact:
    """The artefact made anew: from its request, or from the settings that it ran with."""
    head = json.loads(run.request)
    if own_settings:
        words = iter(run.command)
        given: dict[str, str] = {}
        for word in words:
            option = STORE.flags[word.removeprefix("--")]
            given[option.id] = "true" if option.eras[-1].type == "bool" else next(words)
        by_name = {each.name: each.id for each in STORE.environment.values()}
        given |= {by_name[name]: value for name, _, value in (each.partition("=") for each in run.environment)}
        head = {name: value for name, value in head.items() if name not in ("follow", "with", "without")}
        head |= {"follow": "defaults", "with": given}
    artefact = launch.Artefact(run.kind, "serve.sh", "", head)
    found = launch.remake(*launch.asked(artefact, {}))
    return launch.of(render(found, run.kind), "serve.sh" if run.kind == "bash" else "pipeline.py")


@pytest.mark.parametrize("name", SMOKED)
def test_the_artefact_of_each_run_renders_again(name: str) -> None:
    """What a record ran with renders to the launch that its digest names; a followed one from its request too.

    The digest is over environment and command: reasons and predictions in the comments may have moved since.
    """
    run = raw(name)
    facts = gather(Request(gpu=run.gpu, model=run.model, lmdeploy=run.lmdeploy), STORE)
    if run.kind == "bash":
        assert rerendered(run, own_settings=True).launch_sha256(facts) == run.launch_sha256
    if "follow" in json.loads(run.request):
        assert rerendered(run, own_settings=False).launch_sha256(facts) == run.launch_sha256


@pytest.mark.parametrize("name", SMOKED)
def test_the_runs_of_each_record_hold_together(name: str) -> None:
    """Times and counts of a record agree with each other: Little's law, windows, streams, memory."""
    run = raw(name)
    assert run.memory_mib > run.ready_mib > run.idle_mib
    assert run.start_peak_mib >= run.ready_mib
    assert (run.outcome == "ok") == (not any(each.failures for each in run.phases)) or run.outcome in SINGLE
    for phase in run.phases:
        got = record.figures(phase)
        every, first, whole = (record.numbers(each) for each in (phase.latencies_ms, phase.ttft_ms, phase.streamed_ms))
        assert len(first) == len(whole)
        assert all(start <= end for start, end in zip(first, whole, strict=True))
        if run.kind == "bash":
            assert phase.window_requests <= len(every)
            assert not Counter(whole) - Counter(every), "streamed requests are among all"
        if phase.concurrency and len(every) >= 50:
            # Little: what is in flight is rate times time. The window begins empty, so it is a little less.
            assert 0.8 * phase.concurrency <= got.rps * statistics.fmean(every) / 1000 <= 1.05 * phase.concurrency


def measured_by(image: str, concurrency: int) -> dict[str, float]:
    """Requests a second of every record that has this load, by record."""
    return {
        name: record.figures(phase).rps
        for name in SMOKED
        for phase in raw(name).phases
        if phase.image == image and phase.concurrency == concurrency and raw(name).copies == 1
    }


@pytest.mark.parametrize(("image", "least"), [("448x448", 1.6), ("1280x720", 2.0)])
def test_ours_beats_every_adviser_at_16_in_flight(image: str, least: float) -> None:
    """The recommended configuration carries 1.6 times (448x448) or twice (1280x720) the load of the best other one."""
    rates = measured_by(image, 16)
    ours = f"h100-2026-11-21-ours-16{'' if image == '448x448' else '-1280x720'}"
    others = [rate for name, rate in rates.items() if "follow" in json.loads(raw(name).request)]
    assert len(others) == 9
    assert rates[ours] >= least * max(others)


def test_ours_is_no_slower_alone() -> None:
    """One request at a time takes no longer than with the fastest other configuration."""
    alone = {
        name: record.figures(phase).p50_ms
        for name in SMOKED
        for phase in raw(name).phases
        if (phase.image, phase.concurrency) == ("448x448", 1) and phase.latencies_ms
    }
    others = [ms for name, ms in alone.items() if "follow" in json.loads(raw(name).request)]
    assert alone["h100-2026-11-21-ours-single"] <= min(others)


def test_memory_of_the_smoked_runs_was_predicted() -> None:
    """Memory of an artefact as launched: median within 1 %, worst within 2 %; nothing was fitted to these runs."""
    errors = {}
    for name in SMOKED:
        run = raw(name)
        if run.copies == 1 and run.kind == "bash":
            found = launch.remake(*launch.asked(launch.Artefact("bash", name, "", json.loads(run.request)), {}))
            errors[name] = found.memory.total / MIB / (run.ready_mib - run.idle_mib) - 1
    assert len(errors) >= 12
    assert statistics.median(abs(each) for each in errors.values()) <= 0.01
    assert max(abs(each) for each in errors.values()) <= 0.02, errors


TABLE = {
    "LMDeploy defaults": "defaults",
    "ChatGPT": "chatgpt",
    "Gemini": "gemini",
    "Claude": "claude",
    "Kimi": "kimi",
    "Grok": "grok",
    "the baseline": "baseline",
    "the guide": "guide",
    "the hybrid": "hybrid",
    "ours, `--load single`": "ours-single",
    "ours, `--load 16`": "ours-16",
    "ours, `--load 16 --image 1280x720`": "ours-16-1280x720",
    "ours, `--load 16 --goal memory`": "ours-memory",
}


def cell(run: records.SmokeRun, image: str, concurrency: int) -> str:
    """A figure of README's table: alone the median latency, else the rate."""
    (phase,) = [each for each in run.phases if (each.image, each.concurrency) == (image, concurrency)]
    got = record.figures(phase)
    if not got.requests:
        return "refused"
    return f"{got.p50_ms:.0f}" if concurrency == 1 else f"{got.rps:.1f}"


@pytest.mark.parametrize("line", TABLE)
def test_the_table_of_the_readme_is_computed(line: str) -> None:
    """Each line of README's table of measurements follows from its record."""
    run = raw(f"h100-2026-11-21-{TABLE[line]}")
    loads_shown = (("448x448", 1), ("448x448", 16), ("1280x720", 1), ("1280x720", 16))
    cells = " | ".join(cell(run, *each) for each in loads_shown)
    row = f"| {line} | {run.ready_mib - run.idle_mib:,} | {cells} |"
    assert row in (KNOWLEDGE.parent / "README.md").read_text("utf-8").splitlines()
