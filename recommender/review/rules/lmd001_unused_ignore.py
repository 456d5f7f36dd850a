"""An ignore that ignores nothing

Finds a ``# recommend: ignore ...`` comment whose rules find nothing where it stands. A rule that did not run, for
want of a GPU, a model or a load, is not counted.

The fault was mended, or the comment stands on the wrong line. Left in place it would hide the next fault of that
kind, and it tells the reader of a problem that is not there.

Bad:

    # recommend: ignore LMD101 because the old release had it
    lmdeploy serve api_server internlm/internlm2_5-7b-chat --session-len 8192

Good: the comment is gone, or stands on the line (or right above the command) that it is about.
"""

from recommender.review.rule import Rule

RULE = Rule(
    id="LMD001",
    name="unused-ignore",
    family="operations",
    severity="warning",
    sources=(),
)
