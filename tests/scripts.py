"""What tests ask of a script that the review reads."""

from recommender.review.engine import review
from recommender.review.readers.detect_kind import read
from recommender.review.script.model import Kind, Launch, Script, Span

PATHS = {
    "bash": "serve.sh", "command": "-", "python": "serve.py", "compose": "docker-compose.yaml",
    "kubernetes": "deployment.yaml", "docker": "Dockerfile", "systemd": "lmdeploy.service",
}  # fmt: skip
"""A path of each kind of file."""


def read_bash(path: str, text: str) -> Script:
    """Read a bash script, whatever its name."""
    return read(path, text, "bash")


def only_launch(text: str, kind: Kind | None = "bash", path: str = "start.sh") -> Launch:
    script = read(path, text, kind)
    assert len(script.launches) == 1, (script.launches, script.problems)
    return script.launches[0]


def given_options(launch: Launch) -> dict[str, list[str | None]]:
    return {option.name: [word.value for word in option.values] for option in launch.options}


def place_of(text: str, part: str) -> Span:
    start = text.index(part)
    return read_bash("x", text).place(start, start + len(part))


def text_at(text: str, place: Span | None) -> str | None:
    return text[place.start : place.end] if place else None


def rules_found(path: str, text: str) -> list[str]:
    """The rules of a text's errors and warnings."""
    return [each.rule.id for each in review(path, text, {}).findings if each.severity != "info"]
