"""The calls of `DGXCloudExecutor` that 0.12 has too, over what its scheduler uses."""

from __future__ import annotations

import base64
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nemo_run import _shell
from nemo_run._records import new_tag
from nemo_run.core.execution import _runai_jobs as jobs
from nemo_run.core.execution import _runai_logs as logs
from nemo_run.core.execution._runai_payloads import MAX_NAME, workload_name
from nemo_run.core.execution._runai_volume import Item

if TYPE_CHECKING:
    import requests

    from nemo_run.core.execution.dgxcloud import DGXCloudExecutor


def launch(executor: DGXCloudExecutor, name: str, cmd: list[str]) -> tuple[str, str]:
    from nemo_run.core.execution.dgxcloud import DGXCloudRequest

    executor.check()
    tag = new_tag()
    request = DGXCloudRequest(
        launch_cmd=cmd,
        jobs=[name],
        executor=executor,
        max_retries=executor.retries,
        extra_env={},
        launcher=executor.get_launcher(),
    )
    workload = jobs.submit(
        executor,
        jobs.site_of(executor).found(),
        name=workload_name(name, tag),
        tag=tag,
        script=request.materialize(),
    )
    return workload.id, workload.phase


def create_training_job(
    executor: DGXCloudExecutor, project_id: str, cluster_id: str, name: str
) -> requests.Response:
    executor.check()
    site = replace(jobs.site_of(executor), project_id=project_id, cluster_id=cluster_id)
    body = jobs.payload(executor, site, name=name[:MAX_NAME], tag=new_tag())
    body["useGivenNameAsPrefix"] = True  # the caller may use a name more than once
    body["spec"]["command"] = f"/bin/bash {executor.place}/launch_script.sh"
    return site.client().post(f"/workloads/{executor._kind}", body)


def fetch_logs(executor: DGXCloudExecutor, job_id: str, follow: bool) -> Iterator[str]:
    site = jobs.site_of(executor).found()
    client = site.client()
    blocks = logs.read(
        client,
        site.kube(),
        job_id,
        replica=0,
        follow=follow,
        ended=lambda: jobs.has_ended(client, executor._kind, job_id),
        window=logs.Window(),
        otherwise=lambda: jobs.volume_of(executor, site).read(executor.place, "log_*.out"),
    )
    return (block.decode("utf-8", "replace") for block in blocks)


def copy_directory_command(directory: str, target: str) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(directory, ".")
    data = base64.b64encode(buffer.getvalue()).decode()
    there, packed = _shell.render([target]), _shell.render([f"{target}/archive.tar.gz"])
    return " && ".join(
        [
            f"rm -rf {there}",
            f"mkdir -p {there}",
            f"echo {data} | base64 -d > {packed}",
            f"tar -xzf {packed} -C {there}",
            f"rm {packed}",
        ]
    )


def move_data(executor: DGXCloudExecutor) -> None:
    directory = Item(path=executor.place, source=Path(executor.job_dir))
    jobs.volume_of(executor, jobs.site_of(executor).found()).put([directory])


def deploy_script(executor: DGXCloudExecutor, text: str, path: str) -> None:
    script = Item(path=path, text=text, mode=0o700)
    jobs.volume_of(executor, jobs.site_of(executor).found()).put([script])
