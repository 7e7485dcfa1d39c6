"""A module as a project has it: functions, a dataclass, and factories of configs."""

from dataclasses import dataclass

import nemo_run as run


@dataclass
class Person:
    name: str
    number: int = 1


def greet(first: Person, second: Person) -> None:
    print(f"{first.name} {first.number} meets {second.name} {second.number}")


def part(person: Person) -> None:
    print(f"{person.name} leaves")


@run.autoconvert
def agent(number: int = 7) -> Person:
    return Person(name="agent", number=number)


@run.autoconvert
def stranger() -> Person:
    return Person(name="stranger")
