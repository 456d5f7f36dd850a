"""Words that another program puts into a command: GNU parallel, xargs, an alias, templates of Python."""

import pytest
from scripts import given_options, only_launch

from recommender.review.engine import review

SERVE = "lmdeploy serve api_server m"
START = "lmdeploy serve api_server"
TEMPLATE = "from string import Template\nimport subprocess\n"

# A command, and the value of --tp in what it starts first; None if a run decides.
PARALLEL = [
    (f"parallel -j2 {SERVE} --tp {{}} ::: 2 4", "2"),
    (f"parallel -j2 {SERVE} --tp ::: 2 4", "2"),
    (f"parallel -j 2 --lb '{SERVE} --tp {{}}' ::: 2 4", "2"),
    (f"parallel '{SERVE} --tp' ::: 2 4", "2"),
    (f'parallel --lb -j 2 --link "CUDA_VISIBLE_DEVICES={{1}} {SERVE} --tp {{2}}" ::: 0,1 2,3 ::: 2 4', "2"),
    (f"parallel {SERVE} --server-port {{2}} --tp {{1}} ::: 2 4 :::+ 1 3", "2"),
    (f"parallel {SERVE} --tp {{#}} --server-port {{}} ::: 8 9", "1"),
    (f"parallel {SERVE} --tp {{%}} --server-port {{}} ::: 8 9", "1"),
    (f"parallel {SERVE} --model-name {{/.}} --tp {{.}} ::: 2.txt", "2"),
    (f"parallel {SERVE} --tp {{/.}} ::: a/2.txt", "2"),
    (f"parallel {SERVE} --tp {{1/.}} ::: a/2.txt", "2"),
    (f"parallel {SERVE} --tp {{//}} ::: 2/a", "2"),
    (f"parallel -I XX {SERVE} --tp XX ::: 2 4", "2"),
    (f"TPS='2 4'\nparallel {SERVE} --tp {{}} ::: $TPS", "2"),
    (f"parallel {SERVE} --tp {{}} :::: tps.txt", None),
    (f"parallel {SERVE} --tp {{}} < tps.txt", None),
    (f"cat tps.txt | parallel --colsep ' ' '{SERVE} --tp {{1}} --server-port {{2}}'", None),
    (f"parallel {SERVE} --tp {{}} ::: $(seq 4)", None),
    (f"parallel {SERVE} --tp '{{= $_++ =}}' ::: 1", None),
    (f"parallel {SERVE} --tp {{3}} ::: 1 ::: 2", None),
    (f"parallel -N2 {SERVE} --tp {{2}} ::: 1 2", None),
    (f"seq 2 | xargs -I XX {SERVE} --tp XX", None),
    (f"seq 2 | xargs -I% sh -c '{SERVE} --tp %'", None),
    (f"seq 2 | xargs --replace=@ {SERVE} --tp @", None),
    (f"seq 2 | xargs -i {SERVE} --tp {{}}", None),
]


@pytest.mark.parametrize(("text", "value"), PARALLEL, ids=range(len(PARALLEL)))
def test_parallel_fills_a_command(text: str, value: str | None) -> None:
    """With the first word of each source; it appends one only to a command without a place for it."""
    launch = only_launch(text + "\n")
    assert given_options(launch)["--tp"] == [value]
    assert not launch.extra
    assert launch.model.value == "m"
    assert {finding.rule.id for finding in review("x.sh", text + "\n").findings if finding.severity == "error"} == set()


def test_a_model_is_appended() -> None:
    """In words, and in a quoted command."""
    for text in (f"parallel {START} ::: m n", f"parallel '{START}' ::: m n", f"parallel '{START} {{}} --tp 2' ::: m n"):
        assert only_launch(f"{text}\n").model.value == "m"


APPENDED = [
    f"echo '--tp 3' > args.txt; xargs {SERVE} < args.txt",
    f"cat args.txt | xargs {SERVE} --dp 2",
    f"cat models.txt | xargs {START}",
    f"cat models.txt | xargs -n 1 {START}",
    f"xargs -a models.txt -L1 {START}",
    f"cat models.txt | xargs sh -c '{START} \"$@\"' _",
    f"cat models.txt | parallel {START}",
    f"cat models.txt | parallel '{START}'",
    f"parallel -a models.txt {START}",
    f"parallel {START} :::: models.txt",
    f"parallel -X {SERVE} ::: --tp 2",
    f"parallel -N 2 {SERVE} ::: --tp 2",
]


@pytest.mark.parametrize("text", APPENDED, ids=range(len(APPENDED)))
def test_what_is_appended_is_unknown(text: str) -> None:
    """Nothing is reported as missing, and the review says what it does not know."""
    assert only_launch(text + "\n").unsure
    found = review("x.sh", text + "\n").findings
    assert "LMD002" in {finding.rule.id for finding in found}
    assert not [finding for finding in found if finding.severity == "error"]


@pytest.mark.parametrize(
    "text",
    [
        f"cat x | parallel --pipe {SERVE} --tp 2",
        f"seq 3 | xargs -I{{}} {SERVE} --tp 2",
        f"seq 3 | parallel -n0 {SERVE} --tp 2",
    ],
)
def test_where_nothing_is_appended_all_is_known(text: str) -> None:
    """Input that only counts, or that the command reads."""
    assert not only_launch(text + "\n").unsure
    assert "LMD002" not in {finding.rule.id for finding in review("x.sh", text + "\n").findings}


ALIASES = [
    f"shopt -s expand_aliases\nalias s='{SERVE}'\ns --tp 3",
    f"alias s='{SERVE}'\nshopt -s expand_aliases\nN=3\ns --tp $N",
    f"alias s='{START}'\ns m --tp 3 &",
    "alias s=lmdeploy\ns serve api_server m --tp 3",
    f"alias gpu='CUDA_VISIBLE_DEVICES=0 ' s='{SERVE} --dp 1'\ns \\\n  --tp 3",
]


@pytest.mark.parametrize("text", ALIASES, ids=range(len(ALIASES)))
def test_an_alias_is_followed(text: str) -> None:
    """With the words behind it; the alias itself starts nothing then."""
    launch = only_launch(text + "\n")
    assert given_options(launch)["--tp"] == ["3"]
    assert launch.model is not None


def test_an_alias_that_nothing_uses_is_a_command() -> None:
    """As of a file of a shell's settings; one that stands for itself ends."""
    assert given_options(only_launch(f"alias s='{SERVE} --tp 3'\nls\n")) == {"--tp": ["3"]}
    assert given_options(only_launch("alias lmdeploy='lmdeploy '\nlmdeploy serve api_server m --tp 3\n")) == {
        "--tp": ["3"]
    }


TEMPLATES = [
    f't = Template("{START} $model --tp $tp")\nc = t.substitute(model="m", tp=2)',
    f't = Template("{START} ${{model}} --tp ${{tp}}")\nc = t.substitute({{"model": "m", "tp": 2}})',
    f'c = Template("{START} $model --tp $tp").safe_substitute(dict(model="m"), tp=2)',
    f'MODEL = "m"\nc = Template("{START} $model --tp $tp").substitute(model=MODEL, tp=2)',
    f'V = {{"model": "m", "tp": 2}}\nc = Template("{START} $model --tp $tp").substitute(V)',
    f'V = {{"model": "m", "tp": 2}}\nc = Template("{START} $model --tp $tp").substitute(**V)',
    f'c = string.Template("{START} $model --tp $tp --api-keys $$K").substitute(model="m", tp=2)',
]


@pytest.mark.parametrize("text", TEMPLATES, ids=range(len(TEMPLATES)))
def test_a_template_is_filled(text: str) -> None:
    """As str.format is."""
    launch = only_launch(f"{TEMPLATE}import string\n{text}\nsubprocess.run(c, shell=True)\n", None, "x.py")
    assert given_options(launch)["--tp"] == ["2"]
    assert launch.model.value == "m"


@pytest.mark.parametrize(
    "given",
    [
        *("model=sys.argv[1], tp=2", "**read()", "read()", "{**read(), 'tp': 2}", "model=pick(), tp=2"),
        *("{'model': 'm', 'tp': 2, **read()}", "V", "**V"),
    ],
)
def test_what_fills_a_template_may_be_unknown(given: str) -> None:
    """Then it is said, and no error is reported."""
    changed = 'import sys\nV = dict(model="m", tp=2)\nV["tp"] = read()\n'
    text = f'{TEMPLATE}{changed}c = Template("{START} $model --tp $tp").substitute({given})\n'
    found = review("x.py", f"{text}subprocess.run(c, shell=True)\n").findings
    assert "LMD002" in {finding.rule.id for finding in found}
    assert not [finding for finding in found if finding.severity == "error"]


def test_safe_substitute_leaves_the_rest_to_the_shell() -> None:
    """What it is not given stays a variable."""
    text = f'{TEMPLATE}c = Template("{START} $model --tp ${{TP:-2}}").safe_substitute(model="m")\n'
    assert given_options(only_launch(f"{text}subprocess.run(c, shell=True)\n", None, "x.py"))["--tp"] == ["2"]


def test_an_alias_in_a_step_is_a_command() -> None:
    """Of a file that is no script of its own."""
    text = f"- run: |\n    alias s='{SERVE} --tp 3'\n    ls\n- run: echo lmdeploy\n"
    assert given_options(only_launch(text, None, "x.yml")) == {"--tp": ["3"]}
