"""Scripts of fish: blocks, variables and substitutions."""

import pytest
from scripts import given_options

from recommender.review.readers.detect_kind import read

SERVE = "lmdeploy serve api_server m"
TEXTS = [
    f"set -l tp 2\n{SERVE} --tp $tp\n",
    f"set -x TP 2\nif test -n $a\n    {SERVE} --tp $TP\nelse if test -n $b\n    echo no\nelse\n    echo no\nend\n",
    f"function go --description 'a server'\n    {SERVE} --tp $argv[1]\nend\ngo 2\n",
    f"for i in 1\n    {SERVE} --tp 2 # of $i\nend\n",
    f"switch $m\n    case a b\n        {SERVE} --tp 2\n    case '*'\n        echo no\nend\n",
    f"begin\n    set -q TP; or set TP 2\n    {SERVE} --tp 2\nend\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_server_is_read(text: str) -> None:
    """What bash would refuse is read as fish means it; such a script is not repaired."""
    script = read("x.fish", text)
    assert [given_options(each) for each in script.launches] == [{"--tp": ["2"]}]
    assert script.problems == ()
    assert not script.repairable


def test_a_block_that_never_ends_is_a_problem() -> None:
    """It is reported at its place."""
    assert read("x.fish", f"if true\n    {SERVE}\n").problems
