"""Read the matrix of a workflow's job: the variables of each combination that the tool runs."""

from collections.abc import Collection, Iterable
from itertools import product
from math import prod

from recommender.review.readers.manifest_words import one_word
from recommender.review.readers.yaml_nodes import Node
from recommender.review.script.model import Word
from recommender.review.script.source_map import SourceText

MOST_PRODUCT = 16
"""Most combinations of the axes that are reviewed; beyond them, each value is reviewed once."""
MOST_VALUES, MOST_COMBINATIONS = 24, 40
"""Most values of an axis, and in all; further ones stay unknown, and the review says so."""

Combination = dict[str, Word]


def combinations(page: SourceText, job: Node) -> list[Combination]:
    """Return the variables of each combination; empty without a matrix, or if only a run knows its values."""
    matrix, listed = job.get("strategy", "matrix"), job.get("parallel", "matrix")
    if matrix is not None and matrix.kind == "map":
        if all(value.kind == "map" for _, value in matrix.pairs):  # Azure: a map of maps
            found = [_one(page, value) for _, value in matrix.pairs]
        else:
            found = _of_github(page, matrix)
    else:  # GitLab: a list of maps
        found = [combination for item in (listed.items if listed else ()) for combination in _product(page, item)]
    return found if len(found) <= MOST_COMBINATIONS else []


def _of_github(page: SourceText, matrix: Node) -> list[Combination]:
    """Return the product of the lists, without what ``exclude`` names and with what ``include`` adds."""
    products = _product(page, matrix)
    names = {name for combination in products for name in combination}
    for gone in filter(None, (_one(page, item) for item in _items(matrix.get("exclude")))):
        products = [combination for combination in products if not _agree(gone, combination, gone)]
    included: list[Combination] = []
    for item in _items(matrix.get("include"))[: MOST_COMBINATIONS + 1]:
        added = _one(page, item)
        joined = [combination for combination in products if names and _agree(added, combination, added.keys() & names)]
        for combination in joined:
            combination |= added
        included += [] if joined else [added]
    every = {name: word for combination in (*products, *included) for name, word in combination.items()}
    absent = {name: word._replace(value="", literal=None) for name, word in every.items()}
    return [absent | combination for combination in (*products, *included)]


def _agree(combination: Combination, other: Combination, names: Collection[str]) -> bool:
    return all(name in other and combination[name].value == other[name].value for name in names)


def _product(page: SourceText, axes: Node) -> list[Combination]:
    """Return each combination of the lists; of too many, each value once with the first of the others."""
    pairs = [(name.text, value) for name, value in axes.pairs if name.text not in ("include", "exclude")]
    values = [found for name, value in pairs if 0 < len(found := _values(page, name, value)) <= MOST_VALUES]
    if prod(map(len, values)) <= MOST_PRODUCT:
        return [_joined(chosen) for chosen in product(*values)] if values else []
    first = [each[0] for each in values]
    rest = ([*first[:at], other, *first[at + 1 :]] for at, each in enumerate(values) for other in each[1:])
    return [_joined(chosen) for chosen in (first, *rest)]


def _joined(parts: Iterable[Combination]) -> Combination:
    return {name: word for part in parts for name, word in part.items()}


def _values(page: SourceText, name: str, node: Node) -> list[Combination]:
    """Return what each element of a list sets: the axis, or the names of a map; empty if one is no plain text."""
    items = node.items if node.kind == "list" else [node]
    found = [_one(page, item) if item.kind == "map" else _scalar(page, name, item) for item in items]
    return found if all(found) else []


def _scalar(page: SourceText, name: str, item: Node) -> Combination:
    word = one_word(page, item)
    return {name: word} if word is not None and "${{" not in (word.value or "") else {}


def _one(page: SourceText, item: Node) -> Combination:
    pairs = ((name.text, one_word(page, value)) for name, value in item.pairs)
    return {name: word for name, word in pairs if word is not None}


def _items(node: Node | None) -> list[Node]:
    return [item for item in (node.items if node else ()) if item.kind == "map"]
