"""report.html as a file: complete, closed to the network, and nothing in it is run that comes from a test."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from pytest_once.reporting import document, html, picture, sequence
from tests.reporting.conftest import Run
from tests.reporting.samples import chain, violated


class Page(HTMLParser):
    """Elements with their attributes, and whether every one that is opened is closed."""

    VOID = frozenset({"meta", "input", "br", "hr", "img", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_element_is_closed_and_every_name_is_given_once(run: Run) -> None:
    """Browsers guess otherwise, each in its own way; links and labels go by these names."""
    page = Page(run.text("html"))
    assert page.open == []
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    anchors = {str(attributes["href"]) for tag, attributes in page.elements if tag == "a"}
    assert {anchor[1:] for anchor in anchors} <= set(names)


def test_nothing_can_be_fetched_or_run_but_its_own(run: Run) -> None:
    """Issue 6: no network. The policy stands before anything it could not stop."""
    page = Page(run.text("html"))
    policy = next(a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+'; base-uri 'none'; form-action 'none'",
        str(policy),
    )
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == tags.count("style") == 1
    assert not {"link", "img", "iframe", "object", "embed", "image", "use"} & set(tags)
    for tag, attributes in page.elements:
        assert not {"src", "style"} & set(attributes), tag
        assert not any(name.startswith("on") for name in attributes), tag
        assert str(attributes.get("href", "#")).startswith("#"), tag


def test_what_a_test_says_is_text(run: Run) -> None:
    """A name or an output with markup in it must be read, not obeyed."""
    text = run.text("html")
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text
    evil = '"><script>alert(2)</script><b>'
    made = violated(f"test_it.py::test[{evil}]", headline=evil, problem=evil, traceback=evil, output=evil, text=evil)
    step = made["violations"][0]["story"][0]["steps"][0]
    step.update(target=evil, fault={"name": evil, "told": evil}, chosen=evil)
    made["graph"] = {**chain(3), "wrong": []}
    made["graph"]["ways"][0]["told"] = evil
    page = html.rendered(document.whole([made], unmarked=[evil], unfinished=[evil], ended="interrupted"))
    assert "<script>alert" not in page
    assert "<b>" not in re.sub(r"<b>(Interrupted\.|Usual remedy:|order=o1|\d+|\(no name\))</b>", "", page)
    assert Page(page).open == []


def test_all_that_is_known_is_on_the_page_without_a_script(run: Run) -> None:
    """The script only hides and finds; whoever has none reads everything."""
    text = re.sub(r"<script>.*?</script>", "", run.text("html"), flags=re.DOTALL)
    for test in run.document["tests"]:
        assert test["test"] in text
        for said in test["assumptions"]:
            assert said.replace("'", "&#39;") in text
        for violation in test["violations"]:
            assert violation["replay"] in text
    assert "effect number 2: order=o1 (pay refund)" in text
    assert "SIGKILL: killed before agent.db COMMIT (done)" in text
    assert "lost-response: the provider acts, the response is lost" in text
    assert text.count('class="matrix"') == sum(bool(test["matrix"]["rows"]) for test in run.document["tests"])
    assert "Bounded by max-states=1" in text


def test_a_large_graph_is_drawn_in_part_and_says_so() -> None:
    """Issue 6: a bounded view. What leads to a violation is drawn whatever else is not."""
    graph = chain(900)
    drawn = picture.drawn(graph, "g")
    assert drawn is not None
    boxes = re.findall(r'<g class="box (\w+)"', drawn.svg)
    assert len(boxes) - 1 <= picture.MOST_STATES
    assert drawn.left_out == 900 - (len(boxes) - 1)
    assert boxes.count("bad") == 1
    assert "state 899: " in drawn.svg
    made = violated("test_it.py::test_large", graph=graph, states=900)
    page = html.rendered(document.whole([made]))
    assert f"(a part of it: {drawn.left_out} of 900 states are not drawn)" in page
    assert len(page) < 1_000_000


def test_boxes_do_not_overlap_and_stand_in_the_column_of_their_crashes() -> None:
    """Otherwise it is no picture one can look at."""
    drawn = picture.drawn(chain(60), "g")
    assert drawn is not None
    places = [
        (float(x), float(y), float(width), float(height))
        for x, y, width, height in re.findall(
            r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" rx="6" class="frame"', drawn.svg
        )
    ]
    assert len(places) == 61
    for n, (x, y, width, height) in enumerate(places):
        for other_x, other_y, _, _ in places[:n]:
            assert abs(x - other_x) >= width or abs(y - other_y) >= height
    assert len({x for x, _, _, _ in places}) == 4 + 1


def test_a_long_story_is_drawn_in_part() -> None:
    """A process that loops passes hundreds of boundaries; equal ones in a row are one line, and the rest is bounded."""
    life = violated("test")["violations"][0]["story"][0]
    step = {**life["steps"][0], "fault": None, "effects": []}
    same = sequence.drawn([{**life, "steps": [step] * 300}], "s")
    assert same.count("POST /refunds  (×300)</text>") == 1
    other = [{**step, "target": f"pay POST /{n}"} for n in range(300)]
    many = sequence.drawn([{**life, "steps": other}], "s")
    assert f"… {300 - sequence.MOST_STEPS} more steps, see the text" in many
    assert many.count("marker-end") == sequence.MOST_STEPS
    assert sequence.drawn([], "s") == ""
