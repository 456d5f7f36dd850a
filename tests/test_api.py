"""The public functions: what ``import recommender`` gives, what it costs, and that they are what the commands print."""

import doctest
import json
import subprocess
import sys
from dataclasses import fields
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


WRONG: dict[type, tuple[Any, ...]] = {
    int: ("2", None, True, 2.0, [2], b"2"),
    float: ("2", None, False, [1.0], 1j, "1" * 100),
    str: (2, None, b"x", True, ["x"], 10**5000),
    tuple: (None, "x", 3, (1, 2), {}),
}


@pytest.mark.parametrize("name", [field.name for field in fields(recommender.Request)])
def test_a_field_of_another_type_is_refused_by_name(name: str) -> None:
    """One line: which field, what was given, what is expected; from whatever the field's default is not."""
    default = getattr(REQUEST, name)
    for wrong in WRONG[type(default)]:
        with pytest.raises(recommender.RequestError) as raised:
            recommender.Request(**{"gpu": "L4", name: wrong})
        said = str(raised.value)
        assert said.startswith(f"{name} ")
        assert "expected " in said
        assert said.isprintable()
        assert len(said) < 160
        assert ("digits" if wrong == 10**5000 else repr(wrong)[:30]) in said


def test_what_is_wrong_with_a_type_is_said_in_full() -> None:
    """The lines as a caller sees them."""
    for asked, line in (
        ({"images": "2"}, "images '2': expected a whole number (int), not str"),
        ({"images": True}, "images True: expected a whole number (int), not bool"),
        ({"rps": None}, "rps None: expected a number (float or int), not NoneType"),
        ({"goal": 5}, "goal 5: expected text (str), not int"),
        ({"replay": [1]}, "replay (1,): expected a tuple of Replayed, not tuple of int"),
        ({"asked": (1,)}, "asked (1,): expected a tuple of MixRequest, not tuple of int"),
    ):
        with pytest.raises(recommender.RequestError) as raised:
            recommender.Request(**{"gpu": "H200"} | asked)
        assert str(raised.value) == line


def test_a_list_of_json_is_a_tuple() -> None:
    """A request that was written as JSON is the same again, and can be hashed."""
    again = recommender.Request(gpu="L4", replay=[], asked=[])  # type: ignore[arg-type]
    assert again == recommender.Request(gpu="L4")
    assert hash(again) == hash(recommender.Request(gpu="L4"))


def test_a_whole_number_is_a_number() -> None:
    """Where a fraction is allowed, none is needed."""
    assert recommender.Request(gpu="L4", rps=3).rps == 3


def test_a_fleet_and_settings_say_the_same() -> None:
    """Of an argument of ``plan``, and of the value of an option."""
    with pytest.raises(recommender.RequestError, match=r"^peak '2': expected a number \(float or int\), not str$"):
        recommender.plan(recommender.Request(gpu="L40S", rps=5), ["L40S:4"], peak="2")  # type: ignore[arg-type]
    with pytest.raises(recommender.RequestError, match=r"--session-len 4096: expected text \(str\), not int$"):
        recommender.estimate(REQUEST, {"--session-len": 4096})  # type: ignore[dict-item]
