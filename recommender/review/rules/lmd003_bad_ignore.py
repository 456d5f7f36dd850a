"""An ignore that is not written as it must be

Finds a ``# recommend: ignore ...`` comment that names no rule, names one that does not exist, or gives no reason.

An ignore without a reason cannot be judged a year later, and a misspelt id ignores nothing.

Bad:

    # recommend: ignore LMD101
    # recommend: ignore LMD1O1 because the release has it

Good:

    # recommend: ignore LMD101 because our fork of LMDeploy has this option
"""

from recommender.review.rule import Rule

RULE = Rule(
    id="LMD003",
    name="bad-ignore",
    family="operations",
    severity="warning",
    sources=(),
)
