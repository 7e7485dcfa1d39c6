"""A real Slurm cluster on this machine: four nodes with eight make-believe GPUs each, over ssh."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.conftest import processes_with
from tests.integration.slurm import configuration
from tests.integration.slurm.configuration import Settings
from tests.integration.slurm.daemons import (
    Daemons,
    end,
    free_ports,
    is_listening,
    owned_directory,
    search_path,
    wait_until,
)
from tests.integration.slurm.sshd import Sshd

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "sshd", "rsync")
ACCOUNTING_PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")
HOSTS = Path("/etc/hosts")
PREFIX = "nemo-run-slurm-"


class CommandError(subprocess.CalledProcessError):
    """Says also what the program said."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stdout}\n{self.stderr}"


class SlurmCluster:
    """A cluster in a directory, which any process can take over by that directory.

    Several run side by side: each has a munge key, ports and a database of its own. All that it
    starts carries ``SLURM_CONF``, so that nothing is left when it stops.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.directory = Path(settings.directory)
        self.slurm_conf = self.directory / "etc" / "slurm.conf"
        self.sshd = Sshd(
            self.directory,
            port=settings.ssh_port,
            variables={"SLURM_CONF": str(self.slurm_conf)},
        )
        self._environment = {**os.environ, "SLURM_CONF": str(self.slurm_conf)}
        self._environment["PATH"] = search_path(os.environ)
        self._daemons = Daemons(self.directory, self._environment)

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        nodes: int = 4,
        accounting: bool = True,
        names_resolve: bool = False,
        task_prolog: str = "",
    ) -> SlurmCluster:
        """Choose ports for a new cluster in ``directory``, which is made.

        Args:
            directory: its path must be short: sockets go below it.
            nodes: how many there are.
            accounting: whether slurmdbd runs, so that ``sacct`` answers.
            names_resolve: have ``node1`` and so on in ``/etc/hosts`` while it runs.
            task_prolog: a program that Slurm runs before each task.
        """
        ssh, controller, dbd, database, *node_ports = free_ports(4 + nodes)
        settings = Settings(
            directory=str(directory),
            hostname=socket.gethostname().partition(".")[0],
            controller_port=controller,
            node_ports=tuple(node_ports),
            ssh_port=ssh,
            accounting_port=dbd if accounting else None,
            database_port=database if accounting else None,
            names_resolve=names_resolve,
            task_prolog=task_prolog,
        )
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        (directory / "cluster.json").write_text(json.dumps(asdict(settings)))
        return cls(settings)

    @classmethod
    def at(cls, directory: Path) -> SlurmCluster:
        """Return the cluster that another process created in ``directory``."""
        stored = json.loads((directory / "cluster.json").read_text())
        stored["node_ports"] = tuple(stored["node_ports"])
        return cls(Settings(**stored))

    @property
    def environment(self) -> dict[str, str]:
        """What leads programs here: over ssh, or directly, as on a login node."""
        return {**self.sshd.environment, "SLURM_CONF": str(self.slurm_conf)}

    def start(self) -> None:
        """Start everything and return when all nodes are idle."""
        self._check_programs()
        for name in ("etc", "run", "log", "state", "spool", "dev", "db"):
            (self.directory / name).mkdir(exist_ok=True)
        self._make_gpus()
        configuration.write(self.settings)
        self._start_munge()
        self.sshd.start()
        if self.settings.names_resolve:
            self._add_names()
        if self.settings.accounting_port is not None:
            self._start_database()
            self.start_accounting()
        self.start_controller()
        for node in self.settings.nodes:
            (self.directory / "spool" / node).mkdir(exist_ok=True)
            self.start_node(node)
        self._wait_for_nodes()

    def stop(self) -> None:
        """End all jobs and daemons and undo what was changed outside the directory."""
        if self._daemons.pid("slurmctld") is not None:
            with contextlib.suppress(subprocess.SubprocessError):
                self.run("scancel", "--full", "--signal=KILL", "--user=root", timeout_s=5)
        self.sshd.stop()
        last = ("slurmctld", "slurmdbd", "mariadbd", "munged")
        for name in [*(n for n in self._daemons.names() if n not in last), *last]:
            self._daemons.stop(name, kill=name.startswith("slurmd.") or name == "mariadbd")
        for pid in processes_with(f"SLURM_CONF={self.slurm_conf}"):
            if pid != os.getpid():
                end(pid, kill=True)
        self._remove_names()

    def run(self, *argv: str, timeout_s: float = 60) -> str:
        """Run a program of Slurm's on this machine and return what it says.

        Raises:
            CommandError: with what it said, if it failed.
        """
        done = subprocess.run(
            argv,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if done.returncode:
            raise CommandError(done.returncode, argv, done.stdout, done.stderr)
        return done.stdout

    def told(self, job_id: str) -> str:
        """Return all that the cluster says of a job and of itself, for messages."""
        job = self.run("scontrol", "show", "job", "-d", job_id.partition("@")[0])
        return f"\n{job}\n{self.run('sinfo', '-N', '-l')}\n{self.run('squeue', '-a')}"

    def start_controller(self) -> None:
        self._daemons.start("slurmctld", ["slurmctld", "-D", "-i", "-f", self.slurm_conf])
        self._wait_for("slurmctld", self.settings.controller_port)
        self._wait_for_nodes()

    def stop_controller(self, *, kill: bool = False) -> None:
        self._daemons.stop("slurmctld", kill=kill)

    def start_accounting(self) -> None:
        self._daemons.start("slurmdbd", ["slurmdbd", "-D"])
        self._wait_for("slurmdbd", self.settings.accounting_port or 0)

    def stop_accounting(self, *, kill: bool = False) -> None:
        self._daemons.stop("slurmdbd", kill=kill)

    def start_node(self, node: str) -> None:
        argv = ["slurmd", "-D", "-N", node, "-f", str(self.slurm_conf)]
        self._daemons.start(f"slurmd.{node}", argv)

    def kill_node(self, node: str) -> None:
        """Have a node fall silent, and its jobs go on unattended."""
        self._daemons.stop(f"slurmd.{node}", kill=True)

    @contextmanager
    def without_node(self, node: str) -> Iterator[None]:
        """Have a node fall silent, and the controller know that it is lost."""
        self.kill_node(node)
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        try:
            yield
        finally:
            self.start_node(node)
            self._wait_for_nodes()

    def drain(self, node: str) -> None:
        """Have a node take no new jobs."""
        self.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")

    def resume(self, node: str) -> None:
        self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self._wait_for_nodes()

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        self.stop_controller()
        try:
            yield
        finally:
            self.start_controller()

    @contextmanager
    def without_accounting(self) -> Iterator[None]:
        self.stop_accounting()
        try:
            yield
        finally:
            self.start_accounting()

    @contextmanager
    def forgetful(self) -> Iterator[None]:
        """Have the controller forget jobs seconds after their ends, as large ones do in minutes."""
        text = self.slurm_conf.read_text()
        self.slurm_conf.write_text(text.replace("MinJobAge=3600", "MinJobAge=2"))
        self.run("scontrol", "reconfigure")
        try:
            yield
        finally:
            self.slurm_conf.write_text(text)
            self.run("scontrol", "reconfigure")

    @contextmanager
    def preempting(self) -> Iterator[None]:
        """Have a partition whose jobs take nodes away from those of the others."""
        text = self.slurm_conf.read_text()
        self.slurm_conf.write_text(text + configuration.PREEMPTION)
        self._restart_controller()
        try:
            yield
        finally:
            self.slurm_conf.write_text(text)
            self._restart_controller()

    def _restart_controller(self) -> None:
        self.stop_controller()
        self.start_controller()

    def _check_programs(self) -> None:
        needed = [*PROGRAMS]
        if self.settings.accounting_port is not None:
            needed += ACCOUNTING_PROGRAMS
        path = self._environment["PATH"]
        missing = [name for name in needed if shutil.which(name, path=path) is None]
        if missing:
            raise FileNotFoundError(
                f"A Slurm cluster needs {', '.join(missing)}: run scripts/system-packages.sh"
            )
        if os.getuid() != 0:
            raise PermissionError("A Slurm cluster with GPUs needs device files, so run as root")

    def _make_gpus(self) -> None:
        # Slurm tells a job about devices only. These are further names for /dev/null.
        for n in range(self.settings.gpus):
            path = self.directory / "dev" / f"gpu{n}"
            if not path.exists():
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))

    def _start_munge(self) -> None:
        key = self.directory / "etc" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        files = {
            "key-file": key,
            "socket": self.settings.munge_socket,
            "pid-file": self.directory / "run" / "munged.pid",
            "log-file": self.directory / "log" / "munged.log",
            "seed-file": self.directory / "state" / "munge.seed",
        }
        options = [f"--{name}={path}" for name, path in files.items()]
        self._daemons.start("munged", ["munged", "-F", "--force", "--num-threads=4", *options])
        wait_until(lambda: Path(self.settings.munge_socket).exists(), "munged", timeout_s=20)

    def _start_database(self) -> None:
        data, socket_path = self.directory / "db", self.directory / "run" / "mysql.sock"
        # A server that starts removes what others have left in its directory for temporary tables,
        # and what others are using there.
        temporary = self.directory / "db-tmp"
        temporary.mkdir(exist_ok=True)
        # Forced: whether the name of this machine can be looked up does not matter.
        install = ["mariadb-install-db", "--no-defaults", "--force", "--user=root"]
        install += [f"--datadir={data}", f"--tmpdir={temporary}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        self.run(*install, timeout_s=120)
        serve = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}"]
        serve += [f"--tmpdir={temporary}"]
        serve += [f"--socket={socket_path}", f"--pid-file={self.directory}/run/mariadbd.pid"]
        serve += [f"--port={self.settings.database_port}", "--bind-address=127.0.0.1"]
        serve += ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"]
        serve += ["--innodb-lock-wait-timeout=900", "--skip-log-bin"]
        self._daemons.start("mariadbd", serve)
        self._wait_for("mariadbd", self.settings.database_port or 0)
        client = ["mariadb", "--no-defaults", "-uroot", "-S", str(socket_path)]
        self.run(*client, "-e", configuration.DATABASE_SQL)

    def _wait_for(self, name: str, port: int) -> None:
        def answers() -> bool:
            if self._daemons.pid(name) is None:
                raise RuntimeError(f"{name} ended: {self._daemons.said(name)}")
            return is_listening(port)

        wait_until(answers, name)

    def _wait_for_nodes(self) -> None:
        """Return once the controller has heard of every node that runs."""
        wait_until(self._has_met_nodes, "a word from all nodes", timeout_s=120)

    def _has_met_nodes(self) -> bool:
        started = {n.removeprefix("slurmd.") for n in self._daemons.names() if "slurmd." in n}
        for node in started:
            if self._daemons.pid(f"slurmd.{node}") is None:
                raise RuntimeError(f"slurmd ended: {self._daemons.said(f'slurmd.{node}')}")
        states = ["sinfo", "-h", "-N", "-p", configuration.PARTITION, "-o", "%N %T"]
        try:
            lines = self.run(*states).splitlines()
        except subprocess.CalledProcessError:
            return False
        known = dict(line.split() for line in lines)
        # A star says that the node does not answer.
        return all(known[n] != "unknown" and not known[n].endswith("*") for n in started)

    def _add_names(self) -> None:
        lines = [f"127.0.0.1 {node} # {self.directory}\n" for node in self.settings.nodes]
        with HOSTS.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0, os.SEEK_END)
            file.writelines(lines)

    def _remove_names(self) -> None:
        # In place: in a container this file is mounted and cannot be replaced.
        with HOSTS.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = file.readlines()
            kept = [line for line in lines if not line.endswith(f"# {self.directory}\n")]
            if kept != lines:
                file.seek(0)
                file.truncate()
                file.writelines(kept)


@contextmanager
def temporary_cluster(*, nodes: int = 4, accounting: bool = True) -> Iterator[SlurmCluster]:
    """Have a cluster while entered, and nothing of it afterwards."""
    with owned_directory(PREFIX, lambda directory: SlurmCluster.at(directory).stop()) as directory:
        cluster = SlurmCluster.create(directory, nodes=nodes, accounting=accounting)
        try:
            cluster.start()
            yield cluster
        finally:
            # By the object that started them, which can wait for its children.
            cluster.stop()
