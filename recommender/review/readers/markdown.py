"""Read the code blocks of Markdown and reStructuredText: what a README tells its readers to start."""

import re
from collections.abc import Iterator
from dataclasses import replace

from recommender.common.pattern import pattern
from recommender.review.readers.detect_kind import is_dockerfile, kind_of
from recommender.review.script.mentions import LAUNCH, outside
from recommender.review.script.model import Embedded, Script

BLOCK = pattern(
    r"(?m)^(?P<indent>[ \t>]*)(?P<fence>```+|~~~+)[ \t]*(?P<language>[\w+-]*)[^\n]*\n(?P<code>(?:[^\n]*\n)*?)"
    r"[ \t>]*(?P=fence)[ \t]*$"
)
DIRECTIVE = pattern(
    r"(?m)^(?P<indent>[ \t]*)\.\. (?:code-block|code|sourcecode|prompt)::[ \t]*(?P<language>[\w+-]*)[^\n]*\n"
    r"(?:(?P=indent)[ \t]+:[^\n]*\n)*(?P<code>(?:[ \t]*\n|(?P=indent)[ \t]+[^\n]*(?:\n|\Z))*)"
)
NAMES = {
    **dict.fromkeys(("", "sh", "bash", "shell", "zsh", "console", "shell-session", "terminal"), "block.sh"),
    **dict.fromkeys(("python", "py", "python3"), "block.py"),
    **dict.fromkeys(("yaml", "yml", "json"), "block.yaml"),
    **dict.fromkeys(("hcl", "terraform", "tf", "nomad"), "block.hcl"),
    **dict.fromkeys(("javascript", "js", "typescript", "ts", "go", "rust", "java", "groovy", "kotlin"), "block.ts"),
    **dict.fromkeys(("bat", "batch", "cmd", "dos"), "block.bat"),
    "toml": "block.toml",
    "dockerfile": "Dockerfile",
    "makefile": "Makefile",
    "ini": "block.service",
    "systemd": "block.service",
}
"""By a block's language, the name of a file of that kind. Other blocks are not read."""
BY_KIND: dict[str, str] = {"compose": "block.yaml", "kubernetes": "block.yaml", "python": "block.py"}
"""By the kind that a block's content shows; others are commands."""
INDENTED = pattern(r"(?m)(?:\A|^[ \t]*\n)(?P<code>(?:(?: {3}|\t)[^\n]*+(?:\n|\Z))++)")
"""Code that only its indentation shows, below an empty line: four blanks in Markdown, three in reStructuredText."""
TYPED = pattern(
    r"(?m)^[ \t>]*(?:\$ )?(?:\w+=\S+[ \t]+|(?:nohup|env|sudo|exec)[ \t]+)*"
    r"(?:lmdeploy[ \t]+(?:serve|lite|chat)\b|(?:docker|podman)[ \t]+run\b)"
)
"""A command as one types it: a block with it holds commands, whatever it is called."""
IN_TEXT = pattern(
    r"(?m)^[ \t>]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?`?(?:\$ )?"
    r"(?P<code>lmdeploy[ \t]+serve[ \t]+(?:api_server|proxy)[ \t]+(?=--\w|\$|[^\s`/]*/)(?:[^`\n\\]|\\.|\\\n)*)"
)
"""A command that begins a line of prose or an item of a list: with a model's path or an option, so no sentence."""
POWERSHELL = pattern(r"(?m)`[ \t]*$|\$env:\w")
"""What only PowerShell has; a block may be called so and hold what bash takes too."""
CONTINUED = pattern(r"(?m)[ \t]`[ \t]*$")
"""A line that PowerShell continues, whatever its block is called."""
YAML = pattern(r"(?m)^[ \t>]*(?:-[ \t]+)?[\"']?[\w./-]+[\"']?:(?:[ \t\n]|$)|^[ \t>]*[\[{]")
PROMPT = pattern(r"(?m)^[ \t]*\$ (?P<line>(?:[^\n\\]|\\.|\\\n)*)")


def read(script: Script) -> Script:
    """Leave the blocks, and lines that are commands, to the readers of their kinds. Prose starts nothing."""
    block = DIRECTIVE if script.path.lower().endswith(".rst") else BLOCK
    blocks = list(block.finditer(script.text))
    embedded = [Embedded(*part) for block in blocks for part in _parts(script.text, block)]
    code = [block.span() for block in blocks]
    indented = [span for span in outside(script.text, INDENTED, code, "code") if TYPED.search(script.text, *span)]
    lines = list(outside(script.text, IN_TEXT, (*code, *indented), "code"))
    embedded += [Embedded("block.sh", *span) for span in (*indented, *lines)]
    code = sorted((*code, *indented, *lines))
    ends = [0, *(end for span in code for end in span), len(script.text)]
    prose = tuple(zip(ends[::2], ends[1::2], strict=True))
    return replace(script, embedded=tuple(embedded), followed=(*script.followed, *prose))


def _by_content(code: str) -> str:
    """Return the name of a file of the kind that a block without a language has."""
    if is_dockerfile("", code):
        return "Dockerfile"
    return BY_KIND.get(kind_of("", code), "block.sh")


def _parts(text: str, block: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the name and range of a block, or of each line after a prompt."""
    name, (start, end) = NAMES.get(block["language"].lower()), block.span("code")
    name = _by_content(text[start:end]) if not block["language"] else name
    typed = TYPED.search(text, start, end) is not None
    if (name in (None, "block.py") and typed) or (
        name == "block.yaml" and LAUNCH.search(text, start, end) and not YAML.search(text, start, end)
    ):
        name = "block.ps1" if POWERSHELL.search(text, start, end) else "block.sh"
    if name == "block.sh" and CONTINUED.search(text, start, end):
        name = "block.ps1"
    prompts = list(PROMPT.finditer(text, start, end)) if name == "block.sh" else []
    if name:
        yield from ((name, *each.span("line")) for each in prompts)
        yield from () if prompts else ((name, start, end),)
