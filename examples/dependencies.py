"""Jobs that wait for others, and what happens when one of those fails."""

import nemo_run as run


def main() -> None:
    with run.Experiment("dependencies", enable_goodbye_message=False) as exp:
        prepare = exp.add(run.Script(inline="echo data is ready"), name="prepare")
        left = exp.add(run.Script(inline="echo left"), name="left", dependencies=[prepare])
        right = exp.add(
            run.Script(inline="echo this goes wrong; exit 3"), name="right", dependencies=[prepare]
        )
        # Needs both, and one of them fails: it is never started.
        exp.add(run.Script(inline="echo both"), name="join", dependencies=[left, right])
        # Runs only because something failed; "ended" would run it in any case.
        exp.add(
            run.Script(inline="echo tell somebody"),
            name="alarm",
            dependencies=[left, right],
            run_if="failed",
        )
        exp.run()

    for name, job in (exp.status(return_dict=True) or {}).items():
        print(f"{name:8} {job['status'].name:10} {job['exit_code']} {job['message']}")

    try:
        exp.raise_if_failed()
    except run.exceptions.JobFailedError as err:
        print("as an exception:", str(err).splitlines()[0])

    # What cannot work is refused before anything runs.
    with run.Experiment("refused", clean_mode=True) as exp:
        first = exp.add(run.Script(inline="true"), name="first")
        second = exp.add(run.Script(inline="true"), name="second", dependencies=[first])
        try:
            exp.add(run.Script(inline="true"), name="third", dependencies=["secnod"])
        except run.exceptions.ConfigError as err:
            print("refused:", err)
        exp.jobs[0].dependencies = [second]
        try:
            exp.run()
        except run.exceptions.ConfigError as err:
            print("refused:", err)


if __name__ == "__main__":
    main()
