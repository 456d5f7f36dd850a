"""Every rule against its table: hits, near misses, fixes, page and sources."""

import atexit
import importlib
import json
import pkgutil
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts import PATHS

from recommender.knowledge.load import load
from recommender.knowledge.store import FOLDERS
from recommender.review import engine, rules
from recommender.review.rule import RETIRED, Fix, Rule

TABLES = Path(__file__).parent / "reviews" / "rules"
OWN_TESTS = frozenset({"LMD001", "LMD002", "LMD003"})  # about ignores and the reader, tested in test_review.py
RULES = [rule for rule in engine.rules() if rule.id not in OWN_TESTS]
IDS = [rule.id for rule in RULES]
SECTIONS = ["What it does", "Why", "Bad", "Good"]


@cache
def table(rule_id: str) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load((TABLES / f"{rule_id}.yaml").read_text("utf-8")))


@cache
def checkpoint(config: str) -> str:
    """Return a folder with a config.json, for a model without a record."""
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-"))
    (folder / "config.json").write_text(config, encoding="utf-8")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


def reviewed(rule: Rule, row: dict[str, Any], text: str | None = None) -> engine.Review:
    """Run one rule on a row's text, or on another text in its place."""
    name = row.get("path") or PATHS[row.get("kind", "bash")]
    context = row.get("context", {})
    if "config" in row:
        context = context | {"model": checkpoint(json.dumps(row["config"]))}
    return engine.review(name, text or row["text"], context, among=(rule,))


def edited(text: str, fix: Fix) -> str:
    for place, new in sorted(fix.edits, key=lambda edit: edit[0], reverse=True):
        text = text[: place.start] + new + text[place.end :]
    return text


MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")
    if info.name.rpartition(".")[2].startswith("lmd")
]


def test_each_rule_has_a_table_an_id_and_a_name_of_its_own() -> None:
    """No rule without cases, no cases without a rule; a folder holds the rules of one family."""
    assert {path.stem for path in TABLES.glob("*.yaml")} == set(IDS)
    assert len(MODULES) == len(engine.rules()) >= 45
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"LMD[1-6]\d\d", rule.id)
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
        assert (rule.check is None) != (rule.whole is None), rule.id
    folders = {(module.__name__.split(".")[-2], module.rule.id[3], module.rule.family) for module in MODULES}
    assert len(folders - {("ignores", "0", "starts")}) == len({folder for folder, _, _ in folders}) == 7


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.rule.id)
def test_every_page_has_the_same_sections(module: Any) -> None:
    """A rule's docstring is its page: title and four sections. What prints it adds Sources from rule.sources."""
    title, *blocks = re.split(r"^## ", (module.__doc__ or "").strip(), flags=re.MULTILINE)
    assert re.fullmatch(r"\S.*[^.]\n\n", title), "one line, a title and not a sentence"
    sections = dict(block.rstrip().split("\n", 1) for block in blocks)
    assert list(sections) == SECTIONS
    assert sections["What it does"].startswith("Reports ")
    for heading, text in sections.items():
        assert text.strip()
        shows_code = any(line.startswith("    ") for line in text.splitlines())
        assert shows_code == (heading in ("Bad", "Good")), heading
        assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize(("rule_id", "instead"), RETIRED.items())
def test_a_retired_id_is_answered_with_what_replaces_it(rule_id: str, instead: str) -> None:
    """--explain, the settings file and an ignore name ShellCheck's rule; no rule takes the id again."""
    answer = f"{rule_id} was retired; use ShellCheck {instead}"
    with pytest.raises(engine.UnknownRule, match=f"^{answer}$"):
        engine.rule(rule_id.lower())
    text = f"# recommend: ignore {rule_id} because we know\nlmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct\n"
    findings = engine.review("x.sh", text).findings
    messages = [finding.message for finding in findings if finding.rule.id == "LMD003"]
    assert messages == [f"This ignore names a rule that no longer exists: {answer}."]
    assert rule_id not in {each.id for each in engine.rules()}


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_every_source_is_there(rule: Rule) -> None:
    """A source is a record that exists or an address."""
    assert rule.sources
    for source in rule.sources:
        kind, _, name = source.partition("/")
        assert source.startswith("https://") or (kind in FOLDERS and name in getattr(load(), kind)), source


OPTION = re.compile(r"--[a-z][a-z_-]+")


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_a_finding_about_one_option_cites_no_other(rule: Rule) -> None:
    """Where it names and marks one option, a flag's record that it cites is that option's."""
    flags = load().flags
    for row in table(rule.id):
        for finding in reviewed(rule, row).findings:
            named = {name.replace("_", "-") for name in OPTION.findall(finding.message)}
            records = [source.removeprefix("flags/") for source in finding.sources if source.startswith("flags/")]
            cited = {flags[record].option for record in records}
            starts = finding.message.split()[0].replace("_", "-")
            if starts in {flag.option for flag in flags.values()} and len(named) == 1:
                assert cited <= named, finding.message


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_the_rule_finds_what_its_table_says(rule: Rule) -> None:
    """Findings are at the pieces of text that the table lists, no more and no less; fixes remove their findings."""
    rows = table(rule.id)
    assert all(row.keys() <= {"text", "kind", "path", "context", "config", "finds", "severity"} for row in rows)
    assert sum(bool(row["finds"]) for row in rows) >= 2, "at least two hits"
    assert sum(not row["finds"] for row in rows) >= 2, "at least two near misses"
    for number, row in enumerate(rows):
        review = reviewed(rule, row)
        assert not review.defects, (number, review.defects)
        text = review.script.text
        places = [text[finding.place.start : finding.place.end] for finding in review.findings]
        assert places == row["finds"], f"row {number}: {row['text']}"
        if "severity" in row:
            assert {finding.severity for finding in review.findings} == {row["severity"]}, f"row {number}"
        for finding in review.findings:
            assert finding.message
            assert finding.diagnostic.why
            assert "\n" not in finding.message + finding.diagnostic.why
            if finding.fix is not None:
                assert_fixed(rule, row, review, edited(text, finding.fix))


def assert_fixed(rule: Rule, row: dict[str, Any], before: engine.Review, text: str) -> None:
    """A fix removes its finding; the rest of the text is read as before."""
    assert text != before.script.text
    after = reviewed(rule, row, text)
    assert len(after.findings) < len(before.findings), text
    assert len(after.script.launches) == len(before.script.launches), text
    assert len(after.script.problems) <= len(before.script.problems), text


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--temperature", "temperature in each request"),
        ("--enable-reasoning", "use --reasoning-parser."),
        ("--model", "the model as the first argument"),
        ("--max-length", "has the option '--max-length'."),
        ("--seed", "has the option '--seed'."),
        ("--max-batchsize", "did you mean --max-batch-size?"),
    ],
)
def test_what_an_unknown_option_may_mean(option: str, says: str) -> None:
    """Another server's option has its counterpart, a misspelling the right name, and anything else no guess."""
    text = f"lmdeploy serve api_server Qwen/Qwen3-8B {option} 1\n"
    (finding,) = engine.review("x.sh", text, among=(engine.rule("LMD101"),)).findings
    assert says in finding.message


CONFIGURED = "from lmdeploy import pipeline, {0}\npipe = pipeline('/models/chat', backend_config={0}({1}))\n"


@pytest.mark.parametrize(
    ("config", "given", "refused"),
    [
        ("TurbomindEngineConfig", "session_len='8k'", True),
        ("TurbomindEngineConfig", "cache_max_entry_count='high'", True),
        ("TurbomindEngineConfig", "model_format='int4'", True),
        ("TurbomindEngineConfig", "quant_policy='int8'", True),
        ("TurbomindEngineConfig", "quant_policy=3", True),
        ("PytorchEngineConfig", "device_type='gpu'", True),
        ("PytorchEngineConfig", "distributed_executor_backend='mpi'", True),
        ("PytorchEngineConfig", "quant_policy=3", True),
        ("PytorchEngineConfig", "quant_policy='int8'", True),
        ("PytorchEngineConfig", "model_format='int4'", True),
        ("PytorchEngineConfig", "max_batch_size='auto'", True),
        ("TurbomindEngineConfig", "session_len=None, model_format=None, max_batch_size=None, hf_overrides=None", False),
        ("TurbomindEngineConfig", "tp='2', session_len='8192', tp=2.0", False),
        ("TurbomindEngineConfig", "devices=[0, 1], enable_prefix_caching=True, model_format='awq'", False),
        ("TurbomindEngineConfig", "session_len=8 * 1024, quant_policy=QuantPolicy.INT8", False),
        ("PytorchEngineConfig", "device_type='ascend', quant_policy=8, model_format='fp8'", False),
        ("PytorchEngineConfig", "cudagraph_capture_batch_sizes=[1, 2], adapters={'a': 'b'}", False),
        ("PytorchEngineConfig", "), session_len=int(4096", False),
        ("PytorchEngineConfig", "cudagraph_capture_batch_sizes=[]", False),
        ("PytorchEngineConfig", "eager_mode=1, distributed_executor_backend='ray', quant_policy=16", False),
    ],
)
def test_the_configuration_of_an_engine_refuses_values(config: str, given: str, refused: bool) -> None:
    """In Python no parser reads them: 0.18.0 lmdeploy/messages.py and the engines refuse them."""
    found = {finding.rule.id for finding in engine.review("a.py", CONFIGURED.format(config, given)).findings}
    assert (bool(found & {"LMD105", "LMD106"})) == refused


ANSWERED = (
    "from lmdeploy import GenerationConfig, pipeline\npipe = pipeline('/models/chat')\n"
    "pipe('x', gen_config=GenerationConfig({}))\n"
)


@pytest.mark.parametrize(
    ("given", "release", "refused"),
    [
        ("top_p=0.0, temperature=0, top_k=0, min_p=0, n=1", "0.7.0", ""),
        ("top_p=1, temperature=2, min_p=1.0, top_k=1", "0.18.0", ""),
        ("top_p=0", "0.12.3", ""),
        ("top_p=1.1", "0.12.3", "LMD105"),
        ("top_p=-0.1", "0.18.0", "LMD105"),
        ("top_k=-1", "0.7.0", "LMD105"),
        ("n=0", "0.18.0", "LMD105"),
        ("n=1.5", "0.18.0", "LMD105"),
        ("min_p=2", "0.18.0", "LMD105"),
        ("temperature=3", "0.18.0", "LMD105"),
        ("temperature=-0.1", "0.7.0", "LMD105"),
        ("temperature=t, top_k=k, n=None if x else 1", "0.18.0", ""),
        ("max_new_tokens=0, output_logits='all'", "0.16.0", ""),
        ("max_new_tokens=0, logprobs=1, logprob_start_len=0", "0.18.0", ""),
        ("logprob_start_len=0", "0.18.0", "LMD105"),
        ("logprob_start_len=0, logprobs=-1", "0.18.0", "LMD105"),
        ("logprob_start_len=-2, logprobs=1", "0.18.0", "LMD105"),
        ("logprob_start_len=-1", "0.18.0", ""),
        ("logprob_start_len=0, **more", "0.18.0", ""),
        ("logprob_start_len=0, logprobs=count", "0.18.0", ""),
        ("logprob_start_len=-2", "0.17.0", "LMD109"),
        ("max_tokens=512", "0.18.0", "LMD109"),
        ("max_new_tokens=512, stop_words=['a'], random_seed=1, do_sample=True", "0.7.0", ""),
        ("repetition_ngram_size=2", "0.11.0", "LMD109"),
        ("repetition_ngram_size=2", "0.13.0", ""),
        ("include_stop_str_in_output=True", "0.9.0", "LMD109"),
        ("tp=2", "0.18.0", "LMD109"),
    ],
)
def test_a_generation_configuration_refuses_what_its_class_does(given: str, release: str, refused: str) -> None:
    """A dataclass: other keywords are a TypeError, and __post_init__ of 0.7.0 to 0.18.0 asserts the ranges."""
    found = engine.review("a.py", ANSWERED.format(given), {"lmdeploy": release}).findings
    assert [(each.rule.id, each.severity) for each in found if each.rule.id != "LMD002"] == (
        [(refused, "error")] if refused else []
    )


def test_an_openai_name_of_a_field_is_told() -> None:
    """What clients of the server write is another name in Python."""
    for given, meant in (("max_tokens=5", "max_new_tokens"), ("seed=5", "random_seed"), ("stop=['a']", "stop_words")):
        found = engine.review("a.py", ANSWERED.format(given)).findings
        assert [each.message.partition(": ")[2] for each in found] == [f"did you mean {meant}?"]


@pytest.mark.parametrize(
    ("given", "release", "refused"),
    [
        ("log_level='info'", "0.7.0", True),
        ("log_level='info'", "0.18.0", True),
        ("log_level='REQUEST'", "0.13.0", True),
        ("log_level='REQUEST'", "0.14.0", False),
        ("log_level='WARN'", "0.18.0", False),
        ("log_level=level", "0.18.0", False),
        ("log_level=logging.INFO", "0.18.0", False),
        ("log_level=30", "0.18.0", False),
        ("backend_config=TurbomindEngineConfig(async_=2)", "0.18.0", True),
        ("backend_config=TurbomindEngineConfig(async_=True)", "0.18.0", False),
        ("backend_config=TurbomindEngineConfig(async_=0)", "0.12.0", False),
        ("backend_config=TurbomindEngineConfig(cache_prompt='none')", "0.18.0", True),
        ("backend_config=TurbomindEngineConfig(cache_prompt='all', cache_generation='none')", "0.15.0", False),
        ("backend_config=TurbomindEngineConfig(cache_generation='some')", "0.15.0", True),
        ("backend_config=TurbomindEngineConfig(cache_checkpoint_interval=0)", "0.16.0", True),
        ("backend_config=TurbomindEngineConfig(cache_prompt_boundary_skip=0)", "0.17.0", True),
        ("backend_config=TurbomindEngineConfig(gemm_input_dtype='fp8')", "0.18.0", True),
        ("backend_config=TurbomindEngineConfig(gemm_input_dtype=None)", "0.18.0", False),
        ("backend_config=TurbomindEngineConfig(gemm_input_dtype='float8_e4m3')", "0.18.0", False),
    ],
)
def test_what_a_pipeline_refuses_beyond_its_options(given: str, release: str, refused: bool) -> None:
    """Its logger takes the names of levels only (lmdeploy/api.py, pipeline.py), TurboMind's class asserts the rest."""
    text = f"from lmdeploy import TurbomindEngineConfig, pipeline\npipe = pipeline('/models/chat', {given})\n"
    found = {finding.rule.id for finding in engine.review("a.py", text, {"lmdeploy": release}).findings}
    assert ("LMD105" in found) == refused
