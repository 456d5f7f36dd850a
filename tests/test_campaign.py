"""``recommend campaign``: plans, resumption, the sweep and what it tells, on a stand-in and on made-up results."""

import fcntl
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml
from artefacts import KNOWLEDGE, wait_for
from click.testing import CliRunner, Result
from schemas import valid
from standin.machine import Standin
from test_smoke import BUSY_S, RECOMMEND, listens, ports

from recommender.cli import root
from recommender.commands import campaign as campaign_
from recommender.commands.smoke import command as SMOKE
from recommender.common.errors import RequestError
from recommender.knowledge import records
from recommender.knowledge.run_figures import figures
from recommender.smoke.campaign import plan_file, report, sweep
from recommender.smoke.campaign.plan import ParsedPlan, PlannedRun, name_of_phase
from recommender.smoke.campaign.sweep import ResultLine, Results
from recommender.smoke.console import stop_signals
from recommender.smoke.failures import KINDS

PLANS = sorted((KNOWLEDGE / "campaigns").glob("*.yaml"))


# --- the plans of the knowledge --------------------------------------------------------------------


@cache
def shipped(path: Path) -> ParsedPlan:
    """A plan of the knowledge, every start parsed and rendered."""
    return plan_file.read_plan(path, SMOKE)


def test_the_plans_are_there() -> None:
    """One for each machine."""
    assert {path.stem for path in PLANS} >= {"h100", "h200", "h200-x2"}


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_start_of_a_plan_parses_and_renders(path: Path) -> None:
    """Named after its id, each start with loads of its own, and nothing is launched twice under one id."""
    checked = shipped(path)
    assert checked.plan.id == path.stem
    assert all(launch.loads for launch in checked.launches)
    assert len({launch.id for launch in checked.launches}) == len(checked.launches)
    assert max(map(len, path.read_text("utf-8").splitlines())) <= 120


def test_the_h100_plan_is_as_large_as_it_must_be() -> None:
    """70 starts, 60 in the sweep, all of one model on six loads; every other model is there too."""
    checked = shipped(KNOWLEDGE / "campaigns" / "h100.yaml")
    sweeping = [launch for launch in checked.launches if launch.rung]
    assert len(checked.launches) >= 70
    assert len(sweeping) >= 60
    assert not any("--model" in each.words or "--with max-dynamic-patch" in " ".join(each.words) for each in sweeping)
    assert checked.loads == (
        "1@448x448", "16@448x448", "64@448x448", "1@1280x720", "16@1280x720", "64@1280x720",
    )  # fmt: skip
    models = {
        launch.words[launch.words.index("--model") + 1] for launch in checked.launches if "--model" in launch.words
    }
    assert models >= {"internvl3-8b", "internvl3-2b", "internvl3-1b", "internvl3-14b-awq", "qwen2.5-7b-instruct"}
    flights = {int(load.partition("@")[0]) for launch in checked.launches for load in launch.loads if "rps" not in load}
    assert min(flights) == 1
    assert max(flights) == 128
    assert sum(each.copies > 1 and each.mps for each in sweeping) >= 6
    assert {each.copies for each in sweeping if each.mps} >= {1, 2, 3, 4}
    assert any(each.copies > 1 and not each.mps for each in sweeping)
    values = [word for launch in checked.launches for word in launch.words]
    for option, least in (("max-prefill-token-num", 5), ("omp-num-threads", 7), ("cache-max-entry-count", 5)):
        assert len({word for word in values if word.startswith(f"{option}=")}) >= least
    clock = sweep.Clock((), Results(()))
    assert sum(map(clock.expected, checked.launches)) / len(checked.launches) < 75


def test_the_h200_plans_are_as_large_as_they_must_be() -> None:
    """20 starts on one card; on two cards one server over both beside one on one of them."""
    assert len(shipped(KNOWLEDGE / "campaigns" / "h200.yaml").launches) >= 20
    both = shipped(KNOWLEDGE / "campaigns" / "h200-x2.yaml")
    assert both.plan.gpu == "H200:2"
    for tp in ("tp=1", "tp=2"):
        assert sum(tp in launch.words for launch in both.launches) >= 2


# --- plans that are wrong --------------------------------------------------------------------------

PLAIN = {
    "id": "try",
    "about": "a try",
    "gpu": "H100-80G",
    "bases": {"tuned": "--follow defaults --with trust-remote-code --with server-port=23333"},
    "starts": [
        {"id": "one", "base": "tuned", "sweep": True},
        {"id": "two", "run": "--load 16", "phases": "16"},
    ],
    "sweep": {"phases": "1 16", "rungs": [{"seconds": 4}, {"seconds": 8, "keep": 1}]},
}


def changed(**fields: object) -> str:
    """The plain plan with fields of its own or, by ``one_FIELD``, of its first start."""
    made = json.loads(json.dumps(PLAIN))
    for name, value in fields.items():
        first, _, rest = name.partition("_")
        (made["starts"][0] if first == "one" else made)[rest or name] = value
    return yaml.safe_dump({name: value for name, value in made.items() if value is not None})


WRONG = {
    "no YAML": ("id: [", r"invalid YAML: .*; fix it there"),
    "a list": ("- id", r"\(whole file\): .*"),
    "an impossible date": ("id: 2026-99-99", r"invalid YAML: .*; fix it there"),
    "too deep": ("id: " + "[" * 3000 + "]" * 3000, r"invalid YAML: .*; fix it there"),
    "in itself": ("&a [*a]", r"invalid YAML: .*; fix it there"),
    "a field's name": (changed(gpus="L4"), r"gpus: no such field: did you mean gpu"),
    "a start's field": (changed(one_phase="1"), r"start one: phase: no such field: did you mean phases"),
    "a rung's field": (
        changed(sweep={"phases": "1", "rungs": [{"keeps": 1}]}),
        r"sweep\.rungs\[0\]\.keeps: no such field: did you mean keep",
    ),
    "a missing field": (changed(gpu=None), r"gpu: Field required; add it"),
    "a number as text": (changed(one_copies="2"), r"start one: copies: .*; write a whole number"),
    "text as a number": (changed(one_phases=1), r"start one: phases: .*; put the value in quotes"),
    "two of one id": (changed(one_id="two"), r"start two: id: used by 2 starts"),
    "an id of a rung": (changed(one_id="one-r2"), r"start one-r2: id: ends like .* choose another"),
    "no such base": (changed(one_base="turned"), r"start one: base: no such base 'turned': did you mean tuned\?"),
    "no load": (changed(one_sweep=False), r"start one: phases: no load; add some"),
    "no sweep": (changed(sweep=None), r"start one: sweep: the plan has no field sweep"),
    "nobody in it": (changed(one_sweep=False, one_phases="1"), r"starts: none takes part in the sweep"),
    "a pick of no load": (changed(one_pick="16@1280x720"), r"start one: pick: 16@1280x720 is no load of the sweep"),
    "a rung of no load": (
        changed(sweep={"phases": "1 16", "rungs": [{}, {"keep": 1, "phases": "16"}]}),
        r"sweep\.rungs\[1\]\.phases: 16 is no load of the sweep: known are 1@448x448, 16@448x448; write it with",
    ),
    "a first rung that keeps": (
        changed(sweep={"phases": "1", "rungs": [{"keep": 3}]}),
        r"sweep\.rungs\[0\]: the first rung runs every start once",
    ),
    "a rung that keeps none": (changed(sweep={"phases": "1", "rungs": [{}, {}]}), r"sweep\.rungs\[1\]\.keep: set how"),
    "the card": (changed(gpu="H1000"), r"start one: --gpu: unknown GPU 'H1000': did you mean"),
    "an option": (changed(one_run="--lod 4"), r"start one: run: no such option --lod; did you mean --load"),
    "its value": (changed(one_run="--load none"), r"start one: --load: unknown load 'none': use a number, or one of"),
    "a flag": (changed(one_run="--with sesion-len=4"), r"start one: --with: unknown option 'sesion-len': did you mean"),
    "a flag's value": (
        changed(one_run="--with session-len=4k"), r"start one: --session-len: expected a whole number, got '4k'",
    ),
    "cores that are none": (changed(one_run="--pin 0-"), r"start one: --pin '0-': use the format of taskset"),
    "cores from high to low": (changed(one_run="--pin 8-2"), r"start one: --pin '8-2': use the format of taskset -c"),
    "a key twice": (changed() + "seconds: 4\nseconds: 5\n", r"line \d+: duplicate key 'seconds'; remove one"),
    "nobody followed": (changed(one_base="", one_run="--with tp=2"), r"start one: --with needs --follow"),
    "a quote": (changed(one_run="--note 'x"), r"start one: run: no closing quotation; check the quotes"),
    "a load": (changed(one_phases="often"), r"start one: --phase 'often': use N, Nrps, N@WIDTHxHEIGHT"),
    "a load twice": (changed(one_phases="4 4@448x448"), r"start one: phases: 4@448x448 appears twice"),
    "a field's option": (changed(one_run="--mps"), r"start one: run: --mps: it belongs in the field mps"),
    "a script": (changed(one_run="serve.sh"), r"start one: run: SCRIPT: a start takes options, no script"),
    "nothing fits": (changed(one_base="", one_run="--load 64 --p99 1"), r"start one: nothing fits: .*; request less"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_plan_is_told_in_a_line(case: str, tmp_path: Path) -> None:
    """Exit code 2, the file, the place and the repair; nothing is written."""
    text, piece = WRONG[case]
    done = run(tmp_path, text)
    assert done.exit_code == 2
    first = done.stderr.splitlines()[0]
    assert re.match(rf"recommend campaign: \S*plan\.yaml: {piece}", first), first
    assert "\n\n" not in done.stderr
    assert not (tmp_path / "results.jsonl").exists()


def test_all_wrong_starts_are_told_at_once(tmp_path: Path) -> None:
    """One line for each of them."""
    text = changed(common="--lod 4")
    assert [line.partition("start ")[2][:3] for line in run(tmp_path, text).stderr.splitlines()] == ["one", "two"]


def run(folder: Path, text: str, *words: str, name: str = "results.jsonl") -> Result:
    """The command in this process, which suits all that launches nothing."""
    (folder / "plan.yaml").write_text(text)
    command = ["campaign", str(folder / "plan.yaml"), *(str(folder / word) for word in name.split()), *words]
    return CliRunner().invoke(root, command, prog_name="recommend")


def test_a_start_is_what_its_words_and_the_plan_make_it(tmp_path: Path) -> None:
    """Card, common words, base and own words in this order; random weights unless the model is a folder."""
    checked = made(tmp_path, changed(common="--patience 40"))
    one, two = checked.launches
    assert " ".join(one.options()) == (
        "--gpu H100-80G --patience 40 --follow defaults --with trust-remote-code --with server-port=23333 "
        "--weights random "
        "--phase 1@448x448 --phase 16@448x448 --seconds 4"
    )
    assert (one.rung, two.rung, two.loads, two.seconds) == (1, 0, ("16@448x448",), 4)
    folder = Standin(tmp_path / "machine").model()
    assert "--weights" not in made(tmp_path, changed(common=f"--model {folder}")).launches[0].words


def test_a_digest_follows_what_is_run(tmp_path: Path) -> None:
    """Other words, loads, seconds or copies: not done yet; another order or description: still the same."""
    first = made(tmp_path, changed()).launches[0].digest
    assert made(tmp_path, changed(about="else", one_phases="1@448x448 16")).launches[0].digest == first
    others = (
        {"one_run": "--with tp=1"}, {"one_phases": "1"}, {"one_seconds": 5}, {"one_copies": 2}, {"one_mps": True},
    )  # fmt: skip
    assert len({first, *(made(tmp_path, changed(**other)).launches[0].digest for other in others)}) == 1 + len(others)


def made(folder: Path, text: str) -> ParsedPlan:
    (folder / "plan.yaml").write_text(text)
    return plan_file.read_plan(folder / "plan.yaml", SMOKE)


# --- the sweep, on made-up results -----------------------------------------------------------------

LOADS = ("1@448x448", "16@448x448", "16@1280x720")
HALVING = yaml.safe_dump({
    "id": "try",
    "about": "a try",
    "gpu": "H100-80G",
    "bases": {"tuned": "--follow defaults --with trust-remote-code"},
    "starts": [
        *({"id": name, "base": "tuned", "sweep": True} for name in "abcd"),
        {"id": "small", "base": "tuned", "sweep": True, "phases": "1"},
        {"id": "apart", "base": "tuned", "phases": "1"},
    ],
    "sweep": {"phases": "1 16 16@1280x720", "rungs": [{}, {"keep": 2, "seconds": 8}, {"keep": 1, "times": 3}]},
})  # fmt: skip


@cache
def _pattern() -> records.SmokeRun:
    path = next((KNOWLEDGE / "evidence").glob("h100-2026-11-21-ours-16.yaml"))
    return records.SmokeRun.model_validate_json(json.dumps(yaml.safe_load(path.read_text("utf-8"))))


def evidence(name: str, values: dict[str, float], failed: Iterable[str] = ()) -> str:
    """A record that measured this of each load: ms for one in flight, else requests a second."""
    blank = _pattern().phases[0]
    phases = []
    for load, value in values.items():
        flight, _, image = load.partition("@")
        ms = round(value) if flight == "1" else 500
        faults = (records.FailedRequests(cause="requests-hang", count=1, said="x"),) if load in failed else ()
        changes = {
            "concurrency": int(flight), "image": image, "window_s": 10.0, "window_requests": round(10 * value),
            "latencies_ms": f"{ms} {ms}", "ttft_ms": "", "streamed": "", "failures": faults,
        }  # fmt: skip
        phases.append(blank.model_copy(update=changes))
    run = _pattern().model_copy(update={"id": name, "phases": tuple(phases)})
    return yaml.safe_dump(json.loads(run.model_dump_json()), sort_keys=False)


def line(
    launch: PlannedRun, *values: float, code: int = 0, failed: Iterable[str] = (), seconds: float = 40.0
) -> ResultLine:
    """A launch's line with the values of its loads; no record without values."""
    text = (
        evidence(f"try-2026-11-22-{launch.id}", dict(zip(launch.loads, values, strict=True)), failed) if values else ""
    )
    return ResultLine(id=launch.id, digest=launch.digest, code=code, seconds=seconds, said="said", evidence=text)


def known(checked: ParsedPlan, results: Results) -> dict[str, PlannedRun]:
    return {launch.id: launch for launch in sweep.launches(checked, results)}


@pytest.fixture(scope="module")
def halving(tmp_path_factory: pytest.TempPathFactory) -> ParsedPlan:
    return made(tmp_path_factory.mktemp("halving"), HALVING)


def first_rung(checked: ParsedPlan) -> list[ResultLine]:
    """1: a, small, b. 16: c, a. 16@1280x720: a, b, for c had a failure there. d never started."""
    its = known(checked, Results(()))
    return [
        line(its["a"], 30, 50, 10),
        line(its["b"], 40, 45, 9),
        line(its["c"], 50, 60, 20, failed=["16@1280x720"], code=25),
        line(its["d"], code=14),
        line(its["small"], 35),
    ]


def test_a_rung_begins_when_the_one_before_is_complete(halving: ParsedPlan) -> None:
    """Not while one start is missing; a start that failed is no longer missing, one outside of the sweep never was."""
    lines = first_rung(halving)
    for n in range(len(lines)):
        part = Results(lines[:n] + lines[n + 1 :])
        assert list(known(halving, part)) == ["a", "b", "c", "d", "small", "apart"]
    assert len(known(halving, Results(lines))) > 6


def test_survivors_by_hand(halving: ParsedPlan) -> None:
    """The best two of each load go on, each with the loads in which it is one of them."""
    its = known(halving, Results(first_rung(halving)))
    later = {name: launch.loads for name, launch in its.items() if launch.rung == 2}
    assert later == {"a-r2": LOADS, "b-r2": ("16@1280x720",), "c-r2": ("16@448x448",), "small-r2": ("1@448x448",)}
    assert {launch.seconds for launch in its.values() if launch.rung == 2} == {8}
    assert len({launch.digest for launch in its.values() if launch.start == "a"}) == 2


def through(checked: ParsedPlan) -> Results:
    """All rungs: in the second a is overtaken at 1 by small and at 16@1280x720 by b."""
    results = Results(first_rung(checked))
    its = known(checked, results)
    for name, values in {"a-r2": (31, 51, 10), "b-r2": (11,), "c-r2": (50,), "small-r2": (30,)}.items():
        results.add(line(its[name], *values))
    its = known(checked, results)
    assert {name: launch.loads for name, launch in its.items() if launch.rung == 3} == {
        **{f"a-r3-{n}": ("16@448x448",) for n in (1, 2, 3)},
        **{f"b-r3-{n}": ("16@1280x720",) for n in (1, 2, 3)},
        **{f"small-r3-{n}": ("1@448x448",) for n in (1, 2, 3)},
    }
    for name, values in {"a": (52, 50, 54), "b": (11, 10, 10), "small": (30, 29, 40)}.items():
        for n, value in enumerate(values, 1):
            results.add(line(its[f"{name}-r3-{n}"], value))
    return results


def test_what_recommend_picks_stays_in_every_rung(tmp_path: Path) -> None:
    """With its own load, though others were better there; and a rung may be about some loads only."""
    plan = yaml.safe_load(HALVING)
    plan["starts"][1]["pick"] = "16@448x448"
    plan["sweep"]["rungs"][2]["phases"] = "16@448x448 16@1280x720"
    checked = made(tmp_path, yaml.safe_dump(plan))
    results = Results(first_rung(checked))
    its = known(checked, results)
    assert its["b-r2"].loads == ("16@448x448", "16@1280x720")
    for name, values in {"a-r2": (31, 51, 10), "b-r2": (40, 11), "c-r2": (50,), "small-r2": (30,)}.items():
        results.add(line(its[name], *values))
    assert {name: each.loads for name, each in known(checked, results).items() if each.rung == 3} == {
        **{f"a-r3-{n}": ("16@448x448",) for n in (1, 2, 3)},
        **{f"b-r3-{n}": ("16@448x448", "16@1280x720") for n in (1, 2, 3)},
    }


def test_the_ranking_by_hand(halving: ParsedPlan) -> None:
    """Medians of the last rung each start ended, the last rung first; spread and share of the best; who failed."""
    got = {load: sweep.ranking(halving, through(halving), load) for load in LOADS}
    rows = {load: [(r.start, r.rung, r.runs, r.median) for r in each.rows] for load, each in got.items()}
    assert rows == {
        "1@448x448": [("small", 3, 3, 30), ("a", 2, 1, 31), ("b", 1, 1, 40), ("c", 1, 1, 50)],
        "16@448x448": [("a", 3, 3, 52), ("c", 2, 1, 50), ("b", 1, 1, 45)],
        "16@1280x720": [("b", 3, 3, 10), ("a", 2, 1, 10)],
    }
    assert [each.failed for each in got.values()] == [("d",), ("d",), ("c", "d")]
    assert got["16@448x448"].rows[0].spread == pytest.approx(4 / 52)
    assert got["16@448x448"].rows[1].of_best == pytest.approx(50 / 52)
    assert got["1@448x448"].rows[1].of_best == pytest.approx(30 / 31)


def test_starts_outside_the_sweep_that_are_alike_count_too(tmp_path: Path) -> None:
    """Of a start that came to the second rung: what launches the same for as long; nothing shorter, nothing else."""
    plan = yaml.safe_load(HALVING)
    own = next(each for each in plan["starts"] if each["id"] == "a")
    outside = {name: each for name, each in own.items() if name in ("base", "run")} | {"phases": "16", "seconds": 8}
    other = {"run": f"{own.get('run', '')} --with session-len=2048"}
    plan["starts"] += [
        {**outside, "id": "again"},
        {**outside, "id": "later"},
        {**outside, "id": "shorter", "seconds": 5},
        {**outside, "id": "other", **other},
    ]
    checked = made(tmp_path, yaml.safe_dump(plan))
    results = Results(first_rung(checked))
    its = known(checked, results)
    for name, values in {"a-r2": (31, 51, 10), "b-r2": (11,), "c-r2": (50,), "small-r2": (30,)}.items():
        results.add(line(its[name], *values))
    for name, value in {"again": 70, "shorter": 90, "other": 99}.items():
        results.add(line(its[name], value))
    row = next(each for each in sweep.ranking(checked, results, "16@448x448").rows if each.start == "a")
    assert (row.rung, row.runs, row.median) == (2, 2, (51 + 70) / 2)  # later has not run yet
    results.add(line(its["later"], 0))
    assert "a" in sweep.ranking(checked, results, "16@448x448").failed


def test_rungs_as_long_as_each_other_count_together(tmp_path: Path) -> None:
    """A last rung that drives loads as long as the one before adds to its runs; the first, shorter one never does."""
    plan = yaml.safe_load(HALVING)
    plan["sweep"]["rungs"][2]["seconds"] = 8
    checked = made(tmp_path, yaml.safe_dump(plan))
    got = sweep.ranking(checked, through(checked), LOADS[1])
    expected = [("a", 3, 4, 51.5), ("c", 2, 1, 50), ("b", 1, 1, 45)]
    assert [(r.start, r.rung, r.runs, r.median) for r in got.rows] == expected


def test_a_failure_in_one_of_three_runs_drops_a_start(halving: ParsedPlan) -> None:
    """It is told among the failed, and no longer ranked."""
    results = through(halving)
    its = known(halving, results)
    others = [each for each in results.lines if each.id != "a-r3-2"]
    got = sweep.ranking(halving, Results([*others, line(its["a-r3-2"], 55, failed=["16@448x448"])]), "16@448x448")
    assert [row.start for row in got.rows] == ["c", "b"]
    assert got.failed == ("d", "a")


def test_several_results_are_one(halving: ParsedPlan, tmp_path: Path) -> None:
    """The ranking of two files is that of both, as text of 80 columns and as JSON."""
    every = [each.model_dump_json() + "\n" for each in through(halving).lines]
    (tmp_path / "monday.jsonl").write_text("".join(every[::2]))
    (tmp_path / "tuesday.jsonl").write_text("".join(every[1::2]))
    done = run(tmp_path, HALVING, "--ranking", name="monday.jsonl tuesday.jsonl")
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert re.search(r"16@448x448, requests/s\n +start .*\n  a +3 +3 +52\.0 +7\.7 % +100\.0 %\n  c ", done.stdout)
    assert "2 failed: c, d" in done.stdout
    told = valid("campaign", run(tmp_path, HALVING, "--ranking", "--json", name="monday.jsonl tuesday.jsonl").stdout)
    assert [row["start"] for row in told["loads"][0]["rows"]] == ["small", "a", "b", "c"]


@pytest.mark.parametrize(("codes", "settled"), [
    ([0], True), ([14], True), ([25], True), ([27], True), ([70], True),
    ([3], False), ([10], False), ([11], False), ([22], False), ([2], False), ([3, 3, 3, 3], False),
    ([-9], False), ([130], False), ([143], False), ([26], False), ([26, -9], False), ([26, -9, 26], True),
    ([3, 0], True), ([26, 0], True),
])  # fmt: skip
def test_what_asks_for_another_try(codes: list[int], settled: bool, halving: ParsedPlan) -> None:
    """A machine at fault always, a run that was stopped or took too long twice; every other end is one."""
    launch = halving.launches[0]
    assert (Results(line(launch, code=code) for code in codes).final_line(launch) is not None) == settled


def test_a_line_counts_only_for_what_was_run(halving: ParsedPlan) -> None:
    """One of the same id and another digest is that of an older plan."""
    launch = halving.launches[0]
    old = line(launch, 1, 2, 3).model_copy(update={"digest": "0" * 16})
    assert Results([old]).final_line(launch) is None


def test_time_is_told_from_earlier_runs(halving: ParsedPlan) -> None:
    """Before any: a start and a second more for each load; then what the same start took besides its loads."""
    its = known(halving, Results(()))
    assert sweep.Clock((), Results(())).expected(its["a"]) == 30 + 3 * 5
    results = Results([line(its["a"], 30, 50, 10, seconds=65)])
    clock = sweep.Clock(its.values(), results)
    assert clock.expected(its["a"]) == 65
    assert clock.expected(its["b"]) == 45


# --- files -----------------------------------------------------------------------------------------


def test_a_cut_last_line_is_dropped(halving: ParsedPlan, tmp_path: Path) -> None:
    """Whatever a kill left of it; a whole line that only lacks its end counts."""
    path, whole = tmp_path / "r.jsonl", line(halving.launches[0], 1, 2, 3).model_dump_json().encode()
    for cut in (b"", whole[:1], whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(whole + b"\n" + cut)
        assert [len(sweep.read_lines(path)[0]), sweep.read_lines(path)[1]] == [1, len(whole) + 1]
    path.write_bytes(whole + b"\n" + whole)
    assert [len(sweep.read_lines(path)[0]), sweep.read_lines(path)[1]] == [2, 2 * len(whole) + 1]


def test_another_broken_line_is_told(tmp_path: Path) -> None:
    """With its number; nothing is guessed."""
    (tmp_path / "results.jsonl").write_text("{}\n")
    done = run(tmp_path, HALVING, "--list")
    assert done.exit_code != 0
    assert "results.jsonl: line 1 is not a campaign result; remove the line" in str(done.exception)


def unpacked(folder: Path, *lines: ResultLine) -> Result:
    (folder / "results.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in lines))
    return run(folder, HALVING, "--unpack", str(folder / "out"))


def test_unpack_writes_each_record_once(halving: ParsedPlan, tmp_path: Path) -> None:
    """Valid records, byte for byte; a second time nothing; a run to be tried again and one without a record not."""
    lines = [*first_rung(halving), line(halving.launches[5], 3, code=26)]
    assert unpacked(tmp_path, *lines).exit_code == 0
    names = ["a", "b", "c", "small"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"try-2026-11-22-{n}.yaml" for n in names]
    assert (tmp_path / "out" / "try-2026-11-22-a.yaml").read_text() == lines[0].evidence
    assert "0 records written" in unpacked(tmp_path, *lines).stderr


def test_unpack_replaces_nothing(halving: ParsedPlan, tmp_path: Path) -> None:
    """Where one file says something else, none is written and the file stays as it is."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "try-2026-11-22-c.yaml").write_text("precious")
    done = unpacked(tmp_path, *first_rung(halving))
    assert "try-2026-11-22-c.yaml exists with other contents" in str(done.exception)
    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["precious"]


def test_unpack_refuses_what_is_no_record(halving: ParsedPlan, tmp_path: Path) -> None:
    """The start is named, and nothing is written."""
    bad = line(halving.launches[0], 1, 2, 3)
    bad = bad.model_copy(update={"evidence": bad.evidence.replace("ready_mib: ", "ready_mib: -")})
    done = unpacked(tmp_path, first_rung(halving)[1], bad)
    assert "--unpack: the record of a is invalid (ready_mib: " in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_unpack_of_two_records_of_one_id(halving: ParsedPlan, tmp_path: Path) -> None:
    """That of the plan as it is now counts; two of one digest cannot be told apart."""
    new = line(halving.launches[0], 1, 2, 3)
    old = line(halving.launches[0], 4, 5, 6).model_copy(update={"digest": "0" * 16})
    assert unpacked(tmp_path, old, new).exit_code == 0
    assert (tmp_path / "out" / "try-2026-11-22-a.yaml").read_text() == new.evidence
    (tmp_path / "again").mkdir()
    done = unpacked(tmp_path / "again", new, line(halving.launches[0], 4, 5, 6))
    assert "two different records are named try-2026-11-22-a" in str(done.exception)


def packed(folder: Path, *texts: str) -> tuple[Result, Results]:
    """What --pack says of some records, and the results that it leaves."""
    (folder / "kept").mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / "kept" / f"{number}.yaml").write_text(text)
    done = run(folder, HALVING, "--pack", str(folder / "kept"))
    return done, Results(sweep.read_lines(folder / "results.jsonl")[0])


def of(launch: PlannedRun, *values: float, **fields: object) -> str:
    text = line(launch, *values).evidence
    run = {**yaml.safe_load(text), "taken": "2026-11-22", "launch_sha256": launch.what, **fields}
    return yaml.safe_dump(run, sort_keys=False)


def test_pack_is_the_reverse_of_unpack(halving: ParsedPlan, tmp_path: Path) -> None:
    """All rungs come back from records alone, with the same ranking; a second time nothing is added."""
    results = through(halving)
    ends = Results(each for each in results.lines if each.evidence)  # d, which never started, left no record
    texts = [of(its, *its_values(ends, its)) for its in known(halving, results).values() if ends.final_line(its)]
    died = line(known(halving, results)["d"], code=14)
    (tmp_path / "results.jsonl").write_text(died.model_dump_json() + "\n")
    done, back = packed(tmp_path, *texts)
    assert done.exit_code == 0, done.exception
    assert f"{len(texts)} records of " in done.stderr
    assert {each.id for each in back.lines} == {each.id for each in results.lines}
    for load in LOADS:
        assert sweep.ranking(halving, back, load).rows == sweep.ranking(halving, results, load).rows
    before = (tmp_path / "results.jsonl").read_bytes()
    assert "0 records of " in packed(tmp_path)[0].stderr
    assert (tmp_path / "results.jsonl").read_bytes() == before


def its_values(results: Results, launch: PlannedRun) -> list[float]:
    return [sweep.score(results.final_line(launch), load) for load in launch.loads]


@pytest.mark.parametrize("fields", [
    {"launch_sha256": "0" * 64}, {"copies": 2}, {"mps": True}, {"pinned": "0-3"},
    {"outcome": "time-limit"}, {"outcome": "server-died"}, {"checkpoint": "random, seed 7; not the real model"},
    {"request": "{"}, {"request": '{"gpu": "A100-80G"}'}, {"request": '{"gpu": "H100-80G:2"}'},
    {"request": '{"gpu": "H100-80G", "model": "internvl3-1b"}'},
    {"request": '{"gpu": "H100-80G", "output_tokens": 512}'},
    {"request": '{"gpu": "H100-80G", "lmdeploy": "0.17.0"}'},
    {"request": '{"gpu": "H100-80G", "with": {"max-dynamic-patch": "1"}}'},
    {"id": "other-2026-11-22-a"}, {"id": "try-2026-11-22-e"},
])  # fmt: skip
def test_pack_takes_no_other_run(fields: dict[str, object], halving: ParsedPlan, tmp_path: Path) -> None:
    """Another launch, another number of servers, another plan's or start's name."""
    launch = halving.launches[0]
    done, results = packed(tmp_path, of(launch, 1, 2, 3, **fields))
    assert done.exit_code == 0
    assert results.lines == []
    assert ("ids used by runs that differ from the plan's: a\n" in done.stderr) == ("id" not in fields)


def test_pack_asks_for_each_load_as_long(halving: ParsedPlan, tmp_path: Path) -> None:
    """One load less or one cut short: not done; one more than planned does no harm."""
    a, small = halving.launches[0], halving.launches[4]
    phases = yaml.safe_load(of(a, 1, 2, 3))["phases"]
    assert packed(tmp_path, of(a, 1, 2, 3, phases=phases[:2]))[1].lines == []
    short = [*phases[:2], phases[2] | {"window_s": 0.8 * a.seconds}]
    assert packed(tmp_path, of(a, 1, 2, 3, phases=short))[1].lines == []
    taken = packed(tmp_path, of(small, 1, phases=phases, id="try-2026-11-22-small"))[1].lines
    assert [each.id for each in taken] == ["small"]


def test_pack_takes_the_latest_of_several(halving: ParsedPlan, tmp_path: Path) -> None:
    """Records begin with their day, so the last by name is the latest."""
    launch = halving.launches[0]
    taken = packed(tmp_path, of(launch, 1, 2, 3), of(launch, 4, 5, 6, id="try-2026-11-23-a"))[1].lines
    assert [yaml.safe_load(each.evidence)["id"] for each in taken] == ["try-2026-11-23-a"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (0, ""),
        (15, "out-of-memory-image"),
        (99, "exit code 99"),
        (130, "stopped by a signal"),
        (-15, "stopped by a signal"),
    ],
)
def test_an_outcome_has_a_name(code: int, name: str) -> None:
    """A shell says 128 and the signal's number, Python its negative."""
    assert report.describe_outcome(code) == name


def test_what_is_no_results_file_is_left_alone(tmp_path: Path) -> None:
    """A file of something else is refused, and stays as it is; so is a second one that is not there."""
    (tmp_path / "kept").mkdir()
    for text in ('{"some": "json"}', "a note", '{"id": 1}\n{"id'):
        (tmp_path / "results.jsonl").write_text(text)
        for words in (["--pack", str(tmp_path / "kept")], ["--list"]):
            done = run(tmp_path, HALVING, *words)
            assert "line 1 is not a campaign result; remove the line" in str(done.exception)
            assert (tmp_path / "results.jsonl").read_text() == text
    (tmp_path / "results.jsonl").write_text("")
    done = run(tmp_path, HALVING, "--list", name="results.jsonl mon.jsnol")
    assert done.exit_code == 2
    assert "mon.jsnol: no such file; only the first of RESULTS may be new" in done.stderr
    done = run(tmp_path, HALVING, "--pack", str(tmp_path / "kept"), "--only", "a")
    assert done.exit_code == 2


def test_pack_names_what_is_no_record(tmp_path: Path) -> None:
    """The file, and nothing is added."""
    done, results = packed(tmp_path, "id: x\n")
    assert "kept/0.yaml: not a run record (" in str(done.exception)
    assert results.lines == []
    assert not (tmp_path / "results.jsonl").exists()
    done = run(tmp_path, HALVING, "--pack", str(tmp_path / "nowhere"))
    assert "nowhere: No such file or directory; name a folder of evidence records" in str(done.exception)


def test_the_sweep_goes_on_from_the_evidence_alone(tmp_path: Path) -> None:
    """What is in the knowledge is enough to know the second rung of the H100's sweep."""
    checked = shipped(KNOWLEDGE / "campaigns" / "h100.yaml")
    name = str(tmp_path / "h100.jsonl")
    plan = str(KNOWLEDGE / "campaigns" / "h100.yaml")
    command = ["campaign", plan, name, "--pack", str(KNOWLEDGE / "evidence")]
    assert CliRunner().invoke(root, command).exit_code == 0
    results = Results(sweep.read_lines(Path(name))[0])
    later = [launch for launch in sweep.launches(checked, results) if launch.rung == 2]
    # Rates counted anew put one start into that rung that was not run.
    assert sum(bool(results.final_line(each)) for each in later) >= 17
    ranked = {load: {row.start: row for row in sweep.ranking(checked, results, load).rows} for load in checked.loads}
    # What recommend picks is within 5 % of the best. Alone it ran three times; under load the third rung waits.
    for load, start, count in (
        ("1@448x448", "rec-1", 3),
        ("64@448x448", "pick-64", 1),
        ("1@1280x720", "rec-1", 3),
        ("16@1280x720", "rec-16-720p", 1),
    ):
        row = ranked[load][start]
        assert (row.runs, row.of_best >= 0.95) == (count, True), (load, row)
        assert all(each.of_best <= row.of_best / 0.95 for each in ranked[load].values() if each.runs >= 3)
    # For two loads it is not: 92 and 95 % of the best, by one run each. The first also lacks runs of its rung.
    for load, start in (("16@448x448", "rec-16"), ("64@1280x720", "rec-64-720p")):
        assert 0.9 < ranked[load][start].of_best < 0.95
    assert sweep.ranking(checked, results, "16@448x448").open
    # Alone the second and third run are starts outside the sweep, which launch the same as long.
    alone = [f"h100-2026-11-{each}" for each in ("21-rec-1-r2", "22-alone-rec-1", "22-alone-rec-1-again")]
    runs = [sweep.parse_record((KNOWLEDGE / "evidence" / f"{each}.yaml").read_text("utf-8")) for each in alone]
    for image in ("448x448", "1280x720"):
        phases = [phase for run in runs for phase in run.phases if (phase.concurrency, phase.image) == (1, image)]
        assert ranked[f"1@{image}"]["rec-1"].median == statistics.median(figures(phase).p50_ms for phase in phases)


def test_the_list_says_what_is_done_and_what_is_next(halving: ParsedPlan, tmp_path: Path) -> None:
    """Counts and time in the first line, a line for each start, the rungs that wait; 80 columns, nothing written."""
    lines = first_rung(halving)[1:4]
    (tmp_path / "results.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in lines))
    done = run(tmp_path, HALVING, "--list")
    assert done.exit_code == 0
    told = done.stdout.splitlines()
    assert told[0] == "try: 6 starts, 3 done, 3 to go, about 2 min"
    assert [each.split()[:2] for each in told[1:7]] == [
        ["next", "a"], ["done", "b"], ["failed", "c"], ["failed", "d"], ["to", "go"], ["to", "go"],
    ]  # fmt: skip
    assert "out-of-memory" in told[4]
    assert told[7:] == [
        "  rung 2: the best 2 of each load, after 2 more starts of rung 1",
        "  rung 3: the best 1 of each load, 3 times each, after rung 2",
    ]
    assert ": 1 start, 0 done" in run(tmp_path, HALVING, "--list", "--only", "sm*").stdout.splitlines()[0]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_wrong_command_line_is_told(tmp_path: Path) -> None:
    """Modes exclude each other, a pattern must match, a file must be writable and nobody else's."""
    for words, piece in {
        ("--list", "--ranking"): "exclude each other",
        ("--json",): "--json requires --ranking",
        ("--list", "--only", "smal"): "no start's id matches 'smal': did you mean small",
    }.items():
        done = run(tmp_path, HALVING, *words)
        assert done.exit_code == 2
        assert piece in done.stderr
    assert "name a writable file" in str(run(tmp_path, HALVING, name="none/r.jsonl").exception)
    with (tmp_path / "results.jsonl").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another campaign is writing to it" in str(run(tmp_path, HALVING).exception)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """It cannot be read twice, and to open it would wait for ever."""
    os.mkfifo(tmp_path / "results.jsonl")
    for words in (["--list"], ["--ranking"], []):
        done = run(tmp_path, HALVING, *words)
        assert done.exit_code == 2
        assert "results.jsonl: a pipe, not a regular file" in done.stderr


@contextmanager
def room(bytes_: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing(halving: ParsedPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results stay whole lines; the record of the run that has no room is put elsewhere, or said to be lost."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lines = first_rung(halving)[:2]
    path = tmp_path / "results.jsonl"
    path.write_text(lines[0].model_dump_json() + "\n")
    before = path.read_bytes()
    options = {"only": None, "time_limit": None, "weights_dir": None}
    for space, said in ((len(before) + 1000, "--pack adds it"), (1000, "lost: run it again")):
        with campaign_._open_results(path) as out, room(space):
            session = campaign_.CampaignSession(halving, sweep.Results(lines[:1]), out, options)
            with pytest.raises(
                RequestError, match=rf"results.jsonl: File too large; free some space, .*{said}"
            ) as told:
                session.save(lines[1])
        assert "\n" not in str(told.value)
        assert path.read_bytes() == before
    (folder,) = tmp_path.glob("recommend-campaign-kept-*")
    done = run(tmp_path, HALVING, "--pack", str(folder))
    assert done.exit_code == 0, done.stderr
    assert [each.read_text() for each in folder.iterdir()] == [lines[1].evidence]


def test_the_help_fits() -> None:
    """80 columns, examples and every exit code."""
    told = CliRunner().invoke(root, ["campaign", "--help-all"], terminal_width=80, prog_name="recommend").stdout
    assert max(map(len, told.splitlines())) <= 80
    for code in (0, 2, 3, 5, 130):
        assert re.search(rf"^ +{code}  ", told, re.MULTILINE)


def test_a_time_limit_starts_nothing_that_would_not_fit(tmp_path: Path) -> None:
    """Exit code 5, what is left and how long it takes; the file holds nothing."""
    done = run(tmp_path, HALVING, "--time-limit", "20")
    assert done.exit_code == 5
    assert done.stderr == "recommend campaign: 6 starts are left, about 4 min; run it again\n"
    assert (tmp_path / "results.jsonl").read_text() == ""


def test_long_lines_are_wrapped() -> None:
    """What follows the id stays within 80 columns and names its failure once."""
    made = ResultLine(
        id="a",
        digest="b",
        code=14,
        seconds=31.2,
        said="recommend smoke: out-of-memory: no " + 30 * "room ",
        evidence="",
    )
    told = "12/92 a" + report.wrap_rest("12/92 a", report.describe_figures(made))
    assert told.startswith("12/92 a 31 s; out-of-memory: no room room")
    assert max(map(len, told.splitlines())) <= 80


def test_a_load_without_an_answer_in_time_is_told(halving: ParsedPlan) -> None:
    """It has no rate and no rank, which 0.0/s did not say."""
    launch = halving.launches[0]
    late = line(launch, 30, 0, 10)
    assert report.describe_figures(late) == "40 s; 448x448 30 ms no answer in time; 1280x720 10.0/s"
    assert sweep.score(late, "16@448x448") == 0.0


# --- on a stand-in machine -------------------------------------------------------------------------


@dataclass
class Campaign:
    machine: Standin
    port: int

    def __init__(self, folder: Path, fault: str = "", step_ms: float = 1.0, **fields: object) -> None:
        folder.mkdir(exist_ok=True)
        self.machine, self.port = Standin(folder, fault=fault, step_ms=step_ms), ports()
        model = self.machine.model()
        (folder / "tmp").mkdir()
        made = {
            "id": "try",
            "about": "a try",
            "gpu": "H100-80G",
            "seconds": 0.4,
            "common": f"--patience 20 --model {model} --follow defaults --with server-port={self.port}",
            "bases": {"tuned": "--with trust-remote-code --with session-len=4096"},
            **fields,
        }
        (self.work / "plan.yaml").write_text(yaml.safe_dump(made))
        self.results = self.work / "results.jsonl"

    @property
    def work(self) -> Path:
        return self.machine.folder / "work"

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*RECOMMEND, "campaign", "plan.yaml", "results.jsonl", *words],
            env=self.machine.environment(TMPDIR=str(self.machine.folder / "tmp")), cwd=self.work,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def done(self, *words: str) -> tuple[int, str, str]:
        return self.ended(self.start(*words))

    def ended(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        try:
            out, err = process.communicate(timeout=BUSY_S)
        finally:
            process.kill()
        wait_for(lambda: not self.machine.processes() and not self.serves())
        assert "Traceback" not in err
        return process.returncode, out, err

    def serves(self) -> bool:
        return listens(self.port)

    def lines(self) -> list[ResultLine]:
        return sweep.read_lines(self.results)[0]


ONE = [{"id": "one", "base": "tuned", "phases": "1"}]
STEP_MS = 5.0
"""A token takes that long however quick the machine is. So "two", which answers one request at a time, cannot come
near "one", which answers four: at 1 ms a busy machine's own work decided between them."""
SWEEP = {
    "seconds": 0.2,  # a load goes on until each client has three answers, but at most five times as long
    "starts": [
        {"id": "one", "base": "tuned", "sweep": True},
        {"id": "failed", "run": "--with session-len=4096", "phases": "1"},  # needs --trust-remote-code
        {"id": "two", "base": "tuned", "run": "--with max-batch-size=1", "sweep": True},
    ],
    "sweep": {"phases": "4 4@96x64", "rungs": [{}, {"seconds": 0.25, "keep": 1}]},
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, str, tuple[int, str, str]]:
    """A campaign that was killed in its third start, with what it had written, and then run to its end."""
    made = Campaign(tmp_path_factory.mktemp("killed"), step_ms=STEP_MS, **SWEEP)
    process = made.start()
    wait_for(lambda: (made.results.is_file() and made.lines() and made.serves()) or process.poll() is not None, BUSY_S)
    process.kill()
    process.communicate()
    wait_for(lambda: not made.machine.processes() and not made.serves(), BUSY_S)
    kept = made.results.read_text()
    made.results.write_text(kept + '{"id": "two", "dig')
    return made, kept, made.done()


def test_a_killed_campaign_goes_on(killed: tuple[Campaign, str, tuple[int, str, str]]) -> None:
    """What was done is not run again, the cut line is gone, and the rest is run to the last rung."""
    made, kept, (code, out, err) = killed
    assert code == 0, err
    assert out == ""
    assert made.results.read_text().startswith(kept)
    assert kept.count("\n") == 2
    assert [each.id for each in made.lines()] == ["one", "failed", "two", "one-r2"]
    assert err.splitlines()[-1] == "recommend campaign: everything is done"


def test_a_line_holds_the_run(killed: tuple[Campaign, str, tuple[int, str, str]]) -> None:
    """Exit code, last words, and the record as smoke wrote it, named after plan, day and start."""
    made = killed[0]
    for each in made.lines():
        if each.id == "failed":
            assert (each.code, each.evidence) == (12, "")
            assert each.said.startswith("recommend smoke: model: ")
        else:
            record = sweep.parse_record(each.evidence)
            assert each.code == 0
            assert re.fullmatch(rf"try-\d{{4}}-\d\d-\d\d-{each.id}", record.id)
            assert [name_of_phase(phase) for phase in record.phases] == ["4@448x448", "4@96x64"]


def test_progress_is_a_line_a_start(killed: tuple[Campaign, str, tuple[int, str, str]]) -> None:
    """Its number, id, time and main figures; within 80 columns."""
    err = killed[2][2]
    assert re.search(r"^3/3 two \d+ s; 448x448 [\d.]+/s; 96x64 [\d.]+/s$", err, re.MULTILINE), err
    assert re.search(r"^4/4 one-r2 \d+ s; 448x448 [\d.]+/s", err, re.MULTILINE), err
    assert max(map(len, err.splitlines())) <= 80


def test_nothing_is_left_to_do(killed: tuple[Campaign, str, tuple[int, str, str]]) -> None:
    """Run once more it starts nothing; list, ranking and records are there; no folder is left."""
    made = killed[0]
    before = made.results.read_text()
    assert made.done()[::2] == (0, "recommend campaign: everything is done\n")
    assert made.results.read_text() == before
    code, out, _ = made.done("--list")
    assert code == 0
    assert out.startswith("try: 4 starts, 4 done, 0 to go")
    code, out, _ = made.done("--ranking")
    assert code == 0
    assert re.search(r"^  one +2 +1 +[\d.]+ +- +100\.0 %\n  two +1 ", out, re.MULTILINE), out
    assert made.done("--unpack", "out")[0] == 0
    assert len(list((made.work / "out").iterdir())) == 3


def test_the_log_of_a_failed_start_is_kept(tmp_path: Path) -> None:
    """Its last lines are printed and in the results: the server's own words are gone with its folder."""
    made = Campaign(tmp_path, fault="oom-start", starts=ONE)
    code, _, err = made.done()
    (kept,) = made.lines()
    assert (code, kept.code) == (0, KINDS["out-of-memory"].code)
    assert any("CUDA error: out of memory" in said for said in kept.log), kept
    assert "\n".join(kept.log) in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """The run cleans up, the start is not recorded, no process and no folder is left."""
    made = Campaign(tmp_path, starts=ONE)
    process = made.start()
    wait_for(lambda: made.serves() or process.poll() is not None, BUSY_S)
    process.send_signal(number)
    ended, _, err = made.ended(process)
    assert ended == code
    last = err.splitlines()[-1]
    assert re.fullmatch(
        rf"recommend campaign: stopped by {number.name}, all processes are stopped; 1 start is left, .*", last
    )
    assert made.lines() == []
    assert not list((tmp_path / "tmp").iterdir())


def test_a_terminal_reaches_the_run_once(tmp_path: Path) -> None:
    """Ctrl-C goes to every process of the terminal; the run, which a second one would hurry, is apart."""
    made = Campaign(tmp_path, starts=ONE)
    process = made.start()
    wait_for(lambda: made.serves() or process.poll() is not None, BUSY_S)
    runs = [pid for pid, words in made.machine.processes().items() if " recommender smoke " in words]
    assert runs
    assert all(os.getsid(pid) != process.pid for pid in runs)
    os.killpg(process.pid, signal.SIGINT)
    assert made.ended(process)[0] == 130


def test_a_machine_at_fault_ends_it(tmp_path: Path) -> None:
    """Exit code 3 at the first start; the line is kept and the start is still to be run."""
    made = Campaign(tmp_path, fault="absent", starts=[*ONE, {"id": "two", "base": "tuned", "phases": "1"}])
    code, _, err = made.done()
    assert code == 3
    assert "recommend campaign: the machine is at fault: machine: LMDeploy is not installed" in err
    assert [each.code for each in made.lines()] == [3]
    assert made.done("--list")[1].startswith("try: 2 starts, 0 done, 2 to go")


def test_the_time_limit_reaches_the_run(tmp_path: Path) -> None:
    """A start that takes longer than it should is cut off, to be run again."""
    fields = {
        "starts": [{"id": "one", "base": "tuned", "sweep": True}],
        "sweep": {"phases": "1", "rungs": [{}, {"keep": 1}]},
    }
    made = Campaign(tmp_path, fault="slow-start:40", **fields)
    before = line(plan_file.read_plan(made.work / "plan.yaml", SMOKE).launches[0], 20, seconds=2)  # known to be quick
    made.results.write_text(before.model_dump_json() + "\n")
    code, _, err = made.done("--time-limit", "6")
    assert code == 5
    assert re.search(r"^2/2 one-r2 \d+ s; time-limit: not done after [1-6] s", err, re.MULTILINE), err
    assert err.splitlines()[-1] == "recommend campaign: 1 start is left, about 2 s; run it again"
    assert [each.code for each in made.lines()] == [0, 26]


def test_an_ignored_hang_up_stays_ignored() -> None:
    """Under nohup a campaign goes on when its terminal closes; the other signals end it all the same."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert stop_signals() == (signal.SIGINT, signal.SIGTERM)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert stop_signals() == (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
