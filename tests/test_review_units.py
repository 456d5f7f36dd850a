"""systemd units under review: what they start, by systemd's own account of their syntax.

The expected lists were written from systemd.syntax(7), systemd.service(5) and systemd.exec(5). Where systemd is
installed, the same lists are held against what it reads itself: ``systemd-analyze verify`` shows that when it logs
everything, and the generator of environment.d reads its files as those of EnvironmentFile= are read.
"""

import os
import random
import re
import subprocess
from pathlib import Path

import pytest
from artefacts import need, run_program, write_files
from click.testing import CliRunner, Result
from scripts import given_options, only_launch, text_at

from recommender.commands import review as command
from recommender.review import engine, fix
from recommender.review.readers import unit_file
from recommender.review.readers.detect_kind import kind_of, read
from recommender.review.script import sibling_files
from recommender.review.script.model import Launch
from recommender.review.script.source import Source

GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
SERVER = "/usr/bin/lmdeploy serve api_server org/m"


def service(*lines: str) -> str:
    """A unit with these lines in its [Service]."""
    return "\n".join(["[Unit]", "Description=LMDeploy", "[Service]", *lines, ""])


def one(text: str, path: Path | str = "server.service") -> Launch:
    assert read(str(path), text).kind == "systemd"
    return only_launch(text, None, str(path))


def arguments(text: str, path: str = "server.service") -> list[list[str | None]]:
    """The words of each command of a unit."""
    return [[field.value for field in command] for command in unit_file.commands(read(path, text))]


# --- the words of a command

# What stands behind ExecStart=, and the words of each command that it starts, where no variable is replaced.
WORDS: list[tuple[str, list[list[str]]]] = [
    ("/bin/echo a b", [["/bin/echo", "a", "b"]]),
    ("  /bin/echo   a\tb  ", [["/bin/echo", "a", "b"]]),
    ('/bin/echo "a b" c', [["/bin/echo", "a b", "c"]]),
    ("/bin/echo 'a b' c", [["/bin/echo", "a b", "c"]]),
    ('/bin/echo "it\'s" \'say "x"\'', [["/bin/echo", "it's", 'say "x"']]),
    ("/bin/echo \"\" ''", [["/bin/echo", "", ""]]),
    ("/bin/echo a\"b c\"d e'f'", [["/bin/echo", "ab cd", "ef"]]),
    (
        r"/bin/echo a\sb \x41 \101 \u00e9 \U0001F600 \\ \" \'",
        [["/bin/echo", "a b", "A", "A", "é", "😀", "\\", '"', "'"]],
    ),
    (r"/bin/echo 'x\'y' " + r'"x\"y"', [["/bin/echo", "x'y", 'x"y']]),
    (r"/bin/echo \q a\-b", [["/bin/echo", "\\q", "a\\-b"]]),
    ("/bin/echo é 字", [["/bin/echo", "é", "字"]]),
    ("/bin/echo / >/dev/null & \\; \\\nls", [["/bin/echo", "/", ">/dev/null", "&", ";", "ls"]]),
    ("/bin/echo one ; /bin/echo 'two two'", [["/bin/echo", "one"], ["/bin/echo", "two two"]]),
    ("/bin/echo one ';' \";\" a;", [["/bin/echo", "one", ";", ";", "a;"]]),
    ("/bin/echo one ;", [["/bin/echo", "one"]]),
    ("-/bin/echo a", [["/bin/echo", "a"]]),
    ("-+/bin/echo a", [["/bin/echo", "a"]]),
    ("!!/bin/echo a", [["/bin/echo", "a"]]),
    ("!/bin/echo a", [["/bin/echo", "a"]]),
    ("-:/bin/echo a ; +/bin/true", [["/bin/echo", "a"], ["/bin/true"]]),
    ("echo a", [["echo", "a"]]),
    ("/bin/echo a \\\n  b \\\n  c", [["/bin/echo", "a", "b", "c"]]),
    ("/bin/echo a\\\nb", [["/bin/echo", "a", "b"]]),
    ("/bin/echo a \\\n# no word\n  ; nor this\n  b", [["/bin/echo", "a", "b"]]),
    ("/bin/echo a \\\n\nTimeoutSec=1", [["/bin/echo", "a"]]),
    ("/bin/echo 'a \\\n  b'", [["/bin/echo", "a    b"]]),
    ("/bin/echo a # b", [["/bin/echo", "a", "#", "b"]]),
    ("/bin/echo 100%% %%i %", [["/bin/echo", "100%", "%i", "%"]]),
    ("/bin/echo %n %N %p %i.", [["/bin/echo", "a-b.service", "a-b", "a-b", "."]]),
    ("/bin/echo %j '%p x'", [["/bin/echo", "b", "a-b x"]]),
    ("/bin/echo %! 5%- %.", [["/bin/echo", "%!", "5%-", "%."]]),
    ("/bin/echo a\nExecStart=\nExecStart=/bin/echo b", [["/bin/echo", "b"]]),
    (
        "/bin/echo a\n[Install]\nExecStart=/bin/echo b\n[Service]\n ExecStart = /bin/true ",
        [["/bin/echo", "a"], ["/bin/true"]],
    ),
]
# Words, the instance, what they are in it, and in the template itself (None: unknown).
INSTANCES: list[tuple[str, str, list[str], list[str | None]]] = [
    ("%i gpu%i:%i", "1", ["1", "gpu1:1"], [None, None]),
    ("%n %N", "1", ["a-b@1.service", "a-b@1"], [None, None]),
    ("%p %j", "x", ["a-b", "b"], ["a-b", "b"]),
    ("%i %I", r"mnt-data\x2d1", [r"mnt-data\x2d1", "mnt/data-1"], [None, None]),
    ("%%i", "1", ["%i"], ["%i"]),
]


@pytest.mark.parametrize(("line", "expected"), WORDS)
def test_the_words_of_a_command(line: str, expected: list[list[str]]) -> None:
    """Quotes, escapes, lines that go on, separators, prefixes and specifiers."""
    assert arguments(service("Type=oneshot", f"ExecStart={line}"), "a-b.service") == expected


@pytest.mark.parametrize(("line", "instance", "here", "template"), INSTANCES)
def test_an_instance_has_its_name(line: str, instance: str, here: list[str], template: list[str | None]) -> None:
    """The file name contains the instance; a template's has only the prefix."""
    text = service(f"ExecStart=/bin/echo {line}")
    assert arguments(text, f"x/a-b@{instance}.service") == [["/bin/echo", *here]]
    assert arguments(text, "x/a-b@.service") == [["/bin/echo", *template]]


def test_what_only_the_host_knows() -> None:
    """The host's name, the manager's folders and, on stdin, the unit's name are unknown."""
    text = service("ExecStart=/bin/echo %H a%m %h %t %p")
    assert arguments(text) == [["/bin/echo", None, None, None, None, "server"]]
    assert arguments(text, "-") == [["/bin/echo", None, None, None, None, None]]


def test_a_program_under_another_name() -> None:
    """After @ the second word is only argv[0]."""
    assert arguments(service("ExecStart=-@/usr/bin/lmdeploy zero serve")) == [["/usr/bin/lmdeploy", "serve"]]


def verified(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """systemd's own check of a unit, which shows all that it reads."""
    return run_program(
        [need("systemd-analyze"), "verify", "--man=no", str(folder / name)],
        env={"PATH": os.defpath, "SYSTEMD_UNIT_PATH": f"{folder}:", "SYSTEMD_LOG_LEVEL": "debug", "LC_ALL": "C.UTF-8"},
        timeout=60,
    )


def shown(folder: Path, name: str) -> tuple[list[list[str]], list[str]]:
    """The commands and the variables of a unit as systemd itself reads them."""
    done = verified(folder, name)
    if "Command Line: " not in done.stdout:
        pytest.skip(f"this systemd does not show what it reads: {done.stderr[-300:]}")
    lines = re.findall(r"Command Line: (.*)", done.stdout)
    return [unquoted(line) for line in lines], re.findall(r"\tEnvironment: (.*)", done.stdout)


SIGNS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unquoted(text: str) -> list[str]:
    """The words of a line as systemd shows it: those with special signs in quotes, these with a backslash."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', text)
    return [bare or re.sub(r"\\(.)", lambda sign: SIGNS.get(sign[1], sign[1]), quoted) for quoted, bare in found]


@pytest.mark.parametrize(("line", "expected"), WORDS)
def test_systemd_reads_the_same_words(tmp_path: Path, line: str, expected: list[list[str]]) -> None:
    """systemd confirms the expected lists."""
    (tmp_path / "a-b.service").write_text(service("Type=oneshot", f"ExecStart={line}"), encoding="utf-8")
    assert shown(tmp_path, "a-b.service")[0] == expected


def test_systemd_reads_the_same_in_an_instance(tmp_path: Path) -> None:
    """All instances' words, from systemd."""
    for at, (line, instance, here, _) in enumerate(INSTANCES):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "a-b@.service").write_text(service(f"ExecStart=/bin/echo {line}"), encoding="utf-8")
        assert shown(folder, f"a-b@{instance}.service")[0] == [["/bin/echo", *here]]


PARTS = [*"ab '\"\\;#%$=-", " ", " ", "\\\n", "\\\n#c\n", "%%", "%p", "\\x41", "\\s", "\\q", "${A}", "$A", "é", "\t"]


def test_systemd_reads_the_same_of_lines_made_by_chance(tmp_path: Path) -> None:
    """300 random lines of special characters; a sample of those with unbalanced quotes is checked too."""
    rng = random.Random(20261121)
    good, refused = [], []
    for _ in range(300):
        line = "".join(rng.choice(PARTS) for _ in range(rng.randrange(1, 14)))
        text = service("Type=oneshot", f"ExecStart=:/bin/echo {line}", "")
        problems = read("a-b.service", text, explicit=False).problems
        if any("quote" in problem.message for problem in problems):
            refused.append(text)
        elif not problems and ";" not in line:
            good.append((line, arguments(text, "a-b.service")[0]))
    assert (len(good) > 120, len(refused) > 20) == (True, True)
    path = tmp_path / "a-b.service"
    path.write_text(service("Type=oneshot", *(f"ExecStart=:/bin/echo {line}\n" for line, _ in good)), encoding="utf-8")
    found = shown(tmp_path, "a-b.service")[0]
    assert len(found) == len(good)
    for (line, ours), theirs in zip(good, found, strict=True):
        # A specifier that only the host knows is unknown here and has its value there.
        assert [their if our is None else our for our, their in zip(ours, theirs, strict=True)] == theirs, line
    for text in refused[:15]:
        path.write_text(text, encoding="utf-8")
        assert "Unbalanced quoting" in verified(tmp_path, "a-b.service").stderr, text


# --- variables

# Lines of a unit, and the words behind /bin/echo.
REPLACED: list[tuple[list[str], str, list[str | None]]] = [
    (["Environment=\"ONE=one\" 'TWO=two two'"], "$ONE $TWO ${TWO}", ["one", "two", "two", "two two"]),
    (["Environment=\"TWO='two two' too\" THREE="], "${TWO} ${THREE}", ["'two two' too", ""]),
    (["Environment=\"TWO='two two' too\" THREE="], "$TWO $THREE", ["two two", "too"]),
    (["Environment=A=1", "Environment=A=2"], "${A}", ["2"]),
    (["Environment=A=1 B=2", "Environment=", "Environment=B=3"], "${A} ${B}", [None, "3"]),
    (["Environment=A=1"], "x${A}y ${A}${A} '${A} b'", ["x1y", "11", "1 b"]),
    (["Environment=A=1"], "$$A $${A} a$$ $A$A x$A", ["$A", "${A}", "a$", "x$A"]),
    (["Environment=A=1"], "${A:-2} ${B:-2}", ["${A:-2}", "${B:-2}"]),
    (["Environment=A=$B B=2"], "${A}", ["$B"]),
    (["Environment=A=50%% N=%N"], "${A} ${N}", ["50%", "server"]),
    (["Environment=A=%H"], "${A} x${A}", [None, None]),
    (["Environment=A=1 1B=2 C"], "${A} ${C}", ["1", None]),
    (["Environment=A=x\\x20y"], "${A} $A", ["x y", "x", "y"]),
    (["Environment=A=1 B=2 C=3", "UnsetEnvironment=A C=3 B=9"], "${B} ${A} ${C}", ["2", None, None]),
    (["PassEnvironment=A B", "Environment=B=2"], "${A} ${B}", [None, "2"]),
    ([], "${A} x", [None, "x"]),
]


@pytest.mark.parametrize(("lines", "words", "expected"), REPLACED)
def test_variables(lines: list[str], words: str, expected: list[str | None]) -> None:
    """Variables are replaced as systemd does: whole, or split if alone; unset ones are unknown."""
    assert arguments(service(*lines, f"ExecStart=/bin/echo {words}")) == [["/bin/echo", *expected]]


def test_no_variables_behind_a_colon() -> None:
    """The prefix turns replacement off."""
    text = service("Environment=A=1", "ExecStart=:/bin/echo ${A} $A $$")
    assert arguments(text) == [["/bin/echo", "${A}", "$A", "$$"]]


def test_systemd_reads_the_same_variables(tmp_path: Path) -> None:
    """systemd confirms the variables of Environment=."""
    for at, (lines, _, _) in enumerate(REPLACED):
        if "%H" in "".join(lines) or any("Unset" in line or "Pass" in line for line in lines):
            continue
        folder = tmp_path / str(at)
        folder.mkdir()
        text = service(*lines, f"ExecStart={SERVER}")
        (folder / "server.service").write_text(text, encoding="utf-8")
        ours = [f"{name}={word.value}" for name, word in one(text).environment.items()]
        assert ours == shown(folder, "server.service")[1]


# The text of an environment file, and what it sets.
FILES: list[tuple[str, dict[str, str]]] = [
    ("A=1\nB=2\n", {"A": "1", "B": "2"}),
    ("# no\n; nor this\n\nno separator\nA=1", {"A": "1"}),
    ("  A = 1 2  \t\n", {"A": "1 2"}),
    ("A=1 # 2\n", {"A": "1 # 2"}),
    ("A=\"x y\"\nB='x y'\n", {"A": "x y", "B": "x y"}),
    ('A=it\'s "q"\n', {"A": 'it\'s "q"'}),
    ('A="say \\"x\\" \\\\ \\q"\n', {"A": 'say "x" \\ \\q'}),
    ("A='a\\b'\n", {"A": "a\\b"}),
    ("A='a\nb'\nB=\"c\nd\"\n", {"A": "a\nb", "B": "c\nd"}),
    ('A=a\\\nb\nB="c\\\nd"\n', {"A": "ab", "B": "cd"}),
    ("A=a\\ \\#\\\\b\\\n  c\n", {"A": "a #\\b  c"}),
    ("A=\nB=''\n", {"A": "", "B": ""}),
    ("A=1\nA=2\n", {"A": "2"}),
    ("export A=1\n1B=2\nC-D=3\nE=4\n", {"E": "4"}),
    ("A=%i ${B} $B\n", {"A": "%i ${B} $B"}),
    ('A="x" \n', {"A": "x"}),
    ("A=x=y\n", {"A": "x=y"}),
]


@pytest.mark.parametrize(("text", "expected"), FILES)
def test_an_environment_file(text: str, expected: dict[str, str]) -> None:
    """Comments, quotes, escapes and lines that go on; no variable and no specifier is replaced in it."""
    assert sibling_files.environment_file(text) == expected


PLAIN = [file for file in FILES if "$" not in file[0] and "" not in file[1].values()]


@pytest.mark.parametrize(("text", "expected"), PLAIN)
def test_systemd_reads_the_same_environment_file(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    """systemd's generator confirms files without variables and empty values, which it treats differently."""
    if not GENERATOR.exists():
        pytest.skip(f"{GENERATOR} is not installed; .ci/run installs it (apt-get install systemd)")
    folder = tmp_path / "environment.d"
    folder.mkdir()
    (folder / "a.conf").write_text(text, encoding="utf-8")
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.defpath}
    done = subprocess.run([GENERATOR], env=environment, capture_output=True, text=True, timeout=20, check=True)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert {name: plain(value) for name, value in found.items() if name in "ABCDE"} == expected


def test_systemd_reads_the_same_of_files_made_by_chance(tmp_path: Path) -> None:
    """40 random files of special characters, unclosed quotes included."""
    if not GENERATOR.exists():
        pytest.skip(f"{GENERATOR} is not installed; .ci/run installs it (apt-get install systemd)")
    rng = random.Random(20261121)
    compared = 0
    for number in range(40):
        values = ["".join(rng.choice("ab '\"\\#;= \\n\t%é") for _ in range(rng.randrange(1, 9))) for _ in range(12)]
        # A comment may not end in a backslash: releases differ on what follows it.
        text = "".join(f"V{at}={value}\n" for at, value in enumerate(values)).replace("\\\n#", "\\\n")
        folder = tmp_path / str(number) / "environment.d"
        folder.mkdir(parents=True)
        (folder / "a.conf").write_text(text, encoding="utf-8")
        environment = {"XDG_CONFIG_HOME": str(folder.parent), "HOME": str(tmp_path), "PATH": os.defpath}
        done = subprocess.run([GENERATOR], env=environment, capture_output=True, text=True, timeout=20, check=True)
        theirs = dict(line.split("=", 1) for line in done.stdout.splitlines() if re.match(r"V\d+=", line))
        ours = sibling_files.environment_file(text)
        for name, value in theirs.items():
            assert ours[name] == plain(value), text
        compared += len(theirs)
    assert compared > 150


def plain(text: str) -> str:
    """A value as the generator writes it: in quotes with C's escapes, where it needs them."""
    inner = text[1:-1] if text.startswith('"') else text
    return re.sub(r"\\(.)", lambda found: SIGNS.get(found[1], found[1]), inner)


# --- a unit and the files beside it


def fleet(folder: Path, *lines: str, **files: str) -> tuple[Path, str]:
    """A template in a folder with environment files, as ``server_0`` for server-0.env."""
    for name, text in files.items():
        (folder / f"{name.replace('_', '-')}.env").write_text(text, encoding="utf-8")
    text = service(*lines)
    path = folder / "lmdeploy@.service"
    path.write_text(text, encoding="utf-8")
    return path, text


def test_values_of_files_beside_the_unit(tmp_path: Path) -> None:
    """Environment files are read from the unit's folder; repairs do not change them."""
    path, text = fleet(
        tmp_path,
        "EnvironmentFile=/etc/lmdeploy/server.env",
        "Environment=SEED=7 TP=8",
        "ExecStart=/usr/bin/env -- ${LMDEPLOY} serve api_server ${MODEL} \\",
        "  --tp ${TP} --session-len ${LEN} --log-level ${NONE} --max-batch-size ${SEED}",
        server="LMDEPLOY=/opt/bin/lmdeploy\nMODEL=org/m\nTP=2\nLEN='4096'\n",
    )
    launch = one(text, path)
    assert launch.starts == "api_server"
    assert (launch.model.value, launch.model.raw, launch.model.variable) == ("org/m", "${MODEL}", "MODEL")
    values = {"--tp": ["2"], "--session-len": ["4096"], "--log-level": [None], "--max-batch-size": ["7"]}
    assert given_options(launch) == values
    assert [text_at(text, option.values[0].literal) for option in launch.options] == [None, None, None, "7"]
    assert [option.place.line for option in launch.options] == [7, 7, 7, 7]
    assert launch.place.line == 6
    assert text[launch.place.start : launch.place.end].startswith("${LMDEPLOY} serve")
    tp = launch.environment["TP"]
    assert (tp.value, tp.literal, tp.place.line) == ("2", None, 4)


def test_what_instances_share(tmp_path: Path) -> None:
    """For a template, a value is known if all instances' files agree."""
    lines = (
        "EnvironmentFile=/etc/lmdeploy/server-%i.env",
        f"ExecStart={SERVER} --server-port ${{PORT}} --tp ${{TP}} --session-len ${{LEN}}",
    )
    path, text = fleet(tmp_path, *lines, server_0="PORT=1\nTP=2\nLEN=9\n", server_1="PORT=2\nTP=2\n", other="TP=4\n")
    assert given_options(one(text, path)) == {"--server-port": [None], "--tp": ["2"], "--session-len": [None]}
    instance = path.with_name("lmdeploy@0.service")
    assert given_options(one(text, instance)) == {"--server-port": ["1"], "--tp": ["2"], "--session-len": ["9"]}
    (tmp_path / "server-0.env").unlink()
    assert given_options(one(text, instance)) == {"--server-port": [None], "--tp": [None], "--session-len": [None]}


def test_a_later_file_counts(tmp_path: Path) -> None:
    """Later files win, and win over Environment=; an empty setting resets the list."""
    lines = (
        "EnvironmentFile=/x/a.env",
        "EnvironmentFile=-/x/b.env",
        "Environment=A=0 B=0",
        "ExecStart=/bin/x ${A} ${B} ${C}",
    )
    path, text = fleet(tmp_path, *lines, a="A=1\nB=1\n", b="A=2\nC=3\n")
    assert arguments(text, str(path)) == [["/bin/x", "2", "1", "3"]]
    path, text = fleet(tmp_path, lines[0], "EnvironmentFile=", *lines[1:], a="A=1\nB=1\n", b="A=2\nC=3\n")
    assert arguments(text, str(path)) == [["/bin/x", "2", "0", "3"]]


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_file_that_is_not_here_may_set_anything(tmp_path: Path, sign: str) -> None:
    """A missing file makes earlier values unknown; later files count again."""
    lines = (
        "Environment=A=1 B=1",
        f"EnvironmentFile={sign}/x/no.env",
        "EnvironmentFile=/x/b.env",
        "ExecStart=/bin/x ${A} ${B}",
    )
    path, text = fleet(tmp_path, *lines, b="B=2\n")
    assert arguments(text, str(path)) == [["/bin/x", None, "2"]]


def test_wildcards(tmp_path: Path) -> None:
    """All files of the pattern are read, in their order."""
    path, text = fleet(tmp_path, "EnvironmentFile=/x/*.env", "ExecStart=/bin/x ${A} ${B}", a="A=1\nB=1\n", b="A=2\n")
    assert arguments(text, str(path)) == [["/bin/x", "2", "1"]]


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    """Absolute paths, .., links and pipes are refused; subfolders are read."""
    inside = tmp_path / "unit"
    (inside / "within").mkdir(parents=True)
    (tmp_path / "out.env").write_text("A=1\n", encoding="utf-8")
    (inside / "within" / "in.env").write_text("A=2\n", encoding="utf-8")
    (inside / "link.env").symlink_to(tmp_path / "out.env")
    (inside / "folder.env").mkdir()
    os.mkfifo(inside / "pipe.env")
    (inside / "bytes.env").write_bytes(b"A=\xff\n")

    def read_by(name: str, path: str = f"{inside}/x.service") -> str | None:
        return arguments(service(f"EnvironmentFile={name}", "ExecStart=/bin/x ${A}"), path)[0][1]

    for name in (f"{tmp_path}/out.env", "/x/../out.env", f"{inside}/../out.env", "/x/link.env", "/x/pipe.env"):
        assert read_by(name) is None, name
    for name in ("/x/folder.env", "/x/bytes.env", "/", "/x/", "/x/..", "/x/*", "in.env"):
        assert read_by(name) is None, name
    assert read_by(f"{inside}/within/in.env") == "2"
    assert read_by(f"{inside}/within/in.env", "-") is None


def test_a_link_to_a_file_of_the_folder_is_read(tmp_path: Path) -> None:
    """An instance is often a link to its template."""
    path, text = fleet(tmp_path, "EnvironmentFile=/x/a.env", "ExecStart=/bin/x ${A}", b="A=1\n")
    (tmp_path / "a.env").symlink_to("b.env")
    assert arguments(text, str(path)) == [["/bin/x", "1"]]


def test_a_word_of_options_from_another_file(tmp_path: Path) -> None:
    """Rules check the words of $OPTIONS; no repair is offered, as they are in another file."""
    path, text = fleet(
        tmp_path,
        "EnvironmentFile=/etc/default/lmdeploy.env",
        f"ExecStart={SERVER} $OPTIONS --tp 2",
        lmdeploy="OPTIONS='--sesion-len 4096 --model-name \"a b\"'\n",
    )
    assert given_options(one(text, path)) == {"--sesion-len": ["4096"], "--model-name": ["a b"], "--tp": ["2"]}
    found = engine.review(str(path), text)
    (said,) = [finding.diagnostic for finding in found.findings if finding.rule.id == "LMD101"]
    assert said.place.line == 5
    source = Source(str(path), text)
    assert fix.repair(source, lambda now: engine.review(now.path, now.text)).source.whole == text


def test_a_word_of_options_of_the_unit() -> None:
    """Words of the unit's own variable are repaired in place."""
    text = service('Environment="OPTIONS=--sesion-len 4096 --tp 2"', f"ExecStart={SERVER} $OPTIONS")
    launch = one(text)
    assert given_options(launch) == {"--sesion-len": ["4096"], "--tp": ["2"]}
    assert [text_at(text, option.place) for option in launch.options] == ["--sesion-len", "--tp"]
    made = fix.repair(Source("x.service", text), lambda now: engine.review(now.path, now.text))
    assert made.source.whole == text.replace("--sesion-len", "--session-len")


def test_an_unknown_word_of_options() -> None:
    """An unknown variable may be any number of words, so the launch is unsure."""
    assert one(service("EnvironmentFile=/x/no.env", f"ExecStart={SERVER} $OPTIONS")).unsure


# --- what is started

STARTS: list[tuple[str, str | None, dict[str, list[str | None]]]] = [
    (f"{SERVER} --tp 2", "org/m", {"--tp": ["2"]}),
    ("/usr/bin/env -- ${X} serve api_server org/m --tp 2", "org/m", {"--tp": ["2"]}),
    ("/usr/bin/env A=1 lmdeploy serve api_server org/m", "org/m", {}),
    ("/opt/venv/bin/python -m lmdeploy serve api_server org/m --tp=2", "org/m", {"--tp": ["2"]}),
    ("/bin/bash -c 'exec lmdeploy serve api_server org/m --tp 2'", "org/m", {"--tp": ["2"]}),
    ("/bin/bash -lc 'exec lmdeploy serve api_server \"$MODEL\" --tp ${TP}'", "org/x", {"--tp": ["4"]}),
    ("/bin/bash -c \"exec lmdeploy serve api_server '${MODEL}' --tp $${TP}\"", "org/x", {"--tp": ["4"]}),
    ("/bin/sh -c 'lmdeploy serve api_server org/m --server-port 2333%p'", "org/m", {"--server-port": ["2333server"]}),
    ("/bin/sh -c 'CUDA_VISIBLE_DEVICES=%H lmdeploy serve api_server org/m --tp 1'", "org/m", {"--tp": ["1"]}),
    ("/bin/bash -c 'cd /srv && \\\n   exec lmdeploy serve api_server org/m \\\n  --tp 2'", "org/m", {"--tp": ["2"]}),
    ("/usr/bin/docker run --rm openmmlab/lmdeploy:v0.9.2 lmdeploy serve api_server org/m", "org/m", {}),
    ("-@/usr/bin/lmdeploy server serve api_server org/m", "org/m", {}),
    ("/usr/bin/numactl --cpunodebind=0 lmdeploy serve api_server org/m", "org/m", {}),
    ("lmdeploy serve api_server 'org/m' --model-name \"a b\"", "org/m", {"--model-name": ["a b"]}),
]


@pytest.mark.parametrize(("line", "model", "options"), STARTS)
def test_what_a_unit_starts(line: str, model: str, options: dict[str, list[str | None]]) -> None:
    """The server itself, behind env and other wrappers, and within the script of a shell."""
    launch = one(service("Environment=MODEL=org/x TP=4", f"ExecStart={line}"))
    assert (launch.model.value, given_options(launch)) == (model, options)


NOTHING = [
    service("ExecStart=/usr/bin/nginx"),
    service("ExecStartPre=/usr/bin/lmdeploy serve api_server org/m", "ExecStart=/usr/bin/x"),
    service(f"#ExecStart={SERVER}", "ExecStart=/bin/echo lmdeploy serve api_server"),
    service("ExecStart=/bin/bash -c \"echo '%H'; lmdeploy serve api_server org/m --model-name '%H'\""),
    f"[Install]\nExecStart={SERVER}\n[Service]\nType=exec\n",
]


@pytest.mark.parametrize("text", NOTHING)
def test_what_starts_no_server(text: str) -> None:
    """What another setting or another program names, and a script of which a quoted part is unknown."""
    assert not read("server.service", text).launches


def test_places_within_the_unit() -> None:
    """Places are right in continued lines, quotes and nested scripts."""
    text = service(
        "# the server",
        "ExecStart=/usr/bin/lmdeploy serve api_server 'org/m' \\",
        "  # two cards",
        '  --tp "2" --session-len=4096 \\',
        "  --model-name é --seed 3",
    )
    launch = one(text)
    assert (text_at(text, launch.model.place), text_at(text, launch.model.literal)) == ("'org/m'", "org/m")
    found = {
        option.name: (text_at(text, option.place), text_at(text, option.values[0].literal)) for option in launch.options
    }
    assert found == {
        name: (name, value)
        for name, value in {"--tp": "2", "--session-len": "4096", "--model-name": "é", "--seed": "3"}.items()
    }
    assert [option.place.line for option in launch.options] == [7, 7, 8, 8]
    assert [comment.text for comment in read("x.service", text).comments] == ["# the server", "# two cards"]
    text = service("ExecStart=/bin/bash -c 'exec lmdeploy serve api_server org/m \\", "  --tp 2'")
    (option,) = one(text).options
    assert (text_at(text, option.whole), option.place.line) == ("--tp 2", 5)


RESTARTS = [
    ([], None),
    (["Restart=no"], None),
    (["Restart=on-success"], None),
    (["Restart=always"], True),
    (["Restart=on-failure", "RestartSec=5"], True),
    (["Restart=on-failure", "RestartSec=0"], True),
    (["Restart=on-failure", "RestartSec=0", "StartLimitInterval=0"], False),
    (["Restart=on-failure", "RestartSec=0", "[Unit]", "StartLimitIntervalSec=0"], False),
    (["Restart=on-failure", "RestartSec=0s", "[Unit]", "StartLimitBurst=0"], False),
    (["Restart=on-failure", "RestartSec=500ms", "[Unit]", "StartLimitIntervalSec=0"], True),
    (["Restart=always", "[Unit]", "StartLimitIntervalSec=0"], False),
    (["Restart=always", "Restart=no"], None),
]


@pytest.mark.parametrize(("lines", "pauses"), RESTARTS)
def test_restarts(lines: list[str], pauses: bool | None) -> None:
    """A service that starts again is a loop; it spins only without a pause and without systemd's limit on starts."""
    text = service(f"ExecStart={SERVER}", *lines)
    loop = one(text).loop
    assert (loop.pauses if loop else None) == pauses
    found = {finding.rule.id for finding in engine.review("x.service", text).findings}
    assert ("LMD601" in found) == (pauses is False)


def test_set_e_of_a_script_does_not_end_the_restarts() -> None:
    """systemd restarts whatever ended the shell."""
    text = service("ExecStart=/bin/bash -c 'set -e; lmdeploy serve api_server org/m'", "Restart=always")
    assert "LMD603" not in {finding.rule.id for finding in engine.review("x.service", text).findings}


# --- what cannot be read

TROUBLES = [
    (f'ExecStart={SERVER} "--tp 2', 4, "quote"),
    (f"ExecStart={SERVER}\n  --tp 2", 5, "not a setting"),
    (f"ExecStart={SERVER}\n  --tp=2", 5, "not a setting"),
    (f"ExecStart={SERVER} \\ \n  --tp 2", 5, "not a setting"),
    (f"ExecStart={SERVER}\n[Install\nWantedBy=x", 5, "section"),
    ("ExecStart=${LMDEPLOY} serve api_server org/m", 4, "variable"),
    ("ExecStart=venv/bin/lmdeploy serve api_server org/m", 4, "absolute"),
    (f"EnvironmentFile=server.env\nExecStart={SERVER}", 4, "absolute"),
    (f"Environment='A=1\nExecStart={SERVER}", 4, "quote"),
    (f"Environment=TP=2\nExecStart={SERVER} \\\n  --tp ${{PT}}", 6, "'PT' is not set here"),
    (f"Environment=TP=2\nExecStart={SERVER} $PT", 5, "'PT' is not set here"),
    (f"EnvironmentFile=-/etc/default/lmdeploy\nExecStart={SERVER} --tp ${{TP}}", 5, "not known from this file: ${TP}"),
    (f"PassEnvironment=TP\nExecStart={SERVER} --tp ${{TP}}", 5, "not known from this file: ${TP}"),
    ("ExecStart=/bin/bash -c 'TP=2; \\\n  lmdeploy serve api_server org/m --tp ${TP}'", 5, "'TP' is not set here"),
]
QUIET = [
    "ExecStart=/usr/bin/lmdeploy serve api_server org/m --model-name ${USER} --download-dir $CACHE_DIRECTORY",
    "ExecStart=:/usr/bin/lmdeploy serve api_server org/m --tp ${TP}",
    "ExecStart=/bin/bash -c 'TP=2; lmdeploy serve api_server org/m --tp $${TP} --dp $TP'",
]


@pytest.mark.parametrize(("lines", "line", "what"), TROUBLES)
def test_troubles(lines: str, line: int, what: str) -> None:
    """What systemd ignores or rejects is reported at its line."""
    script = read("lmdeploy.service", service(lines))
    trouble = script.problems[0]
    assert (trouble.place.line, what in trouble.message) == (line, True), trouble
    assert len({problem.place for problem in script.problems}) == len(script.problems), "one message for one word"
    assert "LMD002" in {finding.rule.id for finding in engine.review(script.path, script.text).findings}


@pytest.mark.parametrize("lines", QUIET)
def test_no_trouble(lines: str) -> None:
    """What systemd sets itself, what another file or the manager may set, and what the shell is to replace."""
    assert read("lmdeploy.service", service(lines)).problems == ()


def test_a_program_of_a_variable_is_reviewed_all_the_same() -> None:
    """A variable as the program does not stop the review."""
    text = service("ExecStart=${LMDEPLOY} serve api_server org/m --tpp 2")
    assert "LMD101" in {finding.rule.id for finding in engine.review("x.service", text).findings}


@pytest.mark.parametrize(
    "text",
    [
        service("Environment=A=" + "x" * 100_000, "ExecStart=/bin/bash -c '" + "${A}" * 20_000 + " lmdeploy'"),
        service('Environment="A=' + "x " * 50_000 + '"', "ExecStart=/bin/x " + "$A " * 20_000 + " lmdeploy"),
        service("ExecStart=/usr/bin/lmdeploy serve api_server " + "x " * 400_000),
        service(*["ExecStart=/usr/bin/lmdeploy serve api_server m"] * 15_000),
        service("ExecStart=/usr/bin/lmdeploy " + "\\\n" * 300_000),
        service("Environment=" + "%" * 500_001, "ExecStart=/bin/lmdeploy ${" * 100_000),
    ],
    ids=["script", "split", "words", "commands", "lines", "signs"],
)
def test_what_was_written_to_take_for_ever(text: str) -> None:
    """It ends, and takes no more memory than a large script."""
    read("x.service", text[: 2**20])


# --- kinds, folders, repairs

KINDS = [
    ("x.service", "", "systemd"),
    ("a/lmdeploy@.service", "ExecStart=x", "systemd"),
    ("-", service("ExecStart=/bin/x"), "systemd"),
    ("lmdeploy.conf", "# drop-in\n\n[Service]\nExecStart=\nExecStart=/bin/x\n", "systemd"),
    ("-", "[Service]\nType=exec\n", "bash"),
    ("x.sh", service("ExecStart=/bin/x"), "bash"),
    ("install", "#!/bin/sh\ncat >x <<EOF\n[Service]\nExecStart=/bin/x\nEOF\n", "bash"),
    ("-", "cat >x <<EOF\n[Service]\nExecStart=/bin/x\nEOF\n", "bash"),
]


@pytest.mark.parametrize(("path", "text", "kind"), KINDS)
def test_the_kind_of_a_unit(path: str, text: str, kind: str) -> None:
    """The kind follows from the name, or from a [Service] with ExecStart=."""
    assert kind_of(path, text) == kind


def review(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(command.command, arguments, input=stdin)


def test_a_folder_s_units_are_reviewed(tmp_path: Path) -> None:
    """Units that mention LMDeploy are reviewed; others and environment files are not."""
    fleet(
        tmp_path, "EnvironmentFile=/x/a.env", "ExecStart=/usr/bin/lmdeploy serve api_server org/m --tpp ${A}", a="A=1\n"
    )
    (tmp_path / "nginx.service").write_text("[Service]\nExecStart=/usr/bin/nginx\n", encoding="utf-8")
    found = review(str(tmp_path))
    assert found.exit_code == 1
    assert re.search(r"lmdeploy@\.service:5:\d+", found.output)
    assert "1 file, 1 launch" in found.output
    assert "nginx" not in found.output


def test_a_unit_on_stdin() -> None:
    """A unit on stdin has no folder, so no other file is read."""
    found = review("-", stdin=service("EnvironmentFile=/x/a.env", f"ExecStart={SERVER} --tpp ${{A}}"))
    assert found.exit_code == 1
    assert "1 launch" in found.output


UNIT = service(
    "ExecStart=/usr/bin/lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct \\",
    "  --sesion-len 8192 \\",
    "  --eager-mode \\",
    "  --server-name 127.0.0.1",
    "Restart=always",
)


def test_fix_mends_a_unit_in_place(tmp_path: Path) -> None:
    """As in a script: a name is corrected, and an option without effect is removed with its line."""
    path = tmp_path / "lmdeploy.service"
    path.write_text(UNIT, encoding="utf-8")
    before = review(str(path))
    assert {"LMD101", "LMD302"} <= set(re.findall(r"LMD\d{3}", before.output))
    review(str(path), "--fix")
    mended = path.read_text("utf-8")
    assert mended == UNIT.replace("--sesion-len", "--session-len").replace("  --eager-mode \\\n", "")
    assert not {"LMD101", "LMD302"} & set(re.findall(r"LMD\d{3}", review(str(path)).output))


def test_fix_of_the_last_option(tmp_path: Path) -> None:
    """The line before it loses its backslash."""
    path = tmp_path / "lmdeploy.service"
    text = service(
        "ExecStart=/usr/bin/lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct \\", "  --eager-mode", "Restart=no"
    )
    path.write_text(text, encoding="utf-8")
    review(str(path), "--fix")
    assert path.read_text("utf-8") == text.replace(" \\\n  --eager-mode", "")


def test_an_ignore_covers_the_command() -> None:
    """A comment above ExecStart= is for all its lines."""
    lines = UNIT.split("\n")
    lines.insert(3, "# recommend: ignore LMD101, LMD302 because it is an exercise")
    found = engine.review("x.service", "\n".join(lines))
    assert not {"LMD101", "LMD302", "LMD001"} & {finding.rule.id for finding in found.findings}


def test_a_misspelt_variable_of_a_file_is_found(tmp_path: Path) -> None:
    """At the line that names the file, whichever of its variables it is."""
    path, text = fleet(tmp_path, "EnvironmentFile=/x/a.env", f"ExecStart={SERVER}", a="A=1\nTM_LOG_LEVL=INFO\n")
    found = [finding.diagnostic for finding in engine.review(str(path), text).findings if finding.rule.id == "LMD311"]
    assert [(each.place.line, "TM_LOG_LEVEL" in each.message, each.fix) for each in found] == [(4, True, None)]


def test_variables_that_another_file_may_set(tmp_path: Path) -> None:
    """A missing file may set the thread count; a present one that does not gets the finding."""
    lines = ("EnvironmentFile=/x/a.env", "ExecStart=/usr/bin/lmdeploy serve api_server OpenGVLab/InternVL3-8B")
    lines = (*lines[:1], f"{lines[1]} --trust-remote-code --max-batch-size 64")
    path, text = fleet(tmp_path, *lines)
    assert "LMD401" not in {finding.rule.id for finding in engine.review(str(path), text).findings}
    fleet(tmp_path, *lines, a="HF_HOME=/x\n")
    assert "LMD401" in {finding.rule.id for finding in engine.review(str(path), text).findings}
    fleet(tmp_path, *lines, a="OMP_NUM_THREADS=4\n")
    assert "LMD401" not in {finding.rule.id for finding in engine.review(str(path), text).findings}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"server.service.d/10.conf": "8001"}, "8001"),
        ({"server.service.d/10.conf": "8001", "server.service.d/20.conf": "8002"}, "8002"),
        ({"other.service.d/10.conf": "8001"}, "8000"),
        ({"server.service.d/10.txt": "8001"}, "8000"),
    ],
)
def test_drop_ins_set_variables(tmp_path: Path, names: dict[str, str], expected: str) -> None:
    """Those of the unit's own folder, in the order of their names; systemd.unit(5)."""
    write_files(tmp_path, {name: f'[Service]\nEnvironment="PORT={port}"\n' for name, port in names.items()})
    text = service("Environment=PORT=8000", f"ExecStart={SERVER} --server-port ${{PORT}}")
    assert given_options(one(text, tmp_path / "server.service")) == {"--server-port": [expected]}
