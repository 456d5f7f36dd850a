"""Published benchmarks: read into one form, compared with predictions, shown beside them, and never fitted to."""

import json
import shutil
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from artefacts import KNOWLEDGE
from click.testing import CliRunner
from variants import STORE, TEXT, configuration, resolve, store_with, variant

from recommender.calibration.benchmark_comparison import PublishedComparison, compare_published, derive_spreads, launch
from recommender.calibration.observations import observations, predict
from recommender.choose import recommend
from recommender.commands.knowledge import command
from recommender.estimate import speed, uncertainty
from recommender.estimate.published_figures import find_published
from recommender.knowledge import records
from recommender.knowledge.published_loads import summarise_benchmark
from recommender.render import json_output, report
from recommender.request.request import Request

pytestmark = pytest.mark.usefixtures("_records_are_read_once")
TABLES = STORE.published
FOUND = list(compare_published(STORE))
PAGE = records.PageSource(url="https://example.org/table", opened="2026-11-23", says="a table")


def rows(*made: Mapping[str, float]) -> Any:
    table = records.Benchmark(
        id="made",
        gpu="l4",
        model=TEXT,
        engine="turbomind",
        version="0.6.0",
        rows=tuple(records.BenchmarkRow.model_validate(row) for row in made),
        page=PAGE,
    )
    return summarise_benchmark(table).rows


def test_fixed_lengths_stay_and_requests_follow() -> None:
    """1,600 tokens/s in answers of 200 are 8 requests a second."""
    (load,) = rows({"concurrency": 16, "input_tokens": 100, "output_tokens": 200, "output_tps": 1600.0})
    assert (load.concurrency, load.input_tokens, load.output_tokens) == (16, 100, 200)
    assert (load.rps, load.output_tps) == (8.0, 1600.0)


def test_mean_lengths_follow_from_the_rates() -> None:
    """Of 5 requests, 1,000 output and 2,500 tokens a second: 300 in and 200 out; so too where input is published."""
    total, split = rows(
        {"concurrency": 64, "rps": 5.0, "output_tps": 1000.0, "total_tps": 2500.0},
        {"concurrency": 64, "rps": 5.0, "output_tps": 1000.0, "input_tps": 1500.0},
    )
    assert (total.input_tokens, total.output_tokens) == (split.input_tokens, split.output_tokens) == (300, 200)


def test_arrivals_have_the_concurrency_of_littles_law() -> None:
    """5 a second that each take 500 ms and 99 further tokens of 20 ms, 2,480 ms: 12.4 at once."""
    (load,) = rows({"rate": 5.0, "rps": 5.0, "output_tps": 500.0, "input_tps": 50.0, "ttft_ms": 500.0, "tpot_ms": 20.0})
    assert (load.concurrency, load.output_tokens) == (12, 100)


def test_what_is_not_published_is_not_made_up() -> None:
    """No lengths, no requests a second, and no prediction."""
    (load,) = rows({"concurrency": 8, "output_tps": 400.0})
    assert (load.input_tokens, load.output_tokens, load.rps) == (0, 0, 0.0)
    store = store_with(published={"made": variant(STORE.published["rtx-4090-llama-2-7b-awq"], rows=(load,))})
    assert list(compare_published(store)) == []


def test_other_engines_are_not_compared() -> None:
    """The estimates are TurboMind's."""
    table = STORE.published["a100-llama-2-7b-static"]
    assert list(compare_published(store_with(published={"made": variant(table, engine="pytorch")}))) == []
    assert len(list(compare_published(store_with(published={"made": table})))) == 20


def test_a_load_is_launched_as_it_was_published() -> None:
    """Tokens, GPUs and precision of the table; the batch is what the cache holds, where that is less."""
    table = STORE.published["a100-llama-2-70b-static"]
    load = next(row for row in table.rows if (row.concurrency, row.input_tokens, row.output_tokens) == (64, 2048, 128))
    resolved, config = launch(STORE, table, load)
    assert (resolved.input_tokens(), resolved.output_tokens, resolved.concurrency) == (2048, 128, 64)
    assert (config.tp, config.servers, config.kv_bits, config.max_batch_size) == (4, 1, 16, 64)
    small = STORE.published["a100-llama-2-13b-static"]
    full = next(row for row in small.rows if (row.concurrency, row.input_tokens, row.output_tokens) == (64, 2048, 2048))
    # 80 GB hold 26 GB of weights and, in 0.8 of the rest, 4,096 tokens of 0.82 MB for about 13 requests.
    assert 11 <= launch(STORE, small, full)[1].max_batch_size <= 15
    eight = STORE.published["rtx-3090-llama-3-8b-kv-8"]
    assert launch(STORE, eight, eight.rows[0])[1].kv_bits == 8
    quantised = STORE.published["rtx-4090-llama-2-7b-awq"]
    assert launch(STORE, quantised, quantised.rows[0])[0].model.quantization[0].bits == 4


def test_predictions_foretell_published_figures_by_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """The median figure of each GPU and precision lies in the range that users see; ``-s`` prints the table."""
    result = CliRunner().invoke(command, ["published", "--check", "--rows"])
    with capsys.disabled():
        print(f"\n{result.output}", file=sys.stderr)
    groups: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for each in FOUND:
        made = speed.estimate(*launch(STORE, each.table, each.load))
        low, high = (end / made.rps.value for end in (made.rps.low, made.rps.high))
        groups[each.name].append((each.ratio, low, high))
    assert len(groups) >= 6
    for name, figures in groups.items():
        ratio, low, high = (statistics.median(column) for column in zip(*figures, strict=True))
        assert low <= ratio <= high, name
        assert f"{name:<32}{len(figures):>8}{ratio:>8.2f}" in result.output


def test_the_committed_factors_come_from_the_records() -> None:
    """Value, ends, count and coverage of both coefficients are what the published figures give."""
    result = CliRunner().invoke(command, ["published", "--check"])
    assert result.exit_code == 0, result.output
    for spread in derive_spreads(FOUND):
        known = STORE.coefficients[spread.id]
        assert (known.value, known.low, known.high, known.basis) == (spread.value, spread.low, spread.high, "measured")
        assert f"{spread.figures} figures" in known.derivation
        assert f"{spread.covered:.0%}" in known.derivation


def test_a_changed_figure_is_seen_and_written(tmp_path: Path) -> None:
    """Twice as fast a 4090 asks for a wider range: told with --check, else written; the summary stays."""
    folder = Path(shutil.copytree(KNOWLEDGE, tmp_path / "knowledge"))
    table = folder / "published" / "rtx-4090-llama-2-7b-awq.yaml"
    table.write_text(table.read_text("utf-8").replace("206.4", "412.8"), "utf-8")
    path = folder / "coefficients" / "unmeasured-gpu-spread-other.yaml"
    before = path.read_text("utf-8")
    value = f"value: {STORE.coefficients[path.stem].value}"
    told = CliRunner().invoke(command, ["published", "--check", "--knowledge", str(folder)])
    assert (told.exit_code, path.read_text("utf-8")) == (1, before)
    assert "unmeasured-gpu-spread-other.yaml differs" in told.output
    assert CliRunner().invoke(command, ["published", "--knowledge", str(folder)]).exit_code == 0
    after = path.read_text("utf-8")
    assert value in before
    assert value not in after
    assert before.partition("summary:")[2].partition("derivation:")[0] in after
    assert CliRunner().invoke(command, ["published", "--check", "--knowledge", str(folder)]).exit_code == 0


def compared(gpu: str, *ratios: float, group: str = "") -> Iterator[PublishedComparison]:
    """Figures of a GPU whose range ends a tenth below and a quarter above the prediction."""
    table = variant(STORE.published["a100-llama-2-7b-static"], id=gpu, gpu=gpu)
    for ratio in ratios:
        yield PublishedComparison(table, table.rows[0], group or f"{gpu} x1", "made", 100 * ratio, 100.0, 0.9, 1.25)


def test_the_factor_is_that_of_the_group_that_needs_most() -> None:
    """Four of five figures of each: 1.5 over 1.25 is 1.2; 0.9 over 0.75 as well; 0.9 over 0.6 is 1.5."""
    inside = [1.0, 1.1, 0.95, 1.2]
    (spread,) = derive_spreads([*compared("a", *inside, 1.5), *compared("b", *inside, 3.0)])
    assert (spread.value, spread.figures, spread.gpus) == (1.0, 10, ("a", "b"))
    (spread,) = derive_spreads([*compared("a", 1.0, 1.5), *compared("b", 0.75)])
    assert spread.value == 1.2
    pair = compared("a", 0.6, 0.6, group="a x2")
    (spread,) = derive_spreads([*compared("a", 1.0, 1.5), *compared("b", 0.75), *pair])
    assert (spread.value, spread.low, spread.high) == (1.5, 1.2, 1.5)


def test_coverage_is_of_a_gpu_that_was_left_out() -> None:
    """One GPU's factor of 1.2 covers half of the other's figures; that one's factor of 2 all of the first's."""
    first, second = compared("a", 1.5), compared("b", 1.4, 2.5)
    (spread,) = derive_spreads([*first, *second])
    assert (spread.value, spread.low, spread.high) == (2.0, 1.2, 2.0)
    assert spread.covered == (1.0 + 0.5) / 2
    assert spread.medians == {"a x1": 1.5, "b x1": 1.95}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("qwen2.5-7b-instruct", "unmeasured-gpu-spread"),
        ("llama-2-70b-chat", "unmeasured-gpu-spread"),
        ("qwen2.5-7b-instruct-awq", "unmeasured-gpu-spread-other"),
        ("qwen3-32b-fp8", "unmeasured-gpu-spread-other"),
        ("mixtral-8x7b-instruct", "unmeasured-gpu-spread-other"),
        ("internvl3-8b", "unmeasured-gpu-spread-other"),
    ],
)
def test_what_was_not_compared_keeps_the_wider_range(model: str, name: str) -> None:
    """On an unmeasured GPU: only dense text models in 16 bits were published often enough."""
    resolved = resolve(gpu="l40s", model=model)
    assert uncertainty.find_spread(resolved.model) == name
    assert uncertainty.find_widening(resolved, configuration()) == STORE.coefficients[name].value


def test_no_fit_reads_a_published_figure() -> None:
    """Observations and their predictions are the same without any, and the fit's modules load no comparison."""
    values = {name: coefficient.value for name, coefficient in STORE.coefficients.items()}
    with_them, without = (observations(KNOWLEDGE / "evidence", store_with(published=each)) for each in (TABLES, {}))
    assert len(with_them) > 100
    assert [(each.run, each.measured) for each in with_them] == [(each.run, each.measured) for each in without]
    assert {each.run for each in with_them} <= set(STORE.evidence)
    assert [predict(each, values) for each in with_them] == [predict(each, values) for each in without]
    code = (
        "import sys, recommender.calibration.fit, recommender.calibration.calibrate, recommender.commands.fit; "
        "sys.exit('recommender.calibration.benchmark_comparison' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def near(*tables: Any, **asked: Any) -> list[tuple[str, int]]:
    """Table and concurrency of the figures shown beside an answer on an A100."""
    store = store_with(published={table.id: table for table in tables})
    request = {"gpu": "a100-sxm-80g", "model": "llama-2-7b-chat", "concurrency": 16, "images": 0} | asked
    resolved = resolve(store, **request)
    return [(each.table, each.concurrency) for each in find_published(resolved, configuration(max_batch_size=16))]


def made(name: str, **changed: Any) -> Any:
    """A published table of Llama 2 7B on an A100 with the changes."""
    return variant(STORE.published["a100-llama-2-7b-static"], id=name, **changed)


def test_the_nearest_published_by_gpu_then_model_then_load() -> None:
    """A GPU half as fast is further than a model ten times as large, and that than any load."""
    same, large = made("same"), made("large", model="llama-2-70b-chat")
    other = made("other", gpu="rtx-4090")
    assert near(other, large, same) == [("same", 16), ("large", 16)]
    assert near(other, large) == [("large", 16), ("other", 16)]
    assert near(same, concurrency=40) == [("same", 32)]
    few = made("few", rows=same.rows[:5])
    assert near(few, same) == [("same", 16), ("few", 1)]
    assert near(same, prompt_tokens=2000, output_tokens=2000) == [("same", 16)]


def test_weights_on_one_gpu_count_as_the_size() -> None:
    """70 billion on four GPUs in 16 bits are nearer to 13 billion on one than 70 billion on one would be."""
    whole, split = made("whole", model="llama-2-70b-chat"), made("split", model="llama-2-70b-chat", tp=4)
    assert [name for name, _ in near(whole, split, model="llama-2-13b-chat")] == ["split", "whole"]
    plain, quantised = made("plain"), made("quantised", weights="awq")
    assert [name for name, _ in near(plain, quantised, model="llama-3.1-8b-awq")] == ["quantised", "plain"]


def test_figures_that_say_nothing_are_not_shown() -> None:
    """Of GPUs more than four times as fast, of another engine, and of text beside images."""
    assert near(made("slow", gpu="t4")) == []
    assert near(made("other", engine="pytorch")) == []
    assert near(made("same"), model="internvl3-8b", images=1, image_width=448, image_height=448) == []
    assert near(made("same"), gpu="h200-sxm") == []


def test_report_and_json_show_what_was_published() -> None:
    """Figure, release and address, at most two; on an H200 none is near."""
    made = recommend.recommend(Request(gpu="a100-sxm-80g", model="llama-2-7b-chat", concurrency=16))
    text = " ".join(report.report(made).split())
    assert "NEAREST PUBLISHED FIGURES" in text
    shown = json.loads(json_output.to_json(made))["published"]
    assert len(shown) == 2
    for each in shown:
        assert f"{each['output_tps']:,.0f} output tokens/s (LMDeploy {each['version']}, {each['url']})" in text
    none = recommend.recommend(Request(gpu="h200-sxm", model="llama-2-7b-chat", concurrency=16))
    assert "PUBLISHED" not in report.report(none)
    assert json.loads(json_output.to_json(none))["published"] == []


def test_the_page_says_how_predictions_did() -> None:
    """Its counts and medians are those of the comparison."""
    page = " ".join((KNOWLEDGE.parent / "site" / "concepts" / "predictions.md").read_text("utf-8").split())
    dense, other = derive_spreads(FOUND)
    assert f"compared with {len(FOUND)} published figures" in page
    for spread, words in ((dense, "median published over predicted {} to {}."), (other, "RTX 4090: {} to {},")):
        ends = (f"{end:.2f}" for end in (min(spread.medians.values()), max(spread.medians.values())))
        assert words.format(*ends) in page
