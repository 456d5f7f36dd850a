"""``recommend schema``, and the JSON of every command against the schema that it prints."""

import json
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
import yaml
from artefacts import KNOWLEDGE
from click.testing import CliRunner
from schemas import FOLDER, objects, valid

from recommender.choose.recommend import NothingFits
from recommender.cli import root
from recommender.commands.schema import OUTPUTS

FORMATS = {"plan": 2}
"""By name of a schema: its version, if a field has changed its meaning."""
QUESTIONS = """
--gpu A100-80G
--gpu A100-80G --load single --lmdeploy 0.9.2
--gpu A100-40G --load 32 --goal throughput
--gpu H100:2 --load high
--gpu H200 --model internvl3-38b --load 8
--gpu L4 --model qwen2.5-3b-instruct --workload chat
--gpu L40S --load 64 --p99 2000
--gpu A100-80G --image 1280x720x2 --load medium
--gpu A100-80G --image 448x448:0.7,1280x720:0.3 --load 8
--gpu RTX4090 --model internvl3-8b --kv int8
--gpu RTX3090 --kv int4 --load 4
--gpu T4 --load single
--gpu V100-32G --lmdeploy 0.7.0
--gpu A10 --model qwen2.5-7b-instruct --workload rag --load 16
--gpu H100 --model qwen2.5-7b-instruct --workload chat --rps 4 --burstiness 2
--gpu H100 --model qwen2.5-7b-instruct --text-only --isl 512:2048 --osl 128:512 --load 32
--gpu A100-80G --ttft p99:2s --tpot 100ms --load 4
--gpu A100-80G --vram 24 --cpus 8
--gpu H100 --model internvl3-78b
--gpu A100-80G --headroom 20% --load low --goal latency
"""
"""Twenty requests, one that nothing fits among them."""
GIVEN = (
    "",
    "--quant-policy 8",
    "--session-len 4096 --max-batch-size 16",
    "--cache-max-entry-count 0.3 OMP_NUM_THREADS=4",
    "--tp 2",
)
OPTIONS = """
session-len | quant_policy --lmdeploy 0.9.2 | OMP_NUM_THREADS | cache-max-entry-count | --tp | backend | max-batch-size
enable-prefix-caching | trust-remote-code | model-format | max_tokens | temperature | dtype --lmdeploy 0.7.0 | log-level
max-prefill-token-num | server-port | chat-template | vision-max-batch-size | api-keys | num-tokens-per-iter
"""
RELEASES = ["0.7.0", "0.8.0", "0.9.2", "0.10.0", "0.12.3", "0.13.0", "0.16.0", "0.18.0"]
LISTS = """
gpus | gpus h100 | gpus ada | models | models awq internvl | models qwen | flags | flags cache | flags session len
advisers | advisers gemini | claims | claims refuted session | claims confirmed | threads | threads memory | releases
releases cuda | gpus nothing-has-this | models zzz
"""
FLEETS = (
    "--rps 20 --gpu L40S:4",
    "--rps 50 --gpu H100:8 --p99 2000",
    "--rps 5 --gpu L4 --gpu A10",
    "--rps 1 --gpu T4 --model internvl3-78b",
    "--rps 200 --p99 800 --gpu L40S:4 --gpu H100:8",
    "--rps 20 --gpu L40S:4 --p99 1",
    "--rps 8 --gpu H100:2 --gpu A100-80G:4 --model qwen2.5-7b-instruct --workload chat --ttft p99:2s --tpot 50ms",
    "--rps 3 --gpu A10:2 --model qwen2.5-7b-instruct --workload rag --peak 1 --spare 0",
    "--rps 0.2 --gpu H200:8 --model llama-3.3-70b-instruct --workload agent --tp 4 --tp 8",
    "--rps 30 --gpu L4:8 --image 1280x720x2 --network 1 --burst 8",
    "--rps 2 --gpu H100:8 --model gpt-oss-120b --workload code --latency p99:20s",
    "--rps 12 --gpu RTX4090:4 --kv int8 --lmdeploy 0.9.2 --cpus 8",
    "--rps 40 --gpu A100-80G:8 --burstiness 2 --text-only --model qwen2.5-7b-instruct",
    "--rps 5 --gpu V100-32G --lmdeploy 0.7.0 --p99 3s",
    "--rps 100000 --gpu T4",
    "--rps 15 --gpu 'H100-80G MIG 3g.40gb' --image 448x448:0.7,1280x720:0.3",
    "--rps 6 --gpu L4 --gpu A10 --gpu H100 --gpu H200 --model qwen2.5-7b-instruct-awq --isl 512:2048 --osl 99",
    "--rps 1 --gpu H20:8 --model qwen3-235b-a22b --workload chat",
    "--rps 9 --gpu B200 --workload caption --spare 2",
    "--rps 4 --gpu GH200-96G --model qwen2.5-vl-7b-instruct --image 640x480",
)


def inputs() -> list[tuple[str, str]]:
    asked = QUESTIONS.split("\n")[1:-1]
    pairs = [(old, new) for old in RELEASES for new in RELEASES][::3][:20]
    named = {
        "explain": [f"explain {each.strip()} --json" for line in OPTIONS.split("\n")[1:-1] for each in line.split("|")],
        "list": [f"list {each.strip()} --json" for line in LISTS.split("\n")[1:-1] for each in line.split("|")],
        "diff": [f"diff {old} {new} --json" for old, new in pairs],
        "compare": [f"compare {words} --json" for words in asked],
        "recommendation": [
            *(f"{words} --json -q" for words in asked),
            *(f"--gpu A100-80G --follow {name} --json -q" for name in ("gemini", "baseline", "defaults")),
            *(
                f"estimate {re.sub(r' --(goal|kv) [a-z0-9]+', '', words)} --json -- {GIVEN[number % 5]}"
                for number, words in enumerate(asked)
            ),
        ],
        "plan": [f"plan {words} --json" for words in FLEETS],
    }
    return [(name, words) for name, each in named.items() for words in each]


def output(*words: str, text: str | None = None) -> str:
    done = CliRunner().invoke(root, list(words), input=text)
    assert done.exit_code in (0, 1), done.output
    assert done.exception is None or isinstance(done.exception, (SystemExit, NothingFits)), done.exception
    return done.stdout


@pytest.mark.parametrize(("name", "words"), inputs())
@pytest.mark.usefixtures("few_simulated")
def test_outputs_follow_their_schema(name: str, words: str) -> None:
    """Also where nothing is found or the configuration is refused; where nothing fits, that of the refusal."""
    printed = output(*shlex.split(words))
    refused = words.startswith("--") and "nothing_fits" in json.loads(printed)
    assert valid("nothing-fits" if refused else name, printed)["format"] == FORMATS.get(name, 1)


def test_a_program_reads_why_nothing_fits(tmp_path: Path) -> None:
    """The limit, the smallest change and other ways, on stdout; no file is written."""
    words = ["--gpu", "L4", "--model", "qwen3-8b", "--workload", "chat", "--rps", "200", "--json"]
    found = valid("nothing-fits", output(*words))
    assert found["nothing_fits"]["constraint"] == "goal-rps"
    assert found["change"]["options"].startswith("--rps ")
    assert found["others"][0]["options"].startswith("recommend plan --rps 200")
    assert output(*words, "-o", str(tmp_path / "made.json")) == ""
    assert not list(tmp_path.iterdir())


def test_a_program_reads_what_is_wrong_with_the_records(tmp_path: Path) -> None:
    """None in what is committed; of a broken copy each with its file."""
    words = ["knowledge", "check", "--json"]
    assert valid("knowledge-check", output(*words))["problems"] == []
    shutil.copytree(KNOWLEDGE, tmp_path / "knowledge", ignore=shutil.ignore_patterns("evidence"))
    (tmp_path / "knowledge" / "evidence" / "earlier").mkdir(parents=True)
    (tmp_path / "knowledge" / "gpus" / "l4.yaml").write_text("id: [\n")
    found = valid("knowledge-check", output(*words, "--knowledge", str(tmp_path / "knowledge")))
    assert "knowledge/gpus/l4.yaml" in {each["file"] for each in found["problems"]}


CORPUS = sorted((Path(__file__).parent / "reviews" / "corpus").glob("*.yaml"))


@pytest.mark.parametrize("path", CORPUS[::5], ids=lambda path: path.stem)
def test_reviews_follow_their_schema(path: Path) -> None:
    """Scripts of real life, with a target and without."""
    text = yaml.safe_load(path.read_text("utf-8"))["text"]
    for words in ((), ("--gpu", "A100-80G", "--load", "16")):
        assert valid("review", output("review", *words, "--format", "json", "-", text=text))["files"] == ["-"]


@pytest.mark.parametrize("form", ["bash", "python", "client", "env", "docker", "json"])
@pytest.mark.parametrize("words", ["--gpu A100-80G", "--gpu L4 --load 16", "--gpu H100 --follow gemini"])
def test_checks_follow_their_schema(form: str, words: str, tmp_path: Path) -> None:
    """Files as written, edited, updated, of another program, and missing."""
    paths = [tmp_path / name for name in ("written", "edited", "updated", "foreign", "missing")]
    text = output(*shlex.split(words), "-q", "--format", form)
    edited = text.replace("4096", "8192")
    for path, content in zip(paths[:4], (text, edited, edited, "ls\n"), strict=True):
        path.write_text(content)
    files = [str(path) for path in paths]
    first, second, all_of_them = (
        valid("check", CliRunner().invoke(root, ["check", *each, "--json"]).stdout)
        for each in (files[:2], (files[2], "--update"), files)
    )
    assert [each["drift"] for each in first["files"]] == [False, edited != text]
    assert bool(second["files"][0]["kept"] or second["files"][0]["refused"]) == (edited != text)
    assert (len(all_of_them["files"]), len(all_of_them["errors"])) == (3, 2)


@pytest.mark.parametrize("name", OUTPUTS)
def test_schemas_of_outputs_are_closed(name: str) -> None:
    """A misspelt field is found at any depth, and ``format`` is the version that the schema is of."""
    schema = json.loads(output("schema", name))
    assert schema["properties"]["format"]["const"] == FORMATS.get(name, 1)
    for each in objects(schema):
        assert each["additionalProperties"] is False
        assert set(each["required"]) == set(each["properties"])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_every_field_is_described(path: Path) -> None:
    """In each published schema, at any depth: one line, and not the field's own name again."""
    schema = json.loads(path.read_text("utf-8"))
    for part in (schema, *schema.get("$defs", {}).values()):
        for name, field in part.get("properties", {}).items():
            text = field.get("description", "")
            assert len(text) > 3, (part.get("description"), name)
            assert "\n" not in text
            assert text.rstrip(".").casefold() != name.replace("_", " ")


def test_every_command_with_json_has_a_schema() -> None:
    """Its name is a schema's, and so is the main job's."""
    context = click.Context(root)
    commands = {name: root.get_command(context, name) for name in root.list_commands(context)} | {"recommend": root}
    for name, command in commands.items():
        forms = [each for option in command.params for each in (*option.opts, *getattr(option.type, "choices", ()))]
        if "--json" in forms or "json" in forms:
            assert "format" in json.loads(output("schema", name))["properties"], name


def test_the_list_has_every_file() -> None:
    """Each schema by its name, with what it is of."""
    names = [line.split()[0] for line in output("schema").splitlines()]
    assert names == sorted(path.stem for path in FOLDER.glob("*.json"))
    assert "recommend review --format json" in output("schema")


def test_an_unknown_name_gets_the_nearest() -> None:
    """One line."""
    done = CliRunner().invoke(root, ["schema", "reviews"])
    assert "unknown schema 'reviews': did you mean review" in str(done.exception)
