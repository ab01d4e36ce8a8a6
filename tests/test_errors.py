from __future__ import annotations

import re
import traceback

import pytest

from hive import errors
from hive.cli import main
from hive.errors import ActorFailed, EnvironmentFailed, HiveError, RemoteError, UsageError

CLASSES = [getattr(errors, name) for name in errors.__all__]


def drawn() -> dict[str, int]:
    """Return the exit code of each class in the drawing of the module's docstring."""
    lines = re.findall(r"[├└]─ (\w+) +(\d)", errors.__doc__ or "")
    return {name: int(code) for name, code in lines}


def test_the_drawing_is_the_tree() -> None:
    assert {"HiveError": 1} | drawn() == {cls.__name__: cls.exit_code for cls in CLASSES}
    defined = {name for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, HiveError)}
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_is_a_hive_error_with_a_hint(cls: type[HiveError]) -> None:
    error = (
        cls("no run is called `x`", hint="`hive ls` lists them")
        if cls is not RemoteError
        else cls("no run is called `x`")
    )
    assert isinstance(error, HiveError)
    assert isinstance(error, Exception)
    assert str(error) == "no run is called `x`"
    assert error.hint == ("" if cls is RemoteError else "`hive ls` lists them")
    assert cls.__doc__


def test_rendering_is_an_error_line_and_a_hint_line() -> None:
    assert UsageError("no such run").render() == "error: no such run"
    assert UsageError("no such run", hint="hive ls").render() == "error: no such run\n\nhint: hive ls"


def test_the_hint_is_not_part_of_the_text() -> None:
    assert "ls" not in str(UsageError("no such run", hint="hive ls"))


def test_a_traceback_ends_with_the_hint_and_other_notes() -> None:
    error = UsageError("no such run", hint="hive ls")
    error.add_note("seen in collector-0")
    assert "".join(traceback.format_exception(error)).splitlines() == [
        "hive.errors.UsageError: no such run",
        "hint: hive ls",
        "seen in collector-0",
    ]


def test_a_traceback_shows_the_last_hint_once() -> None:
    error = UsageError("no such run", hint="hive ls")
    error.add_note("seen in collector-0")
    error.hint = "hive up"
    assert traceback.format_exception(error)[1:] == ["hint: hive up\n", "seen in collector-0\n"]
    error.hint = ""
    assert traceback.format_exception(error)[1:] == ["seen in collector-0\n"]
    assert error.render() == "error: no such run"


def test_the_command_line_prints_the_hint_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["up"])
    assert capsys.readouterr().err.count("hint: ") == 1


def test_an_environment_may_fail_for_good() -> None:
    assert not EnvironmentFailed("it raised").permanent
    assert EnvironmentFailed("a wrong shape", permanent=True).permanent


def test_a_remote_error_carries_what_happened_there() -> None:
    error = RemoteError("[learner-0 pid 7] KeyError: 'x'", remote_type="KeyError", remote_traceback="Traceback ...")
    assert (error.remote_type, error.remote_traceback) == ("KeyError", "Traceback ...")
    assert (RemoteError("x").remote_type, RemoteError("x").remote_traceback) == ("", "")


def test_errors_are_caught_by_their_base() -> None:
    with pytest.raises(HiveError, match="collector-0 failed"):
        raise ActorFailed("collector-0 failed")
