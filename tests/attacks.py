"""Hostile files, each a family with a size: what a user's file may hold to make a reader hang or eat memory.

``python tests/attacks.py --count 500 --seed 7`` draws a family, a size and a command for each number, runs it in a
fork with limits of its own, and prints what took more than ``SECONDS`` (a review: ``REVIEW_S``) of processor time or added ``MIB`` of memory,
ended with a code that the command does not document, or said nothing. ``--only 123`` shows one.
"""

# ruff: noqa: E501 - the tables of hostile texts
from __future__ import annotations

import argparse
import contextlib
import importlib
import multiprocessing
import os
import pkgutil
import random
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

from cpu_time import allowed, is_within

from recommender import cli, commands
from recommender.knowledge.load import load
from recommender.review import engine

SECONDS, REVIEW_S, MIB = 5.0, 2.5, 350
LIMIT_S, LIMIT_BYTES = 30, 4 * 2**30
"""Where the operating system ends a run; more than what counts as a failure, so that figures are seen."""
STATM = Path("/proc/self/statm")
SERVE = "lmdeploy serve api_server internlm/internlm3-8b-instruct"
PIPELINE = "from lmdeploy import pipeline, TurbomindEngineConfig\n"
REVIEW, CHECK, SMOKE = ("review",), ("check",), ("smoke", "--dry-run")
OPTIMIZE = ("review", "--gpu", "A100-80G", "--load", "16", "--optimize", "--diff")
COMPOSE = "services:\n  a:\n    image: openmmlab/lmdeploy:v0.9.2\n    command: " + SERVE + "\n"
POD = "apiVersion: v1\nkind: Deployment\nspec:\n  containers:\n  - command: [lmdeploy, serve, api_server, a/b]\n"
UNIT = "[Service]\nExecStart=/usr/bin/" + SERVE + "\n"
HEAD = "#!/bin/bash\n# Made by lmdeploy-recommender 0.1.0.\n"

Files = dict[str, str | bytes]
Make = Callable[[random.Random, int], Files]
"""Files by name, from a source of chance and about how many characters they have."""


@dataclass(frozen=True)
class Family:
    """A kind of attack, the commands that read it, and its largest size."""

    name: str
    make: Make
    commands: tuple[tuple[str, ...], ...]
    most: int = 1_000_000


FAMILIES: dict[str, Family] = {}


def family(*commands: tuple[str, ...], most: int = 1_000_000) -> Callable[[Make], Make]:
    """Register a family; the file named last on each command line is the first that it makes."""

    def register(make: Make) -> Make:
        name = make.__name__.strip("_")
        FAMILIES[name] = Family(name, make, commands, most)
        return make

    return register


def _filled(piece: Callable[[int], str], size: int) -> str:
    """Return pieces with ascending numbers, together about that long."""
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(piece(len(parts)))
        length += len(parts[-1])
    return "".join(parts)


# --- YAML

YAML = (
    (REVIEW, "compose.yaml", COMPOSE),
    (REVIEW, "deployment.yaml", POD),
    (("campaign", "--list", "PLAN", "results.jsonl"), "plan.yaml", ""),
    (("--gpu", "H100-80G", "--calibrate"), "run.yaml", ""),
    (
        ("campaign", "--pack", "packed", "knowledge/campaigns/h200-mixtures.yaml", "results.jsonl"),
        "packed/run.yaml",
        "",
    ),
    (("knowledge", "check", "--knowledge"), "known/gpus/h100.yaml", ""),
)


def yaml_family(make: Callable[[random.Random, int], str]) -> None:
    """Register a YAML text for every command that reads YAML."""
    for command, name, before in YAML:

        def files(chance: random.Random, size: int, name: str = name, before: str = before) -> Files:
            return {name: before + make(chance, size)}

        title = f"{make.__name__.strip('_')}-{command[0].strip('-')}-{Path(name).parent.name or Path(name).stem}"
        FAMILIES[title] = Family(title, files, (command,))


@yaml_family
def _merges(chance: random.Random, size: int) -> str:
    """Each level merges the one before it several times."""
    levels, times = chance.randint(15, 60), chance.randint(2, 9)
    return "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * times)}]\n  y{n}: 1\n" for n in range(1, levels)
    )


@yaml_family
def _aliases(chance: random.Random, size: int) -> str:
    """Each level lists the one before it several times."""
    levels, times = chance.randint(6, 40), chance.randint(2, 12)
    kind = chance.choice(("[{}]", "{{{}}}"))
    listed = (lambda n: ", ".join(f"*a{n}" for _ in range(times))) if kind == "[{}]" else (
        lambda n: ", ".join(f"k{k}: *a{n}" for k in range(times))
    )  # fmt: skip
    return "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} {kind.format(listed(n - 1))}\n" for n in range(1, levels))


@yaml_family
def _many_aliases(chance: random.Random, size: int) -> str:
    long = "x" * chance.choice((1, 100, 1000))
    return f"a: &a [{long}]\nb: [" + _filled(lambda n: "*a, ", size) + "]\n"


@yaml_family
def _wide_merge(chance: random.Random, size: int) -> str:
    """Many maps merge one large one."""
    keys = max(10, int(size**0.5) // 4)
    return "a: &a\n" + _filled(lambda n: f"  k{n}: 1\n", keys * 8) + "b:\n" + _filled(
        lambda n: "- {<<: *a}\n", size - keys * 8
    )  # fmt: skip


@yaml_family
def _self_reference(chance: random.Random, size: int) -> str:
    return chance.choice(("a: &a [*a]\n", "&a\na: *a\n", "a: &a {<<: *a}\n", "a: &a\n  b: &b {c: *a, d: *b}\n"))


@yaml_family
def _deep_flow(chance: random.Random, size: int) -> str:
    opening = chance.choice(("[", "{", "{a: ", "[[", "[{a: ", "? [", "!!set {", "&a [", "- ", "? ", "{? "))
    return "a: " + _filled(lambda n: opening, size) + chance.choice(("", "]" * 100))


@yaml_family
def _deep_block(chance: random.Random, size: int) -> str:
    return "".join(f"{' ' * n}a:\n" for n in range(int((2 * size) ** 0.5)))


@yaml_family
def _blank_runs(chance: random.Random, size: int) -> str:
    """One scalar of blanks and line ends."""
    run = chance.choice(("\n", " ", "\t", "\n ", "\r\n", " \n", "\n\n \n")) * (size // 2)
    form = chance.choice(
        ('a: "{}"\n', "a: '{}'\n", "a: |\n  x{}y\n", "a: >\n  x{}y\n", "a: |{}", "a: x{}", "{}", "a:{}b")
    )
    return form.format(run) + chance.choice(("", "\nkind: Pod\n", "z"))


@yaml_family
def _escapes(chance: random.Random, size: int) -> str:
    return (
        'a: "' + _filled(lambda n: chance.choice(("\\x41", "\\u0041", "\\n", "\\\n   ", '\\"', "x\n\n")), size) + '"\n'
    )


@yaml_family
def _long_scalar(chance: random.Random, size: int) -> str:
    """One long word where a short one is expected, or one of many kinds."""
    text = chance.choice("axz0-_.:/$#")
    value = (text + chance.choice(("", " ", "=", ",", "-", "."))) * (size // 2)
    key = chance.choice(("a", "image", "command", "shm_size", "id", "gpu", "kind", "apiVersion", "services", "<<"))
    return f"{chance.choice(('', '    '))}{key}: {chance.choice(('', chr(34), chr(39)))}{value}\n"


@yaml_family
def _many_entries(chance: random.Random, size: int) -> str:
    piece = chance.choice(
        ("k{}: v\n", "- {}\n", "--- \na{}: 1\n", "# c{}\n", "k{}: &a{} x\n", "? k{}\n", "k{}: !t{} x\n", "k{}: [1,2,{}]\n",
         "- {{a: {}, b: {}}}\n", "%T {}\n", "...\n---\n", "k{}: |\n  a\n", "k: 1\n", "{}: {}\n", "k{}: 2026-01-01\n",
         "k{}: 1:2:3:4\n", "k{}: 0x{}\n", "starts: [{}]\n")
    )  # fmt: skip
    return _filled(lambda n: piece.replace("{}", str(n)).replace("{{", "{").replace("}}", "}"), size)


@yaml_family
def _long_number(chance: random.Random, size: int) -> str:
    digits = chance.choice("189") * size
    return "a: " + chance.choice(("{}", "0x{}", "{}.5", "1e{}", "0b{}", "{}:59", "0o{}", "-{}")).format(digits) + "\n"


# --- shell and what holds shell text


@family(REVIEW, SMOKE, CHECK)
def _braces(chance: random.Random, size: int) -> Files:
    brace = chance.choice(("{1..1000000}", "{a,b,c}", "{a..z}", "{{a,b},{c,d}}", "{1..9..2}", "{", "},{", "{,}"))
    times = chance.choice((2, 10, 100, size // len(brace)))
    return {"a.sh": f"{SERVE} --tp {brace * times}\n"}


@family(REVIEW, SMOKE)
def _doubling(chance: random.Random, size: int) -> Files:
    """Variables, arrays and functions that double at each line."""
    levels, times = chance.randint(20, 200), chance.randint(2, 8)
    form = chance.choice(
        ("a{n}={used}\n", 'a{n}="{used}"\n', "a{n}=({used})\n", "a{n}+=({used})\n", "a{n}=${{a{b}//x/{used}}}\n",
         "a{n}=${{z:-{used}}}\n", "a{n}=$(echo {used})\n", "f{n}() {{ {calls} }}\n", "export a{n}={used}\n",
         "a=$a$a\n", 'a=("${{a[@]}}" "${{a[@]}}")\n', 'set -- "$@" "$@" x\n', "a+=$a\n", "local a{n}={used}\n",
         "f() {{ f{n} f{n}; }}\n", "alias a{n}='{used}'\n", "eval a{n}={used}\n", "printf -v a{n} {used}\n")
    )  # fmt: skip
    kind = '"${{a{b}[@]}}" ' if "(" in form else "$a{b}"
    lines = ["a0=xxxxxxxx\n", "a=x\n"]
    for n in range(1, levels):
        used, calls = kind.format(b=n - 1) * times, f"f{n - 1}; " * times
        lines.append(form.format(n=n, b=n - 1, used=used, calls=calls))
    end = f'f{levels - 1}\n{SERVE} --tp $a{levels - 1} ${{a{levels - 1}[@]}} $a "$@"\n'
    return {"a.sh": "".join(lines) + end + f"for i in 1 2 3; do for j in 1 2; do {SERVE} $a; done; done\n"}


NESTS = (
    ("$(", "echo ", ")"), ("`", "x", "`"), ("${a:-", "x", "}"), ("((", "1+", "))"), ("( ", "x", " )"), ("{ ", "x; ", "}"),
    ("if true; then ", "x; ", "fi; "), ("while true; do ", "x; ", "done; "), ("case x in x) ", "y ", ";; esac "),
    ("for i in 1 2; do ", "x; ", "done; "), ("f() { ", "x; ", "}; "), ("bash -c '", "x", "'"), ("<(", "x", ")"),
    ('"$(', "x", ')"'), ("[[ ", "x", " ]] "), ("! ", "x", ""), ("a=(", "x", ")"), ("${a[", "1", "]}"), ("$((", "1", "))"),
    ("until false; do ", "x; ", "done; "), ('bash -c "', "x", '"'), ("eval '", "x", "'"), ("${a//", "x", "/y}"),
    ("sudo env ", "", ""), ("docker run x ", "", ""), ("timeout 5 ", "", ""), ("cat <<E\n", "x", "\nE\n"), ("function f ", "{", "}"),
)  # fmt: skip


@family(REVIEW, SMOKE)
def _nested(chance: random.Random, size: int) -> Files:
    opening, middle, closing = chance.choice(NESTS)
    times = chance.choice((10, 60, 500, size // (len(opening + middle + closing) or 1)))
    closing = closing if chance.random() < 0.7 else ""
    inner = chance.choice((SERVE, "x", ""))
    return {chance.choice(("a.sh", "Dockerfile")): f"{(opening + middle) * times}{inner}{closing * times}\n{SERVE}\n"}


@family(REVIEW)
def _nested_mixed(chance: random.Random, size: int) -> Files:
    parts = [chance.choice(NESTS) for _ in range(min(size // 10, chance.choice((20, 100, 2000))))]
    text = "".join(a + b for a, b, _ in parts) + SERVE + "".join(c for _, _, c in reversed(parts))
    return {"a.sh": f"{text}\n{SERVE}\n"}


LINES = (
    "# comment {}\n", "#\n", "\n", " \n", "a{}=1\n", SERVE + " --tp {}\n", "echo {} | cat\n", "x && \\\n", "export A{}=$A{}\n",
    "\\\n", "a=$b{}\n", "f{}() { x; }\n", "[ -z \"$A{}\" ] && A{}=1\n", "if [ $a = {} ]; then a=1; fi\n", "a+=({})\n",
    "wait\n", SERVE + " --server-port {} &\n", "sleep {}\n", "cat <<E{}\nx\nE{}\n", "# recommend: ignore LMD101 because x{}\n",
    "# request: {\"gpu\": \"H100-80G\"}\n", "#request: {}\n", "case x in {}) y;; esac\n", "trap 'x{}' EXIT\n", "$A{}\n",
    "docker run -e A={} openmmlab/lmdeploy " + SERVE + "\n", "A{}=1 B={} " + SERVE + " --session-len {}\n", "'{}\n", "\"{}\n", "`{}\n",
    "pip install lmdeploy==0.9.2 {}\n", "while true; do " + SERVE + "; done\n", "curl localhost:{}\n", "(x{})\n", "x{} &\n", "}\n", "{\n",
    "; ", "a ", "$a ", "\"$a\" ", "a\\ ", "--tp {} ", "'' ", "$", "(", ")", "<", "> x ", "| x ", "&& x ", "& ", "\\", "a=", "#", "=", "-", "é ",
    "😀", "$(x) ", "${a} ", "set -e\n", "source x{}\n", "GPU {}, {} and ", "\t", "\x0b", "\x0c", "\u2028", "device=", "0", "1,", "! ", "{a,b} ",
)  # fmt: skip
ENDS = (
    f"\n{SERVE} --tp 2\n",
    "",
    f"\nwhile true; do\n{SERVE}\ndone\n",
    f"\n{SERVE} &\n{SERVE} --server-port 1 &\nwait\n",
)


@family(REVIEW, SMOKE, CHECK)
def _lines(chance: random.Random, size: int) -> Files:
    """One line or word again and again, before, behind or inside a launch."""
    piece, end = chance.choice(LINES), chance.choice(ENDS)
    many = _filled(lambda n: piece.replace("{}", str(n)), size)
    name = chance.choice(("a.sh", "a.sh", "Dockerfile", "a.bash", "launch"))
    text = chance.choice(
        (f"{many}{end}", f"{end}{many}", f"{SERVE} {many}", f"{HEAD}{many}{end}", f"{SERVE} \\\n {many}{end}")
    )
    return {name: text if name != "Dockerfile" else f"FROM x\n{text}\nCMD {SERVE}\n"}


@family(REVIEW, CHECK, SMOKE)
def _two_lines(chance: random.Random, size: int) -> Files:
    first, second, end = chance.choice(LINES), chance.choice(LINES), chance.choice(ENDS)
    many = _filled(lambda n: (first if n % 2 else second).replace("{}", str(n)), size)
    return {"a.sh": f"{chance.choice(('', HEAD))}{many}{end}"}


# --- Python


@family(REVIEW, SMOKE)
def _python_nested(chance: random.Random, size: int) -> Files:
    opening, middle, closing = chance.choice(
        (("(", "1", ")"), ("[", "", "]"), ("{", "", "}"), ("f(", "", ")"), ("lambda: ", "", ""), ("not ", "", ""), ("-", "", ""),
         ("1+", "", ""), ("a.b", "", ""), ("a[", "", "]"), ("await ", "", ""), ("x if y else ", "", ""), ("f'{", "1", "}'"), ("*", "", ""),
         ('f"{', "1", '}"'), ("a and ", "", ""), ("a == ", "", ""), ("a ** ", "", ""), ("'x' ", "", ""), ("a(", "", ")("), ("f'''{", "1", "}'''"))
    )  # fmt: skip
    times = chance.choice((15, 90, 150, 1000, size // len(opening + closing)))
    return {"a.py": f"{PIPELINE}x = {opening * times}{middle}1{closing * times}\npipeline('a/b', tp=x)\n"}


@family(REVIEW, SMOKE)
def _python_blocks(chance: random.Random, size: int) -> Files:
    block = chance.choice(
        ("if x:", "for i in x:", "while 1:", "def f():", "class A:", "try:", "with x:", "match x:", "async def f():")
    )
    depth = chance.choice((20, 99, int((2 * size) ** 0.5)))
    return {"a.py": PIPELINE + "".join(f"{' ' * n}{block}\n" for n in range(depth)) + " " * depth + "pass\n"}


@family(REVIEW, SMOKE)
def _python_strings(chance: random.Random, size: int) -> Files:
    """Nested f-strings, long ones, and formats within formats."""
    deep = chance.choice((5, 20, 100, 149))
    nested = "1"
    for n in range(deep):
        nested = f"f{chance.choice(('', 'r'))}{chance.choice(QUOTES)}{{{nested}}}" if n % 2 else f"{{{nested}:{{{n}}}}}"
        if len(nested) > size:
            break
    wide = (
        "f'"
        + _filled(lambda n: chance.choice(("{a}", "{b!r}", "{c:>{d}}", "{{", "}}", "{(lambda: 1)()}", "{x=}")), size)
        + "'"
    )
    piece = chance.choice(("'x' ", "f'{a}' ", "f'{a:{b:{c}}}' ", "b'x' ", "f'' ", "f'{a}{b}{c}{d}' '{'"))
    return {
        "a.py": f"{PIPELINE}x = {chance.choice((nested, wide, '(' + piece * (size // len(piece)) + ')'))}\npipeline('a/b', tp=x)\n"
    }


QUOTES = ("'", '"', "'''", '"""')


@family(REVIEW, SMOKE)
def _python_doubling(chance: random.Random, size: int) -> Files:
    form = chance.choice(
        ("a{n} = a{b} + a{b}\n", "a{n} = f'{{a{b}}}{{a{b}}}'\n", "a{n} = [*a{b}, *a{b}]\n", "a{n} = a{b} * 1000\n", "a{n} = a{b} ** a{b}\n",
         "a{n} = '%s%s' % (a{b}, a{b})\n", "a{n} = a{b} << 1000\n", "a{n} = str(a{b}) + str(a{b})\n", "a{n} = (a{b}, a{b})\n")
    )  # fmt: skip
    start = chance.choice(("'x' 'y'", "9", "['lmdeploy', 'serve', 'api_server', 'a/b']", "2"))
    lines = "".join(form.format(n=n, b=n - 1) for n in range(1, chance.randint(20, 300)))
    last = chance.choice(
        ("subprocess.run(a19)", "pipeline('a/b', backend_config=TurbomindEngineConfig(tp=a19))", "os.system(a19)")
    )
    return {"a.py": f"import os, subprocess\n{PIPELINE}a0 = {start}\n{lines}{last}\n"}


PYTHON_LINES = (
    "a\n", "a{} = 1\n", "pipeline('a/b', tp={})\n", "# c{}\n", "\n", "a = [{}]\n", "import os{}\n", "x.a{} = 1\n", "os.environ['A{}'] = '1'\n",
    "def f{}(): pass\n", "'''x{}'''\n", "1,", "a;", "a(b, c={});", "[", "a.b.c.d;", "TurbomindEngineConfig(tp={})\n", "os.system('" + SERVE + "')\n",
    "subprocess.run(['lmdeploy', 'serve', 'api_server', 'a'])\n", "'é{}';", "@a\n", "a = b = c\n", "a[{}]\n", "a: int = {}\n", "a += 1\n", "0x{};", "~", " ", "\t\n", "\\\n",
    "c = TurbomindEngineConfig()\n", "c.tp = {}\n",
)  # fmt: skip


@family(REVIEW, SMOKE)
def _python_lines(chance: random.Random, size: int) -> Files:
    many = (
        _filled(lambda n: chance.choice(("", "")) + piece.replace("{}", str(n)), size)
        if (piece := chance.choice(PYTHON_LINES))
        else ""
    )
    form = chance.choice(("{}", PIPELINE + "{}\npipeline('a/b')\n", PIPELINE + "c = TurbomindEngineConfig()\n{}\npipeline('a/b', backend_config=c)\n",
                          PIPELINE + "x = [{}]\npipeline('a/b')\n", PIPELINE + "pipeline('a/b', {})\n"))  # fmt: skip
    return {"a.py": form.replace("{}", many)}


# --- units, Dockerfiles, manifests


@family(REVIEW)
def _unit_lines(chance: random.Random, size: int) -> Files:
    piece = chance.choice(
        ("Environment=A{}=1\n", "Environment=A=${A}${A}\n", "EnvironmentFile=/x/e{}.env\n", "ExecStart=/bin/" + SERVE + "\n", "# c\n", "A=1\n", "[S]\n",
         "\\\n", "Environment=\"A{}=$A{}\" ", "x", "ExecStartPre=/bin/x{}\n", "%n%i", "${A}", "\\x41", "'", "; a ", "\n", "[Service]\n", " ", "EnvironmentFile=-/x/*\n")
    )  # fmt: skip
    many = _filled(lambda n: piece.replace("{}", str(n)), size)
    form = chance.choice(
        (
            "{}" + UNIT,
            UNIT + "{}",
            "[Service]\nExecStart=/bin/" + SERVE + " {}\n",
            "[Service]\nEnvironment={}\nExecStart=/bin/" + SERVE + " $A ${A}\n",
        )
    )
    return {chance.choice(("a.service", "lmdeploy@x.service", "unit")): form.replace("{}", many)}


@family(REVIEW, most=4_000_000)
def _unit_files(chance: random.Random, size: int) -> Files:
    """Many environment files, or long ones, beside a unit."""
    count = chance.choice((1, 20, 250))
    piece = chance.choice(("A{}=1\n", "A={}", "'", '"', "\\", "A='{}\n", "\n", "x", "A=$A\\\n", "=", "#\n", " "))
    text = _filled(lambda n: piece.replace("{}", str(n)), size // count)
    files: Files = {
        "a.service": f"[Service]\nEnvironmentFile={chance.choice(('/x/e*.env', '/x/e%i.env'))}\nEnvironmentFile=/x/e0.env\nExecStart=/bin/{SERVE} $A\n"
    }
    return files | {f"e{n}.env": text for n in range(count)}


@family(REVIEW)
def _unit_doubling(chance: random.Random, size: int) -> Files:
    lines = "".join(f"Environment=A{n}=%p{'%n' * 20}\n" for n in range(chance.randint(10, 200)))
    uses = " ".join(f"${{A{n % 10}}}" * chance.randint(1, 30) for n in range(chance.randint(10, 2000)))
    return {f"{'l' * chance.choice((3, 200))}.service": f"[Service]\n{lines}ExecStart=/bin/sh -c '{uses} {SERVE}'\n"}


@family(REVIEW)
def _docker_lines(chance: random.Random, size: int) -> Files:
    piece = chance.choice(("ENV A{}=1\n", "ENV A{} b\n", "RUN x{}\n", "FROM x\n", "# c\n", "ENV A=\"{}\" ", "\\\n", "CMD [\"lmdeploy\"", ", \"a{}\"", "HEALTHCHECK CMD x\n", "COPY a b\n", "\\", "\"", " ", "ENTRYPOINT [\"x\"]\n", "'a' "))  # fmt: skip
    many = _filled(lambda n: piece.replace("{}", str(n)), size)
    form = chance.choice(
        (
            "FROM x\n{}\nCMD " + SERVE + "\n",
            "FROM x\nENV {}\nCMD " + SERVE + "\n",
            'FROM x\nCMD ["lmdeploy", "serve", "api_server", "a/b"{}]\n',
            "FROM x\nCMD " + SERVE + " {}\n",
        )
    )
    return {"Dockerfile": form.replace("{}", many)}


@family(REVIEW)
def _manifest_lines(chance: random.Random, size: int) -> Files:
    """Many services, containers, variables or words."""
    service = "  s{}:\n    image: openmmlab/lmdeploy:v0.9.2\n    command: " + SERVE + "\n"
    compose = "services:\n  a:\n    command: " + SERVE
    forms = (
        ("compose.yaml", "services:\n{}", service),
        ("compose.yaml", compose + " {}\n", "$A{} "), ("compose.yaml", compose + " {}\n", "$$"), ("compose.yaml", compose + " {}\n", "${A:-x} "),
        ("compose.yaml", compose + "\n    environment:\n{}", "      A{}: $A{}\n"), ("compose.yaml", compose + "\n    environment:\n{}", "    - A{}=${A{}}\n"),
        ("compose.yaml", compose + "\n    ports:\n{}", "    - {}:23333\n"), ("compose.yaml", "services:\n  a:\n    command: |\n{}", "      " + SERVE + "\n"),
        ("compose.yaml", "services:\n  a:\n    command: \"{}\"\n", "\\x41"), ("compose.yaml", "services:\n  a:\n    command: [bash, -c, '{}']\n", SERVE + "; "),
        ("compose.yaml", compose + "\n    healthcheck:\n      test: {}\n", "http:// "), ("compose.yaml", "{}\n" + COMPOSE, "\n"), ("compose.yaml", "{}\n" + COMPOSE, "# a\n"),
        ("deployment.yaml", POD + "{}", "  - command: [lmdeploy, serve, api_server, a/b]\n    name: c{}\n"), ("deployment.yaml", POD + "    env:\n{}", "    - {name: A{}, value: $(A{})}\n"),
        ("deployment.yaml", POD + "    args: [{}]\n", "$(A{}), "), ("deployment.yaml", "{}" + POD, "\n"), ("deployment.yaml", "{}" + POD, "---\nkind: x\n"), ("deployment.yaml", POD + "x: |\n{}", "\n  kind:\n"),
        ("deployment.yaml", POD + "{}", "\n"), ("deployment.yaml", POD + "{}", " \n"), ("deployment.yaml", POD + "{}", "---\n" + POD.replace("{", "").replace("}", "")),
        ("deployment.yaml", POD + "    args: ['{}']\n", "''"), ("deployment.yaml", POD + "    args: [\"{}\"]\n", "\\\n   "),
    )  # fmt: skip
    name, form, piece = chance.choice(forms)
    return {name: form.replace("{}", _filled(lambda n: piece.replace("{}", str(n)), size))}


# --- settings, JSON and heads


@family((*REVIEW, "a.sh"), most=4_000_000)
def _settings(chance: random.Random, size: int) -> Files:
    text = chance.choice(
        ("a" + ".a" * (size // 2) + " = 1\n", "a = " + "[" * size, "a = " + "{a=" * (size // 3), "[" + "a." * (size // 2) + "a]\n", "gpu = \"" + "x" * size + "\"\n",
         "ignore = [" + '"LMD101",' * (size // 9) + "]\n", "a = " + "9" * size + "\n", _filled(lambda n: f"k{n} = 1\n", size), _filled(lambda n: f"[t{n}]\n", size), "#" * size,
         _filled(lambda n: f"a.b{n}.c{n} = 1\n", size), "[[a]]\n" * (size // 6), "a = '''" + "\n" * size, "load = " + "1" * 4000 + "\n", "gpu = 1e" + "9" * 400 + "\n", "a = " + "[[],"*(size // 4),
         '"' + '\\u0041' * (size // 6) + '" = 1\n', "a = 1\n" * (size // 6), _filled(lambda n: f"[a.a{n}.b]\n", size), "load = 0x" + "f" * 100_000 + "\n", "load = nan\n", "rps = inf\n")
    )  # fmt: skip
    name = chance.choice((".recommend.toml", "pyproject.toml"))
    return {name: text if name[0] == "." else f"[tool.recommend]\n{text}", "a.sh": f"{SERVE} --tp 2\n"}


JSONS = (
    "[", '{"a":', "[[", '[{"a":', '"', "\\", "[1,", "1", "-", " ", "\n", '{"a":1,"b":[', "nan", '"\\u0041",',
    "1e9", "[],", "{},", "null,", '"a",',
)  # fmt: skip


def _json(chance: random.Random, size: int) -> str:
    piece = chance.choice(JSONS)
    many = piece * (size // len(piece))
    return chance.choice(("{}", "[{}", '{"a": {}', '{"a": "{}"}', "[{}0]")).replace("{}", many)


@family(CHECK, SMOKE, REVIEW, most=4_000_000)
def _json_head(chance: random.Random, size: int) -> Files:
    made = chance.choice(("# request: ", "#request: ", "#  request:\t", "# request:"))
    body = chance.choice(
        (
            _json(chance, size),
            '{"gpu": "H100-80G", "load": ' + _json(chance, size) + "}",
            "{" + '"gpu": "x", ' * (size // 12) + '"a": 1}',
            '{"gpu": ' + "[" * 90_000 + "]" * 90_000 + "}",
        )
    )
    return {"a.sh": f"{HEAD}{made}{body.replace(chr(10), ' ')}\n{SERVE}\n"}


@family(CHECK, most=4_000_000)
def _json_artefact(chance: random.Random, size: int) -> Files:
    return {
        "a.json": chance.choice(('{"request": ', "", '{"made_by": "lmdeploy-recommender 0.1.0", "options": '))
        + _json(chance, size)
    }


@family(("campaign", "--list", "knowledge/campaigns/h200-mixtures.yaml"), most=4_000_000)
def _json_results(chance: random.Random, size: int) -> Files:
    line = '{"id": "a", "digest": "b", "code": 0, "seconds": 1, "said": "", "evidence": "a: [x]"}\n'
    return {
        "results.jsonl": chance.choice(
            (_json(chance, size), '{"id":' + _json(chance, size), line * (size // len(line)), '{"id":\n' * (size // 6))
        )
    }


SIZES = (
    '{"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, '
    '"intermediate_size": 12288, "vocab_size": 151936, "max_position_embeddings": 40960}'
)
"""A sound language model's."""


@family(("--gpu", "H100-80G", "--model", "FOLDER"), most=4_000_000)
def _checkpoint(chance: random.Random, size: int) -> Files:
    config = '{"architectures": ["InternVLChatModel"], "llm_config": '
    sees = f'{config}{SIZES}, "vision_config": '
    header = len(b"{}").to_bytes(8, "little") + b"{}"
    huge = chance.choice((200 * 2**20, 2**62, size)).to_bytes(8, "little") + b"[" * size
    return {
        "model/config.json": chance.choice(
            (_json(chance, size), config + _json(chance, size), f"{sees}{_json(chance, size)}}}")
        ),
        "model/a.safetensors": chance.choice((header, huge)),
        "model/preprocessor_config.json": _json(chance, size),
    }


@family(("smoke", "--dry-run"))
def _fleet(chance: random.Random, size: int) -> Files:
    """A fleet's folder with a hostile compose file."""
    head = '# request: {"gpu": "H100-80G", "load": "high"}\n'
    makers = [made for name, made in FAMILIES.items() if name.endswith("review-compose")]
    text = next(iter(chance.choice(makers).make(chance, size).values()))
    assert isinstance(text, str)
    return {
        "fleet/compose.yaml": head + text,
        "fleet/haproxy.cfg": chance.choice(
            ("", "\n" * size, "  server a 127.0.0.1:1\n" * (size // 23), " " * size, "presetenv " * (size // 10))
        ),
    }


@family(
    ("bench-prompt", "serve.sh", "serve.sh", "--images", "pictures", "--gpu", "H100-80G", "--schema", "FILE"),
    most=4_000_000,
)
def _schema(chance: random.Random, size: int) -> Files:
    return {
        "schema.json": _json(chance, size),
        "serve.sh": f"#!/bin/bash\n{SERVE}\n",
        "pictures/a.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 1000,
    }


# --- files that are none

STRANGE = (
    "fifo", "device", "folder", "socket", "sparse", "zero-link", "loop", "gone", "secret", "binary", "utf16",
    "latin1", "nul", "mark",
)  # fmt: skip


def _strange(folder: Path, name: str, kind: str) -> None:
    """Put something that is no usual file in a place."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's whole path may have 107 characters
        try:
            socket.socket(socket.AF_UNIX).bind(path.name)
        finally:
            os.chdir(here)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.write(f"{SERVE}\n".encode())
            file.truncate(2**30)
    elif kind == "zero-link":
        path.symlink_to("/proc/self/mem")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "secret":
        path.write_text(SERVE)
        path.chmod(0)
    elif kind != "gone":
        texts = {"binary": random.Random(0).randbytes(100_000), "utf16": SERVE.encode("utf-16"), "latin1": f"# \xe9\n{SERVE}".encode("latin-1"),
                 "nul": f"{SERVE}\0".encode(), "mark": f"\ufeff{SERVE}\n".encode()}  # fmt: skip
        path.write_bytes(texts[kind])


PLACES: tuple[tuple[tuple[str, ...], str], ...] = (
    (REVIEW, "a.sh"), (REVIEW, "a.py"), (REVIEW, "compose.yaml"), (CHECK, "a.sh"), (SMOKE, "a.sh"), (SMOKE, "a.py"),
    (("--gpu", "H100-80G", "--calibrate"), "run.yaml"), (("campaign", "--list", "PLAN", "results.jsonl"), "plan.yaml"),
    (("campaign", "--list", "knowledge/campaigns/h200-mixtures.yaml"), "results.jsonl"), ((*REVIEW, "a.sh"), ".recommend.toml"), ((*REVIEW, "a.sh"), "pyproject.toml"),
    (("--gpu", "H100-80G", "--model", "FOLDER"), "model/config.json"), (("--gpu", "H100-80G", "--model", "FOLDER"), "model/a.safetensors"),
    ((*REVIEW, "a.service"), "e.env"), (("smoke", "--dry-run", "fleet"), "fleet/haproxy.cfg"), (("smoke", "--dry-run", "fleet"), "fleet/.env"),
    (("campaign", "--pack", "packed", "knowledge/campaigns/h200-mixtures.yaml", "results.jsonl"), "packed/run.yaml"), ((*REVIEW, "."), "a.sh"), (("check", "--update"), "a.sh"), (("review", "--fix"), "a.sh"),
    (("bench-prompt", "serve.sh", "serve.sh", "--images", "pictures", "--gpu", "H100-80G", "--schema", "FILE"), "schema.json"),
    (("bench-prompt", "serve.sh", "serve.sh", "--images", "pictures", "--gpu", "H100-80G", "--labels", "FILE"), "labels.csv"),
    (("knowledge", "check", "--knowledge", "known"), "known/gpus/h100.yaml"),
)  # fmt: skip


# --- one run


@dataclass
class Outcome:
    """What became of one attack."""

    name: str
    command: tuple[str, ...]
    code: int
    seconds: float
    mib: float
    said: str
    wrong: list[str] = field(default_factory=list)


KNOWLEDGE = Path(__file__).parent.parent / "knowledge"
GOOD = frozenset(range(128)) - {70}


def attack(seed: int, number: int) -> tuple[str, Callable[[Path], tuple[str, ...]]]:
    """Return a number's name, and what puts its files in a folder and returns the command."""
    chance = random.Random(f"{seed}:{number}")
    if chance.random() < 0.15:
        place, kind = chance.choice(PLACES), chance.choice(STRANGE)
        return f"{kind} {place[1]}", lambda folder: strange(folder, *place, kind)
    chosen = chance.choice(list(FAMILIES.values()))
    size = int(10 ** chance.uniform(2, 4.8)) if chance.random() < 0.6 else int(10 ** chance.uniform(4.5, 6.6))
    size = min(size, chosen.most)
    return f"{chosen.name} {size}", lambda folder: usual(folder, chosen, chance, size)


def strange(folder: Path, command: tuple[str, ...], name: str, kind: str) -> tuple[str, ...]:
    """Put a strange file and its neighbours in a folder; return the command."""
    for other, text in (("a.sh", f"{SERVE}\n"), ("serve.sh", f"#!/bin/bash\n{SERVE}\n"), ("model/config.json", f'{{"architectures": ["Qwen3ForCausalLM"], {SIZES[1:]}'), ("pictures/a.png", ""),
                        ("a.service", f"[Service]\nEnvironmentFile=/x/e.env\nExecStart=/bin/{SERVE} $A\n"), ("fleet/haproxy.cfg", ""),
                        ("fleet/compose.yaml", '# request: {"gpu": "H100-80G", "load": "high"}\nservices: {}\n')):  # fmt: skip
        (folder / other).parent.mkdir(parents=True, exist_ok=True)
        (folder / other).write_text(text)
    _strange(folder, name, kind)
    return _words(folder, command, name)


def usual(folder: Path, chosen: Family, chance: random.Random, size: int) -> tuple[str, ...]:
    """Write a family's files; return the command."""
    files = chosen.make(chance, size)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    command = chance.choice(chosen.commands)
    command = chance.choice((REVIEW, OPTIMIZE)) if command == REVIEW else command
    return _words(folder, command, next(iter(files)))


def _words(folder: Path, command: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return a command line in which the file has its place: that of a capital word, or the last."""
    first = name.split("/")[0]
    replaced = {"PLAN": name, "FILE": name, "FOLDER": f"./{first}"}
    words = tuple(
        replaced.get(word, str(KNOWLEDGE.parent / word) if word.startswith("knowledge/") else word) for word in command
    )
    if (
        not set(command).isdisjoint(replaced)
        or name in words
        or first in words
        or "." in words
        or name.startswith((".", "pyproject", "e."))
    ):
        return words
    if "a.service" in words or "a.sh" in words:
        return words
    return (*words, first if name.startswith(("fleet", "known")) else name)


@cache
def _warm() -> None:
    """Import what every fork would import again, and read the knowledge."""
    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        importlib.import_module(module.name)
    engine.rules()
    load()


def run(words: tuple[str, ...], folder: Path, name: str) -> Outcome:
    """Run a command in a folder, in a fork of this process, under limits; return what it took and what is wrong."""
    most = REVIEW_S if words[0] == "review" else SECONDS
    allowed(LIMIT_S)  # measured once, before the first fork
    _warm()
    with tempfile.TemporaryFile() as out:
        mapped, resident = (int(pages) * resource.getpagesize() for pages in STATM.read_text().split()[:2])
        child = os.fork()
        if not child:
            _run_here(words, folder, out.fileno(), mapped + LIMIT_BYTES)
        began, waited = time.monotonic(), False
        while not (found := os.wait4(child, os.WNOHANG))[0]:
            if time.monotonic() - began > 10 * allowed(LIMIT_S):
                waited = True
                os.kill(child, signal.SIGKILL)
                found = os.wait4(child, 0)
                break
            time.sleep(0.01)
        out.seek(0)
        said = out.read(10_000_000).decode("utf-8", "replace")
    _, status, used = found
    code = os.waitstatus_to_exitcode(status)
    mib = used.ru_maxrss / 1024 - resident / 2**20  # a fork begins with the size of its parent
    outcome = Outcome(name, words, code, used.ru_utime + used.ru_stime, mib, said)
    faults = {
        "waits for ever": waited,
        f"exit {code}": code not in GOOD,
        "traceback": "Traceback" in said,
        f"{outcome.seconds:.1f} s": not is_within(outcome.seconds, most),
        f"{outcome.mib:.0f} MiB": outcome.mib > MIB,
        "says nothing": bool(code) and not said.strip(),
    }
    outcome.wrong += [fault for fault, is_so in faults.items() if is_so]
    return outcome


def _run_here(words: tuple[str, ...], folder: Path, out: int, most_bytes: int) -> NoReturn:
    """Become the command."""
    code: object = 70
    sys.settrace(None)  # coverage has a lock, which the end of a budget may leave held
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(allowed(LIMIT_S)), int(allowed(LIMIT_S)) + 1))
        resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        for number, name in enumerate(("stdin", "stdout", "stderr")):  # what the parent wrote stays its own
            setattr(sys, name, open(number, "r" if not number else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        sys.argv = ["recommend", *words]
        cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0)


def one(seed: int, number: int) -> Outcome:
    """Run one attack in a folder of its own."""
    name, put = attack(seed, number)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / ".git").mkdir()
        return run(put(folder), folder, name)


def main(arguments: list[str] | None = None) -> int:
    """The command; exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, help="show one attack")
    parser.add_argument("--keep", type=Path, help="with --only: a folder to keep the files in")
    options = parser.parse_args(arguments)
    if options.only is not None:
        name, put = attack(options.seed, options.only)
        folder = options.keep or Path(tempfile.mkdtemp())
        folder.mkdir(exist_ok=True)
        (folder / ".git").mkdir(exist_ok=True)
        outcome = run(put(folder), folder, name)
        print(
            f"{folder}: {' '.join(outcome.command)}\n{outcome.code}, {outcome.seconds:.1f} s, {outcome.mib:.0f} MiB {outcome.wrong}\n{outcome.said[-2000:]}"
        )
        return bool(outcome.wrong)
    _warm()
    numbers = range(options.first, options.first + options.count)
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        outcomes = list(pool.imap(partial(one, options.seed), numbers))
    for number, outcome in enumerate(outcomes, options.first):
        if outcome.wrong:
            print(
                f"--seed {options.seed} --only {number}: {outcome.name}: {', '.join(outcome.wrong)}: {' '.join(outcome.command)[:100]}: {' '.join(outcome.said.split())[-150:]}",
                flush=True,
            )
    slowest, largest = max(outcomes, key=lambda each: each.seconds), max(outcomes, key=lambda each: each.mib)
    print(
        f"{len(outcomes)} attacks, seed {options.seed}: {sum(bool(each.wrong) for each in outcomes)} failed; at most {slowest.seconds:.1f} s ({slowest.name}) and {largest.mib:.0f} MiB ({largest.name})"
    )
    print("exit codes:", dict(Counter(each.code for each in outcomes)))
    return 1 if any(each.wrong for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
