"""The page on loads holds what the records, the command line and the simulation hold."""

import re
from collections.abc import Iterable

import pytest

from recommender.choose import recommend
from recommender.options import QUESTION
from recommender.request.request import Request
from recommender.site import snippets
from recommender.site.pages import error_table, workload_table
from recommender.site.site_data import site_data

DATA = site_data()
NOT_OF_THE_LOAD = {
    *("gpu", "model", "revision", "goal", "vram", "cpus", "kv", "lmdeploy", "calibrate", "prompt", "schema", "backend"),
}
"""Options that say what serves the requests, what matters, and what is asked without changing a length."""


def cells(lines: Iterable[str]) -> dict[str, list[str]]:
    """The rows of a table's body by their first cell, without tags."""
    rows = [line for line in "\n".join(lines).splitlines() if line.startswith("|")][2:]
    split = [[re.sub("<[^>]+>", "", cell).strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {first: others for first, *others in split}


@pytest.mark.parametrize("name", sorted(DATA.store.workloads))
def test_each_workload_is_in_the_table(name: str) -> None:
    """Its lengths as the record has them, and each of its sources below the table."""
    record = DATA.store.workloads[name]
    row = cells(workload_table.workload_table(DATA))[name]
    for shown, quantiles in (
        (row[0], (record.prompt_tokens, record.prompt_p90, record.prompt_p99)),
        (row[1], (record.output_tokens, record.output_p90, record.output_p99)),
    ):
        assert [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", shown)] == [n for n in quantiles if n]
    assert row[3] == str(record.turns)
    assert (row[5] == "–") == (record.images == 0)
    below = "\n".join(workload_table.workload_sources(DATA))
    assert all(f"<{source.url}>" in below for source in record.sources.pages)
    assert record.sources.pages or record.doubt


def test_each_option_of_a_load_is_in_the_table() -> None:
    """With all its names; a new option belongs there, or among those that are not about the load."""
    assert set(workload_table.NAMES) == QUESTION.keys() - NOT_OF_THE_LOAD
    shown = cells(workload_table.load_options(DATA))
    assert shown["--output-tokens, --osl"][0] == "N&#124;P50:P99"
    assert shown["--concurrency, --load"][1].endswith("\\[single\\]")
    assert shown["--text-only"][0] == "–"


def test_the_errors_of_text_loads_are_the_residuals() -> None:
    """Every record of TurboMind's text loads is shown, with the median error of the models held out."""
    texts = {
        name: record
        for name, record in DATA.store.residuals.items()
        if name.endswith("-text") and "pytorch" not in name
    }
    shown = cells(error_table.text_load_errors(DATA))
    assert [row[0] for row in shown.values()] == [f"{texts[name].by_model:.1%}" for name in error_table.TEXT_LOAD]
    assert [row[2] for row in shown.values()] == [f"{texts[name].by_workload:.1%}" for name in error_table.TEXT_LOAD]
    assert set(error_table.TEXT_LOAD) == texts.keys()


def test_a_part_of_a_report_is_that_of_the_recommendation() -> None:
    """Only this part, with the simulated quantiles; a part that the report lacks is an error."""
    options = "--gpu H200 --model llama-3.1-8b-instruct --workload chat --rps 5"
    (part,) = snippets.report_part(DATA, f"QUANTILES {options}")
    made = recommend.recommend(Request(gpu="H200", model="llama-3.1-8b-instruct", workload="chat", rps=5.0))
    assert made.speed.profile
    assert f"{made.speed.profile.ttft.p99:,.1f}" in part
    assert "SPEED" not in part
    assert "SETTINGS" not in part
    with pytest.raises(ValueError, match="no part QUANTILES"):
        list(snippets.report_part(DATA, "QUANTILES --gpu H200"))
