"""A shell's loop that starts a server in each turn: what they have together, on one GPU and on one host."""

import pytest

from recommender.review.engine import review

M = "Qwen/Qwen2.5-7B-Instruct"
SERVE = f"lmdeploy serve api_server {M} --server-name 127.0.0.1"
PORTS = "--server-port $((23333 + i))"
ONE = f"CUDA_VISIBLE_DEVICES=0 {SERVE} {PORTS} &"
HEADS = [
    "for i in 0 1 2 3",
    "for i in {0..3}",
    "for i in $(seq 0 3)",
    "for i in `seq 4`",
    "n=4\nfor i in $(seq 0 $((n-1)))",
    "for ((i = 0; i < 4; i++))",
    "n=3\nfor (( i=0; i<=n; ++i ))",
]


def found(text: str, **options: str) -> list[tuple[str, str]]:
    """Return the rule and the message of each finding on the servers of a script together."""
    rules = {"LMD122", "LMD410", "LMD411", "LMD614", "LMD616"}
    findings = review("x.sh", text, {"lmdeploy": "0.18.0"} | options).findings
    return [(each.rule.id, each.message) for each in findings if each.rule.id in rules]


@pytest.mark.parametrize("head", HEADS)
def test_each_turn_starts_a_server_on_the_same_gpu(head: str) -> None:
    """The loop gives its number to the port, and one GPU to all."""
    assert found(f"{head}; do\n  {ONE}\ndone\nwait\n") == [
        ("LMD410", "4 servers of this loop share a GPU without CUDA MPS."),
        ("LMD411", "The cache shares of servers that start together on this GPU add up to 3.2."),
    ]


APART = [
    f"for i in 0 1 2 3; do\n  CUDA_VISIBLE_DEVICES=$i {SERVE} {PORTS} &\ndone\nwait\n",
    f"for i in 0 1 2 3; do\n  CUDA_VISIBLE_DEVICES=0 {SERVE} {PORTS}\ndone\n",
    f"for i in 0 1 2 3; do\n  {ONE}\n  pid=$!\n  run_benchmark\n  kill $pid\ndone\n",
    f"for i in $LIST; do\n  {ONE}\ndone\n",
    f"for host in a b c; do\n  ssh $host 'CUDA_VISIBLE_DEVICES=0 {SERVE}' &\ndone\nwait\n",
    f"for i in 0; do\n  {ONE}\ndone\n",
    f"nvidia-cuda-mps-control -d\nfor i in 0 1; do\n  {ONE.replace('&', '--cache-max-entry-count 0.4 &')}\ndone\n",
    f"gpus=(0 1)\nfor i in 0 1; do\n  CUDA_VISIBLE_DEVICES=${{gpus[$i]}} {SERVE} {PORTS} > log_$i.txt &\ndone\nwait\n",
]


@pytest.mark.parametrize("text", APART)
def test_servers_apart_share_nothing(text: str) -> None:
    """Each has a GPU of its own, ends before the next, or how many there are is unknown."""
    assert found(text, gpu="A100-80G") == []


def test_two_calls_of_a_function_are_no_loop() -> None:
    """The message names the line of the other server."""
    text = f"go() {{\n  CUDA_VISIBLE_DEVICES=0 {SERVE} --server-port $1 &\n}}\ngo 8000\ngo 8001\nwait\n"
    assert found(text)[0] == ("LMD410", "This server shares a GPU with the one on line 2 without CUDA MPS.")


def test_servers_that_wait_for_each_other_take_what_is_left() -> None:
    """They share a GPU, but each sees the memory that the one before left."""
    text = f"for i in 0 1; do\n  {ONE}\n  sleep 60\ndone\nwait\n"
    assert [rule for rule, _ in found(text)] == ["LMD410"]


@pytest.mark.parametrize(("gpu", "rules"), [("A100-40G", ["LMD122"]), ("H200", [])])
def test_the_memory_of_all_servers_of_a_loop_is_judged(gpu: str, rules: list[str]) -> None:
    """Each takes a small cache, but the weights of four do not fit on one small GPU."""
    text = f"for i in 0 1 2 3; do\n  {ONE.replace('&', '--cache-max-entry-count 0.1 &')}\ndone\nwait\n"
    said = [(rule, message) for rule, message in found(text, gpu=gpu) if rule != "LMD410"]
    assert [rule for rule, _ in said] == rules
    assert all("4 servers" in message for _, message in said)


PROXY = "lmdeploy serve proxy --server-name 127.0.0.1 --server-port 23335 &\n"
TAKEN = [
    f"{PROXY}for i in 0 1 2 3; do\n  CUDA_VISIBLE_DEVICES=$i {SERVE} {PORTS} &\ndone\nwait\n",
    f"for i in 0 1; do\n  CUDA_VISIBLE_DEVICES=$i {SERVE} {PORTS} &\ndone\n"
    f"for i in 1 2; do\n  CUDA_VISIBLE_DEVICES=$((i + 1)) {SERVE} {PORTS} &\ndone\nwait\n",
    f"for i in 0 1 2; do\n  CUDA_VISIBLE_DEVICES=$i {SERVE} --server-port $((23333 + i * 0)) &\ndone\nwait\n",
    f"for i in 0 1; do\n  CUDA_VISIBLE_DEVICES=$i {SERVE} --server-port 23333 &\ndone\nwait\n",
]


@pytest.mark.parametrize("text", TAKEN)
def test_a_port_that_a_loop_counts_to_may_be_taken(text: str) -> None:
    """By the proxy, by another loop, or by the turn before; each is reported once."""
    assert [rule for rule, _ in found(text)] == ["LMD614"]


@pytest.mark.parametrize(
    ("given", "option", "rule"),
    [
        ("0.5 1.2", "--cache-max-entry-count $x", "LMD106"),
        ("bfloat16 bf16", "--dtype $x", "LMD104"),
        ("'--tp 2' '--tp 0'", "$x", "LMD105"),
    ],
)
def test_each_value_that_a_loop_lists_is_judged(given: str, option: str, rule: str) -> None:
    """The place is in the loop's head, where the value stands."""
    text = f"for x in {given}; do\n  {SERVE} {option}\ndone\n"
    errors = [each for each in review("x.sh", text, {"lmdeploy": "0.18.0"}).findings if each.severity == "error"]
    assert [(each.rule.id, each.place.line) for each in errors] == [(rule, 1)]


def test_each_version_of_a_loop_is_judged() -> None:
    """The image of each turn has a release of its own; what one of them refuses is an error."""
    text = (
        "for v in v0.9.2 v0.18.0; do\n"
        f"  docker run --gpus all openmmlab/lmdeploy:$v {SERVE} --session-len 4096 --tp $n --quant-policy 5\ndone\n"
    )
    script = review("x.sh", text).script
    assert [
        turn.container.image.value for turn in script.launches[0].turns if turn.container and turn.container.image
    ] == [
        "openmmlab/lmdeploy:v0.9.2",
        "openmmlab/lmdeploy:v0.18.0",
    ]
