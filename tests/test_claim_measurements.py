"""What a claim's runs show: all starts of a launch at all their loads, against ratios worked out by hand."""

from itertools import pairwise

import pytest

from recommender.knowledge import claim_measurements, records
from recommender.knowledge.index import read_record
from recommender.knowledge.load import data_root

KNOWLEDGE = data_root() / "knowledge"
REAL = read_record(KNOWLEDGE / "evidence/h100-2026-11-21-kv-8.yaml", records.SmokeRun)


def phase(concurrency: int, rps: float, image: str = "448x448", **changed: object) -> records.Phase:
    """A steady load: as many requests as the window holds, each of the time that Little's law gives."""
    values = {
        "concurrency": concurrency, "image": image, "images": 1 if image else 0, "window_s": 10.0,
        "window_requests": round(10 * rps), "gaps_ms": "",
        "latencies_ms": " ".join([str(round(1000 * concurrency / rps))] * round(10 * rps)) if rps else "",
        "failures": (),
    }  # fmt: skip
    return REAL.phases[0].model_copy(update=values | changed)


def run(name: str, launch: str, *phases: records.Phase, **changed: object) -> records.SmokeRun:
    """A start of a launch, which one letter stands for."""
    return REAL.model_copy(update={"id": name, "launch_sha256": launch * 64, "phases": phases} | changed)


def compare(
    of: list[records.SmokeRun], than: list[records.SmokeRun], *where: str
) -> dict[str, tuple[float, str, bool]]:
    """Ratio, finding and scope by load, of a comparison that names the first run of each side only."""
    comparison = records.ComparedRuns(
        change="a for b", figure="requests/s", says="more", of=(of[0].id,), than=(than[0].id,), where=where
    )
    made = claim_measurements.compare(comparison, {each.id: each for each in (*of, *than)})
    return {f"{each.pressure} x {each.requests}": (each.ratio, each.outcome, each.counts) for each in made.loads}


def test_all_starts_of_a_launch_count() -> None:
    """A start that the claim does not name moves the median: (80 + 60) / 2 over 50 is 1.4, not 1.6."""
    of = [run("a1", "a", phase(16, 80)), run("a2", "a", phase(16, 60))]
    assert compare(of, [run("b", "b", phase(16, 50))]) == {"16 x 448x448, 330 in, 16 out": (1.4, "more", True)}


@pytest.mark.parametrize(
    "other",
    [{"pinned": "0-3"}, {"copies": 2}, {"mps": True}, {"max_tiles": 6}, {"gpu": "h200-sxm"}, {"lmdeploy": "0.17.0"}],
)
def test_a_start_on_another_host_is_another_launch(other: dict[str, object]) -> None:
    """The same command with other cores, copies, tiles, card or release does not count."""
    of = [run("a1", "a", phase(16, 80)), run("a2", "a", phase(16, 20), **other)]
    assert [ratio for ratio, *_ in compare(of, [run("b", "b", phase(16, 50))]).values()] == [1.6]


def test_every_load_of_both_sides_is_shown() -> None:
    """Favourable, equal and adverse ones; loads of one side, and failed ones, cannot be compared."""
    of = run("a", "a", phase(1, 5), phase(16, 90), phase(64, 30), phase(2, 7), phase(8, 0))
    than = run("b", "b", phase(1, 5), phase(16, 60), phase(64, 60), phase(4, 7), phase(8, 20))
    found = compare([of], [than])
    expected = {"1": (1.0, "same"), "16": (1.5, "more"), "64": (0.5, "less")}
    assert {load.split(" x")[0]: (ratio, word) for load, (ratio, word, _) in found.items()} == expected


def test_loads_differ_in_more_than_their_concurrency() -> None:
    """Image, tokens of prompt and answer, images in a request, closed or open loop."""
    kinds: list[dict[str, object]] = [
        {},
        {"image": "1280x720"},
        {"input_tokens": 400},
        {"output_tokens": 128},
        {"images": 2},
        {"image": "", "images": 0},
    ]
    phases = [phase(16, 10.0, **{"image": "448x448", **kind}) for kind in kinds]  # type: ignore[arg-type]
    phases.append(phase(0, 10.0, arrivals_rps=5.0))
    assert len(compare([run("a", "a", *phases)], [run("b", "b", *phases)])) == len(phases)
    for one, other in pairwise(phases):
        assert compare([run("a", "a", one)], [run("b", "b", other)]) == {}


def test_small_differences_and_overlapping_starts_are_the_same() -> None:
    """Within the noise of starts, or where one side's starts reach into the other's."""
    steady = [run("b1", "b", phase(16, 50))]
    for rps, word in ((50, "same"), (55, "same"), (45.5, "same"), (58, "more"), (43, "less")):
        assert [found for _, found, _ in compare([run("a", "a", phase(16, rps))], steady).values()] == [word], rps
    spread = [*steady, run("b2", "b", phase(16, 70))]
    assert [found for _, found, _ in compare([run("a", "a", phase(16, 69))], spread).values()] == ["same"]


def test_a_scope_is_a_condition_on_the_load() -> None:
    """Loads outside it are shown too, and marked."""
    sides = (run(name, name, phase(1, 5), phase(64, 5), phase(64, 5, "1280x720")) for name in "ab")
    found = compare([next(sides)], [next(sides)], "request.concurrency > 1", "request.image_width == 448")
    assert {load: counts for load, (_, _, counts) in found.items()} == {
        "1 x 448x448, 330 in, 16 out": False,
        "64 x 448x448, 330 in, 16 out": True,
        "64 x 1280x720, 330 in, 16 out": False,
    }


def test_fewer_tiles_of_an_image_are_compared_with_more() -> None:
    """A limit on the tiles changes the tokens of the same image: that is what is compared."""
    few = run("a", "a", phase(16, 30, input_tokens=330), max_tiles=1)
    many = run("b", "b", phase(16, 10, input_tokens=2378))
    assert compare([few], [many]) == {"16 x 448x448, 16 out": (3.0, "more", True)}


@pytest.mark.parametrize(
    ("verdict", "adverse"),
    [("confirmed", [1, 64]), ("refuted", [16]), ("no-effect", [16, 64]), ("depends", []), ("unverified", [])],
)
def test_which_loads_speak_against_a_verdict(verdict: str, adverse: list[int]) -> None:
    """The statement expects more; alone it is the same, at 16 more, at 64 less."""
    of, than = (
        run(name, name, phase(1, 5), phase(16, 60 * up), phase(64, 60 / up)) for name, up in (("a", 1.5), ("b", 1))
    )
    comparison = records.ComparedRuns(change="a for b", figure="requests/s", says="more", of=("a",), than=("b",))
    made = claim_measurements.compare(comparison, {"a": of, "b": than})
    assert [int(load.pressure) for load in claim_measurements.against(verdict, made)] == adverse
