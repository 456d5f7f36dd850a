"""Programs in JavaScript, TypeScript, Go, Rust, Java and Groovy: the servers that they start."""

from pathlib import Path

import pytest
from scripts import given_options

from recommender.review.engine import review
from recommender.review.readers.detect_kind import read

WORDS = '"serve", "api_server", "m"'
FOUND = [
    ("x.js", f'spawn("lmdeploy", [{WORDS}, "--tp", "2"]);'),
    ("x.ts", f'const args: string[] = [{WORDS}];\nargs.push("--tp", "2");\nspawn("lmdeploy", args);'),
    ("x.ts", f'const tp = 2;\nexeca("lmdeploy", [{WORDS}, `--tp=${{tp}}`]);'),
    ("x.mjs", 'exec("lmdeploy serve api_server m " +\n  "--tp 2");'),
    ("x.cjs", f'module.exports = {{apps: [{{script: "lmdeploy", args: [{WORDS}, "--tp", "2"]}}]}};'),
    ("x.cjs", 'module.exports = {apps: [{script: "lmdeploy", args: "serve api_server m --tp 2"}]};'),
    ("x.go", f'cmd := exec.Command("lmdeploy", {WORDS}, "--tp", "2")'),
    ("x.go", f'args := []string{{{WORDS}}}\nargs = append(args, "--tp", "2")\nexec.Command("lmdeploy", args...)'),
    ("x.go", 'const s = `exec lmdeploy serve api_server m \\\n  --tp 2`\nexec.Command("sh", "-c", s)'),
    ("x.rs", f'Command::new("lmdeploy").args([{WORDS}]).arg("--tp").arg("2").spawn()'),
    ("x.rs", f'let mut cmd = Command::new("lmdeploy");\ncmd.args(&[{WORDS}]);\ncmd.args(["--tp", "2"]);'),
    ("X.java", f'new ProcessBuilder("lmdeploy", {WORDS}, "--tp", "2").start();'),
    ("X.java", f'List<String> c = new ArrayList<>(List.of("lmdeploy", {WORDS}));\nc.add("--tp");\nc.add("2");'),
    ("x.kt", f'ProcessBuilder(listOf("lmdeploy", {WORDS}, "--tp", "2")).start()'),
    ("Jenkinsfile", 'def tp = 2\nsh "lmdeploy serve api_server m --tp ${tp}"'),
    ("Jenkinsfile", "environment { TP = '2' }\nsh '''\n  lmdeploy serve api_server m --tp $TP\n'''"),
    ("Jenkinsfile", 'environment { TP = "2" }\nsh "lmdeploy serve api_server m --tp ${env.TP}"'),
    (
        "x.rs",
        'fn go<\'a>(x: &\'a str) {\n    Command::new("lmdeploy").args(["serve", "api_server", "m", "--tp", "2"]);',
    ),
    ("x.js", "const parts = [`lmdeploy serve api_server m`];\nif (n) parts.push(`--tp 2`);\nreturn parts.join(' ');"),
    ("x.groovy", 'def tp = 2\nsh """\n  lmdeploy serve api_server m \\\\\n    --tp ${tp}\n"""'),
]


@pytest.mark.parametrize(("path", "text"), FOUND)
def test_a_server_is_read(path: str, text: str) -> None:
    """Lists, calls in a chain, lists that grow and texts for a shell all give the model and the options."""
    (launch,) = read(path, text).launches
    assert launch.model.value == "m"
    assert given_options(launch) == {"--tp": ["2"]}


def test_what_a_program_computes_is_unknown() -> None:
    """A parameter, a call and a name with two values are said to be unknown, each by its name."""
    text = (
        'let a = "x";\na = "y";\nfunction go(model) {\n'
        '  spawn("lmdeploy", ["serve", "api_server", model, "--tp", count(), "--model-format", a]);\n}\n'
    )
    (launch,) = read("x.js", text).launches
    assert [word.value for option in launch.options for word in option.values] == [None, None]
    (finding,) = [finding for finding in review("x.js", text).findings if finding.rule.id == "LMD002"]
    assert all(name in finding.message for name in ("model", "count()", "a"))


def test_a_default_is_the_value() -> None:
    """As in Python, where the caller may give another one."""
    text = 'const model = process.env.MODEL ?? "m";\nspawn("lmdeploy", ["serve", "api_server", model]);'
    (launch,) = read("x.ts", text).launches
    assert launch.model.value == "m"


def test_texts_for_people_start_nothing() -> None:
    """A log line and a comment name a command, and no server is read from them."""
    text = "// lmdeploy serve api_server m --bad\nconsole.log(`run: lmdeploy serve api_server ${m}`);\n"
    assert read("x.js", text).launches == ()
    assert "LMD101" not in [finding.rule.id for finding in review("x.js", text).findings]


def test_the_environment_of_a_program_is_the_servers() -> None:
    """In an object, a call and a list of pairs; two values are none."""
    for path, text in (
        ("x.js", 'spawn("lmdeploy", ["serve", "api_server", "m"], {env: {CUDA_VISIBLE_DEVICES: "0,1"}});'),
        ("x.rs", 'Command::new("lmdeploy").args(["serve", "api_server", "m"]).env("CUDA_VISIBLE_DEVICES", "0,1");'),
        (
            "x.go",
            'c := exec.Command("lmdeploy", "serve", "api_server", "m")\nc.Env = []string{"CUDA_VISIBLE_DEVICES=0,1"}',
        ),
    ):
        (launch,) = read(path, text).launches
        assert launch.environment["CUDA_VISIBLE_DEVICES"].value == "0,1", path


def test_a_server_that_is_not_read_is_said(tmp_path: Path) -> None:
    """A list that begins elsewhere is no command, and no green file."""
    text = "const args = base.concat(rest); // \nrun(`${bin} serve api_server ${model}`);\n"
    assert "LMD002" in [finding.rule.id for finding in review("x.ts", f"// lmdeploy\n{text}").findings]


def test_a_program_is_not_repaired() -> None:
    """What would be written needs the language's quotes."""
    text = 'spawn("lmdeploy", ["serve", "api_server", "m", "--sesion-len", "8192"]);'
    (finding,) = [
        finding for finding in review("x.js", text, {"lmdeploy": "0.18.0"}).findings if finding.rule.id == "LMD101"
    ]
    assert finding.fix is None
