"""report.html in a real browser, from a file: what a person sees, finds, reaches by keyboard, and copies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.reporting.browser import COMMANDS, Browser, installed
from tests.reporting.conftest import Run
from tests.reporting.samples import VERDICTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    command = installed()
    if command is None:
        missing = f"none of {', '.join(COMMANDS)} is installed (Debian: apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}, and a CI system must look at the report")
        pytest.skip(missing)
    browser = Browser(command, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def page(browser: Browser, run: Run) -> Browser:
    browser.view(1280, 900)
    browser.open(run.path / "report.html")
    return browser


SHOWN = """[...document.querySelectorAll("details.test")]
  .filter(test => test.offsetHeight).map(test => test.querySelector("h2").innerText)"""


def test_it_opens_from_a_file_without_an_error_and_fetches_nothing(page: Browser, run: Run) -> None:
    """Issue 6: works without a server; no network."""
    assert page.fetched() == [(run.path / "report.html").as_uri()]
    assert page.complaints() == []
    assert page.ask("document.querySelector('.totals').innerText.replace(/\\s+/g, ' ')") == (
        "1 exhausted 4 violated 3 without an answer"
    )
    assert len(page.ask(SHOWN)) == len(VERDICTS)
    assert page.ask("document.querySelectorAll('details.test[open]').length") == len(VERDICTS) - 1


def test_the_policy_stops_what_would_leave_the_page(page: Browser) -> None:
    """The known-bad twin of the test above: a request is refused, and these tests see that it was tried."""
    tried = "fetch('https://example.invalid/x').then(() => 'sent', error => 'refused')"
    assert page.ask(tried) == "refused"
    assert any("Content Security Policy" in said for said in page.complaints())


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits_the_window_and_can_be_read(browser: Browser, run: Run, width: int, dark: bool, tmp_path: Path) -> None:
    """On a phone only drawings and tables scroll, each for itself. Text stands out from what is behind it."""
    browser.view(width, 900, dark=dark)
    browser.open(run.path / "report.html")
    assert browser.ask("document.documentElement.scrollWidth") == width
    browser.screenshot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000
    assert browser.ask(CONTRAST) >= 4.5
    assert browser.ask("document.querySelectorAll('svg.sequence').length") == 4
    assert browser.ask("[...document.querySelectorAll('svg')].every(one => one.clientHeight > 50)")


CONTRAST = """(() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(colour)) return colour;
    }
  };
  const chosen = document.querySelectorAll("p, a, td, th, li, summary, code, dt, dd, .verdict, .counts, button");
  const contrasts = [...chosen].filter((one) => one.offsetHeight).map((one) => {
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  });
  return Math.min(...contrasts);
})()"""
"""The least contrast of any text with its background, as WCAG 2 reckons it; 4.5 is asked for."""


def test_without_scripts_everything_can_be_read(browser: Browser, run: Run) -> None:
    """Issue 6: some viewers of build artefacts run none. What would do nothing then is not shown."""
    browser.view(1280, 900, scripts=False)
    browser.open(run.path / "report.html")
    browser.view(1280, 900)  # to ask is to run a script
    assert len(browser.ask(SHOWN)) == len(VERDICTS)
    assert browser.ask("document.querySelectorAll('details.test > summary').length") == len(VERDICTS)
    assert browser.ask("[...document.querySelectorAll('#filter, .copy, .caption')].every(one => !one.offsetHeight)")
    assert browser.ask("document.querySelector('svg.graph title').textContent.length") > 0


def test_tests_are_found_by_text_and_verdict(page: Browser) -> None:
    """Issue 6: filter and search, by keyboard."""
    page.press("/")
    assert page.ask("document.activeElement.id") == "search"
    page.send("Input.insertText", text="agent.db omission")
    assert page.ask(SHOWN) == ["test_it.py::test_mark_then_act"]
    assert page.ask("document.getElementById('found').innerText") == f"1 of {len(VERDICTS)} tests"
    assert page.ask("[...document.querySelectorAll('.index tbody tr')].filter(row => row.offsetHeight).length") == 1
    page.press("Escape")
    page.ask("document.querySelector('input[value=DUPLICATE]').click()")
    wanted = [name for name, verdict in VERDICTS.items() if verdict != "DUPLICATE"]
    assert page.ask(SHOWN) == sorted(f"test_it.py::{name}" for name in wanted)


def test_a_state_tells_its_schedule_by_mouse_and_by_keyboard(page: Browser, run: Run) -> None:
    """Issue 6: hover shows the schedule."""
    test = run.test("test_act_then_mark")
    state = next(one for one in test["graph"]["states"] if one["onward"] == "violation")
    figure = "[...document.querySelectorAll('details.test')].find(t => t.innerText.includes('test_act_then_mark'))"
    page.ask(f"window.figure = {figure}.querySelector('figure.explored')")
    box = f"[...figure.querySelectorAll('.box')].find(b => b.dataset.caption.startsWith('state {state['number']}:'))"
    place = page.ask(
        f"(() => {{ const box = {box}; box.scrollIntoView({{block: 'center'}}); const r = box.getBoundingClientRect(); "
        "return [r.x + r.width / 2, r.y + r.height / 2] })()"
    )
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    told = page.ask("figure.querySelector('.caption').innerText")
    assert told.startswith(f"state {state['number']}: killed before agent.db COMMIT (done); 1 effect")
    assert told.endswith(f"schedule {state['schedule']}")
    page.ask("figure.querySelector('.graphbox').focus()")
    page.press("ArrowRight")
    assert page.ask("figure.querySelector('.caption').innerText") != told


def test_a_link_opens_its_test_and_a_command_is_copied(page: Browser, run: Run) -> None:
    """A test that passes is folded; whoever follows a link wants to read it. Commands are long."""
    page.ask("document.querySelector('.index tr:has(.exhausted) a').click()")
    assert page.ask("document.querySelector('details.test.exhausted').open")
    page.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    page.ask("document.querySelector('button.copy').click()")
    assert page.ask(
        "new Promise(done => setTimeout(() => done(document.querySelector('button.copy').innerText), 50))"
    ) in ("Copied")
    assert page.ask("document.querySelector('.command code').innerText") in {
        violation["replay"] for test in run.document["tests"] for violation in test["violations"]
    }
