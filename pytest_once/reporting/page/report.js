"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const tests = all("details.test");
  const form = document.getElementById("filter");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const texts = new Map(tests.map((test) => [test, test.textContent.toLowerCase()]));

  const filter = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdicts = new Set(all("input[name=verdict]:checked").map((box) => box.value));
    let shown = 0;
    for (const test of tests) {
      const text = texts.get(test);
      const fits = verdicts.has(test.dataset.verdict) && wanted.every((word) => text.includes(word));
      test.hidden = !fits;
      const row = document.querySelector(`tr[data-test="${test.id}"]`);
      if (row) row.hidden = !fits;
      shown += fits;
    }
    found.textContent = shown === tests.length ? `${shown} tests` : `${shown} of ${tests.length} tests`;
  };

  if (tests.length) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", filter);
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(event.target.tagName)) {
        event.preventDefault();
        search.focus();
      } else if (event.key === "Escape" && event.target === search) {
        search.value = "";
        filter();
      }
    });
    filter();
  }

  const openNamed = () => {
    const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (named && named.matches("details")) {
      named.open = true;
      named.scrollIntoView();
    }
  };
  addEventListener("hashchange", openNamed);
  openNamed();

  const copied = async (button, code) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (!document.execCommand("copy")) {
        button.textContent = "Press Ctrl+C";
        return;
      }
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  for (const button of all("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copied(button, button.previousElementSibling));
  }

  for (const hint of all(".scripted")) hint.hidden = false;
  for (const figure of all("figure.explored")) {
    const caption = figure.querySelector(".caption");
    const boxes = all(".box", figure);
    let chosen = null;
    const choose = (box) => {
      if (chosen) chosen.classList.remove("chosen");
      chosen = box;
      box.classList.add("chosen");
      caption.textContent = box.dataset.caption;
    };
    caption.hidden = false;
    caption.textContent = "Nothing chosen.";
    for (const box of boxes) {
      box.addEventListener("pointerenter", () => choose(box));
      box.addEventListener("click", () => choose(box));
    }
    for (const way of all(".way", figure)) {
      way.addEventListener("pointerenter", () => { caption.textContent = way.querySelector("title").textContent; });
    }
    figure.querySelector(".graphbox").addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !boxes.length) return;
      event.preventDefault();
      const at = boxes.indexOf(chosen);
      choose(boxes[(at < 0 ? (step > 0 ? 0 : boxes.length - 1) : at + step + boxes.length) % boxes.length]);
      chosen.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }
})();
