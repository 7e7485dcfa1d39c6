"""Arguments are recorded, the secrets among them are not."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.experiments import experiment, script

import nemo_run as run
from nemo_run._credentials import secret
from nemo_run._secrets.masking import masked_arguments
from nemo_run._secrets.names import sounds_secret


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key=t0p-s3cret"],
        ["--api-key", "t0p-s3cret"],
        ["HF_TOKEN=t0p-s3cret"],
        ["executor.env_vars.WANDB_API_KEY=t0p-s3cret"],
        ["--db", "postgres://ann:t0p-s3cret@host/db"],
        ["--password", "t0p-s3cret", "--verbose"],
        ["client_secret=t0p-s3cret"],
        ["-hftoken", "t0p-s3cret"],
    ],
)
def test_what_sounds_secret_is_masked(argv: list[str]) -> None:
    masked = masked_arguments(argv)
    assert len(masked) == len(argv)
    assert "t0p-s3cret" not in " ".join(masked)
    assert "***" in " ".join(masked)


@pytest.mark.parametrize(
    "argv",
    [
        ["tokenizer=gpt2", "max_tokens=100", "--tokens-per-batch", "4096"],
        ["--token", "--verbose"],
        ["author=ann", "key=value", "monkey=1"],
        ["token=env:HF_TOKEN", "--secret", "file:~/.secret"],
        ["https://example.org/a@b"],
        [],
    ],
)
def test_what_does_not_stays_as_it_is(argv: list[str]) -> None:
    assert masked_arguments(argv) == tuple(argv)


def test_known_secrets_are_masked_wherever_they_are() -> None:
    masked = masked_arguments(["--url=http://x/?k=hunter22&v=1", "hunter22"], ["hunter22", "1"])
    assert masked == ("--url=http://x/?k=***&v=1", "***")


@pytest.mark.parametrize(
    "name", ["GITHUB_TOKEN", "--api-key", "AWS_SECRET_ACCESS_KEY", "db.password"]
)
def test_names_that_sound_secret(name: str) -> None:
    assert sounds_secret(name)


@dataclass(kw_only=True)
class Locked(run.LocalExecutor):
    """An executor with a secret among its settings."""

    pin: str = secret(default="")


def test_secrets_of_executors_and_of_the_environment_do_not_reach_the_record(
    nemorun_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ["pin-12345", "variable-12345", "environment-12345", "argument-12345"]
    monkeypatch.setattr(sys, "argv", ["train.py", *values[:3], f"api_key={values[3]}"])
    monkeypatch.setenv("SOME_TOKEN", "environment-12345")
    executor = Locked(pin="pin-12345", env_vars={"DB_PASSWORD": "variable-12345"})
    with experiment(executor=executor) as exp:
        exp.add(script("true"), name="job")
        exp.run()
    record = (Path(exp._exp_dir) / "_PROVENANCE").read_text()
    assert exp.provenance is not None
    assert exp.provenance.argv == ("train.py", "***", "***", "***", "api_key=***")
    assert not [value for value in values if value in record]
