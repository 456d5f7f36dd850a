"""What a Python file adds to a command after it was made: it is followed, or it is said that it was not."""

import pytest
from scripts import given_options, only_launch

from recommender.review.engine import review

LIST = "['lmdeploy', 'serve', 'api_server', 'm']"
IN_INIT = f"class S:\n    def __init__(self, tp=None):\n        self.cmd = {LIST}\n"
GO = "    def go(self):\n        subprocess.Popen(self.cmd)\n"
RUN = "subprocess.run(cmd)\n"
TP = {"--tp": ["3"]}
FOLLOWED = [
    f"{IN_INIT}        self.cmd += ['--tp', '3']\n{GO}",
    f"{IN_INIT}        self.cmd.extend(['--tp', '3'])\n{GO}S().go()\n",
    f"{IN_INIT}        self.cmd.append('--tp')\n        self.cmd.append('3')\n{GO}",
    f"{IN_INIT}        self.cmd = self.cmd + ['--tp', '3']\n{GO}",
    f"{IN_INIT}        self.cmd = [*self.cmd, '--tp', '3']\n{GO}",
    f"{IN_INIT}    def go(self):\n        self.cmd += ['--tp', '3']\n        subprocess.Popen(self.cmd)\n",
    f"{IN_INIT}    def go(self):\n        cmd = self.cmd.copy()\n        cmd += ['--tp', '3']\n        {RUN}",
    f"{IN_INIT}    def go(self):\n        cmd = [*self.cmd, '--tp', '3']\n        {RUN}",
    f"{IN_INIT}    def go(self):\n        subprocess.run(self.cmd + ['--tp', '3'])\n",
    f"{IN_INIT}        self.more(self.cmd)\n    def more(self, c):\n        c.extend(['--tp', '3'])\n{GO}",
    f"class S:\n    def __init__(self, e):\n        if e == 'v':\n            self.cmd = ['vllm', 'serve', 'm']\n"
    "            self.cmd += ['--seed', '3']\n"
    f"        else:\n            self.cmd = {LIST}\n            self.cmd += ['--tp', '3']\n{GO}",
    f"cmd = {LIST}\ncmd.insert(4, '--tp')\ncmd[5:5] = ['3']\n{RUN}",
    f"cmd = {LIST[:-1]}, '3']\ncmd.insert(4, '--tp')\n{RUN}",
    f"cmd = {LIST}\ncmd.insert(0, 'nohup')\ncmd.extend(['--tp', '3'])\n{RUN}",
    f"def add(c):\n    c += ['--tp', '3']\ncmd = {LIST}\nadd(cmd)\n{RUN}",
    f"def go(cmd):\n    cmd += ['--tp', '3']\n    {RUN}go({LIST})\n",
    f"base = {LIST}\ncmd = list(base)\ncmd += ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\ndef main():\n    cmd.extend(['--tp', '3'])\n    {RUN}main()\n",
    f"cmd = {LIST}\nc = cmd\nc += ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\nc = cmd\nc.append('--tp')\nc.extend(['3'])\n{RUN}",
    f"cmd = {LIST}\nc = cmd\ncmd += ['--tp', '3']\nsubprocess.run(c)\n",
    f"cmd = {LIST}\nc = cmd[:]\nc += ['--tp', '3']\nsubprocess.run(c)\n",
    f"cmd = {LIST[:-1]}, '--dp', '2']\nsubprocess.run([*cmd[:4], '--tp', '3'])\n",
    f"cmd = {LIST[:-1]}, '--dp', '2']\nsubprocess.run(cmd[:-2] + ['--tp', '3'])\n",
    f"c = cmd = {LIST}\nc += ['--tp']\ncmd += ['3']\n{RUN}",
    f"cmd, seed = {LIST}, 3\nc = cmd\nd = c\nd += ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\ndef add(x):\n    c = x\n    c.extend(['--tp', '3'])\nadd(cmd)\n{RUN}",
    f"{IN_INIT}        c = self.cmd\n        c += ['--tp', '3']\n{GO}",
    f"class S:\n    def __init__(self):\n        c = {LIST}\n        self.cmd = c\n        c += ['--tp', '3']\n{GO}",
    "cmd = 'lmdeploy serve api_server m'\ncmd += ' --tp 3'\nos.system(cmd)\n",
    "cmd = 'lmdeploy serve api_server m'\ncmd += f' --tp {3}'\nsubprocess.run(cmd, shell=True)\n",
    f"{IN_INIT.replace(LIST, repr('lmdeploy serve api_server m'))}        self.cmd += ' --tp 3'\n"
    "    def go(self):\n        os.system(self.cmd)\n",
]  # fmt: skip
POSSIBLE = [
    f"cmd = {LIST}\nif a:\n    cmd = cmd + ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\nif a:\n    cmd = [*cmd, '--tp', '3']\n{RUN}",
    f"{IN_INIT}        if tp:\n            self.cmd += ['--tp', '3']\n{GO}",
]
COPIED = [
    f"cmd = {LIST}\nc = cmd[:]\nc += ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\nc = list(cmd)\nc.append('--tp=3')\n{RUN}",
    f"cmd = {LIST}\nc = cmd.copy()\nc.extend(['--tp', '3'])\n{RUN}",
    f"cmd = {LIST}\nc = [*cmd]\nc += ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\nc = cmd\nc = c + ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\nc = cmd\n{RUN}c += ['--tp', '3']\n",
    "cmd = 'lmdeploy serve api_server m'\nc = cmd\nc += ' --tp 3'\nos.system(cmd)\n",
]
UNFOLLOWED = [
    f"cmd = {LIST}\nc = cmd\nif a:\n    c = []\nc += ['--tp', '3']\n{RUN}",
    f"{IN_INIT}    def more(self):\n        self.cmd += ['--tp', '3']\n{GO}",
    f"{IN_INIT}    def more(self):\n        self.cmd.insert(4, '--tp=3')\n{GO}",
    f"{IN_INIT}{GO}s = S()\ns.cmd.append('--tp=3')\ns.go()\n",
    f"{IN_INIT}{GO}class T(S):\n    def more(self):\n        self.cmd += ['--tp', '3']\n",
    f"cmd = {LIST}\ncmd.insert(n, '--tp=3')\n{RUN}",
    f"cmd = {LIST}\ncmd.insert(-1, '--tp=3')\n{RUN}",
    f"cmd = {LIST[:-1]}, '--tp', '3']\ncmd.pop()\n{RUN}",
    f"cmd = {LIST}\ncmd[n:] = ['--tp', '3']\n{RUN}",
    f"cmd = {LIST}\ndef add():\n    cmd.extend(['--tp', '3'])\nadd()\n{RUN}",
    "cmd = 'lmdeploy serve api_server m'\nif a:\n    cmd += ' --tp 3'\nos.system(cmd)\n",
]
HEAD = "import os\nimport subprocess\n"


@pytest.mark.parametrize("text", FOLLOWED)
def test_what_is_always_added_is_part_of_the_command(text: str) -> None:
    """A name, an attribute or an argument grows before it is run, in an order that the file fixes."""
    launch = only_launch(HEAD + text, "python", "x.py")
    assert given_options(launch) == TP
    assert not launch.unread
    assert launch.model.value == "m"


@pytest.mark.parametrize("text", POSSIBLE)
def test_what_one_branch_adds_is_judged(text: str) -> None:
    """The command is judged with the words of the only branch that adds any, as it is for a name that grows."""
    assert given_options(only_launch(HEAD + text, "python", "x.py")) == TP


@pytest.mark.parametrize("text", COPIED)
def test_what_a_copy_gets_is_no_part_of_the_command(text: str) -> None:
    """A slice, a call, a sum or a text of another name is another object."""
    launch = only_launch(HEAD + text, "python", "x.py")
    assert (given_options(launch), launch.unsure) == ({}, False)


@pytest.mark.parametrize("text", UNFOLLOWED)
def test_what_is_added_somewhere_is_said(text: str) -> None:
    """Where the file does not fix whether, when or where words come in, LMD002 names the statement."""
    assert only_launch(HEAD + text, "python", "x.py").unsure
    assert "LMD002" in {finding.rule.id for finding in review("x.py", HEAD + text).findings}


def test_a_dictionary_of_variables_has_two_names() -> None:
    """What is set by either name is set for the process."""
    text = f"env = dict(os.environ)\ne = env\ne['CUDA_VISIBLE_DEVICES'] = '0'\nsubprocess.run({LIST}, env=env)\n"
    assert only_launch(HEAD + text, "python", "x.py").environment["CUDA_VISIBLE_DEVICES"].value == "0"


def test_what_is_added_after_the_start_is_not_part_of_the_command() -> None:
    """Nor is what another class adds to an attribute of its own."""
    later = f"cmd = {LIST}\n{RUN}cmd += ['--tp', '3']\n"
    other = f"{IN_INIT}{GO}class T:\n    def f(self):\n        self.cmd2 = []\n        self.cmd2 += ['--tp', '3']\n"
    for text in (later, other):
        launch = only_launch(HEAD + text, "python", "x.py")
        assert (given_options(launch), launch.unsure) == ({}, False)
