"""A safe YAML loader that bounds levels, entries, and what aliases and merges repeat. Import it late: yaml is slow."""

from __future__ import annotations

from typing import Any

import yaml
from yaml.composer import Composer

from recommender.common.text import shorten
from recommender.common.user_file import Unreadable

DEEPEST = 60
"""Levels of lists and maps."""
MOST_ENTRIES = 60_000
"""Entries, those behind aliases counted each time."""
LONG = 128
"""Characters of a word that count as one more entry."""
MOST_DIGITS = 400
PLAIN: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NUMBERS = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})


class BoundedLoader(Composer, PLAIN):  # type: ignore[misc]
    """Parses with libyaml, and composes in Python, where depth and size can be bounded."""

    def __init__(self, text: str) -> None:
        PLAIN.__init__(self, text)
        Composer.__init__(self)
        self.depth = self.entries = 0
        self.sizes: dict[int, int] = {}
        """Entries in and below each node."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if self.depth >= DEEPEST:
            raise Unreadable(f"invalid YAML: nested more than {DEEPEST} levels deep; fix it there")
        if isinstance(event, yaml.ScalarEvent) and event.anchor is None:  # nine of ten nodes
            return self._checked(self.compose_scalar_node(None))  # type: ignore[arg-type]  # the stubs know no None
        alias, before = isinstance(event, yaml.AliasEvent), self.entries
        self.depth += 1
        node: Any = super().compose_node(parent, index)
        self.depth -= 1
        if not alias:
            self._checked(node)
            self.sizes[id(node)] = self.entries - before
        elif id(node) in self.sizes:
            self.count(self.sizes[id(node)])
        else:
            raise Unreadable("invalid YAML: an anchor contains itself; fix it there")
        return node

    def _checked(self, node: Any) -> Any:
        """Count a node; a word that is a number has few digits."""
        if isinstance(node, yaml.ScalarNode):
            if len(node.value) > MOST_DIGITS and node.tag in NUMBERS:
                raise Unreadable(f"invalid YAML: a number has more than {MOST_DIGITS} digits; fix it there")
            self.count(1 + len(node.value) // LONG)
        else:
            self.count(1)
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Name the line of a value that is none of its kind, such as an unquoted date of month 13."""
        try:
            return super().construct_object(node, deep)
        except Unreadable:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            written = shorten(node.value if isinstance(node.value, str) else node.id, 40)
            what = f"{written} is no {node.tag.rpartition(':')[2]} ({error})"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark) from None

    def flatten_mapping(self, node: Any) -> None:
        """Count what each merge adds, before it is added."""
        merged = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        for value in merged:
            for mapping in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(mapping, yaml.MappingNode):
                    self.flatten_mapping(mapping)
                    self.count(len(mapping.value))
        super().flatten_mapping(node)

    def count(self, more: int) -> None:
        self.entries += more
        if self.entries > MOST_ENTRIES:
            most = f"more than {MOST_ENTRIES:,} entries, with what its aliases (*) and merges (<<) repeat"
            raise Unreadable(f"invalid YAML: {most}; fix it there")
