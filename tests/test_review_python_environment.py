"""What a Python file sets in its environment, and when: a server sees what was set before it starts."""

import pytest
from scripts import only_launch

from recommender.review.engine import review

HEAD = "import os, subprocess\nfrom lmdeploy import pipeline\n"
RUN = "pipeline('m')\n"
SET = "os.environ['TM_DEBUG_LEVEL'] = '1'\n"
OTHER = "os.environ['TM_DEBUG_LEVEL'] = '2'\n"
SEEN = [
    (f"{SET}{RUN}", "1"),
    (f"{SET}{OTHER}{RUN}", "2"),
    (f"{SET}{RUN}{OTHER}", "1"),
    (f"{SET}if a:\n    {OTHER}{RUN}", None),
    (f"for i in a:\n    {RUN}    {SET}", "1"),
    (f"def go():\n    {RUN}{SET}go()\n", "1"),
    (f"def more():\n    {SET}more()\n{RUN}", "1"),
    (f"os.environ |= {{'TM_DEBUG_LEVEL': '1'}}\n{RUN}", "1"),
    (f"class A:\n    def go(self):\n        {RUN}    def more(self):\n        {SET}", "1"),
]
LATE = [
    f"{RUN}{SET}",
    f"{RUN}os.environ.update(TM_DEBUG_LEVEL='1')\n",
    f"{RUN}os.putenv('TM_DEBUG_LEVEL', '1')\n",
    f"def go():\n    {RUN}go()\n{SET}",
    f"def more():\n    {SET}{RUN}more()\n",
    f"def main():\n    {RUN}    {SET}main()\n",
    f"if a:\n    {RUN}else:\n    {SET}",
    f"subprocess.Popen(['lmdeploy', 'serve', 'api_server', 'm'])\n{SET}",
]


@pytest.mark.parametrize(("text", "value"), SEEN)
def test_what_is_set_before_the_start_is_seen(text: str, value: str | None) -> None:
    """The last value that certainly comes before; of several possible ones, none. What may come before counts."""
    assert only_launch(HEAD + text, "python", "x.py").environment["TM_DEBUG_LEVEL"].value == value


@pytest.mark.parametrize("text", LATE)
def test_what_is_set_after_the_start_is_not_seen(text: str) -> None:
    """The server copied its environment; LMD310 says that the variable comes too late."""
    found = review("x.py", HEAD + text, {"lmdeploy": "0.18.0"})
    assert [dict(launch.environment) for launch in found.script.launches] == [{}]
    assert "LMD310" in {finding.rule.id for finding in found.findings}


def test_what_a_pipeline_reads_at_each_call_is_not_too_late() -> None:
    """The tokenizers ask for their variable whenever they work, in the program's own process."""
    found = review("x.py", f"{HEAD}{RUN}os.environ['TOKENIZERS_PARALLELISM'] = 'false'\n", {"lmdeploy": "0.18.0"})
    assert "LMD310" not in {finding.rule.id for finding in found.findings}


def test_each_server_sees_what_is_set_before_it() -> None:
    """A value between two starts is the second one's, so it is not too late."""
    found = review("x.py", f"{HEAD}{RUN}{SET}{RUN}", {"lmdeploy": "0.18.0"})
    assert [len(launch.environment) for launch in found.script.launches] == [0, 1]
    assert "LMD310" not in {finding.rule.id for finding in found.findings}
