"""--once-replay: the schedule of a report, again, with its story."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from tests.plugin.conftest import LOADED, Lab
from tests.plugin.suites import AGENT, BAD, GOOD


def commands(result: pytest.RunResult | str) -> list[list[str]]:
    """The replay commands of a report, as a shell would split them, without the word pytest."""
    printed = result if isinstance(result, str) else result.stdout.str()
    text = printed.partition(" short test summary info ")[0]  # under CI pytest repeats the whole report there
    found = [line.partition(":")[2] for line in text.splitlines() if line.strip().startswith("replay:")]
    assert found, text
    words = [shlex.split(command) for command in found]
    assert all(word[0] == "pytest" for word in words)
    return [word[1:] for word in words]


@pytest.mark.slow
def test_the_command_of_a_report_reproduces_it_and_tells_the_story(lab: Lab) -> None:
    """It is copied and pasted: every word of it must be right."""
    lab.write(AGENT)
    explored = lab.explore()
    explored.assert_outcomes(failed=2)
    for command, verdict in zip(commands(explored), ("DUPLICATE", "OMISSION"), strict=True):
        replayed = lab.run(*command)
        replayed.assert_outcomes(failed=1)
        replayed.stdout.fnmatch_lines(
            [f"{verdict}  order=o1*", "  incarnation 1", "*X killed (SIGKILL) before *test_it.py:*", "*incarnation 2"]
        )
        assert commands(replayed)[0] == command


@pytest.mark.slow
def test_the_command_works_from_another_directory_and_with_awkward_names(lab: Lab) -> None:
    """Node ids begin at the root directory, command lines where one stands; and parameters may hold anything."""
    inner = lab.pytester.mkdir("some tests")
    inner.joinpath("test_inner.py").write_text(
        BAD.replace("def test_bad(once)", "@pytest.mark.parametrize('x', ['it\\'s $HOME; [a]'])\ndef test_bad(once, x)")
    )
    explored = subprocess.run(
        lab.command("--once-chaos=crash"), cwd=inner, env=lab.environment(), capture_output=True, text=True, check=False
    )
    (command,) = commands(explored.stdout)
    line = shlex.join([*lab.command(), *command])
    replayed = subprocess.run(
        line, shell=True, cwd=inner, env=lab.environment(), capture_output=True, text=True, check=False
    )
    assert replayed.returncode == pytest.ExitCode.TESTS_FAILED, replayed.stdout + replayed.stderr
    assert "DUPLICATE  order=o1" in replayed.stdout


def test_on_corrected_code_it_passes_and_says_that_it_is_one_schedule_only(lab: Lab) -> None:
    """Green here is not the proof that green is under --once-chaos."""
    lab.write(BAD)
    (command,) = commands(lab.explore())
    lab.write(BAD.replace('once.provider("pay")', 'once.provider("pay", contract="none")') + "    # the same code\n")
    lab.run(*command).assert_outcomes(failed=1)
    lab.write(GOOD.replace("test_good", "test_bad"))
    result = lab.run(*command)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "replayed: nothing wrong on this schedule. It is one schedule only and proves*",
            "  incarnation 1",
            "  incarnation 2",
            "1 replayed, one schedule only",
        ]
    )
    result.stdout.no_fnmatch_line("*exhausted*")


def test_an_id_that_does_not_fit_the_code_fails_and_says_where_they_part(lab: Lab) -> None:
    """A replay that silently does something else would acquit the code."""
    lab.write(AGENT)
    command = commands(lab.explore("-k", "test_act_then_mark"))[0]
    lab.write(AGENT.replace("connection.commit()", "connection.commit()  # now"))
    result = lab.run(*command)
    result.assert_outcomes(failed=1)
    text = " ".join(result.stdout.str().split())
    assert "INCONCLUSIVE schedule" in text
    assert "does not fit this code any more: incarnation 1 never reached boundary" in text
    assert "It passed:" in text
    assert "agent.db COMMIT" in text
    assert "run --once-chaos to explore anew" in text


def test_unrelated_edits_do_not_matter(lab: Lab) -> None:
    """Between report and replay one adds a print here and a comment there."""
    lab.write(AGENT)
    command = commands(lab.explore("-k", "test_act_then_mark"))[0]
    lab.write(
        "# A comment.\n" + AGENT.replace("    connection.close()", "    print('closing')\n    connection.close()")
    )
    result = lab.run(*command)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["DUPLICATE *"])


@pytest.mark.parametrize("selected", [("test_it.py",), ("test_it.py", "-k", "nothing_like_it")], ids=["two", "none"])
def test_a_replay_needs_exactly_one_test(lab: Lab, selected: tuple[str, ...]) -> None:
    """One id belongs to one test; trying it on all of them would find misfits, or worse, fits."""
    lab.write(AGENT)
    result = lab.run("--once-replay=./.", *selected)
    if "-k" in selected:
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
        return
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --once-replay repeats one schedule of one test, but 2 tests marked*"])


def test_a_replay_of_an_unmarked_test_is_refused(lab: Lab) -> None:
    """It would run plainly and pass."""
    lab.write("def test_plain(): pass\n")
    assert lab.run("--once-replay=./.").ret == pytest.ExitCode.USAGE_ERROR


def test_a_replay_keeps_to_the_real_thing(lab: Lab) -> None:
    """Each killed incarnation is a process that existed and is gone."""
    pids = lab.path / "pids.txt"
    lab.write(
        BAD.replace(
            "    assert",
            "    os.write(PIDS, f'{os.getpid()} '.encode())\n    once.boundary('begin')\n    assert",
        )
        + f"\nimport os\nPIDS = os.open({str(pids)!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)\n"
    )
    lab.run("--once-replay=x@end/.").assert_outcomes(failed=1)
    lives = {int(pid) for pid in pids.read_text().split()}
    assert len(lives) >= 4
    assert os.getpid() not in lives
    for pid in lives:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_plugin_is_loaded_as_these_tests_believe() -> None:
    """Installed, pytest finds it; otherwise -p names it. Both must not happen at once."""
    assert LOADED in ((), ("-p", "pytest_once.plugin"))
