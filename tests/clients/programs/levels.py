"""A program whose modules log, and which leaves the set-up of logging to others, or does it."""

import logging
import sys

import nemo_run as run

log = logging.getLogger("team.trainer")


def main(how: str, level: str) -> None:
    if how == "basic":
        logging.basicConfig(level=logging.WARNING, format="MINE %(levelname)s %(message)s")
    if how == "verbose":
        logging.basicConfig(level=logging.DEBUG, format="MINE %(levelname)s %(message)s")
    if how == "handler":
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("OWN %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    log.info("before the experiment")
    with run.Experiment("levels", executor=run.LocalExecutor(), log_level=level) as experiment:
        log.debug("chatter")
        log.info("inside the experiment")
        log.warning("a warning of ours")
        experiment.add(run.Script(inline="true"), name="job")
        experiment.run()
    log.info("after the experiment")


if __name__ == "__main__":
    main(*sys.argv[1:])
