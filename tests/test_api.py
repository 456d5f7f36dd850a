"""The public functions: what ``import recommender`` gives, what it costs, and that they are what the commands print."""

import doctest
import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

import recommender
from recommender import api
from recommender.cli import root

REQUEST = recommender.Request(gpu="A100-80G", load="single")


@pytest.mark.parametrize("module", [recommender, api], ids=["package", "functions"])
def test_the_examples_hold(module: Any) -> None:
    """Each public function's docstring has an example, and it runs as shown."""
    outcome = doctest.testmod(module)
    assert outcome.attempted >= 4
    assert not outcome.failed


def test_every_function_has_an_example() -> None:
    """A function that can be called without an artefact at hand shows how."""
    for name in ("recommend", "follow", "estimate", "compare", "explain", "review", "plan"):
        assert ">>>" in (getattr(api, name).__doc__ or ""), name


def test_everything_named_is_there() -> None:
    """Each name of ``__all__`` can be had, is documented, and nothing else is made up."""
    for name in set(recommender.__all__) - {"__version__"}:
        assert getattr(recommender, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'recomend'"):
        recommender.recomend  # noqa: B018


def test_the_functions_outlive_the_folders_of_their_name() -> None:
    """Importing the folders ``review``, ``estimate`` and ``render`` does not replace the functions."""
    code = (
        "import recommender, recommender.review.engine, recommender.estimate.speed, recommender.render.formats\n"
        "from recommender.review import engine\n"
        "print(*(type(each).__name__ for each in (recommender.review, recommender.estimate, recommender.render)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["function"] * 3


def test_loading_imports_no_library() -> None:
    """``import recommender`` loads modules of its own and of Python only: far below a tenth of a second."""
    code = "import sys; before = set(sys.modules); import recommender; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert roots - set(sys.stdlib_module_names) <= {"recommender"}
    own = {name for name in done.stdout.split() if name.startswith("recommender.")}
    assert own == {
        f"recommender.{name}" for name in ("api", "common", "common.version", "estimate", "render", "review")
    }


def test_it_is_what_the_command_writes() -> None:
    """The script of the main job is the rendered recommendation."""
    printed = CliRunner().invoke(root, ["--gpu", "A100-80G", "--load", "single", "-q"])
    assert printed.output == recommender.render(recommender.recommend(REQUEST))


def test_an_estimate_is_what_the_command_prints() -> None:
    """Options by name or id, variables by name: the figures of ``recommend estimate``."""
    words = ["--session-len", "4096", "OMP_NUM_THREADS=4"]
    printed = CliRunner().invoke(root, ["estimate", "--gpu", "L4", "--json", "--", *words])
    estimate = recommender.estimate(recommender.Request(gpu="L4"), {"session-len": "4096", "OMP_NUM_THREADS": "4"})
    assert json.loads(printed.output) == json.loads(recommender.render(estimate, "json"))


def test_a_mistake_is_one_line() -> None:
    """Each mistake of the caller is a UserError whose message is one line."""
    calls = (
        lambda: recommender.recommend(recommender.Request(gpu="A1000000")),
        lambda: recommender.Request(gpu="L4", concurrency=-1),
        lambda: recommender.estimate(REQUEST, {"--session-length": "1"}),
        lambda: recommender.estimate(REQUEST, {"--session-len": "long"}),
        lambda: recommender.explain("sesion-len"),
        lambda: recommender.explain("session-len", "0.1.0"),
        lambda: recommender.follow(REQUEST, "nobody"),
        lambda: recommender.recommend(recommender.Request(gpu="T4", model="llama-3.3-70b-instruct")),
        lambda: recommender.Request(gpu="L4", concurrency="8"),  # type: ignore[arg-type]
        lambda: recommender.Request(gpu="L4", rps="3"),  # type: ignore[arg-type]
        lambda: recommender.Request(gpu=None),  # type: ignore[arg-type]
        lambda: recommender.Request(gpu="L4", load="single", concurrency=4),
        lambda: recommender.Request(gpu="L4", tp=2),
        lambda: recommender.Request(gpu="L4", gpu_count=4, tp=3),
        lambda: recommender.render(recommender.recommend(REQUEST), "k8s"),
        lambda: recommender.render(recommender.recommend(REQUEST), "bash", "loud"),
        lambda: recommender.review("lmdeploy serve api_server m", backend="pytorch"),
        lambda: recommender.plan(REQUEST, ["L4"]),
        lambda: recommender.plan(recommender.Request(gpu="L4", rps=1), []),
    )
    for call in calls:
        with pytest.raises(recommender.UserError) as raised:
            call()
        assert "\n" not in str(raised.value)
