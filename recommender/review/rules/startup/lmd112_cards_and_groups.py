"""A GPU count that splits a quantisation group

## What it does
Reports a `--tp` that does not give every GPU whole groups of an AWQ or GPTQ model.

## Why
Weights are scaled in groups of 128 input columns. With a head size of 64, two heads make one group, so each GPU needs
an even number of heads. A model with 14 heads on 2 GPUs has 7 per GPU, and the weight conversion fails.

## Bad
14 heads of size 64:

    lmdeploy serve api_server OpenGVLab/InternVL3-1B-AWQ --tp 2

## Good
Use a smaller `--tp`, or the 16-bit weights:

    lmdeploy serve api_server OpenGVLab/InternVL3-1B-AWQ
"""

from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__, "error", ("awq-tp2-small-heads", "awq-tp4-small-heads", "awq-tp8-small-heads"), needs=("model",)
)
