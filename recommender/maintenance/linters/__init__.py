"""The linters of the knowledge base: one function each; its docstring says what it checks and how to repair it."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from recommender.maintenance.knowledge_folder import KnowledgeFolder, Problem
from recommender.maintenance.linters import evidence, files, references, releases, values

__all__ = ["LINTERS"]

LINTERS: Mapping[str, Callable[[KnowledgeFolder], Iterable[Problem]]] = MappingProxyType(
    {
        linter.__name__: linter
        for linter in (
            files.types,
            files.files,
            files.keys,
            files.unfinished,
            references.references,
            values.conditions,
            values.claim_conditions,
            values.reasons,
            values.settings,
            releases.eras,
            releases.releases,
            releases.facts,
            releases.support,
            references.names,
            values.numbers,
            references.threads,
            values.gpus,
            values.verdicts,
            evidence.comparisons,
            evidence.spans,
            evidence.weights,
            evidence.runs,
            evidence.benchmarks,
            files.schema,
        )
    }
)
"""By name, in the order in which they run."""
