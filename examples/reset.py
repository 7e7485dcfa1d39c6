"""Run an experiment again with one change; the old run stays as it was."""

import nemo_run as run

TITLE = "reset"


def fit(rate: float) -> None:
    print("rate is", rate)


def main() -> None:
    with run.Experiment(TITLE, check=True, enable_goodbye_message=False) as exp:
        exp.add(run.Partial(fit, rate=0.1), name="fit")
        exp.add(run.Script(inline="echo done"), name="report", dependencies=["fit"])
        exp.run()

    # Weeks later, perhaps in another process: order, names and executors are kept.
    again = run.Experiment.from_title(TITLE).reset()
    again.tasks[0].rate = 0.5
    with again:
        again.run()

    for experiment_id in run.Experiment.catalog(TITLE)[-2:]:
        print(experiment_id, flush=True)
        run.Experiment.from_id(experiment_id).logs("fit")


if __name__ == "__main__":
    main()
