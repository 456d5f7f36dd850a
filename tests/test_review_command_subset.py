"""What holds in some branches of a shell script only: each possible command is judged, and the review says which."""

import pytest

from recommender.review.engine import review
from recommender.review.rule import Finding

M = "Qwen/Qwen2.5-7B-Instruct"
SERVE = f"lmdeploy serve api_server {M} --server-name 127.0.0.1"
PYTORCH = '  ARGS="$ARGS --backend pytorch"\n'
EAGER = f'ARGS="--eager-mode"\nif [ "$ENGINE" = pytorch ]; then\n{PYTORCH}fi\n{SERVE} $ARGS\n'
BLOCK = f'ARGS="--communicator cuda-ipc"\nif [ "$ENGINE" = pytorch ]; then\n{PYTORCH}fi\n{SERVE} $ARGS\n'
ONLY_WITH = "This holds only with --backend pytorch (line 3)."
ONLY_WITHOUT = "This holds only without --backend pytorch (line 3)."


def findings(text: str, **options: str) -> list[Finding]:
    """Return the warnings and errors about a script."""
    found = review("x.sh", text, {"lmdeploy": "0.18.0"} | options).findings
    return [finding for finding in found if finding.severity != "info"]


def test_a_finding_without_the_words_of_a_branch_says_so() -> None:
    """Only the PyTorch engine reads --eager-mode, and the command may be for either."""
    (found,) = findings(EAGER)
    assert found.rule.id == "LMD302"
    assert found.message.endswith(ONLY_WITHOUT)
    assert found.fix is None


def test_a_finding_with_the_words_of_a_branch_says_so() -> None:
    """Only TurboMind reads --communicator; a repair would take it from TurboMind too."""
    (found,) = findings(BLOCK)
    assert found.rule.id == "LMD303"
    assert found.message.endswith(ONLY_WITH)
    assert found.fix is None


@pytest.mark.parametrize(
    "branch",
    [
        "ARGS=(--eager-mode)\nif a; then\n  ARGS+=(--backend pytorch)\nfi\n",
        "ARGS=(--eager-mode)\n[ $a = 1 ] &&\n  ARGS+=(--backend pytorch)\n",
        'set -- --eager-mode\nif a; then\n  set -- "$@" --backend pytorch\nfi\nARGS=("$@")\n',
    ],
)
def test_arrays_and_arguments_are_judged_alike(branch: str) -> None:
    """Whatever holds the words, each possible list is one command."""
    (found,) = findings(f'{branch}{SERVE} "${{ARGS[@]}}"\n')
    assert (found.rule.id, found.message.endswith(ONLY_WITHOUT)) == ("LMD302", True)


def test_what_every_branch_has_is_said_plainly_and_repaired() -> None:
    """A wrong option before the branches is wrong in each."""
    (found,) = findings(EAGER.replace('"--eager-mode"', '"--sesion-len 8192"'))
    assert (found.rule.id, "only" in found.message, found.fix is None) == ("LMD101", False, False)


def test_a_wrong_word_of_a_branch_needs_no_more_words() -> None:
    """Its place shows the branch, and its repair stays there."""
    (found,) = findings(EAGER.replace("--eager-mode", "--tp 1").replace('pytorch"\nfi', 'pytorch --sesion-len 8"\nfi'))
    assert (found.rule.id, "only" in found.message, found.fix is None) == ("LMD101", False, False)


def test_a_missing_option_is_found_where_no_branch_gives_it() -> None:
    """Keys are given in one branch; without it the server is open."""
    keys = 'if [ -n "$KEY" ]; then\n  ARGS="--api-keys $KEY"\nfi\n'
    text = f"{keys}lmdeploy serve api_server {M} --server-name 0.0.0.0 $ARGS\n"
    (found,) = findings(text)
    assert found.rule.id == "LMD501"
    assert "This holds only without --api-keys" in found.message


def test_two_conditions_make_four_commands() -> None:
    """What needs both is said to need both."""
    text = (
        'if a; then\n  ARGS="$ARGS --backend pytorch"\nfi\nif b; then\n  ARGS="$ARGS --quant-policy 42"\nfi\n'
        f'ARGS=""\n{SERVE} $ARGS\n'
    )
    assert findings(text) == []
    text = (
        'ARGS=""\nif a; then\n  ARGS="$ARGS --backend pytorch"\nfi\nif b; then\n'
        f'  ARGS="$ARGS --communicator cuda-ipc"\nfi\n{SERVE} $ARGS\n'
    )
    (found,) = findings(text)
    assert found.rule.id == "LMD303"
    assert found.message.endswith(ONLY_WITH)


def test_more_combinations_than_are_judged_are_told() -> None:
    """Four choices make sixteen commands: each choice is judged, and that not all combinations are is said."""
    names = ("--eager-mode", "--enable-metrics", "--log-level INFO", "--disable-fastapi-docs")
    choices = "".join(f'if [ "$C{at}" = 1 ]; then\n  ARGS="$ARGS {name}"\nfi\n' for at, name in enumerate(names))
    told = [
        [finding.rule.id for finding in review("x.sh", f'ARGS=""\n{text}{SERVE} $ARGS\n', {}).findings]
        for text in (choices, choices[: choices.index("if", 1)])
    ]
    assert ["LMD002" in ids for ids in told] == [True, False]
