"""Quote values for shell, Python, YAML and comments."""

import re
import shlex
import textwrap

from recommender.common.text import SCRIPT_WIDTH, printable


def shell(value: object) -> str:
    """Return a value as one word of bash."""
    return shlex.quote(str(value))


def shell_default(value: object) -> str:
    """Return a value as the default inside an unquoted ``${NAME:-...}`` of an assignment."""
    # A closing brace or a history mark is safe only inside the quotes that shlex leaves off for plain words.
    return shlex.quote(str(value))


def python(value: object) -> str:
    """Return a value as a Python literal; surrogates and control characters are escaped."""
    return ascii(value)


def yaml(text: str) -> str:
    """Return a text as YAML's double-quoted scalar in ASCII.

    Raises ValueError for a lone surrogate.
    """
    text.encode()
    escaped = text.replace("\\", r"\\").replace('"', r"\"").encode("ascii", "backslashreplace").decode()
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda control: f"\\x{ord(control[0]):02x}", escaped) + '"'


def comment(text: str, width: int = SCRIPT_WIDTH, indent: str = "") -> str:
    """Return text as comment lines of bash and Python; no character of it ends the comment."""
    lines = textwrap.wrap(printable(text), width=width - len(indent), break_long_words=True, break_on_hyphens=False)
    return "\n".join(f"{indent}# {line}" for line in lines)


def variable(option: str) -> str:
    """Return the environment variable of a script that overrides an option."""
    return option.upper().replace("-", "_").replace(".", "_")
