"""Line ends that break a command

## What it does
Reports a shell script with Windows line ends that starts a server, and a blank behind the backslash that should
continue a server's command.

## Why
bash takes a carriage return for part of the last word of its line, so the model gets a name that does not exist. A
backslash continues a line only if the line ends right after it: otherwise the command ends there with a stray word,
which LMDeploy's parser rejects, and bash runs the options below as a program. Neither is visible in an editor.

## Bad
A blank after the first backslash:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct \\ 
      --server-port 8000

## Good
Remove blanks at the ends of lines, convert the file with `dos2unix`, and keep it so with `*.sh text eol=lf` in
.gitattributes:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct \\
      --server-port 8000
"""

from collections.abc import Iterator

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, Fix, script_rule
from recommender.review.script.model import Script, Span

BLANK = pattern(r"[^\n]*?\\([ \t]+)(?=\n)")
CONTINUED = pattern(r"[^\n]*\\([ \t]*)\n")
KINDS = ("bash", "command", "docker", "lines", "steps", "compose", "kubernetes", "markdown")


@script_rule("error", sources=("https://www.shellcheck.net/wiki/SC1017", "https://www.shellcheck.net/wiki/SC1101"))
def rule(script: Script) -> Diagnostics:
    if script.kind not in KINDS or script.path.endswith((".ps1", ".bat", ".cmd")):
        return
    if script.windows and script.kind in ("bash", "command") and script.launches:
        yield Diagnostic(
            script.place(0, len(script.text.partition("\n")[0])),
            "The lines end with carriage returns, which bash takes for part of each last word.",
            "Names and continued lines break; convert the file with dos2unix.",
        )
    for launch in script.launches:
        match = BLANK.match(script.text, launch.place.end)
        if match is not None and not match[0].lstrip().startswith("#"):
            place = script.place(*match.span(1))
            yield Diagnostic(
                place,
                "A blank follows the backslash, so the command ends here with a stray word.",
                "LMDeploy's parser rejects the word, and bash runs the next line as a program.",
                Fix(tuple(_blanks(script, launch.place.end)), "remove the blank"),
            )


def _blanks(script: Script, at: int) -> Iterator[tuple[Span, str]]:
    """Yield the repair of every line that the command meant to continue: one alone would only move the break."""
    while match := CONTINUED.match(script.text, at):
        if match[1]:
            yield script.place(*match.span(1)), ""
        at = match.end()
