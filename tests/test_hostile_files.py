"""Files that hang, eat memory or are none: one line each, within 5 s and 350 MiB; attacks.py makes them."""

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import attacks
import pytest
from cpu_time import is_within

import recommender
from recommender.common import cpu_budget, parse, user_file
from recommender.common.user_file import Unreadable

COUNT, SEED = os.environ.get("ATTACKS", "40"), os.environ.get("ATTACKS_SEED", "20261123")
"""``ATTACKS=2000 ATTACKS_SEED=5 pytest tests/test_hostile_files.py`` makes many others."""
LARGE = 200_000


def test_an_attack_counts_its_own_memory_alone(tmp_path: Path) -> None:
    """A fork begins with its parent's pages: the size of the process that tests is nobody's fault."""
    (tmp_path / "a.sh").write_text(attacks.SERVE + "\n")
    held = b"1" * (attacks.MIB * 2**20)
    outcome = attacks.run(("review", "a.sh"), tmp_path, "small")
    assert not outcome.wrong, outcome
    assert outcome.mib * 2**20 < len(held)


def test_random_attacks_end_in_one_line_and_in_time() -> None:
    """Each in a process under limits, with the figures that the system counted."""
    command = [sys.executable, attacks.__file__, "--count", COUNT, "--seed", SEED, "--jobs", "2"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{COUNT} attacks" in run.stdout


COMMANDS = tuple(dict.fromkeys((command, name) for command, name in attacks.PLACES if command[0] != "bench-prompt"))


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "socket", "sparse", "zero-link", "loop", "binary"])
def test_what_is_no_file_is_one_line(kind: str, tmp_path: Path) -> None:
    """Wherever a file can be named: nobody waits for a pipe's writer, and nothing of a gigabyte is read."""
    codes = set()
    for number, (command, name) in enumerate(COMMANDS):
        folder = tmp_path / str(number)
        (folder / ".git").mkdir(parents=True)
        outcome = attacks.run(attacks.strange(folder, command, name, kind), folder, kind)
        assert not outcome.wrong, (outcome.command, outcome.wrong, outcome.said[-500:])
        told = [line for line in outcome.said.splitlines() if name.rpartition("/")[2] in line]
        inside = kind == "folder" and name.startswith("fleet")  # folders in a fleet's are passed over
        assert outcome.code != 2 or told or inside, (outcome.command, outcome.said[-500:])
        codes.add(outcome.code)
    assert codes >= {1, 2}  # some are one line, others (beside what is judged) are passed over


# --- the reader


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """The last byte that is allowed, and one more."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * user_file.MOST_BYTES)
    assert len(user_file.read_text(path)) == user_file.MOST_BYTES
    path.write_bytes(b"x" * (user_file.MOST_BYTES + 1))
    with pytest.raises(Unreadable, match="larger than 4 MiB"):
        user_file.read_text(path)


def test_a_file_of_the_kernel_is_read_though_it_has_no_size() -> None:
    """Its size is 0, its text is not."""
    assert "MemTotal" in user_file.read_text("/proc/meminfo")


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even between the look at its kind and its opening."""
    os.mkfifo(tmp_path / "a")
    monkeypatch.setattr(user_file, "check_kind", lambda path: None)
    with pytest.raises(Unreadable, match="a pipe, not a regular file"):
        user_file.read_text(tmp_path / "a")


# --- the parsers

DEEP = parse.DEEPEST


@pytest.mark.parametrize(
    ("read", "form"),
    [
        (parse.parse_json, '{"a": %s}'),
        (parse.parse_toml, "a = [%s]"),
        (parse.parse_yaml, "a: %s"),
    ],
)
def test_depth_is_counted_before_anything_recurses(read: object, form: str) -> None:
    """One level within the limit is read, one beyond it is refused, and a hundred thousand are no crash."""
    assert callable(read)
    levels = DEEP - 2
    assert list(read(form % ("[" * levels + "]" * levels))) == ["a"]
    for levels in (DEEP + 1, 100_000):
        with pytest.raises(Unreadable, match=r"levels deep|nested"):
            read(form % ("[" * levels + "]" * levels))


def test_brackets_in_texts_and_comments_are_no_depth() -> None:
    """Nor are dots there parts of a key."""
    many = "[" * 500
    assert parse.parse_json(f'["{many}", "\\"{many}"]') == [many, f'"{many}']
    toml = f"a = '{many}'\nb = \"\\\"{many}\"\n# {many}\nc = '''\n{many}'''\n"
    toml += f'd = """{many}"""\ne = "{"a." * 200}"\n'
    assert parse.parse_toml(toml)["c"] == many
    assert parse.parse_yaml(f'a: "{many}"\nb: |\n  {many}\n')["a"] == many


def test_aliases_and_merges_within_reason_are_read() -> None:
    """As compose files and plans use them, with the values that PyYAML gives."""
    import yaml

    text = (
        "base: &base {a: 1, b: [1, 2]}\nmore: &more {<<: *base, c: 3}\n"
        "x: {<<: [*base, *more], d: *base}\ny: [*base, *more]\n"
    )
    assert parse.parse_yaml(text) == yaml.safe_load(text)


def levels(count: int, line: str) -> str:
    """Many levels, each of which uses the one before several times."""
    return "a0: &a0 {k: x}\n" + "".join(line.format(n=n, b=n - 1) for n in range(1, count))


@pytest.mark.parametrize(
    "text",
    [
        levels(30, "a{n}: &a{n}\n  <<: [*a{b}, *a{b}, *a{b}]\n  k{n}: 1\n"),
        levels(30, "a{n}: &a{n} [*a{b}, *a{b}, *a{b}]\n"),
        levels(30, "a{n}: &a{n} {{x: *a{b}, y: *a{b}}}\n"),
        f"a: &a {'x' * 50_000}\nb: [{'*a, ' * 5000}]\n",
        "a: &a [*a]\n",
        "a: &a {<<: *a}\n",
        f"a: {'9' * 5000}\n",
        f"a: {'1:' * 50_000}1\n",
        "a: !!python/object/apply:os.system [true]\n",
    ],
)
def test_what_yaml_would_repeat_is_counted(text: str) -> None:
    """Merges, aliases of lists, maps and long words, an anchor in itself, numbers that take their square."""
    began = time.process_time()
    with pytest.raises(Unreadable, match=r"invalid YAML: .*; fix it there"):
        parse.parse_yaml(text)
    assert is_within(time.process_time() - began, 5)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "-" * 100_000 + "1",
        "x = " + "(" * 100_000,
        "x = " + "a." * 5000 + "b",
        "x = " + "+".join("a" * 20_000),
        "a\n" * 300_000,
        "x = f'" + "{a}" * 80_000 + "'",
        "x = f'{a:" + "{b}" * 80_000 + "}'",
    ],
)
def test_python_is_bounded(text: str) -> None:
    """By its words, its depth, and the braces that CPython looks for from the beginning each time."""
    began = time.process_time()
    with pytest.raises((Unreadable, SyntaxError)):
        parse.parse_python(text)
    assert is_within(time.process_time() - began, 5)


def test_a_key_of_many_parts_is_refused() -> None:
    """The parser would take their square; forty-nine dots are read."""
    assert parse.parse_toml("a" + ".a" * 49 + " = 1\n")
    for text in ("a" + ".a" * 200_000 + " = 1\n", f"[{'a.' * 200_000}a]\n", f"x = {{{'a.' * 200_000}a = 1}}\n"):
        with pytest.raises(Unreadable, match="parts"):
            parse.parse_toml(text)


# --- the timer


def endless() -> None:
    while True:
        pass


def test_endless_work_is_ended() -> None:
    """With one line; afterwards the timer is off, and the next block has its own time."""
    for _ in range(2):
        with pytest.raises(Unreadable, match="of processor time"), cpu_budget.cpu_budget(0.05):
            endless()
    with cpu_budget.cpu_budget(0.05):
        pass
    end = time.process_time() + 0.5
    while time.process_time() < end:  # would be ended if the timer still ran
        pass


def test_a_handler_of_errors_does_not_keep_it_alive() -> None:
    """Rules and readers catch errors of ours; this is none."""

    def swallows() -> None:
        while True:
            try:
                endless()
            except Exception:
                continue

    with pytest.raises(Unreadable), cpu_budget.cpu_budget(0.05):
        swallows()


def test_other_threads_have_no_timer() -> None:
    """Signals reach the main thread alone; what runs elsewhere is not disturbed."""
    done: list[int] = []

    def work() -> None:
        with cpu_budget.cpu_budget(0.01):
            end = time.thread_time() + 0.1
            while time.thread_time() < end:
                pass
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]


# --- patterns


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Every pattern of the package: the compiled ones, and the texts given to functions of re."""
    package = Path(recommender.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            function = node.func if isinstance(node, ast.Call) and node.args else None
            lazy = getattr(function, "id", "") == "pattern"
            if not lazy and not (isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "re"):
                continue
            assert isinstance(node, ast.Call)
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                flags = [getattr(re, name) for name in ("MULTILINE", "DOTALL") if f"re.{name}" in ast.unparse(node)]
                yield f"{path.name}:{node.lineno}", re.compile(first.value, sum(flags))
    for info in pkgutil.walk_packages([str(package)], "recommender."):
        if info.name.startswith(("recommender.review", "recommender.render", "recommender.common")):
            for name, value in vars(importlib.import_module(info.name)).items():
                for each in value.values() if isinstance(value, dict) else [value]:
                    if isinstance(each, re.Pattern):
                        yield f"{info.name}.{name}", each


def test_no_pattern_of_lines_runs_over_their_ends() -> None:
    r"""``^\s*`` tries a run of empty lines from each of them: the square of their number."""
    seen = 0
    for where, pattern in patterns():
        if pattern.flags & re.MULTILINE and isinstance(pattern.pattern, str):
            seen += 1
            for begin in re.finditer(r"(?<!\[)\^(\(\?!)?(\\s|\[\^?[^\]]*\])[*+]", pattern.pattern):
                assert not re.fullmatch(begin[2], "\n"), f"{where}: {pattern.pattern}"
    assert seen > 15


SERVE = attacks.SERVE
LONG_RUNS = {
    "comments above": ("a.sh", "# a\n" * LARGE + SERVE),
    "empty lines above": ("a.sh", "\n" * LARGE + SERVE),
    "empty lines of a manifest": ("deployment.yaml", attacks.POD + "\n" * LARGE),
    "empty lines in a text of a manifest": ("deployment.yaml", attacks.POD + 'x: "' + "\n" * LARGE + '"\n'),
    "empty lines in a block": ("compose.yaml", attacks.COMPOSE + "x: |\n  a" + "\n" * LARGE + "  b\n"),
    "blanks in a comment": ("a.sh", f"# GPU {' ' * LARGE}x\n{SERVE}\n"),
    "commas in an open brace": ("a.sh", f"{SERVE} --tp {{{',' * LARGE}\n"),
    "an open text of a Dockerfile": ("Dockerfile", 'FROM x\nCMD ["' + '\\"' * LARGE + f"\nCMD {SERVE}\n"),
    "a long word of a Dockerfile": ("Dockerfile", f"FROM x\nENV {'a' * LARGE}\nCMD {SERVE}\n"),
    "redirections": ("compose.yaml", f"services:\n  a:\n    command: bash -c '{SERVE} {'>a1' * 5000}'\n"),
    "a cached model's name": ("a.sh", f"lmdeploy serve api_server {'models--a' * 20_000}\n"),
    "merge keys": ("compose.yaml", levels(30, "a{n}: &a{n}\n  <<: [*a{b}, *a{b}]\n") + "services:\n  a: {<<: *a29}\n"),
    "variables that double": ("a.sh", "a=x\n" + "a=$a$a\n" * 100 + f"{SERVE} $a\n"),
    "arrays that double": ("a.sh", "a=(x)\n" + 'a=("${a[@]}" "${a[@]}")\n' * 100 + f'{SERVE} "${{a[@]}}"\n'),
    "a long text many times": ("a.sh", f"a={'x' * LARGE}\n" + f"b={'$a' * 250}\nc=$b$b\n" * 200 + f"{SERVE} $c\n"),
    "lists of Python that double": (
        "a.py",
        "import subprocess\na0 = ['lmdeploy']\n"
        + "".join(f"a{n} = [{f'*a{n - 1}, ' * 100}]\n" for n in range(1, 7))
        + "subprocess.run(a6)\n",
    ),
    "specifiers of a unit": (f"{'n' * 200}.service", f"[Service]\nEnvironment=A={'%n' * LARGE}\nExecStart={SERVE}\n"),
}


@pytest.mark.parametrize("name", LONG_RUNS)
def test_a_long_run_is_judged_or_refused_in_time(name: str, tmp_path: Path) -> None:
    """What takes the square of a run, or doubles, would take minutes at this size."""
    file, text = LONG_RUNS[name]
    (tmp_path / ".git").mkdir()
    (tmp_path / file).write_text(text)
    outcome = attacks.run(("review", file), tmp_path, name)
    assert not outcome.wrong, (outcome.wrong, outcome.said[-500:])


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("2026-13-45", "timestamp"),
        ("2026-02-30", "timestamp"),
        ("2026-02-03 25:61:00", "timestamp"),
        ("!!timestamp soon", "timestamp"),
        ("!!int many", "int"),
        ("!!float much", "float"),
        ("!!bool perhaps", "bool"),
    ],
)
@pytest.mark.parametrize("before", ["", "list:\n  - 1\n  - {a: 2}\n"])
def test_a_value_that_is_none_of_its_kind_is_named_with_its_line(value: str, kind: str, before: str) -> None:
    """An unquoted date too, which YAML reads as one; wherever it is nested."""
    text = f"{before}id: x\nb:\n  opened: {value}\n"
    line = text.count("\n")
    with pytest.raises(Unreadable) as raised:
        parse.parse_yaml(text)
    said = str(raised.value)
    written = re.sub(r"^!!\w+ ", "", value)
    assert said.startswith(f"invalid YAML: '{written}' is no {kind}")
    assert f" at line {line}, column 11; fix it there" in said
    assert "\n" not in said
