"""A malformed ignore comment

## What it does
Reports a `# recommend: ignore ...` comment that names no rule, names an unknown or retired rule, or gives no reason.

## Why
A year later, nobody can judge an ignore without a reason. A misspelt id ignores nothing.

## Bad

    # recommend: ignore LMD101
    # recommend: ignore LMD1O1 because the release has it

## Good
Name the rule and the reason:

    # recommend: ignore LMD101 because our fork of LMDeploy has this option
"""

from recommender.review.rule import declare

rule = declare(__name__, "warning")
