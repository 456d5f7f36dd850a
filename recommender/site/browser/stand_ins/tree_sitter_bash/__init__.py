"""The package of the bash grammar, in a browser: the parser has the grammar already."""


def language() -> None:
    """Return nothing: see the stand-in of ``tree_sitter``."""
