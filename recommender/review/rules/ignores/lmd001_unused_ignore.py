"""An ignore comment that hides nothing

## What it does
Reports a `# recommend: ignore ...` comment if its rules find nothing at that place. Rules that did not run, because
the GPU, model or load is unknown, do not count.

## Why
Either the problem was fixed, or the comment is on the wrong line. If it stays, it hides the next problem of the same
kind and points readers to a problem that is gone.

## Bad

    # recommend: ignore LMD101 because the old release had it
    lmdeploy serve api_server internlm/internlm2_5-7b-chat --session-len 8192

## Good
Delete the comment, or move it to the line it is about, or to the line above that command:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --session-len 8192
"""

from recommender.review.rule import declare

rule = declare(__name__, "warning")
