"""Each linter finds what it is for, and names the file, the field and the repair."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recommender.commands.knowledge import command
from recommender.commands.schema import schemas
from recommender.common.errors import MaintenanceError
from recommender.knowledge.load import data_root
from recommender.knowledge.store import FOLDERS
from recommender.maintenance.knowledge_folder import read
from recommender.maintenance.linters import LINTERS
from recommender.maintenance.run_linters import EXCEPTIONS, check

KNOWLEDGE = data_root() / "knowledge"
SCHEMAS = schemas()
TEMPLATES = ("flag", "gpu", "model", "claim", "constraint", "thread", "release")
pytestmark = pytest.mark.usefixtures("_records_are_read_once")


APPEND, WHOLE = "", "(whole file)"


def broken(text: str, old: str, new: str) -> str:
    """The text with the first match of a pattern replaced, with lines added, or all of it replaced."""
    if old in (APPEND, WHOLE):
        return text + new if old == APPEND else new
    assert re.search(old, text, re.M), f"nothing matches {old!r}: the record changed, mend the case"
    return re.sub(old, new, text, count=1, flags=re.M)


FLAG, GPU, CLAIM = "flags/dtype.yaml", "gpus/l4.yaml", "claims/one-preprocessing-thread.yaml"
VOLTA, TILE = "constraints/awq-needs-volta.yaml", "coefficients/vision-tile.yaml"
RUN = "evidence/h100-2026-11-21-14b-awq-rec-16.yaml"
RUNS, KIMI = "evidence/earlier/h100-2026-11-21.yaml", "disagreements/kimi-log-level.yaml"
FACTS, LORA = "extracted/api_server.json", "flags/adapters.yaml"
BF16, QWEN3 = "models/internvl3-8b.yaml", "models/qwen3-8b.yaml"
WAITS, ALONE = "claims/batch-waits-to-fill.yaml", "claims/batch-one-cuts-overhead.yaml"
TABLE, STATIC = "published/rtx-3090-llama-3-8b.yaml", "published/a100-llama-2-7b-static.yaml"
IMAGE, OMP = "claims/image-is-3k-tokens.yaml", "environment/omp-num-threads.yaml"

# Linter, file, what is replaced by what; then what is told: field, part of the message, part of the repair.
CASES = [
    ("types", FLAG, APPEND, "colour: red\n", "colour", "not permitted", "remove it"),
    ("types", FLAG, r"^choose:.*\n(  .*\n)*", "", "choose", "required", "add it"),
    ("types", FLAG, 'since: "0.7.0"$', "since: 0.10", "eras[0].since", "string", "in quotes"),
    ("types", FLAG, 'since: "0.7.0"$', 'since: "0.7"', "eras[0].since", "pattern", "form of the pattern"),
    ("types", GPU, r"memory_mib: (\d+)", r'memory_mib: "\1"', "memory_mib", "integer", "without quotes"),
    ("types", GPU, "status: read", "status: heard", "memory_mib_status", "'read' or", "allowed words"),
    ("types", GPU, "^id: l4", "id: l5", "(whole file)", "id is 'l5'", "name the file after it"),
    ("types", GPU, WHOLE, "id: [\n", "(whole file)", "invalid YAML", "fix the YAML"),
    ("types", GPU, WHOLE, "", "(whole file)", "object", "fix the value"),
    ("types", GPU, "memory_gb: .*", "memory_gb: .nan", "memory_gb", "finite", "finite number"),
    ("files", "gpus/x1.yml", WHOLE, "id: x1\n", "(whole file)", "nothing reads it", "name it x1.yaml"),
    ("files", "gpu/x1.yaml", WHOLE, "id: x1\n", "(whole file)", "nothing reads it", "move it"),
    ("files", "schema/old.json", WHOLE, "{}\n", "(whole file)", "nothing reads it", "remove it"),
    ("keys", GPU, "^name:", "id: l4\nname:", "line 2", "duplicate key 'id'", "remove one"),
    ("unfinished", GPU, "^name: .*", "name: TODO", "line 2", "TODO", "write the fact"),
    ("references", "advisers/baseline.yaml", "option: cuda-.*", "option: cuda", "settings[0].option", "'cuda'",
     "fix the id"),
    ("references", CLAIM, "^options: .*", "options: [d-type]", "options[0]", "no option 'd-type'", "mean dtype"),
    ("references", "scenarios/best-overall.yaml", "- gemini", "- gemeni", "picks[0]", "no adviser", "gemini"),
    ("references", KIMI, "adviser: kimi", "adviser: kim", "adviser", "no adviser 'kim'", "did you mean kimi"),
    ("references", RUNS, "^gpu: .*", "gpu: h100", "gpu", "no gpu 'h100'", "h100-sxm-80g"),
    ("references", RUNS, "^- model: .*", "- model: internvl", "starts[0].model", "no model", "fix the id"),
    ("references", TILE, r"\[h100-", "[h10-", "sources.evidence[0]", "no evidence 'h10-", "did you mean h100-"),
    ("conditions", VOLTA, "config.backend", "config.backens", "when[0]", "name 'config.backens'", "config.backend"),
    ("conditions", VOLTA, ">= 7.0", "above 7.0", "require[0]", "above", "write NAME OPERATOR"),
    ("conditions", VOLTA, r"\{gpu.name\}", "{gpu.nam}", "message", "name 'gpu.nam'", "did you mean gpu.name"),
    ("conditions", VOLTA, "^remedy: .*", 'remedy: "{estimate.rps}"', "remedy", "not known yet", "leave the name out"),
    ("conditions", FLAG, r"\{model.dtype\}", "{model.typ}", "reasons[1].text", "'model.typ'", "did you mean"),
    ("reasons", LORA, "- text:", "- when: [config.tp == 2]\n    text:", "reasons[0].when", "no reason", "add a last"),
    ("reasons", FLAG, r"- when:\n( {6}- .*\n)+", "- when: []\n", "reasons[0].when", "never shown", "move it last"),
    ("references", BF16, "option: chat-template", "option: chat-templat", "needs[0]", "no flag 'chat-templat'",
     "mean chat-template"),
    ("claim_conditions", CLAIM, "request.images > 0", "request.cpu > 1", "when[0]", "request.cpu", "request.cpus"),
    ("claim_conditions", CLAIM, "request.images > 0", "config.tp > 1", "when[0]", "not part of a request",
     "compare lmdeploy"),
    ("conditions", BF16, r"\{lmdeploy\}", "{lmdeplo}", "needs[0].because", "'lmdeplo'", "did you mean lmdeploy"),
    ("settings", BF16, "option: chat-template", "option: tp", "needs[0].option", "tp has no setting of type str",
     "such a setting"),
    ("eras", BF16, 'until: "0.8.0"', 'until: "0.7.0"', "needs (chat-template)", "is empty", "first release after"),
    ("settings", FLAG, "^setting: dtype", "setting: d_type", "setting", "'d_type'", "did you mean dtype"),
    ("eras", FLAG, 'until: "0.10.1"', 'until: "0.10.0"', "eras since 0.10.1", "no era from 0.10.0", 'since: "0.10.0"'),
    ("eras", FLAG, 'until: "0.10.1"', 'until: "0.10.2"', "eras since 0.10.1", "overlaps", 'until: "0.10.1"'),
    ("eras", FLAG, 'until: "0.10.1"', 'until: "0.7.0"', "eras", "0.7.0 to 0.7.0 is empty", "first release after"),
    ("eras", CLAIM, "^since: .*", 'since: "0.9.0"\nuntil: "0.8.0"', "until", "is empty", "first release after"),
    ("releases", FLAG, 'until: "0.10.1"', 'until: "0.10.9"', "eras[0].until", "not a covered", "did you mean 0.10"),
    ("releases", VOLTA, '"0.7.0"', '"0.6.5"', "sources.code[0].release", "0.6.5 is not a covered release", "add it"),
    ("releases", VOLTA, "^when:", "when:\n  - lmdeploy >= 0.10", "when[0]", "0.10 is not", "did you mean 0.10."),
    ("facts", "flags/tp.yaml", "default: .*", 'default: "2"', "eras since 0.7.0", 'default: expected "1"', "write"),
    ("facts", "flags/tp.yaml", "^option: .*", 'option: "--tpp"', "option", "found --tpp", "correct it"),
    ("facts", FACTS, WHOLE, "{}", "(whole file)", "not a file of extracted facts", "knowledge extract"),
    ("support", BF16, "turbomind\n    since: .*", 'turbomind\n    since: "0.8.0"', "support (turbomind)",
     "lists it in 0.7.0, 0.7.0.post1", "correct since"),
    ("support", QWEN3, "pytorch\n    since: .*", 'pytorch\n    since: "0.7.2"', "support (pytorch)",
     "not list it in 0.7.2, 0.7.2.post1, but", "correct"),
    ("support", "models/qwen3-32b-fp8.yaml", "turbomind\n    since: .*", 'turbomind\n    since: "0.8.0"',
     "support (turbomind)", "not list it in 0.8.0, but", "correct"),
    ("support", "models/qwen2-vl-7b-instruct.yaml", 'until: "0.14.0"', 'until: "0.15.0"', "support (turbomind)",
     "not list it in 0.14.0, but", "correct"),
    ("support", "models/internvl3.5-8b.yaml", "turbomind\n    since: .*", 'turbomind\n    since: "0.9.2"',
     "support (turbomind)", "not list it in 0.9.2, 0.9.2.post1, but", "correct"),
    ("names", GPU, "- L4-24G", "- a100 sxm_80G", "aliases[0]", "already names", "keep it in one"),
    ("names", GPU, "^nvml_names:", "ambiguous: [L4x]\nnvml_names:", "ambiguous[0]", "not among", "add it there"),
    ("numbers", TILE, "^low: .*", "low: 9.0", "value", "low 9, value", "low <= value <= high"),
    ("numbers", BF16, "  kv_heads: .*", "  kv_heads: 3", "text.kv_heads", "3 does not divide the 28", "of config.json"),
    ("numbers", "models/qwen3-8b-awq.yaml", "    bits: .*", "    bits: 5", "quantization[0].bits", "no 5 bits", "or 8"),
    ("runs", RUN, "^ready_mib: ", "ready_mib: 9", "ready_mib", "MiB, but the card has 81559", "smoke"),
    ("runs", RUN, "concurrency: 1$", "concurrency: 0", "phases[0].concurrency", "no load, or two", "smoke"),
    ("runs", RUN, "448x448", "448*448", "phases[0].image", "'448*448' is not the size of 1 images", "smoke"),
    ("runs", "evidence/h100-2026-11-21-14b-awq-rec-64.yaml", "^log_sha256: .*",
     "log_sha256: c475f2398262b4a9c4fdcaf0525ad0b6945215844ade6825072e11b35d77900d", "log_sha256",
     "h100-2026-11-21-14b-awq-rec-16.yaml is the same run", "keep one"),
    ("types", GPU, 'opened: "2026-11', 'opened: "2026-13', "sources.pages[0].opened", "pattern", "form of the pattern"),
    ("types", GPU, 'opened: "2026-11-21', 'opened: "2026-02-31', "sources.pages[0].opened", "no day 2026-02-31",
     "a day"),
    ("types", "releases/0.9.0.yaml", "^published: .*", 'published: "2025-02-29"', "published", "no day 2025-02-29",
     "a day"),
    ("numbers", BF16, "  layers: 28", "  layers: 0", "text.layers", "0 is not a size", "of config.json"),
    ("gpus", GPU, r"memory_mib: \d+", "memory_mib: 24", "memory_mib", "24 MiB does not match 24 GB", "in MiB"),
    ("gpus", GPU, r"bandwidth_gb_s: .*", "bandwidth_gb_s: 0.3", "bandwidth_gb_s", "0.3 GB/s does not match", "GB/s"),
    ("gpus", GPU, r"fp8, tera: .*\}", "fp8, tera: 485.0}", "rates[3].tera", "4.0 times fp16", "half of that"),
    ("gpus", GPU, "precision: bf16", "precision: fp16", "rates[1]", "fp16 is listed twice", "remove one"),
    ("references", WAITS, r"of: \[h100-2026-11-21-batch-16", "of: [h100-x", "comparisons[0].of[0]", "'h100-x'",
     "fix the"),
    ("comparisons", WAITS, "^verdict: .*", "verdict: confirmed", "comparisons[0]", "at 1 x 448x448", "be depends"),
    ("comparisons", WAITS, "says: more", "says: less", "comparisons[0]", "refuted, but at 16 x 448x448", "be depends"),
    ("comparisons", ALONE, "    where: .*\n", "", "comparisons[0]", "no-effect, but at 16 x", "narrow where"),
    ("comparisons", ALONE, r"request.concurrency == 1\]", "request.concurrency = 1]", "comparisons[0].where[0]",
     "=", "write"),
    ("comparisons", ALONE, r"request.concurrency == 1\]", "gpu.count == 1]", "comparisons[0].where[0]",
     "gpu.count does", "use"),
    ("comparisons", ALONE, r"concurrency == 1\]", "concurrency == 7]", "comparisons[0]", "no load of both sides",
     "same loads"),
    ("comparisons", WAITS, "^comparisons:\n(  .*\n)+", "", "comparisons", "states a speed and compares no",
     "compare its"),
    ("comparisons", WAITS, r"^  evidence: \[", "  evidence: [h100-2026-11-21-kimi, ", "sources.evidence",
     "kimi is in no comparison", "leave it out"),
    ("spans", IMAGE, r'    - \{release: "0.7.0".*\n', "", "since", "oldest release that its sources show is 0.18",
     "0.7.0"),
    ("weights", OMP, r"random weights and", "weights and", "effect.throughput", "without its weights",
     '"random weights"'),
    ("references", TABLE, "gpu: rtx-3090", "gpu: rtx-3099", "gpu", "no gpu 'rtx-3099'", "rtx-3090"),
    ("benchmarks", TABLE, "rate: 1,", "rate: 1, concurrency: 4,", "rows[0]", "no load, or two", "either"),
    ("benchmarks", TABLE, "rate: 1,", "", "rows[0]", "no load, or two", "either"),
    ("benchmarks", TABLE, ", tpot_ms: 22.4", "", "rows[0]", "in flight is unknown", "ttft_ms and tpot_ms"),
    ("benchmarks", STATIC, "output_tps: 100.02, ", "", "rows[0]", "no figure of speed", "leave the row out"),
    ("benchmarks", STATIC, "input_tokens: 1, ", "", "rows[0]", "only one length", "give both"),
    ("benchmarks", STATIC, "output_tps: 100.02", "output_tps: 100.02, rps: 7.8", "rows[0]", "contradict", "page"),
    ("threads", "threads/answer-cut-off.yaml", "issues/", "issue/", "thread.url", "is not an issue", "issues/NUMBER"),
    ("verdicts", CLAIM, r"^sources:\n(  .*\n)+", "sources: {}\n", "verdict", "has no source", "unverified"),
    ("schema", "schema/gpu.json", '"title": "Gpu"', '"title": "G"', "(whole file)", "differs", "knowledge schema"),
]  # fmt: skip


@pytest.mark.parametrize(("linter", "name", "old", "new", "field", "what", "repair"), CASES)
def test_what_is_broken_is_told(
    copy: Path, linter: str, name: str, old: str, new: str, field: str, what: str, repair: str
) -> None:
    """One broken thing is told by its linter with file, field, what is wrong and how to repair it."""
    change(copy / name, old, new)
    told = list(LINTERS[linter](read(copy, SCHEMAS)))
    found = [problem for problem in told if (problem.file, problem.field) == (f"knowledge/{name}", field)]
    assert found, "\n".join(map(str, told)) or "nothing was told"
    assert any(what in problem.message and repair in problem.repair for problem in found), "\n".join(map(str, found))
    assert "\n" not in "".join(map(str, told))


def change(path: Path, old: str, new: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(broken(path.read_text(encoding="utf-8") if path.exists() else "", old, new), encoding="utf-8")


def test_every_linter_has_a_case_and_a_page() -> None:
    """A linter's docstring says what it checks and how to repair it, and a case above shows it at work."""
    assert {case[0] for case in CASES} == set(LINTERS)
    for name, linter in LINTERS.items():
        assert len((linter.__doc__ or "").split("\n\n")) > 1, name
        assert "Repair: " in (linter.__doc__ or ""), name


def test_the_knowledge_is_clean() -> None:
    """The committed records have no problem."""
    assert [str(problem) for problem in check(KNOWLEDGE, SCHEMAS).problems] == []


def test_all_broken_files_are_told_at_once(copy: Path) -> None:
    """A broken record hides no other, and what refers to it is not told as dangling."""
    names = ("gpus/h100-sxm-80g.yaml", "advisers/gemini.yaml", FLAG)
    for name in names:
        (copy / name).write_text("id: x\nextra: 1\n", encoding="utf-8")
    files = {problem.file for problem in check(copy, SCHEMAS).problems}
    assert files == {f"knowledge/{name}" for name in names}


def test_a_list_with_broken_items_is_not_told_as_empty(copy: Path) -> None:
    """Each rate that is 0 is a problem of its own; the list has two."""
    change(
        copy / GPU, r"rates:\n(  - .*\n)+", "rates:\n  - {precision: fp16, tera: 0}\n  - {precision: bf16, tera: 0}\n"
    )
    assert [problem.field for problem in check(copy, SCHEMAS).problems] == ["rates[0].tera", "rates[1].tera"]
    change(copy / GPU, r"rates:\n(  - .*\n)+", "rates: []\n")
    assert [problem.field for problem in check(copy, SCHEMAS).problems] == ["rates"]


def test_an_absent_folder_is_told(copy: Path) -> None:
    """A kind whose folder is away is a problem, not an empty kind."""
    shutil.rmtree(copy / "scenarios")
    assert "knowledge/scenarios: (folder): it is missing: create it, or fix its name" in map(
        str, check(copy, SCHEMAS).problems
    )


def test_an_exception_hides_its_problem_and_is_told_when_stale(copy: Path) -> None:
    """What is excepted is not told; an exception that hides nothing is."""
    excepted = ("numbers", f"knowledge/{TILE}", "value")
    stale = check(copy, SCHEMAS, (*EXCEPTIONS, excepted)).problems
    assert [problem.field for problem in stale] == ["EXCEPTIONS"]
    assert "is stale: remove it" in str(stale[0])
    change(copy / TILE, "^low: .*", "low: 9.0")
    assert check(copy, SCHEMAS, (*EXCEPTIONS, excepted)).problems == ()


def test_facts_without_a_source_are_counted_not_told(copy: Path) -> None:
    """A record that nobody could source is unverified: a count, not a problem."""
    before = check(copy, SCHEMAS)
    change(copy / GPU, r"^sources:\n(  .*\n)+", "sources: {}\n")
    after = check(copy, SCHEMAS)
    assert after.problems == ()
    assert after.unverified == before.unverified + 1


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_check_exits_with_1_for_problems_and_0_without(copy: Path) -> None:
    """Clean knowledge is one line and exit 0; else each problem is a line and the exit code is 1."""
    clean = invoke("check", "--knowledge", str(copy))
    assert (clean.exit_code, clean.output.count("\n")) == (0, 1), clean.output
    (copy / "gpus/l4.yaml").write_text("id: [\n", encoding="utf-8")
    broken = invoke("check", "--knowledge", str(copy))
    assert broken.exit_code == 1
    assert broken.stdout.startswith("knowledge/gpus/l4.yaml: (whole file): invalid YAML")


def test_a_folder_that_is_none_is_one_line_and_exit_3(tmp_path: Path) -> None:
    """The whole command, as a user runs it, turns a missing folder into one line and its exit code."""
    line = [sys.executable, "-m", "recommender", "knowledge", "check", "--knowledge", str(tmp_path / "no")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1), done.stderr
    assert "not a knowledge folder" in done.stderr


def test_schema_check_names_stale_files_and_schema_mends_them(copy: Path) -> None:
    """A stale schema is named with exit 1; writing it makes the next check pass."""
    (copy / "schema/gpu.json").write_text("{}\n", encoding="utf-8")
    stale = invoke("schema", "--check", "--knowledge", str(copy))
    assert (stale.exit_code, "knowledge/schema/gpu.json: stale" in stale.output) == (1, True)
    assert invoke("schema", "--knowledge", str(copy)).exit_code == 0
    assert invoke("schema", "--check", "--knowledge", str(copy)).exit_code == 0
    assert (copy / "schema/gpu.json").read_bytes() == (KNOWLEDGE / "schema/gpu.json").read_bytes()


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_new_record_is_refused_until_it_is_filled_in(copy: Path, kind: str) -> None:
    """A template has no unknown field, and the check names what is still to be written in it."""
    name = "x1"
    if kind == "flag":
        name = "dtype"
        (copy / "flags/dtype.yaml").unlink()
    done = invoke("new", kind, name, "--write", "--knowledge", str(copy))
    assert done.exit_code == 0, done.output
    assert not re.search(r"\bID\b", (copy / f"{kind}s" / f"{name}.yaml").read_text("utf-8"))
    told = [problem for problem in check(copy, SCHEMAS).problems if f"/{kind}s/{name}.yaml" in problem.file]
    assert any("TODO" in problem.message for problem in told)
    assert not [problem for problem in told if "not permitted" in problem.message or "required" in problem.message]
    again = invoke("new", kind, name, "--write", "--knowledge", str(copy))
    assert (again.exit_code, "exists; edit it" in again.output) == (2, True)


def test_a_new_flag_starts_from_the_facts(copy: Path) -> None:
    """The eras of a new flag's template agree with the wheels, so only words are to be written."""
    text = invoke("new", "flag", "dtype", "--knowledge", str(copy)).output
    text = text.replace("topic: TODO", "topic: model").replace("_throughput: TODO", "_throughput: false")
    text = text.replace("TODO", "x")
    (copy / "flags/dtype.yaml").write_text(text, encoding="utf-8")
    assert check(copy, SCHEMAS).problems == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("new", "flag", "eager"), "did you mean eager-mode"),
        (("new", "gpu", "A 100"), "an id has at most 100 small letters"),
        (("new", "gpu", "../x"), "an id has at most 100 small letters"),
        (("new", "card", "x"), "not one of"),
        (("extract", "latest"), "not a release such as"),
        (("verify", "--only", "no-such-record"), "no record's file"),
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: tuple[str, ...], said: str) -> None:
    """An argument that cannot be right is exit 2 and says what would be."""
    done = invoke(*arguments)
    assert (done.exit_code, said in done.output) == (2, True), done.output


def test_verify_reads_the_cited_lines_of_wheels(copy: Path, wheels: Path) -> None:
    """A citation that holds is counted; a moved one is told with its line, and the exit code is 1."""
    source = 'sources:\n  code:\n    - {release: "0.18.0", path: lmdeploy/a.py, line: 2, token: beta}\n'
    change(copy / CLAIM, r"^sources:\n(  .*\n)+", source)
    line = ("verify", "--only", CLAIM, "--wheels", str(wheels), "--knowledge", str(copy))
    held = invoke(*line)
    assert (held.exit_code, held.output) == (0, "1 citations hold, 0 do not\n")
    change(copy / CLAIM, "line: 2", "line: 1")
    moved = invoke(*line)
    assert moved.exit_code == 1
    assert "'beta' is not on this line; write line: 2" in moved.stdout


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "lmdeploy-0.18.0-cp310-cp310-linux_x86_64.whl", "w") as wheel:
        wheel.writestr("lmdeploy/a.py", "alpha\nbeta\n")
    return tmp_path


def test_extract_names_a_wheel_that_is_none(copy: Path, wheels: Path) -> None:
    """A file that is no wheel of LMDeploy is one line, and the facts stay as they were."""
    before = (copy / "extracted/api_server.json").read_bytes()
    done = invoke("extract", "0.18.0", "--wheels", str(wheels), "--knowledge", str(copy))
    assert isinstance(done.exception, MaintenanceError)
    assert "METADATA" in str(done.exception)
    assert (copy / "extracted/api_server.json").read_bytes() == before


def test_compile_writes_the_index(copy: Path, tmp_path: Path) -> None:
    """The compiled index holds every kind, the same on stdout and in a file."""
    target = tmp_path / "new" / "index.json"
    assert invoke("compile", "-o", str(target), "--knowledge", str(copy)).exit_code == 0
    text = target.read_text(encoding="utf-8")
    assert set(json.loads(text)) == {*FOLDERS, "measured"}
    assert invoke("compile", "--knowledge", str(copy)).stdout == text
