"""What a Python file changes in a configuration after it was made, or in its keywords: it is read, or it is said."""

import pytest
from scripts import given_options, only_launch

from recommender.review.engine import review

HEAD = (
    "import copy\nimport dataclasses\nfrom dataclasses import replace\n"
    "from lmdeploy import TurbomindEngineConfig, pipeline\n"
)
RUN = "pipeline('m', backend_config=c)\n"
KEYS = "pipeline('m', backend_config=TurbomindEngineConfig(**kw))\n"
READ = [
    f"c = TurbomindEngineConfig()\nsetattr(c, 'tp', 3)\n{RUN}",
    f"c = TurbomindEngineConfig()\nfor k, v in {{'tp': 3}}.items():\n    setattr(c, k, v)\n{RUN}",
    f"OVER = dict(tp=3)\nc = TurbomindEngineConfig()\nfor k, v in OVER.items():\n    setattr(c, k, v)\n{RUN}",
    f"c = TurbomindEngineConfig()\nc.tp: int = 3\n{RUN}",
    f"c = TurbomindEngineConfig()\nc.__dict__.update(tp=3)\n{RUN}",
    f"def tune(c):\n    c.tp = 3\nc = TurbomindEngineConfig(tp=1)\ntune(c)\n{RUN}",
    f"c = TurbomindEngineConfig(tp=1)\nc = dataclasses.replace(c, tp=3)\n{RUN}",
    "c = TurbomindEngineConfig(tp=1)\npipeline('m', backend_config=replace(c, tp=3))\n",
    f"base = TurbomindEngineConfig(tp=3)\nc = copy.deepcopy(base)\n{RUN}",
    "def cfg(**over):\n    base = dict(tp=1)\n    base.update(over)\n    return TurbomindEngineConfig(**base)\n"
    "pipeline('m', backend_config=cfg(tp=3))\n",
    "def cfg(**over):\n    return TurbomindEngineConfig(**{**dict(tp=1), **over})\n"
    "pipeline('m', backend_config=cfg(tp=3))\n",
    "def cfg(**over):\n    return TurbomindEngineConfig(**over)\npipeline('m', backend_config=cfg(tp=3))\n",
    f"kw = dict(tp=1)\nkw |= {{'tp': 3}}\n{KEYS}",
    f"c = TurbomindEngineConfig(tp=3)\n{RUN}c.tp = 4\n",
    f"kw = dict(tp=3, dp=2)\nkw.pop('dp')\n{KEYS}",
    f"kw = dict(tp=3, dp=2)\ndel kw['dp']\n{KEYS}",
]
SAID = [
    f"c = TurbomindEngineConfig(tp=1)\nsetattr(c, name, 3)\n{RUN}",
    f"c = TurbomindEngineConfig(tp=1)\nfor k, v in more.items():\n    setattr(c, k, v)\n{RUN}",
    f"c = TurbomindEngineConfig(tp=1)\nfor k, v in MORE.items():\n    if v:\n        setattr(c, k, v)\n{RUN}",
    f"c = TurbomindEngineConfig(tp=1)\nc.tp *= 3\n{RUN}",
    f"base = TurbomindEngineConfig(tp=1)\nc = dataclasses.replace(base, **over)\n{RUN}",
    "def cfg(**over):\n    return TurbomindEngineConfig(**{**dict(tp=1), **over})\n"
    "pipeline('m', backend_config=cfg(tp=3))\npipeline('m', backend_config=cfg(tp=4))\n",
    f"kw = dict(tp=1)\nkw.update(over)\n{KEYS}",
    f"kw = dict(tp=1)\nkw[name] = 3\n{KEYS}",
    f"kw = dict(tp=1)\nkw.setdefault('tp', 3)\n{KEYS}",
    f"kw = dict(tp=1)\nkw.pop(name)\n{KEYS}",
    f"kw = {{**dict(tp=1), **over}}\n{KEYS}",
]


@pytest.mark.parametrize("text", READ)
def test_a_constant_change_is_read(text: str) -> None:
    """The engine gets what the configuration holds when the pipeline takes it."""
    launch = only_launch(HEAD + text, "python", "x.py")
    assert given_options(launch) == {"tp": ["3"]}
    assert not launch.unsure
    assert not launch.unread


@pytest.mark.parametrize("text", SAID)
def test_another_change_is_said(text: str) -> None:
    """LMD002 names what may hold any keyword or value."""
    assert "LMD002" in {finding.rule.id for finding in review("x.py", HEAD + text).findings}


BOTH = "from lmdeploy import PytorchEngineConfig, TurbomindEngineConfig, pipeline\nimport sys\n"
CHOSEN = "pipeline('Qwen/Qwen2.5-7B-Instruct', backend_config=Config({}))\n"
CHOICES = [
    "Config = PytorchEngineConfig if '--pt' in sys.argv else TurbomindEngineConfig\n",
    "Config = {'tm': TurbomindEngineConfig, 'pt': PytorchEngineConfig}[sys.argv[1]]\n",
    "if '--pt' in sys.argv:\n    Config = PytorchEngineConfig\nelse:\n    Config = TurbomindEngineConfig\n",
]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_class_that_a_run_chooses_is_judged_as_each(choice: str) -> None:
    """What fails under either engine is found; what holds under both is no finding."""
    wrong, right = (BOTH + choice + CHOSEN.format(given) for given in ("tp=3, cache_max_entry_count=-1", "tp=2"))
    found = review("x.py", wrong, {"gpu": "A100-80G:8"}).findings
    assert {"LMD106", "LMD111"} <= {finding.rule.id for finding in found}
    launch = only_launch(right, "python", "x.py")
    assert {each.engine for each in (launch, *launch.alternatives)} == {"PytorchEngineConfig", "TurbomindEngineConfig"}
    assert not review("x.py", right).findings


@pytest.mark.parametrize(
    "choice",
    ["Config = TurbomindEngineConfig\n", "Config = {'tm': TurbomindEngineConfig, 'pt': PytorchEngineConfig}['tm']\n"],
)
def test_a_class_by_another_name_is_that_class(choice: str) -> None:
    """An alias, or an entry of a table by a constant key."""
    launch = only_launch(BOTH + choice + CHOSEN.format("tp=2"), "python", "x.py")
    assert (launch.engine, launch.alternatives, given_options(launch)) == ("TurbomindEngineConfig", (), {"tp": ["2"]})
