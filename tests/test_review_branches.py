"""What branches, loops and later statements give a server: each possible command is read and judged."""

import pytest
from scripts import given_options, only_launch

from recommender.review.engine import review
from recommender.review.script.model import Launch

SERVE = "lmdeploy serve api_server m"
LOOP = 'x=()\nwhile getopts "ab" o; do case $o in a) x+=(--tp 2) ;; b) x+=(--dp 3) ;; esac; done\n'
SHELL: list[tuple[str, list[dict[str, list[str | None]]]]] = [
    (f'{LOOP}{SERVE} "${{x[@]}}"\n', [{}, {"--tp": ["2"]}, {"--dp": ["3"]}]),
    (f'case $1 in a) x="--tp 2" ;; b) x="--dp 3" ;; esac\n{SERVE} $x\n', [{}, {"--tp": ["2"]}, {"--dp": ["3"]}]),
    (f'case $1 in a) x="--tp 2" ;; *) x="--dp 3" ;; esac\n{SERVE} $x\n', [{"--tp": ["2"]}, {"--dp": ["3"]}]),
    (f'x="--tp 2"\nif a; then x="$x --dp 3"; fi\n{SERVE} $x\n', [{"--tp": ["2"]}, {"--tp": ["2"], "--dp": ["3"]}]),
    (f'x="--tp 2"\n[ $a = 1 ] && x+=" --dp 3"\n{SERVE} $x --ep 4\n',
     [{"--tp": ["2"], "--ep": ["4"]}, {"--tp": ["2"], "--dp": ["3"], "--ep": ["4"]}]),
    (f'x=""\nif a; then x="$x --tp 2"; fi\nif b; then x="$x --dp 3"; fi\n{SERVE} $x\n',
     [{}, {"--tp": ["2"]}, {"--dp": ["3"]}, {"--tp": ["2"], "--dp": ["3"]}]),
    (f'x=(--tp 2)\nif a; then x+=(--dp 3); fi\n{SERVE} "${{x[@]}}"\n',
     [{"--tp": ["2"]}, {"--tp": ["2"], "--dp": ["3"]}]),
    (f'x=""\nif a; then x="--tp 2"; if b; then x="$x --dp 3"; fi; fi\n{SERVE} $x\n',
     [{}, {"--tp": ["2"]}, {"--tp": ["2"], "--dp": ["3"]}]),
    (f'if a; then x="--tp 2"; else x="--dp 3"; fi\nif b; then y=--eager-mode; fi\n{SERVE} $x $y\n',
     [{"--tp": ["2"]}, {"--dp": ["3"]}, {"--tp": ["2"], "--eager-mode": []}, {"--dp": ["3"], "--eager-mode": []}]),
    (f"if a; then x='--tp 2 --ep 4'; fi\n{SERVE} $x\n", [{"--tp": ["2"], "--ep": ["4"]}, {}]),
    (f"if a; then x='--dp 2'\nx=''; fi\n{SERVE} --tp 2 $x\n", [{"--tp": ["2"]}]),
    (f'set -- {SERVE}\nif a; then set -- "$@" --tp 2; fi\nexec "$@"\n', [{}, {"--tp": ["2"]}]),
    (f"{SERVE} --ep 4 ${{A:+--tp 2}} ${{B:+--dp $B}}\n",
     [{"--ep": ["4"], **a, **b} for a in ({}, {"--tp": ["2"]}) for b in ({}, {"--dp": [None]})]),
    (f'a="--tp 2"\nb="--dp 3"\nc="{SERVE} $a   $b"\neval "$c"\n', [{"--tp": ["2"], "--dp": ["3"]}]),
    (f'x="{SERVE} $1 $2"\nif a; then x="ls"; fi\n{SERVE} --tp 2\n', [{"--tp": ["2"]}]),
]  # fmt: skip
PYTHON = "from lmdeploy import PytorchEngineConfig, TurbomindEngineConfig, pipeline\n"
NEW = "c = TurbomindEngineConfig(tp=1)\n"
RUN = "pipeline('m', backend_config=c)\n"
CONFIGURED = [
    (f"{NEW}c.tp = 2\n{RUN}", [{"tp": ["2"]}]),
    (f"{NEW}if a:\n    c.tp = 2\n{RUN}", [{"tp": ["1"]}, {"tp": ["2"]}]),
    (f"{NEW}if a:\n    c.tp = 2\nelse:\n    c.tp = 4\n{RUN}", [{"tp": ["1"]}, {"tp": ["2"]}, {"tp": ["4"]}]),
    (f"c = d = TurbomindEngineConfig(tp=1)\nd.tp = 2\n{RUN}", [{"tp": ["2"]}]),
    (f"{NEW}d = c\nd.tp = 2\nc.dp = 3\n{RUN}", [{"tp": ["2"], "dp": ["3"]}]),
    (f"{NEW}d = copy.copy(c)\nd.tp = 2\n{RUN}", [{"tp": ["1"]}]),
    (f"d, c = GenerationConfig(), TurbomindEngineConfig(tp=4)\n{RUN}", [{"tp": ["4"]}]),
    (f"(d, e), c = [3, 4], TurbomindEngineConfig(tp=4)\n{RUN}", [{"tp": ["4"]}]),
    (f"[d, c] = [3, TurbomindEngineConfig(tp=4)]\n{RUN}", [{"tp": ["4"]}]),
    (f"def other():\n    c = f()\n    c.tp = 8\n{NEW}{RUN}", [{"tp": ["1"]}]),
    ("k = {'tp': 1}\nif a:\n    k['tp'] = 2\npipeline('m', backend_config=TurbomindEngineConfig(**k))\n",
     [{"tp": ["1"]}, {"tp": ["2"]}]),
    ("k = dict(tp=1)\nk.update(dp=2)\npipeline('m', backend_config=TurbomindEngineConfig(**k))\n",
     [{"tp": ["1"], "dp": ["2"]}]),
    ("class A:\n    def __init__(self):\n        self.c = TurbomindEngineConfig(tp=1)\n        self.c.tp = 2\n"
     "        pipeline('m', backend_config=self.c)\n", [{"tp": ["2"]}]),
]  # fmt: skip


def possible(launch: Launch) -> list[dict[str, list[str | None]]]:
    """Return the options of a launch and of what other branches make of it."""
    return sorted((given_options(each) for each in (launch, *launch.alternatives)), key=str)


@pytest.mark.parametrize(("text", "options"), SHELL)
def test_each_branch_of_a_script_is_read(text: str, options: list[dict[str, list[str | None]]]) -> None:
    """An array, a text or the arguments may grow in a branch, in a loop too."""
    assert possible(only_launch(text)) == sorted(options, key=str)


@pytest.mark.parametrize(("text", "options"), CONFIGURED)
def test_each_branch_of_a_program_is_read(text: str, options: list[dict[str, list[str]]]) -> None:
    """What a block assigns to a configuration, or adds to its keywords, makes a possible configuration."""
    assert possible(only_launch(PYTHON + text, "python", "x.py")) == sorted(options, key=str)


CALLED = """#!/bin/bash
base=8000
go() {{
  CUDA_VISIBLE_DEVICES=$1 {} --server-name 127.0.0.1 --server-port $2 --proxy-url http://127.0.0.1:$base {} &
}}
n={}
for gpu in 0 1 2; do
  go $gpu $((base + n)) $gpu
  n=$((n + 1))
done
"""


@pytest.mark.parametrize(
    ("first", "more", "rules"),
    [("1", "", []), ("0", "", ["LMD615"]), ("-2", "", ["LMD615"]), ("1", "--quant-policy $3", ["LMD104", "LMD104"])],
)
def test_a_function_is_judged_for_each_turn_of_the_loop_that_calls_it(first: str, more: str, rules: list[str]) -> None:
    """Variables go on from turn to turn; nothing that the loop lists is said to be unknown."""
    found = review("x.sh", CALLED.format(SERVE, more, first), {"lmdeploy": "0.18.0"}).findings
    assert [each.rule.id for each in found if each.severity != "info"] == rules


def test_other_branches_are_judged_without_repairs() -> None:
    """A wrong value is found in whichever branch it is; the repair of one branch could break another."""
    branches = "if a; then x=(--tp 2); else x=(--dtype bf16 --sesion-len 8); fi\n"
    found = review("x.sh", f'{branches}{SERVE} "${{x[@]}}"\n', {"lmdeploy": "0.18.0"}).findings
    assert [(each.rule.id, each.fix) for each in found if each.severity == "error"] == [
        ("LMD104", None),
        ("LMD101", None),
    ]


def test_a_loop_over_a_dictionary_makes_options() -> None:
    """Each item is one turn of the loop; the option's place is its name in the dictionary."""
    text = (
        "import subprocess\nO = {'tp': 2, 'session_len': 8}\nc = ['lmdeploy', 'serve', 'api_server', 'm']\n"
        "for k, v in O.items():\n    c += [f\"--{k.replace('_', '-')}\", str(v)]\nsubprocess.run(c)\n"
    )
    assert given_options(only_launch(text, "python", "x.py")) == {"--tp": ["2"], "--session-len": ["8"]}


def test_a_function_returns_one_of_two_configurations() -> None:
    """Both make a pipeline."""
    text = (
        f"{PYTHON}def make():\n    if a:\n        return PytorchEngineConfig(tp=2)\n    c = TurbomindEngineConfig()\n"
        "    c.tp = 4\n    return c\npipeline('m', backend_config=make())\n"
    )
    launches = review("x.py", text).script.launches
    assert [(each.engine, given_options(each)) for each in launches] == [
        ("PytorchEngineConfig", {"tp": ["2"]}),
        ("TurbomindEngineConfig", {"tp": ["4"]}),
    ]


def test_a_unit_that_a_script_writes_has_its_variables() -> None:
    """The shell fills an unquoted here-document; an escaped dollar is left to systemd."""
    text = (
        "PORT=8000\ncat > /etc/systemd/system/x.service <<EOF\n[Service]\nEnvironment=TP=2\n"
        f"ExecStart=/opt/bin/{SERVE} --server-port $PORT --tp \\${{TP}}\nEOF\n"
    )
    script = review("x.sh", text, {"lmdeploy": "0.18.0"}).script
    assert [given_options(each) for each in script.launches] == [{"--server-port": ["8000"], "--tp": ["2"]}]
    assert script.problems == ()
    assert not script.repairable


CASES = [
    ("case $1 in a) n=4096 ;; b) n=4096 ;; *) echo no; exit 1 ;; esac\n", "4096"),
    ("case $1 in a) n=4096 ;; *) return 1 ;; esac\n", "4096"),
    ("case $1 in a) n=4096 ;; exit) ;; *) n=8192 ;; esac\n", None),
    ("case $1 in *) exit 1 ;; esac\n", None),
    ('n=4096\nfor each in "$@"; do case $each in --length=*) n="${each#*=}" ;; esac; done\n', "4096"),
    ('n=4096\nfor each in "$@"; do case $each in --length=*) n="${each%=*}" ;; esac; done\n', None),
]


@pytest.mark.parametrize(("before", "length"), CASES)
def test_a_case_that_ends_and_a_default_that_the_caller_changes(before: str, length: str | None) -> None:
    """What a branch with exit leaves is not merged; an argument's value leaves the default."""
    assert given_options(only_launch(f"{before}{SERVE} --session-len $n\n"))["--session-len"] == [length]


CHOSEN = 'case $1 in a) M=OpenGVLab/InternVL2-8B ;; *) M="${Q:-Qwen/Qwen2.5-7B-Instruct}" ;; esac\n'
OPEN = CHOSEN.replace("*)", "b)")
READ = CHOSEN.replace('"${Q:-Qwen/Qwen2.5-7B-Instruct}"', "$2")


@pytest.mark.parametrize(("before", "rules"), [(CHOSEN, {"LMD127"}), (OPEN, {"LMD002"}), (READ, {"LMD002"})])
def test_each_model_that_a_case_chooses_is_judged(before: str, rules: set[str]) -> None:
    """Models that the branches list are known, each for a launch of its own; one from the caller is not."""
    text = f"{before}lmdeploy serve api_server $M\n"
    found = review("x.sh", text, {"lmdeploy": "0.18.0"}).findings
    assert {finding.rule.id for finding in found if finding.severity != "info"} == rules
