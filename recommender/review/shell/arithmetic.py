"""Calculate the sums of products in shell scripts, such as ``$((BASE + 2 * COUNT))``."""

from __future__ import annotations

from recommender.common.pattern import pattern
from recommender.review.script.variables import Variables

NUMBER = pattern(r"0|-?[1-9]\d{0,9}")
FACTOR = pattern(r"(?<![\w${])(?P<number>\d+)|\$?\{?(?P<name>\w+)\}?")
_FACTOR = r"(?:\w+|\$\w+|\$\{\w+\})"
TERM = pattern(rf"(?P<sign>[+-]?)\s*(?P<factors>{_FACTOR}(?:\s*\*\s*{_FACTOR}){{0,3}})\s*")
SUM = pattern(rf"\$\(\(\s*({_FACTOR}(?:\s*[+*-]\s*{_FACTOR}){{0,6}})\s*\)\)")
"""A sum of products, and what it is made of."""


def total_of(text: str, state: Variables) -> str:
    """Return the value of a sum of products if its variables are known; empty for another one."""
    match = SUM.fullmatch(text.strip())
    total = 0
    for term in TERM.finditer(match[1] if match else ""):
        product = -1 if term["sign"] == "-" else 1
        for factor in FACTOR.finditer(term["factors"]):
            given = state.get(factor["name"]) if factor["name"] else None
            known = given.text if given is not None else factor["number"]
            if known is None or not NUMBER.fullmatch(known):
                return ""
            product *= int(known)
        total += product
    return str(total) if match else ""
