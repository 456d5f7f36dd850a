"""``recommend plan``: sizes against an independent count, limits, prices, bad input, speed."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender import cli
from recommender.fleet import sizing
from recommender.fleet.queueing import steady
from recommender.fleet.sizing import Aim, Kind, Sized, Unfit, sized
from recommender.request import Request
from recommender.store import load

STORE = load()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """A call of the command: exit code, stdout and stderr."""
    code = _code(["plan", *words])
    out, err = capsys.readouterr()
    return code, out, err


def _code(words: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["recommend", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return int(ended.value.code or 0)


def fleet(kind: Kind, aim: Aim, **asked: Any) -> Sized:
    """The fleet of a kind, which must be possible."""
    found = sized(Request(gpu=kind.gpu, **asked), kind, aim, STORE)
    assert isinstance(found, Sized), found
    return found


KINDS = [Kind("h100-sxm-80g", 8, 1, 128), Kind("l40s", 4, 1, 64), Kind("a100-sxm-80g", 8, 2, 128), Kind("l4", 1, 1, 8)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.gpu}-{kind.tp}")
@pytest.mark.parametrize("aim", [Aim(60, 1500), Aim(200, 900, peak=2, spare=2), Aim(25, burst=3)], ids=str)
def test_the_smallest_fleet_that_holds(kind: Kind, aim: Aim) -> None:
    """With the spare hosts down the goal holds at the peak; with one host less it does not."""
    found = fleet(kind, aim)
    completes = sizing.curve(found.facts, found.config)
    a_host = found.servers / found.hosts
    assert a_host == kind.cards / kind.tp * found.config.share

    def holds(hosts: int) -> bool:
        queue = steady(aim.rps * aim.peak / (hosts * a_host), completes, burst=aim.burst)
        if queue is None:
            return False
        return queue.quantile_ms(0.99) <= aim.p99_ms if aim.p99_ms else queue.busy <= sizing.BUSIEST

    assert holds(found.hosts - aim.spare)
    assert found.hosts - aim.spare == 1 or not holds(found.hosts - aim.spare - 1)
    assert found.down.busy >= found.at.busy
    assert found.p99_ms.low <= found.p99_ms.value <= found.p99_ms.high


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(KINDS), st.floats(1, 400), st.floats(1.1, 3), st.floats(700, 4000))
def test_more_load_never_takes_fewer_cards(kind: Kind, rps: float, more: float, p99: float) -> None:
    """More requests, a higher peak or a sharper goal never take fewer cards."""
    base = sized(Request(gpu=kind.gpu), kind, Aim(rps, p99), STORE)
    if isinstance(base, Unfit):
        return
    assert fleet(kind, Aim(rps * more, p99)).cards >= base.cards
    assert fleet(kind, Aim(rps, p99, peak=1.5 * more)).cards >= base.cards
    assert fleet(kind, Aim(rps, p99 * more)).cards <= base.cards


def test_what_binds_is_named() -> None:
    """A thin network, few cores, and the card itself."""
    kind = Kind("h100-sxm-80g", 8, 1, 128)
    assert fleet(kind, Aim(200, 2000, network_gbps=0.05)).limit == "network"
    few = fleet(Kind("h100-sxm-80g", 8, 1, 16), Aim(200, 2000))
    assert few.limit == "CPU cores"
    assert few.holds < fleet(kind, Aim(200, 2000)).holds
    none = sized(Request(gpu="h100-sxm-80g"), Kind("h100-sxm-80g", 8, 1, 8), Aim(200, 2000), STORE)
    assert isinstance(none, Unfit)
    assert fleet(Kind("h100-sxm-80g", 8, 1, int(none.needed.split()[1])), Aim(20)).limit == "CPU cores"
    assert fleet(Kind("l4", 1, 1, 16), Aim(20, 4000)).limit == "prefill on the card"


def test_a_model_that_fits_no_single_card_takes_several(capsys: pytest.CaptureFixture[str]) -> None:
    """The 78B checkpoint in 16 bits takes 4 cards of 80 GB; one and two are told apart as impossible."""
    code, out, _ = run(capsys, "--rps", "4", "--gpu", "H100:8", "--model", "internvl3-78b", "--json")
    assert code == 0
    said = json.loads(out)
    assert {each["kind"]["tp"] for each in said["fleets"]} == {4, 8}
    assert {each["kind"]["tp"] for each in said["cannot"]} == {1, 2}
    assert all("GiB" in each["why"] for each in said["cannot"])


def test_money_is_counted_by_the_average(capsys: pytest.CaptureFixture[str]) -> None:
    """A million requests cost the cards' hours at the average rate; the cheapest comes first."""
    words = (
        "--rps",
        "90",
        "--p99",
        "1500",
        "--gpu",
        "L40S:4",
        "--gpu",
        "H100:8",
        "--price",
        "L40S=1",
        "--price",
        "H100=9",
    )
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0
    fleets = json.loads(out)["fleets"]
    for each in fleets:
        price = {"l40s": 1.0, "h100-sxm-80g": 9.0}[each["kind"]["gpu"]]
        assert each["cost_a_million"] == pytest.approx(price * each["cards"] / (90 * 3600) * 1e6, rel=1e-4)
    costs = [each["cost_a_million"] for each in fleets]
    assert costs == sorted(costs)
    _, text, _ = run(capsys, *words)
    assert f"{costs[0]:,.2f}" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "L4"), "--rps is needed"),
        (("--rps", "5"), "--gpu is needed"),
        (("--rps", "-1", "--gpu", "L4"), "--rps"),
        (("--rps", "5", "--gpu", "L4", "--price", "L4"), "write GPU=PRICE"),
        (("--rps", "5", "--gpu", "L4", "--price", "L4=cheap"), "--price L4"),
        (("--rps", "5", "--gpu", "L4", "--price", "L5=1"), "did you mean l4"),
        (("--rps", "5", "--gpu", "L4:3", "--tp", "2"), "cannot be shared out"),
        (("--rps", "5", "--gpu", "L4:8", "--tp", "3"), "1, 2, 4 or 8"),
        (("--rps", "5", "--gpu", "L4", "--peak", "0.5"), "--peak 0.5"),
        (("--rps", "5", "--gpu", "L4", "--spare", "-1"), "--spare"),
        (("--rps", "5", "--gpu", "L4", "--network", "nan"), "--network"),
        (("--rps", "5", "--gpu", "L44"), "unknown GPU"),
        (("--rps", "5", "--gpu", "L4", "--model", "internvl3-8b-aqw"), "did you mean internvl3-8b-awq"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    """What cannot be understood ends with 2 and one line that says how to mend it."""
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_an_impossible_goal_says_what_would_do(capsys: pytest.CaptureFixture[str]) -> None:
    """No card answers in 30 ms: exit 1, the reason, and the goal that could be kept."""
    code, out, _ = run(capsys, "--rps", "5", "--p99", "30", "--gpu", "H100:8", "--tp", "1")
    assert code == 1
    assert "a request alone takes" in out
    needed = math.floor(float(out.split("--p99 ")[1].split()[0].replace(",", "")))
    code, _, _ = run(capsys, "--rps", "5", "--p99", str(needed * 1.2), "--gpu", "H100:8", "--tp", "1")
    assert code == 0


def test_lines_fit_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """80 columns, also with long names, many choices and large numbers."""
    hosts = [word for gpu in ("H100:8", "L40S:4", "RTX 6000 Ada:8", "A100-80G:8") for word in ("--gpu", gpu)]
    for more in ((), ("--price", "H100=2.5")):
        _, out, _ = run(capsys, "--rps", "2500", "--p99", "2000", *hosts, *more)
        assert max(map(len, out.splitlines())) <= 80


@pytest.mark.alone
def test_fifty_choices_are_quick() -> None:
    """50 choices in under 2 s of this process's time."""
    gpus = sorted(name for name, each in STORE.gpus.items() if "-mig-" not in name and each.memory_mib > 20_000)[:25]
    begun = time.process_time()
    for gpu in gpus:
        for tp in (1, 2):
            sized(Request(gpu=gpu), Kind(gpu, 4, tp, 64), Aim(200, 900), STORE)
    assert len(gpus) == 25
    assert time.process_time() - begun < 2


@pytest.mark.parametrize("form", ["compose", "systemd", "k8s"])
def test_a_plan_becomes_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    """The first fleet's files, each named on stdout, keys for their owner only; without a folder there are none."""
    words = ("--rps", "40", "--gpu", "L40S:2", "--format", form)
    code, out, err = run(capsys, *words, "-o", str(tmp_path / "fleet"))
    assert (code, err) == (0, "")
    paths = [Path(line) for line in out.splitlines()]
    assert sorted(paths) == sorted(path for path in (tmp_path / "fleet").rglob("*") if path.is_file())
    for path in paths:
        assert path.read_text("utf-8").strip()
        assert path.name != "api-keys" or path.stat().st_mode & 0o077 == 0
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert "-o" in err
    (tmp_path / "taken").write_text("")
    code, _, err = run(capsys, *words, "-o", str(tmp_path / "taken"))
    assert code == 3
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("gpu", ["h100-sxm-80g", "l4", "a100-sxm-80g"])
@pytest.mark.parametrize("tp", [1, 2])
def test_the_files_hold_what_was_sized(gpu: str, tp: int) -> None:
    """One host's recommendation has the plan's servers, each laid out as sized."""
    found = fleet(Kind(gpu, 4, tp, 64), Aim(50, 3000))
    host = sizing.layout(found, STORE)
    assert (host.hosts, host.servers) == (found.hosts, found.servers)
    own = host.found.config
    assert (own.tp, own.share, own.max_batch_size) == (tp, found.config.share, found.config.max_batch_size)
    assert own.kv_bits == found.config.kv_bits
