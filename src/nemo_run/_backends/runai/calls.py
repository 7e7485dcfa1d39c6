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
from nemo_run._backends.kubernetes.pod_lines import Window
from nemo_run._backends.runai import jobs
from nemo_run._backends.runai.logs import WorkloadLogs
from nemo_run._backends.runai.payloads import MAX_NAME, workload_name
from nemo_run._backends.runai.volume import Item
from nemo_run._jobs.records import new_tag
from nemo_run._transport.http import Reply

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
        launcher=executor.launcher_in_use(),
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
    return _response(site.client().reply("POST", f"/workloads/{executor._kind}", body=body))


def delete_workspace(executor: DGXCloudExecutor, workload_id: str) -> requests.Response:
    return _response(executor._client().reply("DELETE", f"/workloads/workspaces/{workload_id}"))


def _response(reply: Reply) -> requests.Response:
    """Return an answer as programs of 0.12 expect it."""
    import requests
    from requests.utils import get_encoding_from_headers

    response = requests.Response()
    response.status_code, response.url = reply.status, reply.url
    response.headers.update(reply.headers)
    response.encoding = get_encoding_from_headers(response.headers)
    response._content = reply.body
    return response


def workload_id(executor: DGXCloudExecutor, job_id: str) -> str:
    """Return Run:ai's id of a workload, given that or its name, with which app ids end."""
    if len(job_id) > MAX_NAME:
        return job_id
    project_id, _ = executor.get_project_and_cluster_id("")
    found = executor._client().find(job_id, project_id) if project_id else None
    return found.id if found else job_id


def fetch_logs(executor: DGXCloudExecutor, job_id: str, follow: bool) -> Iterator[str]:
    site = jobs.site_of(executor).found()
    client = site.client()
    job_id = workload_id(executor, job_id)
    blocks = WorkloadLogs(client, site.kube(), job_id, 0, Window()).read(
        follow=follow,
        ended=lambda: jobs.has_ended(client, executor._kind, job_id),
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
