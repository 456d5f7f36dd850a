"""A variable before the command of a unit

## What it does
Reports variables that a systemd unit sets in front of the command, as a shell does.

## Why
systemd starts no shell: the first word of `ExecStart=` is the program. It looks for a program with the name of the
assignment, finds none, and the unit fails with status 203/EXEC.

## Bad

    [Service]
    ExecStart=CUDA_VISIBLE_DEVICES=0 /opt/lmdeploy/bin/lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct

## Good
Set the variable in a line of its own:

    [Service]
    Environment=CUDA_VISIBLE_DEVICES=0
    ExecStart=/opt/lmdeploy/bin/lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

from recommender.common.pattern import pattern
from recommender.common.text import shorten
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.script.model import Script

BEFORE = pattern(r"""(?m)^[ \t]*Exec\w+[ \t]*=[ \t]*[-@:+!|]*["']?(?P<set>[A-Za-z_]\w*=\S*)""")


@script_rule("error", sources=("https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html",))
def rule(script: Script) -> Diagnostics:
    if script.kind != "systemd" or not script.launches:
        return
    for match in BEFORE.finditer(script.text):
        given = shorten(match["set"])
        yield Diagnostic(
            script.place(*match.span("set")),
            f"systemd takes {given} for the program and finds none.",
            f"Only a shell reads variables before a command; write Environment={given} above.",
        )
