"""What the daemons of a small Slurm cluster are told, as text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GPU_TYPE = "h100"
PARTITION = "main"
SHORT_PARTITION = "short"
URGENT_PARTITION = "urgent"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How large a cluster is, and where it listens. Everything is on loopback."""

    directory: str
    hostname: str
    controller_port: int
    node_ports: tuple[int, ...]
    ssh_port: int
    accounting_port: int | None
    database_port: int | None
    gpus: int = 8
    cpus: int = 16
    memory_mb: int = 64000
    names_resolve: bool = False
    task_prolog: str = ""

    @property
    def nodes(self) -> list[str]:
        return [f"node{n}" for n in range(1, len(self.node_ports) + 1)]

    @property
    def munge_socket(self) -> str:
        return f"{self.directory}/run/munge.sock"


def slurm_conf(settings: Settings) -> str:
    base = settings.directory
    lines = [
        "ClusterName=loop",
        f"SlurmctldHost={settings.hostname}(127.0.0.1)",
        f"SlurmctldPort={settings.controller_port}",
        "SlurmUser=root",
        "SlurmdUser=root",
        "AuthType=auth/munge",
        "CredType=cred/munge",
        # A job that is started again waits until its old credential has expired: 2 minutes, else.
        f"AuthInfo=socket={settings.munge_socket},cred_expire=10",
        "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny",
        f"StateSaveLocation={base}/state",
        f"SlurmdSpoolDir={base}/spool/%n",
        f"SlurmctldPidFile={base}/run/slurmctld.pid",
        f"SlurmdPidFile={base}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={base}/log/slurmctld.log",
        f"SlurmdLogFile={base}/log/slurmd.%n.log",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "SwitchType=switch/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        # A job that does not say how much memory it needs would take all of a node.
        "DefMemPerCPU=100",
        "SlurmdParameters=config_overrides",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,sched_interval=5",
        "MinJobAge=3600",
        "KillWait=3",
        "InactiveLimit=0",
        "Waittime=0",
        "ReturnToService=2",
        "SlurmctldTimeout=30",
        "SlurmdTimeout=60",
        "EnforcePartLimits=ALL",
        "GresTypes=gpu",
        "JobCompType=jobcomp/filetxt",
        f"JobCompLoc={base}/log/jobcomp.log",
    ]
    if settings.task_prolog:
        lines.append(f"TaskProlog={settings.task_prolog}")
    if settings.accounting_port is not None:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={settings.accounting_port}",
            f"AccountingStoragePass={settings.munge_socket}",
            "AccountingStorageTRES=gres/gpu",
            "AccountingStoreFlags=job_comment,job_env,job_script",
        ]
    for node, port in zip(settings.nodes, settings.node_ports, strict=True):
        lines.append(
            f"NodeName={node} NodeHostname={settings.hostname} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={settings.cpus} Boards=1 Sockets=1 CoresPerSocket={settings.cpus} "
            f"ThreadsPerCore=1 RealMemory={settings.memory_mb} "
            f"Gres=gpu:{GPU_TYPE}:{settings.gpus} State=UNKNOWN"
        )
    lines += [
        f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE "
        "DefaultTime=01:00:00 State=UP",
        f"PartitionName={SHORT_PARTITION} Nodes=node1 MaxTime=00:05:00 State=UP",
    ]
    return "\n".join(lines) + "\n"


PREEMPTION = (
    "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
    f"PartitionName={URGENT_PARTITION} Nodes=ALL PriorityTier=10 State=UP\n"
)


def gres_conf(settings: Settings) -> str:
    devices = f"{settings.directory}/dev/gpu[0-{settings.gpus - 1}]"
    return f"Name=gpu Type={GPU_TYPE} File={devices}\n"


CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def slurmdbd_conf(settings: Settings) -> str:
    base = settings.directory
    return "\n".join(
        [
            "AuthType=auth/munge",
            f"AuthInfo=socket={settings.munge_socket}",
            f"DbdHost={settings.hostname}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={settings.accounting_port}",
            "SlurmUser=root",
            f"LogFile={base}/log/slurmdbd.log",
            f"PidFile={base}/run/slurmdbd.pid",
            "CommunicationParameters=NoInAddrAny",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={settings.database_port}",
            "StorageUser=slurm",
            "StoragePass=slurm",
            "StorageLoc=slurm_acct",
            "",
        ]
    )


DATABASE_SQL = (
    "create database slurm_acct; create user 'slurm'@'%' identified by 'slurm'; "
    "create user 'slurm'@'localhost' identified by 'slurm'; "
    "grant all on slurm_acct.* to 'slurm'@'%'; grant all on slurm_acct.* to 'slurm'@'localhost';"
)


def write(settings: Settings) -> None:
    """Write the configuration below ``etc``."""
    etc = Path(settings.directory) / "etc"
    (etc / "slurm.conf").write_text(slurm_conf(settings))
    (etc / "gres.conf").write_text(gres_conf(settings))
    (etc / "cgroup.conf").write_text(CGROUP_CONF)
    if settings.accounting_port is not None:
        path = etc / "slurmdbd.conf"
        path.touch(mode=0o600)  # slurmdbd refuses to read anything else
        path.write_text(slurmdbd_conf(settings))
