"""Read commands in HCL: jobs of Nomad, containers and scripts in Terraform."""

from dataclasses import replace

from recommender.review.readers.hcl_nodes import HclFile
from recommender.review.readers.manifest_words import one_word
from recommender.review.readers.steps import Around, read_nodes
from recommender.review.script.model import Comment, ReadProblem, Script
from recommender.review.script.source_map import SourceText
from recommender.review.shell.grammar import Unparsed


def read(script: Script) -> Script:
    """Read a file in HCL."""
    page = SourceText(script)
    try:
        file = HclFile(script.text)
    except Unparsed as problem:
        return replace(script, problems=(ReadProblem(str(problem), page.place(0, 0)),))
    comments = tuple(Comment(script.text[start:end], page.place(start, end)) for start, end in file.comments)
    values = {name: word for name, node in file.values.items() if (word := one_word(page, node))}
    found = read_nodes(replace(script, comments=comments), page, [file.root], Around(values))
    if file.error_at is None:
        return found
    at = min(file.error_at, len(script.text))
    return replace(found, problems=(*found.problems, ReadProblem("this is not valid HCL", page.place(at, at))))
