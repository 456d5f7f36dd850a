"""Everything known of one option: names, eras against LMDeploy's own parsers, and that nothing is left out."""

import json

import pytest
from artefacts import RELEASES, parser, recommend_process
from click.testing import CliRunner

from recommender.commands.explain import command
from recommender.common.errors import UnknownName
from recommender.knowledge.load import load
from recommender.lookup.option import option_info, resolve_option
from recommender.lookup.option_text import lines

STORE = load()


def told(*words: str) -> str:
    done = CliRunner().invoke(command, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("--session-len", "session-len"), ("session_len", "session-len"), ("SESSION-LEN", "session-len"),
        ("--session-len=4096", "session-len"), ("SESSION_LEN", "session-len"),
        ("OMP_NUM_THREADS", "omp-num-threads"), ("$OMP_NUM_THREADS", "omp-num-threads"),
        ("omp-num-threads", "omp-num-threads"), ("max_tokens", "max-tokens"),
        ("vision-max-batch-size", "vision-max-batch-size"), ("--TP", "tp"),
    ],
)  # fmt: skip
def test_an_option_goes_by_any_spelling(name: str, option: str) -> None:
    """Dashes, underscores, capitals, a dollar sign or a value behind it do not matter."""
    assert resolve_option(STORE, name).id == option


def test_every_option_is_found_by_its_own_name_and_its_fields() -> None:
    """Nothing hides another: ids, options and variables lead to themselves; a Python field to a flag."""
    for option in STORE.options():
        assert resolve_option(STORE, option.id) is option
    for flag in STORE.flags.values():
        assert resolve_option(STORE, flag.option) is flag
        for field in flag.fields:
            assert resolve_option(STORE, field.field).id in STORE.flags


@pytest.mark.parametrize(
    ("name", "near"),
    [("--sesion-len", "--session-len"), ("OMP_THREADS", "OMP_NUM_THREADS"), ("max_token", "max_tokens")],
)
def test_an_unknown_option_has_near_misses(name: str, near: str) -> None:
    """One line that names what may be meant."""
    with pytest.raises(UnknownName, match=near) as raised:
        resolve_option(STORE, name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("release", RELEASES[::3])
def test_an_option_is_there_where_the_parser_has_it(release: str) -> None:
    """Presence and default of every option are those of the release's own parser."""
    actions = {name: each for each in parser(release)._actions for name in each.option_strings}
    for flag in STORE.flags.values():
        found = option_info(STORE, flag, STORE.releases[release])
        assert found.there == (flag.option in actions)
        if found.there and actions[flag.option].nargs != 0:
            default = actions[flag.option].default
            text = " ".join(map(str, default)) if isinstance(default, list) else "" if default is None else str(default)
            assert found.default == text


def test_eras_end_where_the_next_begins() -> None:
    """The spans told are releases that exist, each release in one of them at most."""
    for flag in STORE.flags.values():
        lives = option_info(STORE, flag, STORE.releases["0.18.0"]).lives
        order = [RELEASES.index(name) for life in lives for name in (life.first, life.last or RELEASES[-1])]
        assert order == sorted(order), flag.id


def test_all_that_was_said_judged_and_met_is_told() -> None:
    """Every adviser's setting, claim and thread of an option stands in the text or among those of other releases."""
    for flag in STORE.flags.values():
        text = " ".join("\n".join(lines(option_info(STORE, flag, STORE.releases["0.18.0"]))).split())
        for claim in STORE.claims.values():
            if flag.id in claim.options:
                assert " ".join(claim.statement.split()) in text
                assert " ".join(claim.because.split()) in text
        for thread in STORE.threads.values():
            if flag.id in thread.options:
                assert thread.thread.url in text
        for adviser in STORE.advisers.values():
            for each in adviser.settings:
                if each.option == flag.id:
                    assert f"{adviser.id} " in text
                    assert each.value in text


def test_the_text_is_80_columns_wide() -> None:
    """For every option, in the newest and the oldest release, in English and Vietnamese."""
    for option in STORE.options():
        for release in (RELEASES[0], RELEASES[-1]):
            for vi in (False, True):
                made = lines(option_info(STORE, option, STORE.releases[release]), vi=vi)
                wide = [line for line in made if len(line) > 80 and len(line.split()) > 1]
                assert not wide, option.id


def test_another_release_is_explained_as_it_was() -> None:
    """The option at 0.9.2: its default then, and the verdicts of then."""
    assert "default     23333" in told("server-port", "--lmdeploy", "0.9.2")
    assert "default     none" in told("server-port")
    old, new = (json.loads(told("log-level", "--json", *more)) for more in (("--lmdeploy", "0.9.2"), ()))
    assert (old["default"], new["default"]) == ("ERROR", "WARNING")


def test_a_release_without_it_says_so() -> None:
    """The server would not start; where the option is stands beside it."""
    text = " ".join(told("--enable-metrics").split())
    assert "a server started with it exits at once" in text
    assert "0.9.2" in text


def test_vietnamese_where_there_is_any() -> None:
    """--vi puts the Vietnamese summary in the place of the English one."""
    flag = STORE.flags["session-len"]
    assert flag.summary_vi
    text = " ".join(told("session-len", "--vi").split())
    assert " ".join(flag.summary_vi.split()) in text
    assert " ".join(flag.summary.split()) not in text


def test_an_ascii_terminal_gets_vietnamese_too() -> None:
    """Text goes out in UTF-8 whatever the locale says."""
    import os

    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = recommend_process("explain", "session-len", "--vi", environment=environment)
    assert done.returncode == 0, done.stderr
    assert STORE.flags["session-len"].summary_vi.split()[0] in done.stdout.decode()


def test_the_json_is_the_record() -> None:
    """Ours is complete: eras with sources, advice, verdicts, threads."""
    read = json.loads(told("quant-policy", "--json"))
    assert read["format"] == 1
    assert len(read["lives"]) == len(STORE.flags["quant-policy"].eras)
    assert read["lives"][-1]["now"] is True
    assert all(each["sources"]["code"] for each in read["lives"])
    assert {each["claim"] for each in read["judged"]} == {
        each.id for each in STORE.claims.values() if "quant-policy" in each.options
    }
