"""Reads the seed texts by their own tables and code blocks, without looking at any record.

The texts are not part of the repository: they lie in ``../shared/seeds`` beside
it, or in the folder that the variable ``SEEDS_DIR`` names.
"""

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
YES, NO = "\u2705", "\u274c"

Numbered = list[tuple[int, str]]


def folder() -> Path:
    named = os.environ.get("SEEDS_DIR")
    return Path(named) if named else ROOT.parent / "shared" / "seeds"


def repair(text: str) -> str:
    """Undo UTF-8 that was read as cp1252; the five bytes cp1252 lacks were kept as themselves."""

    def raw(char: str) -> bytes:
        try:
            return char.encode("cp1252")
        except UnicodeEncodeError:
            return bytes([ord(char)]) if ord(char) < 256 else char.encode("utf-8")

    return b"".join(map(raw, text)).decode("utf-8", errors="replace")


def option_id(name: str) -> str:
    """``--session-len``, ``SESSION_LEN`` and ``session_len`` are one id."""
    return name.strip("`* ").lstrip("-").lower().replace("_", "-")


@dataclass
class Block:
    """One fenced code block and the heading above it."""

    language: str
    heading: str
    lines: Numbered = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    @property
    def is_shell(self) -> bool:
        """Shell that sets or starts something; a sample request is read as JSON instead."""
        return self.language == "bash" and "curl " not in self.text


@dataclass
class Config:
    """What a configuration sets: the positional model and one value an option."""

    model: str = ""
    settings: dict[str, str] = field(default_factory=dict)


def blocks(lines: Numbered) -> list[Block]:
    found: list[Block] = []
    heading, inside = "", False
    for number, line in lines:
        fence = re.match(r"\s*```(\w*)", line)
        if fence:
            inside = not inside
            if inside:
                found.append(Block(fence[1], heading))
        elif inside:
            found[-1].lines.append((number, line))
        elif line.startswith("#"):
            heading = line
    return found


def prose(lines: Numbered) -> Iterator[tuple[int, str]]:
    inside = False
    for number, line in lines:
        if re.match(r"\s*```", line):
            inside = not inside
        elif not inside:
            yield number, line


def tables(lines: Numbered) -> list[list[list[str]]]:
    """The Markdown tables, as rows of cells without the dashed row."""
    found: list[list[list[str]]] = []
    fresh = True
    for _, line in prose(lines):
        if not line.startswith("|"):
            fresh = True
            continue
        if fresh:
            found.append([])
            fresh = False
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found[-1].append(cells)
    return found


@dataclass
class Script:
    """Variables and command words of a shell text, as far as launch scripts need it."""

    variables: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    is_command: bool = False

    def expand(self, word: str) -> str:
        """``${X:-v}`` is v, ``$X`` and ``${X}`` what was set before."""
        default = re.fullmatch(r"\$\{\w+:-(.*)\}", word)
        if default:
            return default[1]
        return re.sub(r"\$\{?(\w+)\}?", lambda m: self.variables.get(m[1], m[0]), word)

    @property
    def used(self) -> set[str]:
        """Variables that the command takes its values from."""
        return {name for word in self.words for name in re.findall(r"\$\{?(\w+)", word)}

    @property
    def positional(self) -> str:
        """The model: the first word after ``serve``, or after ``api_server``."""
        if not self.is_command:
            return ""
        rest = self.words[self.words.index("serve") + 1 :]
        return rest[1] if rest[0] == "api_server" else rest[0]

    @property
    def options(self) -> dict[str, str]:
        """Options of the command with values as written; a bare switch is true."""
        found: dict[str, str] = {}
        for word, following in zip_longest(self.words, self.words[1:], fillvalue=""):
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                taken = value if equals else following
                found[option_id(name)] = taken if equals or (taken and not taken.startswith("-")) else "true"
        return found


def read_script(lines: Numbered) -> Script:
    """Read assignments, the ``lmdeploy serve`` command, and options that stand without a command."""
    script = Script()
    joined = re.sub(r"\\\n", " ", "\n".join(line for _, line in lines))
    for line in joined.split("\n"):
        words = shlex.split(line, comments=True)
        if words[:1] == ["export"]:
            words = words[1:]
        assignment = re.fullmatch(r"(\w+)=(.*)", words[0]) if len(words) == 1 else None
        if assignment:
            script.variables[assignment[1]] = script.expand(assignment[2])
        elif "lmdeploy" in words and "serve" in words:
            script.words, script.is_command = words, True
        elif words and words[0].startswith("--"):
            script.words += words
    return script


def read_config(script: Script, names: dict[str, str] | None = None) -> Config:
    """Turn a script into settings. ``names`` says which option a variable fills where no command does."""
    config = Config(model=script.expand(script.positional))
    for option, value in script.options.items():
        config.settings[option] = script.expand(value)
    for variable, value in script.variables.items():
        if variable in script.used:
            continue
        option = (names or {}).get(variable, option_id(variable))
        if option == "model":
            config.model = value
        else:
            config.settings[option] = value
    return config


@cache
def _on_disk(where: Path, seed: str) -> list[str]:
    return next(where.glob(f"{seed}_*.txt")).read_bytes().decode("utf-8").split("\n")


@cache
def _readable(where: Path, seed: str) -> Numbered:
    text = "\n".join(_on_disk(where, seed))
    return list(enumerate((repair(text) if seed == "001" else text).split("\n"), 1))


@dataclass(frozen=True)
class Seeds:
    """The five texts, 000 to 004."""

    where: Path

    def on_disk(self, seed: str) -> list[str]:
        """The lines as they stand in the file; line 1 is the first."""
        return _on_disk(self.where, seed)

    def lines(self, seed: str) -> Numbered:
        """Numbered lines, readable."""
        return _readable(self.where, seed)

    @cached_property
    def table(self) -> list[list[str]]:
        return tables(self.lines("000"))[0]

    @cached_property
    def memory_table(self) -> list[list[str]]:
        return tables(self.lines("000"))[1]

    @cached_property
    def chatbots(self) -> dict[str, str]:
        """Id and name of the advisers that the comparison names."""
        return {name.lower(): name for name in self.table[0][1:-1]}

    def answer(self, adviser: str) -> Numbered:
        """One chatbot's part of 001."""
        starts = {line: number for number, line in self.lines("001")}
        marks = sorted(starts[f"## {name}"] for name in self.chatbots.values())
        first = starts[f"## {self.chatbots[adviser]}"]
        after = [mark for mark in marks if mark > first]
        return [(n, line) for n, line in self.lines("001") if n >= first and (not after or n < after[0])]

    @cached_property
    def baseline_script(self) -> Script:
        return self._command(self.lines("003"))

    @staticmethod
    def _command(lines: Numbered) -> Script:
        return next(s for b in blocks(lines) if b.is_shell and (s := read_script(b.lines)).is_command)

    @cached_property
    def variable_options(self) -> dict[str, str]:
        """Which option each variable of the baseline fills, as its own command says."""
        script = self.baseline_script
        names = {next(iter(re.findall(r"\$\{?(\w+)", value)), ""): o for o, value in script.options.items()}
        return names | {script.positional.strip("${}"): "model"}

    def final(self, adviser: str) -> Config:
        """The configuration an adviser ends with, its request fields and its declined switches included."""
        if adviser == "baseline":
            return read_config(self.baseline_script)
        if adviser == "guide":
            return read_config(self._command(self.lines("002")))
        if adviser == "hybrid":
            return Config(settings={option: low for option, (low, _) in self.hybrid.items()})
        answer = self.answer(adviser)
        shell = [block for block in blocks(answer) if block.is_shell]
        whole = [block for block in shell if "lmdeploy serve api_server" in block.text]
        parts = whole or [block for block in shell if "Final" in block.heading]
        config = read_config(read_script([line for part in parts for line in part.lines]), self.variable_options)
        for block in blocks(answer):
            if "chat/completions" in block.text:
                for name, value in re.findall(r'"(\w+)":\s*(\d[\d.]*)', block.text):
                    config.settings[option_id(name)] = value
        for switch in self.declined(adviser):
            config.settings.setdefault(switch, "false")
        return config

    @cached_property
    def switches(self) -> set[str]:
        """Options that some command of the texts gives without a value."""
        scripts = [self.baseline_script, self._command(self.lines("002"))]
        for adviser in self.chatbots:
            scripts += [read_script(b.lines) for b in blocks(self.answer(adviser)) if b.is_shell]
        return {option for script in scripts for option, value in script.options.items() if value == "true"}

    def declined(self, adviser: str) -> set[str]:
        """Switches that an answer says it takes out or leaves off."""
        found = set()
        for switch in self.switches:
            words = re.sub(r"^enable-", "", switch).replace("caching", "cach").replace("-", "[ -]")
            pattern = re.compile(rf"\b(remov|disabl)\w*\b.*{words}|{words}.*\bremoved\b", re.IGNORECASE)
            if any(pattern.search(line) for _, line in self.answer(adviser)):
                found.add(switch)
        return found

    @cached_property
    def hybrid(self) -> dict[str, tuple[str, str]]:
        """The comparison's own advice: low and high end, high empty for one value."""
        text = self.lines("000")
        start = next(number for number, line in text if "hybrid approach" in line)
        found: dict[str, tuple[str, str]] = {}
        for _, line in text[start:]:
            bullet = re.match(r"- \*\*([A-Z_]+)\*\*: ([\d.]+)(?:-([\d.]+))?", line)
            if bullet:
                found[option_id(bullet[1])] = (bullet[2], bullet[3] or "")
            elif line.startswith("#"):
                break
        return found

    def table_values(self) -> dict[tuple[str, str], str]:
        """Value of each cell of the comparison's table, by adviser and option; a cross or ``false`` is false."""
        marks = {YES: "true", NO: "false"}
        return {
            (adviser, option_id(row[0])): marks.get(cell, cell)
            for row in self.table[1:]
            for adviser, cell in zip(self.chatbots, row[1:-1], strict=True)
        }

    def table_reasons(self) -> set[tuple[str, str]]:
        """Adviser and option of each cell for which the comparison states a reason."""
        found = set()
        for row in self.table[1:]:
            named: set[str] = set()
            for part in row[-1].split("<br>"):
                who = re.match(r"\*\*([\w/]+)\*\*:", part)
                assert who, part
                groups = {"all": set(self.chatbots), "others": set(self.chatbots) - named}
                named |= groups.get(who[1].lower(), set(who[1].lower().split("/")))
            found |= {(adviser, option_id(row[0])) for adviser in named}
        return found

    def guide_suggestions(self) -> dict[str, set[str]]:
        """Values that the guide's sections name for each option, in the heading or marked in the text."""
        found: dict[str, set[str]] = {}
        option = ""
        for _, line in prose(self.lines("002")):
            head = re.match(r"### `--([\w-]+)(?: (\S+))?`", line)
            if head:
                option = head[1]
                found[option] = {head[2] or "true"}
            elif line.startswith("#"):
                option = ""
            elif option and line.startswith("- "):
                number = r"\d+(?:\.\d+)?"
                for low, high in re.findall(rf"(?<![\dx.])({number})\u2013({number})(?![\dx])", line):
                    found[option] |= {low, high}
                found[option] |= set(re.findall(rf"`({number})`", line))
        return found

    def scenarios(self) -> dict[int, set[str]]:
        """Advisers that the comparison picks, by the line of the scenario's heading."""
        found: dict[int, set[str]] = {}
        chapter, heading = "", 0
        for number, line in prose(self.lines("000")):
            if line.startswith("## "):
                chapter = line
                heading = number if "Best Overall" in line else 0
            elif line.startswith("### "):
                heading = number if "Scenario" in chapter else 0
            elif heading and heading not in found and (names := self._named(line)):
                found[heading] = names
        return found

    def _named(self, line: str) -> set[str]:
        return {adviser for adviser, name in self.chatbots.items() if re.search(rf"\b{name}\b", line)}
