"""A server of a workflow's job is reviewed with each combination of the job's matrix."""

import pytest
import yaml

from recommender.review.engine import review
from recommender.review.readers.detect_kind import read

GITHUB = """
on: push
jobs:
  serve:
    strategy:
      matrix: MATRIX
    steps:
      - run: lmdeploy serve api_server ${{ matrix.model }} --tp ${{ matrix.tp }} --session-len ${{ matrix.len }}
"""


def combinations(matrix: str) -> list[tuple[str | None, ...]]:
    """Return model, --tp and --session-len of each server that a matrix of GitHub makes."""
    script = read(".github/workflows/x.yml", GITHUB.replace("MATRIX", matrix))
    (launch,) = script.launches
    servers = (launch, *launch.alternatives)
    return [
        (one.model.value if one.model else None, *(word.value for option in one.options for word in option.values))
        for one in servers
    ]


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ("{model: [a/b, c/d], tp: [1], len: [8]}", [("a/b", "1", "8"), ("c/d", "1", "8")]),
        (
            "{model: [a/b], tp: [1, 2], len: [8, 9], exclude: [{tp: 2, len: 9}]}",
            [("a/b", "1", "8"), ("a/b", "1", "9"), ("a/b", "2", "8")],
        ),
        (
            "{model: [a/b], tp: [1, 2], include: [{tp: 2, len: 7}, {tp: 1, len: 8}]}",
            [("a/b", "1", "8"), ("a/b", "2", "7")],
        ),
        (
            "{server: [{model: a/b, tp: 1}, {model: c/d, tp: 2}], len: [8]}",
            [("a/b", "1", "8"), ("c/d", "2", "8")],
        ),
        (
            "{include: [{model: a/b, tp: 1, len: 8}, {model: c/d, tp: 2, len: 9}]}",
            [("a/b", "1", "8"), ("c/d", "2", "9")],
        ),
    ],
)
def test_combinations_are_those_of_the_tool(matrix: str, expected: list[tuple[str, ...]]) -> None:
    """The product without what is excluded; what is included joins those that it agrees with, or is one more."""
    assert combinations(matrix) == expected


def test_of_many_combinations_each_value_occurs() -> None:
    """Five models, two counts and two lengths are twenty combinations: more than are read."""
    found = combinations("{model: [a/1, a/2, a/3, a/4, a/5], tp: [1, 2], len: [8, 9]}")
    assert len(found) == 7
    assert [set(column) for column in zip(*found, strict=True)] == [
        {f"a/{number}" for number in range(1, 6)},
        {"1", "2"},
        {"8", "9"},
    ]


@pytest.mark.parametrize(
    "matrix", ["${{ fromJSON(inputs.matrix) }}", "{model: '${{ fromJSON(inputs.models) }}', tp: [1], len: [8]}"]
)
def test_a_matrix_that_only_a_run_knows_is_said_to_be_unread(matrix: str) -> None:
    """Nothing is guessed, and the review is not silent."""
    found = review(".github/workflows/x.yml", GITHUB.replace("MATRIX", matrix)).findings
    assert [finding.rule.id for finding in found if finding.severity != "info"] == ["LMD002"]


def test_a_long_matrix_is_said_to_be_unread() -> None:
    """A hundred models are not reviewed one by one."""
    matrix = yaml.safe_dump(
        {"model": [f"a/{number}" for number in range(100)], "tp": [1], "len": [8]}, default_flow_style=True
    )
    found = review(".github/workflows/x.yml", GITHUB.replace("MATRIX", matrix.replace("\n", ""))).findings
    assert "LMD002" in {finding.rule.id for finding in found}


def test_each_release_of_a_matrix_is_judged() -> None:
    """--trust-remote-code is new in 0.13.0: the older of two releases that a job installs rejects it."""
    text = """
jobs:
  serve:
    strategy: {matrix: {lmdeploy: ["0.16.0", "0.12.3"]}}
    steps:
      - run: pip install lmdeploy==${{ matrix.lmdeploy }}
      - run: lmdeploy serve api_server /models/chat --trust-remote-code
"""
    found = [finding for finding in review(".github/workflows/x.yml", text).findings if finding.severity == "error"]
    assert [(finding.rule.id, "0.12.3" in finding.message) for finding in found] == [("LMD102", True)]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            ".gitlab-ci.yml",
            """
serve:
  parallel: {matrix: [{TP: ["1", "2"]}, {TP: "3"}]}
  script: [lmdeploy serve api_server /models/chat --tp $TP]
""",
        ),
        (
            "azure-pipelines.yml",
            """
jobs:
  - job: serve
    strategy: {matrix: {one: {TP: 1}, two: {TP: 2}, three: {TP: 3}}}
    steps: [{script: lmdeploy serve api_server /models/chat --tp $(TP)}]
""",
        ),
    ],
)
def test_other_tools_have_matrices_too(path: str, text: str) -> None:
    """GitLab lists maps of lists, Azure names maps."""
    (launch,) = read(path, text).launches
    servers = (launch, *launch.alternatives)
    assert [option.values[0].value for one in servers for option in one.options] == ["1", "2", "3"]


def test_variables_and_images_may_be_made_of_the_matrix() -> None:
    """The environment of a job, and the tag of its container."""
    text = """
jobs:
  serve:
    strategy: {matrix: {tag: [v0.12.3-cu12, v0.16.0-cu12.8], cards: ["0", "0,1"]}}
    container: {image: "openmmlab/lmdeploy:${{ matrix.tag }}"}
    env: {CUDA_VISIBLE_DEVICES: "${{ matrix.cards }}"}
    steps: [{run: lmdeploy serve api_server /models/chat --tp 2}]
"""
    (launch,) = read(".github/workflows/x.yml", text).launches
    images = [
        each.container.image.value for each in (launch, *launch.alternatives) if each.container and each.container.image
    ]
    assert images == [
        f"openmmlab/lmdeploy:{tag}" for tag in ("v0.12.3-cu12", "v0.12.3-cu12", "v0.16.0-cu12.8", "v0.16.0-cu12.8")
    ]
    found = [finding for finding in review(".github/workflows/x.yml", text).findings if finding.rule.id == "LMD110"]
    assert len(found) == 1
