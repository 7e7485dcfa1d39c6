"""From a task and settings to what Ray is sent: a package of files, and the body of a call."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from nemo_run._backends.ray.driver import JOB_FILE, KEY, sealed
from nemo_run._backends.ray.marks import nonce_of
from nemo_run._config.scripts import RUNDIR_PATH
from nemo_run._names import slug
from nemo_run._secrets.masking import holds_secret
from nemo_run._values import literal
from nemo_run.core.packaging._disk import everything_below
from nemo_run.exceptions import ConfigError

OURS = ".nemo_run_job"
"""Where our files are, in the directory that a job starts in."""
NOTES = "ray"
"""What says where a job is submitted to, below the job directory."""

# Seconds since 1980, which is the first year that an archive of this kind knows.
_DATE = (1980, 1, 1, 0, 0, 0)
_RESERVED = ("working_dir",)


def submission_id(name: str, tag: str) -> str:
    """Return the id of a job: no other has it, and the same tag gives the same id again."""
    digest = hashlib.sha256(f"{name}\0{tag}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{slug(name, 40)}-{digest[:16]}"


def checked_runtime_env(runtime_env: Mapping[str, Any]) -> None:
    """Raise ConfigError for what Ray would not take, or what is ours to say."""
    for name in _RESERVED:
        if name in runtime_env:
            raise ConfigError(
                f"runtime_env has {name!r}, but the code that travels is what the packager takes "
                "along. Choose it by the packager."
            )
    try:
        json.dumps(runtime_env)
    except TypeError as err:
        raise ConfigError(f"runtime_env goes to Ray as JSON, and this does not: {err}.") from err
    variables = runtime_env.get("env_vars") or {}
    for name, value in variables.items():
        if not isinstance(value, str):
            raise ConfigError(f"runtime_env sets {name!r} to {value!r}, which is not text.")
        if holds_secret(name, value):
            raise ConfigError(
                f"{name!r} in runtime_env['env_vars'] looks like a secret, and Ray shows that to "
                "everyone who may look at the cluster. Put it into env_vars of the executor."
            )


def body(
    *,
    env: Mapping[str, str],
    runtime_env: Mapping[str, Any],
    metadata: Mapping[str, str],
    resources: Mapping[str, Any],
    package: str,
    tag: str,
) -> dict[str, Any]:
    """Return what Ray is asked to run.

    Tasks and actors that the job starts see what is in ``env_vars`` there. A secret is not: Ray
    shows these to all who may look, and puts them into arguments of processes.
    """
    shared = {
        name: str(value)
        for name, value in env.items()
        # Ray fills in the latter, which the executor does not promise.
        if not holds_secret(name, value) and "${" not in value
    }
    variables = {**shared, **(runtime_env.get("env_vars") or {})}
    own = {**runtime_env, "working_dir": f"gcs://{package}", "env_vars": variables}
    return {
        "entrypoint": entrypoint(),
        "runtime_env": own,
        "metadata": {**metadata, KEY: _key_of(tag)},
        **{f"entrypoint_{name}": value for name, value in resources.items() if value},
    }


def entrypoint() -> str:
    """Return the line of shell that starts the driver."""
    return f'exec "$(command -v python3 || command -v python)" -I -S {OURS}/driver.py'


def job_file(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    tag: str,
    retries: int,
    links: Mapping[str, str],
    programs: Sequence[str],
) -> bytes:
    """Return what the driver reads."""
    job = {
        "argv": [_filled(arg) for arg in argv],
        "env": {name: _filled(value) for name, value in env.items()},
        "retries": retries,
        "nonce": nonce_of(tag),
        "links": dict(links),
        "programs": list(programs),
        "rundir": RUNDIR_PATH.pattern,
    }
    return json.dumps(job, sort_keys=True).encode("ascii")


def _filled(text: str) -> list[str | bool]:
    return [str(text), not isinstance(text, literal)]


def package(
    job_dir: Path, argv: Sequence[str], env: Mapping[str, str], *, tag: str, retries: int
) -> tuple[str, bytes]:
    """Return the name and the bytes of an archive with all files of a job.

    The code is at its top, where Ray starts the job and what that starts; ours are in a directory.
    The same files give the same bytes.
    """
    files, links = _collected(job_dir)
    programs = [name for name, path in sorted(files.items()) if _is_program(path)]
    driver = resources.files("nemo_run._backends.ray").joinpath("driver.py").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, path in sorted(files.items()):
            mode = path.stat().st_mode
            data = b"" if stat.S_ISDIR(mode) else path.read_bytes()
            archive.writestr(_entry(name, mode), data)
        archive.writestr(_entry(f"{OURS}/driver.py", 0o644), driver)
        job = job_file(argv, env, tag=tag, retries=retries, links=links, programs=programs)
        archive.writestr(_entry(f"{OURS}/{JOB_FILE}", 0o600), sealed(_key_of(tag), job))
    data = buffer.getvalue()
    return f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:32]}.zip", data


def _is_program(path: Path) -> bool:
    mode = path.stat().st_mode
    return stat.S_ISREG(mode) and bool(mode & 0o100)


def _key_of(tag: str) -> str:
    return hashlib.sha256(f"seal\0{tag}".encode()).hexdigest()


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (stat.S_IFREG | stat.S_IMODE(mode)) << 16
    return entry


def _collected(job_dir: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the files by their names in the archive, and the links that it cannot hold."""
    files: dict[str, Path] = {}
    links: dict[str, str] = {}
    for name, path in _named(job_dir):
        if path.is_symlink() and not path.is_file():
            links[name] = str(path.readlink())
        elif path.is_file():
            files[name] = path
        elif path.is_dir():
            files[f"{name}/"] = path
    return files, links


def _named(job_dir: Path) -> Iterator[tuple[str, Path]]:
    code = job_dir / "code"
    if not job_dir.is_dir():
        return
    for entry in sorted(job_dir.iterdir()):
        if entry == code and entry.is_dir():
            for found in everything_below(str(code)):
                if found != str(code):
                    yield os.path.relpath(found, code), Path(found)
        elif entry.name != NOTES and not entry.name.endswith(".tar.gz"):
            below = everything_below(str(entry)) if entry.is_dir() else [str(entry)]
            for found in below:
                yield f"{OURS}/{os.path.relpath(found, job_dir)}", Path(found)
