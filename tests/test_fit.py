"""The fit against observations made from known coefficients, its bookkeeping by hand, and the committed files."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

import pytest
import yaml
from artefacts import KNOWLEDGE
from click.testing import CliRunner

from recommender.calibration import calibrate, fit, held_out, residual_records
from recommender.calibration.observations import (
    Observation,
    is_simulated,
    log_errors,
    merge_repeats,
    observations,
    observe_run,
    predict,
    simulate,
)
from recommender.calibration.predict import with_free_memory
from recommender.choose import recommend
from recommender.choose.candidates import tiers
from recommender.cli import root
from recommender.commands import fit as fit_command
from recommender.common.errors import KnowledgeError, MaintenanceError, RequestError
from recommender.estimate import speed
from recommender.knowledge import records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import load
from recommender.render import artefact
from recommender.render.formats import render
from recommender.render.report import report
from recommender.request.request import MAX_SCALE, Request
from recommender.request.resolved_request import resolve_request

STORE = load()
COMMITTED = {name: each.value for name, each in STORE.coefficients.items()}
FITTED = [name for name, each in STORE.coefficients.items() if each.basis == "fitted"]
MODELS = ("internvl3-8b-awq", "internvl3-14b-awq", "internvl3-8b", "internvl3-2b", "qwen2.5-7b-instruct")


@cache
def measured() -> list[Observation]:
    """What the committed runs measured."""
    return fit_command.evidence(KNOWLEDGE, STORE)


def invented(values: dict[str, float], noise: float = 0.0, gpu: str = "h100-sxm-80g") -> list[Observation]:
    """What a machine with these coefficients would measure, over models, loads, batches, threads and budgets."""
    made, rng = [], random.Random(7)
    for number, model in enumerate(MODELS * 4):
        vision = model.startswith("internvl")
        for concurrency in (1, 4, 16, 64):
            size = rng.choice([(448, 448), (1280, 720), (896, 448)])
            shape = {"images": 1, "image_width": size[0], "image_height": size[1]} if vision else {"images": 0}
            resolved = resolve_request(Request(gpu=gpu, model=model, concurrency=concurrency, **shape), STORE)  # type: ignore[arg-type]
            config = replace(
                next(tiers(resolved))[0],
                max_batch_size=rng.choice([8, 32, 64]),
                omp_threads=rng.choice([1, 2, 4, 16]),
                prefill_tokens=rng.choice([512, 4096, 8192]),
                session_len=8192,
            )
            bare = Observation(f"run-{number}", model, gpu, f"launch-{number}", resolved, config, concurrency, {})
            figures = predict(bare, values)
            measured = {name: value * math.exp(rng.gauss(0, noise)) for name, value in figures.items()}
            made.append(replace(bare, measured=MappingProxyType(measured)))
    return made


def true_values(seed: int) -> dict[str, float]:
    """Coefficients somewhere between their ends, not in the middle."""
    rng = random.Random(seed)
    known = dict(COMMITTED)
    for name in FITTED:
        low, high = (math.log(getattr(STORE.coefficients[name], end)) for end in ("low", "high"))
        known[name] = math.exp(low + (high - low) * rng.uniform(0.2, 0.8))
    return known


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fit_finds_what_made_the_observations(seed: int) -> None:
    """Whatever the coefficients are, the fit foretells a load that it has not seen."""
    truth = true_values(seed)
    every = invented(truth)
    seen, unseen = (
        [each for each in every if each.concurrency != 16],
        [each for each in every if each.concurrency == 16],
    )
    found = fit.solve(seen, STORE)
    errors = [
        abs(math.log(predict(each, found)[name] / value)) for each in unseen for name, value in each.measured.items()
    ]
    assert sorted(errors)[len(errors) // 2] < 0.02
    assert max(errors) < 0.15


def test_a_fit_stays_between_the_ends_and_leaves_the_rest_alone() -> None:
    """A machine far outside gives the nearest end; what is not fitted keeps its value."""
    far = COMMITTED | {"tile-host-ms": 500.0, "megapixel-host-ms": 900.0}
    found = fit.solve(invented(far), STORE)
    for name, each in STORE.coefficients.items():
        if each.basis == "fitted":
            assert each.low * 0.999 <= found[name] <= each.high * 1.001
        else:
            assert found[name] == each.value
    assert found["tile-host-ms"] == pytest.approx(STORE.coefficients["tile-host-ms"].high, rel=1e-3)


def mixture_loads(values: dict[str, float]) -> list[Observation]:
    """What gpt-oss-20b would measure with these coefficients, with 1, 4, 16 and 64 requests in flight."""
    run = read_record(KNOWLEDGE / "evidence" / "h200-mixtures-2026-11-23-gpt-oss-chat.yaml", records.SmokeRun)
    loads = [each for each in observe_run(run, STORE) if 0 < each.concurrency <= 64]
    return [replace(each, measured=MappingProxyType(simulate(each, values))) for each in loads]


def test_a_fit_finds_the_terms_of_experts() -> None:
    """From mixtures only, by the simulation: they foretell a load that was not seen.

    With one and four in flight a step is as long as its launches, and neither routing nor tiles show.
    """
    truth = COMMITTED | {"expert-layer-ms": 0.05, "expert-efficiency-quantised": 0.6, "expert-spread": 0.3}
    *seen, unseen = mixture_loads(truth)
    *_, stage, _ = fit.list_stages(seen, STORE)
    found = fit._solve(stage, COMMITTED)
    assert set(found) == set(speed.EXPERT_COEFFICIENTS)
    assert all(abs(log) < 0.06 for _, log in log_errors(unseen, COMMITTED | found, simulate))
    assert found["expert-layer-ms"] == pytest.approx(0.05, rel=0.1)


def slower(load: Observation) -> Observation:
    """The same load, ten times as slow."""
    return replace(load, measured=MappingProxyType({name: 10 * value for name, value in load.measured.items()}))


def changed_terms(before: list[Observation], after: list[Observation]) -> set[str]:
    """The coefficients, some at least, that two sets of observations give differently."""
    first, second = fit.solve(before, STORE), fit.solve(after, STORE)
    changed = {name for name in first if first[name] != second[name]}
    assert changed
    return changed


def test_loads_shape_no_term_of_decoding_steps() -> None:
    """With many in flight ten times as slow, steps stay as requests alone tell them, and other terms give way."""
    known = invented(true_values(4))[:24]
    slow = [each if each.concurrency == 1 else slower(each) for each in known]
    assert not changed_terms(known, slow) & set(speed.STEP_COEFFICIENTS)


def test_mixtures_shape_no_term_of_dense_models() -> None:
    """Runs of a mixture that is ten times as slow leave all other coefficients as they are."""
    dense = [each for each in invented(true_values(3)) if each.concurrency < 16][:12]
    slow = slower(mixture_loads(COMMITTED)[0])
    assert changed_terms(dense, [*dense, slow]) <= set(speed.EXPERT_COEFFICIENTS)


PYTORCH = ("h200-pytorch-2026-11-24-llama-chat", "h200-pytorch-2026-11-24-qwen-batch")


def pytorch_loads(values: dict[str, float]) -> list[Observation]:
    """What two models would measure with these coefficients on the PyTorch engine, with few requests in flight."""
    runs = (read_record(KNOWLEDGE / "evidence" / f"{name}.yaml", records.SmokeRun) for name in PYTORCH)
    loads = [each for run in runs for each in observe_run(run, STORE) if 0 < each.concurrency <= 16]
    return [replace(each, measured=MappingProxyType(fit.predict_load(each, values))) for each in loads]


def test_a_fit_finds_the_terms_of_the_pytorch_engine() -> None:
    """From its own loads only: they foretell a load that was not seen.

    What a request takes beside passes is about where a fit begins: few loads tell it too roughly, because first tokens
    jump.
    """
    known = {"pytorch-prompt-layer-ms": 2.0, "pytorch-step-share": 0.6}
    beside = STORE.coefficients["pytorch-request-overhead-ms"]
    truth = COMMITTED | known | {beside.id: math.sqrt(beside.low * beside.high)}  # where a fit begins
    *seen, unseen = pytorch_loads(truth)
    *_, stage = fit.list_stages(seen, STORE)
    found = fit._solve(stage, COMMITTED)
    assert set(found) == set(speed.PYTORCH_COEFFICIENTS)
    assert all(abs(log) < 0.06 for _, log in log_errors(unseen, COMMITTED | found, fit.predict_load))
    assert found["pytorch-prompt-layer-ms"] == pytest.approx(2.0, rel=0.1)


def test_the_pytorch_engine_shapes_no_term_of_turbomind() -> None:
    """Its loads, ten times as slow, and its memory leave all other coefficients as they are."""
    ours = [each for each in invented(true_values(3)) if each.concurrency < 16][:12]
    run = read_record(KNOWLEDGE / "evidence" / f"{PYTORCH[0]}.yaml", records.SmokeRun)
    slow = [slower(each) for each in [*observe_run(run, STORE)][:2]]
    assert [each.concurrency for each in slow] == [0, 1]
    assert changed_terms(ours, [*ours, *slow]) <= set(speed.PYTORCH_COEFFICIENTS)


def test_errors_of_each_engine_have_records_of_their_own() -> None:
    """Of the PyTorch engine all figures have another name, and no record mixes both engines."""
    for name, each in STORE.residuals.items():
        assert each.engines == (("pytorch",) if name.startswith("pytorch-") else ("turbomind",))
    figures = {name.removeprefix("pytorch-") for name in STORE.residuals if name.startswith("pytorch-")}
    assert figures >= {"memory", "rps-text", "ttft-text", "token-text", "latency-text", "rps-load", "ttft-load"}


def test_what_is_judged_was_not_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each model, each start and each text load is predicted by a fit without it; no start is split."""
    every = invented(COMMITTED)
    texts = [each for each in every if is_simulated(each)]

    def spy(among: Any, store: Any, kept: Any) -> dict[str, float]:
        assert kept is None
        places = [every.index(each) for each in among]
        (tmp_path / f"{os.getpid()}-{time.monotonic_ns()}").write_text(json.dumps(places))
        return {name: each.value for name, each in store.coefficients.items()}

    monkeypatch.setattr(held_out, "solve", spy)
    fits = held_out.solve_folds(every, STORE, COMMITTED, lambda _: None)
    found = held_out.held_out_errors(every, STORE, fits)
    seen = [[every[place] for place in json.loads(path.read_text())] for path in tmp_path.iterdir()]
    assert len(seen) == len(MODELS) + held_out.PARTS + 1
    for among in seen:
        left = [each for each in every if each not in among]
        assert left
        assert left == texts or not {each.run for each in left} & {each.run for each in among}
    assert {each.observation.run for each in found if each.part == "workload equal lengths"} == {x.run for x in texts}
    for kind in ("model", "configuration"):
        judged = [each for each in found if each.part.startswith(kind) and each.figure.startswith("latency")]
        assert len(judged) == len(every)
    for each in found:
        kind = each.figure.partition("-")[2]
        assert kind.startswith("text") == (not each.observation.resolved.images)
        assert kind.endswith("alone") == (each.observation.concurrency == 1)
    assert {each.figure for each in found} >= {"rps-load", "latency-alone", "ttft-load", "ttft-text-alone", "rps-text"}


def test_residuals_by_hand() -> None:
    """Ends, medians and coverage of ten errors, counted on fingers."""
    of = invented(COMMITTED)
    log_errors = [-0.5, -0.2, -0.1, -0.05, 0.0, 0.02, 0.05, 0.1, 0.3, 0.9]
    found = [
        held_out.HeldOutError("rps-load", replace(of[number], run=f"run-{number}"), f"model {number % 2}", log)
        for number, log in enumerate(log_errors)
    ]
    found += [held_out.HeldOutError("rps-load", of[0], "configuration a", 0.02)]
    (made,) = residual_records.residuals(found)
    # Eleven errors: a fifth of twelve is 2.4, so the second largest is how far they reach, to either side.
    assert made.low == pytest.approx(math.exp(-0.5), rel=1e-3)
    assert made.high == pytest.approx(math.exp(0.5), rel=1e-3)
    # The ten are off by 39 % (0.5), 18, 10, 5, 0, 2, 5, 11, 35 and 145 % of what was measured.
    assert made.by_configuration == pytest.approx(1 - math.exp(-0.02), rel=1e-2)
    assert made.by_model == pytest.approx((1 - math.exp(-0.1) + math.exp(0.1) - 1) / 2, rel=1e-2)
    assert made.worst == pytest.approx(math.exp(0.5) - 1, abs=0.06)
    assert 0 <= made.covered < 1
    assert made.by_workload is None
    # Errors of workloads left out have a median of their own and move nothing else.
    loads = [
        held_out.HeldOutError("rps-load", of[number], "workload chat", log) for number, log in enumerate([0.1, -0.2])
    ]
    (again,) = residual_records.residuals([*found, *loads])
    assert again.by_workload == pytest.approx((1 - math.exp(-0.1) + math.exp(0.2) - 1) / 2, rel=1e-2)
    assert again.model_copy(update={"by_workload": None}) == made


def test_repeats_count_as_one_run() -> None:
    """Nine runs of a launch and one of another weigh the same: ends, medians and what is inside."""
    one, other = invented(COMMITTED)[1:3]
    often = [
        held_out.HeldOutError("rps-load", replace(one, run=f"run-{number}"), "model a", 0.3) for number in range(9)
    ]
    seldom = [
        held_out.HeldOutError("rps-load", other, "model a", -0.1),
        held_out.HeldOutError("rps-load", other, "configuration a", 0.01),
    ]
    (made,) = residual_records.residuals([*often, *seldom, *rest_of_ten(one)])
    assert (made.predictions, made.starts) == (10, 17)  # the other launch is of the first run
    # Eleven errors, the nine runs as one: a fifth of twelve is 2.4, so the second largest is how far they reach.
    assert made.low == pytest.approx(math.exp(-0.1), rel=1e-3)
    assert made.high == pytest.approx(math.exp(0.1), rel=1e-3)
    assert made.by_model == pytest.approx(1 - math.exp(-0.01), rel=0.01)


def rest_of_ten(of: Observation) -> list[held_out.HeldOutError]:
    """Eight launches of their own, each 1 % off."""
    return [
        held_out.HeldOutError("rps-load", replace(of, run=f"own-{number}", launch=f"own-{number}"), "model a", 0.01)
        for number in range(8)
    ]


def test_what_is_alike_is_merged_and_nothing_else() -> None:
    """Two runs alike become one with the geometric mean; another release, card, host, answer or free memory do not."""
    one = invented(COMMITTED)[1]
    longer = MappingProxyType({name: 4 * each for name, each in one.measured.items()})
    again = replace(one, run="again", measured=longer)
    only = replace(one, run="only", measured=MappingProxyType({"rps": one.measured["rps"]}))
    (made,) = merge_repeats([one, again])
    assert made.measured == pytest.approx({name: 2 * each for name, each in one.measured.items()})
    (made,) = merge_repeats([replace(again, measured=MappingProxyType({"latency": 5.0})), only])
    assert made.measured == pytest.approx({"latency": 5.0, "rps": one.measured["rps"]})
    resolved = one.resolved
    for different in (
        replace(one, launch="other"),
        replace(one, concurrency=5),
        replace(one, config=replace(one.config, servers=2)),
        replace(one, resolved=replace(resolved, release=STORE.releases["0.17.0"])),
        replace(one, resolved=replace(resolved, request=replace(resolved.request, cpus=3))),
        replace(one, resolved=replace(resolved, output_tokens=99)),
        replace(one, resolved=replace(resolved, image_width=640)),
        replace(one, resolved=replace(resolved, available_bytes=5)),
    ):
        assert len(merge_repeats([one, different])) == 2


def test_what_was_free_counts_where_memory_was_asked_for() -> None:
    """A request with --vram is held against the card as it was; any other against the whole card."""
    run = read_record(KNOWLEDGE / "evidence" / "h200-x2-2026-11-21-38b-tp-2-vram.yaml", records.SmokeRun)
    resolved = resolve_request(Request(gpu=run.gpu, gpu_count=2, model=run.model, vram_gib=60.0), STORE)
    assert with_free_memory(resolved, run).available_bytes == (run.memory_mib - run.idle_mib) * 2**20
    plain = resolve_request(Request(gpu=run.gpu, gpu_count=2, model=run.model), STORE)
    assert with_free_memory(plain, run) is plain


def test_a_fit_does_not_hang_on_the_last_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun a millionth beside the middle it ends at the same place: machines round differently, CI holds us to it."""
    known = [each for each in merge_repeats(measured()) if not each.concurrency]
    stage, *_ = fit.list_stages(known, STORE)
    found = []
    for middle in (fit.MIDDLE, fit.MIDDLE + 1e-6):
        monkeypatch.setattr(fit, "MIDDLE", middle)
        found.append(fit._solve(stage, COMMITTED))
    assert len(found[0]) >= 5
    assert found[1] == pytest.approx(found[0], rel=fit_command.TOLERANCE / 5)


def test_nothing_is_fitted_to_nothing(tmp_path: Path) -> None:
    """A folder that is no knowledge, or has no evidence: an error, and no coefficient is touched."""
    for command in (["fit", "--check"], ["fit"]):
        result = CliRunner().invoke(root, ["knowledge", *command, "--knowledge", str(tmp_path / "nowhere")])
        assert "nowhere: not a knowledge folder" in str(result.exception)
    shutil.copytree(KNOWLEDGE, tmp_path / "knowledge", ignore=shutil.ignore_patterns("evidence"))
    (tmp_path / "knowledge" / "evidence").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
    result = CliRunner().invoke(root, ["knowledge", "fit", "--knowledge", str(tmp_path / "knowledge")])
    assert "evidence: nothing to fit to" in str(result.exception)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}


def test_a_fit_without_scipy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: the recommender runs without it."""
    monkeypatch.setattr(fit_command, "find_spec", lambda _: None)
    result = CliRunner().invoke(root, ["knowledge", "fit", "--check"])
    assert isinstance(result.exception, MaintenanceError)
    assert "pip install scipy" in str(result.exception)


def test_the_committed_files_are_the_fit() -> None:
    """The coefficients and residuals of knowledge/ come out of the evidence again."""
    words = [sys.executable, "-m", "recommender", "knowledge", "fit", "--check"]
    # The processes of a fit use all cores: threads of the linear algebra would only compete.
    alone = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=KNOWLEDGE.parent, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fit_that_could_be_better_is_seen() -> None:
    """Each fitted coefficient by itself: at the fit's place none is named, moved by a twentieth of its range it is."""
    seen = [each for each in invented(true_values(5)) if each.concurrency < 16][:60]
    values = fit.solve(seen, STORE)
    best = set(fit.list_improvable(seen, STORE, values))
    assert not best
    moved = 0
    for stage in fit.list_stages(seen, STORE):
        for name, (low, high) in stage.ends.items():
            place = math.log(values[name])
            away = place + (0.3 if place < (low + high) / 2 else -0.3) * (high - low)
            named = set(fit.list_improvable(seen, STORE, values | {name: math.exp(away)}))
            moved += name in named
    assert moved >= 0.8 * len(FITTED)


def test_fits_that_are_kept_come_back(tmp_path: Path) -> None:
    """From the file's text; without the file there are none, and a fold without a fit, or the reverse, is named."""
    fits = {"model a": {"step-ms": 1.5, "tail-alone": 2.0}, "workload chat": {"step-ms": 0.1, "tail-alone": 1e-7}}
    (tmp_path / "fits.json").write_text(held_out.as_json(fits))
    assert held_out.read_fits(tmp_path / "fits.json") == fits
    assert held_out.read_fits(tmp_path / "none.json") == {}
    every = invented(COMMITTED)
    told = held_out.list_stale(every, STORE, {"model nobody": {}})
    assert "model nobody: nothing is left out under this name" in told
    assert f"model {every[0].model}: not kept" in told
    names = [line.removesuffix(": not kept") for line in told[:-1]]
    assert names == sorted(names)


def test_a_changed_coefficient_is_seen(tmp_path: Path) -> None:
    """A value edited by hand, a residual that is missing: each is told."""
    for kind in ("coefficients", "residuals"):
        (tmp_path / kind).mkdir()
        for path in (KNOWLEDGE / kind).glob("*.yaml"):
            (tmp_path / kind / path.name).write_bytes(path.read_bytes())
    fitted = {name: STORE.coefficients[name].value for name in FITTED}
    wanted = fit_command.files(tmp_path, fitted, [])
    assert all(fit_command._same(path, text) for path, text in wanted.items())
    edited = tmp_path / "coefficients" / "tile-host-ms.yaml"
    edited.write_text(residual_records.changed_value(edited.read_text(), 1.01 * fitted["tile-host-ms"]))
    assert [path for path, text in wanted.items() if not fit_command._same(path, text)] == [edited]
    assert not fit_command._same(tmp_path / "residuals" / "none.yaml", "id: none\n")


def test_only_the_value_of_a_coefficient_is_rewritten() -> None:
    """What people wrote of a coefficient stays byte for byte."""
    text = (KNOWLEDGE / "coefficients" / "tile-host-ms.yaml").read_text("utf-8")
    changed = residual_records.changed_value(text, 3.25)
    assert yaml.safe_load(changed) == yaml.safe_load(text) | {"value": 3.25}
    assert [a for a, b in zip(text.splitlines(), changed.splitlines(), strict=True) if a != b] == [
        line for line in text.splitlines() if line.startswith("value:")
    ]


# --- calibration by a user's own runs


@pytest.mark.parametrize(("host", "card"), [(1.4, 1.0), (1.0, 0.7), (0.6, 1.8), (1.0, 1.0)])
def test_calibration_finds_a_slower_host_or_card(host: float, card: float) -> None:
    """Six loads on a machine whose host or card is so many times slower foretell its others; 1 % of noise."""
    truth = dict(speed.scale_coefficients(STORE, host, card)) | rest()
    every = [each for each in invented(truth, 0.01) if each.model == MODELS[0]]
    found = calibrate.fit_factors(every[:6], STORE)
    assert found[0] == pytest.approx(host, rel=0.2)
    assert found[1] == pytest.approx(card, rel=0.05)
    made = dict(speed.scale_coefficients(STORE, *found)) | rest()
    for each in every[6:]:
        for name, value in predict(each, truth).items():
            assert predict(each, made)[name] == pytest.approx(value, rel=0.04 if name in ("latency", "rps") else 0.1)


def test_one_run_of_the_same_card_does_little_harm() -> None:
    """Starts on one H100, each alone calibrating: it costs what is foretold of the others 2.5 % at most."""
    runs = [path.stem for path in sorted((KNOWLEDGE / "evidence").glob("h100-2026-11-21-*.yaml"))][::12]
    loads = [[each for each in measured() if each.run == run and each.concurrency] for run in runs]
    known = [found for found in loads if found]
    others = merge_repeats([each for found in known for each in found])[::2]

    def off(factors: tuple[float, float], run: str) -> float:
        values = speed.scale_coefficients(STORE, *factors)
        unseen = [each for each in others if each.run != run]
        return fmean(
            abs(log) for each in unseen for name, log in log_errors(each, values) if name in ("latency", "rps")
        )

    assert len(known) >= 10
    plain = fmean(off((1.0, 1.0), found[0].run) for found in known)
    assert fmean(off(calibrate.fit_factors(found, STORE), found[0].run) for found in known) < plain + 0.025


def kept() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((KNOWLEDGE / "evidence" / "h100-2026-11-21-ours-16.yaml").read_text("utf-8"))
    return found


def changed(folder: Path, **fields: object) -> Path:
    run = kept()
    path = folder / f"{run['id']}.yaml"
    path.write_text(yaml.safe_dump({**run, **fields}, sort_keys=False))
    return path


@pytest.mark.parametrize(("fields", "said"), [
    ({"gpu_name": "NVIDIA L4"}, "measured on l4, not on h100-sxm-80g; give runs on that GPU"),
    ({"command": ["--no-such-option", "4"]}, "has '--no-such-option', which is no option of LMDeploy's server"),
    ({"command": ["--session-len"]}, "the command's --session-len has no value"),
    ({"request": "{"}, "the request in its head cannot be read"),
    ({"phases": []}, "no usable load"),
])  # fmt: skip
def test_a_run_that_cannot_calibrate_is_told_in_a_line(fields: dict[str, object], said: str, tmp_path: Path) -> None:
    """With the file's name."""
    path = changed(tmp_path, **fields)
    with pytest.raises(RequestError, match=f"^--calibrate {path}: .*{said}"):
        calibrate.calibrate(Request(gpu="H100-80G"), [str(path)], STORE)
    with pytest.raises(RequestError, match="a folder; give the records in it"):
        calibrate.calibrate(Request(gpu="H100-80G"), [str(tmp_path)], STORE)


def test_options_with_equals_signs_and_underscores_calibrate_too(tmp_path: Path) -> None:
    """LMDeploy's parser takes both, and a script of another hand may have them."""
    run = kept()
    words = " ".join(run["command"]).replace("--max-batch-size ", "--max_batch_size=").split()
    assert words != run["command"]
    found = [calibrate.calibrate(Request(gpu="H100-80G"), [str(changed(tmp_path, command=each))], STORE)
             for each in (run["command"], words)]  # fmt: skip
    assert found[0] == found[1]


def test_a_factor_beyond_its_ends_is_told(tmp_path: Path) -> None:
    """Runs ten times slower than the card's fit no factor."""
    run = kept()
    for phase in run["phases"]:
        for name in ("latencies_ms", "gaps_ms", "ttft_ms"):
            phase[name] = " ".join(str(10 * int(each)) for each in str(records.unpack(phase.get(name, ""))).split())
        phase["window_s"] *= 10
    path = changed(tmp_path, phases=run["phases"])
    with pytest.raises(RequestError, match="no factors up to 5 make the prediction for h100-sxm-80g match these runs"):
        calibrate.calibrate(Request(gpu="H100-80G"), [str(path)], STORE)


def test_runs_of_ones_own_do_not_narrow_what_they_do_not_tell() -> None:
    """A mixture of experts that nobody ran keeps its width on a calibrated card."""
    request = Request(gpu="L4", gpu_count=4, model="gpt-oss-20b", concurrency=16, host_scale=1.2, card_scale=1.1)
    models = ("gpt-oss-20b", "internvl3-8b-awq")
    found = [recommend.recommend(replace(request, model=each), STORE).speed.rps for each in models]
    widths = [each.high / each.low for each in found]
    assert widths[0] > 1.3 * widths[1]


def rest() -> dict[str, float]:
    return {name: each.value for name, each in STORE.coefficients.items() if name not in speed.COEFFICIENTS}


def test_one_load_alone_moves_little_that_it_cannot_tell() -> None:
    """A single latency does not say whether host or card is slow, but the prediction follows it."""
    every = invented(dict(speed.scale_coefficients(STORE, 1.3, 1.3)) | rest())
    (one,) = [each for each in every if each.concurrency == 1 and each.run == "run-0"]
    only = replace(one, measured=MappingProxyType({"latency": one.measured["latency"]}))
    host, card = calibrate.fit_factors([only], STORE)
    assert 1 / MAX_SCALE < host < MAX_SCALE
    got = predict(only, dict(speed.scale_coefficients(STORE, host, card)) | rest())["latency"]
    assert got == pytest.approx(only.measured["latency"], rel=0.03)


EVIDENCE = sorted((KNOWLEDGE / "evidence").glob("h100*ours-16.yaml"))[-1]


def test_calibrated_requests_say_so_and_remake_without_the_file() -> None:
    """The factors stand in the request, so an artefact can be made again anywhere."""
    asked = calibrate.calibrate(Request(gpu="H100-80G"), [str(EVIDENCE)], STORE)
    assert (asked.host_scale, asked.card_scale) != (1.0, 1.0)
    found = recommend.recommend(asked, STORE)
    assert artefact.parse_request(artefact.parse(render(found, "bash"), "serve.sh"), {})[0] == asked
    assert asked.calibrated_by == EVIDENCE.stem
    assert found.speed.basis == "calibrated by runs of your own"
    assert EVIDENCE.stem in report(found).partition("SPEED")[2][:100]
    every = [each for each in measured() if each.run == EVIDENCE.stem and each.concurrency == 16]
    (one,) = [each for each in every if each.resolved.image_width == 448]
    plain = predict(one, COMMITTED)["rps"]
    scaled = predict(one, dict(speed.scale_coefficients(STORE, asked.host_scale, asked.card_scale)) | rest())["rps"]
    assert abs(math.log(scaled / one.measured["rps"])) <= abs(math.log(plain / one.measured["rps"])) + 0.02


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.yaml", None, "no such file"),
        ("other.yaml", "id: other\n", "other.yaml: "),
        ("broken.yaml", "a: [", "invalid YAML"),
    ],
)
def test_a_file_that_cannot_calibrate(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    """One line that names the file and how to get a right one."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(RequestError, match=said) as told:
        calibrate.calibrate(Request(gpu="H100-80G"), [str(tmp_path / name)], STORE)
    assert "\n" not in str(told.value)
    assert "--save-evidence" in str(told.value)


def test_runs_of_another_card_are_refused() -> None:
    """What one card needs says nothing of another."""
    with pytest.raises(RequestError, match="measured on h100-sxm-80g"):
        calibrate.calibrate(Request(gpu="L4"), [str(EVIDENCE)], STORE)


def test_runs_that_agree_leave_their_names(tmp_path: Path) -> None:
    """Factors of one are a finding too: whose runs they are of stays with the request."""
    name = changed(tmp_path, id="my-own-run").rename(tmp_path / "my-own-run.yaml")
    asked = replace(calibrate.calibrate(Request(gpu="H100-80G"), [str(name)], STORE), host_scale=1.0, card_scale=1.0)
    assert asked.calibrated_by == "my-own-run"
    assert recommend.recommend(asked, STORE).speed.basis == "calibrated by runs of your own"
    with pytest.raises(RequestError, match="unprintable characters"):
        replace(asked, calibrated_by="a\nb")


def test_a_record_that_cannot_be_fitted_is_named(tmp_path: Path) -> None:
    """By its file, with what is wrong in it."""
    changed(tmp_path, command=["--no-such-option", "4"])
    with pytest.raises(KnowledgeError, match=r"16\.yaml: cannot be predicted: .*--no-such-option"):
        observations(tmp_path, STORE)


@pytest.mark.parametrize("scale", [0.0, -1.0, 99.0, math.nan])
def test_a_scale_beyond_sense_is_refused(scale: float) -> None:
    """As an artefact's head might hold after an edit by hand."""
    with pytest.raises(RequestError, match="factor"):
        Request(gpu="L4", host_scale=scale)
