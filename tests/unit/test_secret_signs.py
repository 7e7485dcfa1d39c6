"""What is taken for a secret, by name and by shape, and what is not."""

from __future__ import annotations

import pytest
from tests.contract import tasks
from tests.contract.experiments import experiment, script
from tests.unit.secret_corpus import PLAIN, SECRET

import nemo_run as run
from nemo_run._secrets.masking import holds_secret, is_secret, mask_environment, masked_text
from nemo_run._secrets.names import VARIABLE, sounds_secret
from nemo_run._values import Expandable, expandable_environment

TOKEN = "ghp_" + "q7Rk2ZbV9xTn4WcLp0sJ8dHy3GfM6aEuQ1oK"


def test_precision_and_recall_on_a_corpus_of_variables() -> None:
    missed = [name for name, value in SECRET if not holds_secret(name, value)]
    wrong = [name for name, value in PLAIN if holds_secret(name, value)]
    found = len(SECRET) - len(missed)
    precision, recall = found / (found + len(wrong)), found / len(SECRET)
    print(f"{len(SECRET)} secrets and {len(PLAIN)} others:")
    print(f"precision {precision:.3f} (taken for secrets: {', '.join(wrong)})")
    print(f"recall {recall:.3f} (not found: {', '.join(missed)})")
    assert precision > 0.97
    assert recall > 0.97


@pytest.mark.parametrize(
    "name", ["GITHUB_PAT", "DB_PASS", "OPENAI_KEY", "SSH_KEY", "MYSQL_PWD", "WANDB_KEY"]
)
def test_short_names_of_secrets_are_known(name: str) -> None:
    assert mask_environment({name: "hunter2"}) == {name: "***"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "true"),
        ("IDENTITY_KEY", "$HOME/.ssh/id_ed25519"),
        ("SSH_KEY", "/home/ann/.ssh/id_rsa"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "~/gcp.json"),
        ("USE_AUTH", "true"),
        ("DB_PASS", ""),
        ("HF_TOKEN", "env:MY_TOKEN"),
    ],
)
def test_values_that_are_none_are_shown(name: str, value: str) -> None:
    assert mask_environment({name: value}) == {name: value}


@pytest.mark.parametrize(
    ("name", "sounds"),
    [
        ("hfToken", True),
        ("--hf-token", True),
        ("executor.env_vars.HF_TOKEN", True),
        ("API_TOKEN_PROD", True),
        ("SERVICE_TOKEN_2", True),
        ("model.eos_token", False),
        ("sort_key", False),
        ("image_key", False),
        ("forward_pass", False),
        ("TOKEN_FILE", False),
        ("PWD", False),
        ("key", False),
        ("", False),
    ],
)
def test_names_are_read_as_words(name: str, sounds: bool) -> None:
    assert sounds_secret(name) is sounds


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "hf_token", "HFTOKEN", "TOKENS", "ACCESS_TOKENS", "API_KEY", "OPENAI_APIKEY"),
        *(
            "PGPASSWORD",
            "MY_SECRET",
            "AWS_SECRET_ACCESS_KEY",
            "DOCKER_AUTH_CONFIG",
            "AUTHORIZATION",
        ),
        *("SSH_PRIVATE_KEY", "KEY_PASSPHRASE", "GOOGLE_CREDENTIALS", "TOKENIZER_TOKEN", "AUTH"),
        *("PER_USER_TOKEN", "NUM_TOKENS_API_KEY"),
    ],
)
def test_variables_that_sound_secret(name: str) -> None:
    assert sounds_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZERS_PARALLELISM", "TOKENIZER_PATH", "HF_TOKENIZER", "DETOKENIZED", "AUTHOR"),
        *(
            "GIT_AUTHOR_NAME",
            "MAX_TOKENS",
            "MAX_NEW_TOKENS",
            "NUM_TOKENS_TO_KEEP",
            "TOKENS_PER_BATCH",
        ),
        *("PYTHONPATH", "KEY", "PASS", "MASTER_ADDR"),
    ],
)
def test_variables_that_do_not(name: str) -> None:
    assert not sounds_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"clone with {TOKEN} please", "clone with *** please"),
        ("postgres://ann:pa/ss@host/db", "postgres://***@host/db"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
        ("https://host/x?api_key=abc&n=1", "https://host/x?api_key=***&n=1"),
        ("https://host/x?sig=abc%2F", "https://host/x?sig=***"),
        ("-H 'Authorization: Bearer abcdefghijkl'", "-H 'Authorization: Bearer ***'"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a *** b"),
        ("mailto:ann@example.org", "mailto:ann@example.org"),
        ("llama3-8b-sft-lr1e-5", "llama3-8b-sft-lr1e-5"),
    ],
)
def test_secrets_are_found_inside_of_texts(text: str, shown: str) -> None:
    assert masked_text(text) == shown


def test_the_user_can_name_more_of_them_and_what_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"TEAM_CODE": "hunter2", "LAB_CODE": "x1", "DEMO_TOKEN": "hello"}
    assert mask_environment(environment) == {**environment, "DEMO_TOKEN": "***"}
    monkeypatch.setenv(VARIABLE, "team_code, lab_*  !DEMO_TOKEN")
    assert mask_environment(environment) == {
        "TEAM_CODE": "***",
        "LAB_CODE": "***",
        "DEMO_TOKEN": "hello",
    }


def test_a_script_does_not_show_its_secrets() -> None:
    shown = repr(
        run.Script(
            inline=f"git clone https://ann:hunter2@example.org/r.git # {TOKEN}",
            args=["--password", "hunter2", "--steps=3"],
            env={"GITHUB_PAT": "hunter2", "STEPS": "3"},
        )
    )
    assert "hunter2" not in shown
    assert TOKEN not in shown
    assert "env={'GITHUB_PAT': '***', 'STEPS': '3'}" in shown
    assert "args=['--password', '***', '--steps=3']" in shown


def test_a_script_without_secrets_is_shown_as_it_is() -> None:
    made = run.Script("train.sh", args=["--name", run.literal("$HOME")], env={"A": "b"})
    assert repr(made) == (
        "Script(path='train.sh', inline='', args=['--name', literal('$HOME')], env={'A': 'b'}, "
        "entrypoint='bash', m=False, metadata={})"
    )


def test_a_dry_run_shows_what_is_no_secret_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    executor = run.LocalExecutor(
        env_vars={"TOKENIZERS_PARALLELISM": "false", "WANDB_KEY": "hunter2", "TRACKER": TOKEN}
    )
    with experiment(executor=executor, clean_mode=False) as exp:
        exp.add(script("true", env={"MYSQL_PWD": "hunter2"}), name="script")
        exp.add(run.Partial(tasks.say), name="function")
        exp.dryrun()
    shown = capsys.readouterr().out.replace("\n", "")
    assert shown.count("with TOKENIZERS_PARALLELISM=false") == 2
    assert "hunter2" not in shown
    assert TOKEN not in shown


def test_on_slurm_a_path_is_filled_in_and_a_secret_is_not() -> None:
    filled = expandable_environment({"SSH_KEY": "$HOME/.ssh/id", "OPENAI_KEY": "sk-$HOME"})
    assert isinstance(filled["SSH_KEY"], Expandable)
    assert not isinstance(filled["OPENAI_KEY"], Expandable)


def test_hashes_and_names_are_not_taken_for_random_keys() -> None:
    for value in ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "Meta-Llama-3.1-70B-Instruct"):
        assert not is_secret("ANYTHING", value)
    assert is_secret("ANYTHING", "q7Rk2ZbV9xTn4WcLp0sJ8dHy3GfM6aEu")
