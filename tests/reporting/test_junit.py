"""JUnit: in our own file, and in the one that pytest writes."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from pytest_once.reporting import document, junit
from tests.plugin.conftest import Lab
from tests.plugin.suites import BAD
from tests.reporting.conftest import Run
from tests.reporting.samples import unanswered, violated


def properties(case: ElementTree.Element) -> dict[str, str]:
    return {one.get("name", ""): one.get("value", "") for one in case.iter("property")}


def test_our_file_has_a_case_for_each_test_with_its_numbers(run: Run) -> None:
    """CI systems show what is in these files; the numbers must be those of the document."""
    root = ElementTree.fromstring(run.text("xml"))
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert len(cases) == len(run.document["tests"])
    for name, case in cases.items():
        test = run.test(str(name))
        found = properties(case)
        assert found["once_verdict"] == test["verdict"]
        assert found["once_coverage"] == test["coverage"]
        assert (found["once_states"], found["once_runs"]) == (str(test["states"]), str(test["runs"]))
        outcomes = {child.tag for child in case} - {"properties"}
        refuted = test["verdict"] in ("DUPLICATE", "OMISSION")
        assert outcomes == (set() if test["passed"] else {"failure"} if refuted else {"error"})
    suite = next(root.iter("testsuite"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("8", "4", "3")
    assert properties(cases["test_act_then_mark"])["once_schedule"].startswith("x@")


def test_pytests_own_file_has_the_same_properties_and_not_the_whole_document(lab: Lab) -> None:
    """Many projects publish only that file, and it must stay small."""
    lab.write(BAD)
    lab.explore("--junit-xml=junit.xml", "-o", "junit_family=xunit1")
    (case,) = ElementTree.parse(lab.path / "junit.xml").iter("testcase")
    found = properties(case)
    assert found["once_verdict"] == "DUPLICATE"
    assert found["once_schedule"]
    assert "once_document" not in found
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "DUPLICATE pay refund: 2 effects, 1 intended"
    assert "confirmed: replayed from nothing" in str(failure.text)


def test_what_xml_cannot_hold_is_written_in_words() -> None:
    """A program may print anything; a parser refuses a file with one control character in it."""
    text = "a \x1b[31mred\x00 <&> \ud800 \uffff Übung 😀"
    whole = document.whole([violated("test_it.py::Test::test_x[\x01]", text=text), unanswered("test_it.py::test_y")])
    root = ElementTree.fromstring(junit.rendered(whole))
    case = next(root.iter("testcase"))
    assert (case.get("classname"), case.get("name")) == ("test_it.Test", "test_x[#x01]")
    assert case.findtext("failure") == "a #x1B[31mred#x00 <&> #xD800 #xFFFF Übung 😀"
