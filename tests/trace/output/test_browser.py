"""The page in a browser, where one is installed: the keyboard works, nothing is refused, nothing is
asked of another host."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from agentkv.trace.output import page

from . import sample

BROWSER = next(
    (b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), ""
)

_DRIVER = """
(() => {
  const seen = {errors: [], steps: {}};
  addEventListener("securitypolicyviolation", (e) => seen.errors.push(e.violatedDirective));
  const step = (name, run) => { try { seen.steps[name] = run(); } catch (e) { seen.errors.push(name + ": " + e); } };
  const key = (el, name) => el.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true, cancelable: true}));
  const $ = (id) => document.getElementById(id);
  step("slider", () => {
    const plot = document.querySelector(".plots");
    plot.focus();
    key(plot, "Home"); key(plot, "ArrowRight");
    return [document.activeElement === plot, plot.getAttribute("role"), plot.getAttribute("aria-valuenow"),
            plot.getAttribute("aria-valuetext"), $("readout").textContent, document.querySelectorAll(".hair:not([hidden])").length];
  });
  const blocks = [...$("icicle").children];
  const label = () => document.activeElement.getAttribute("aria-label");
  step("tree", () => {
    blocks[0].focus();
    const names = [label()];
    for (const name of ["ArrowRight", "ArrowDown", "ArrowLeft"]) { key(document.activeElement, name); names.push(label()); }
    return names;
  });
  step("zoom", () => {
    blocks[1].focus();
    key(blocks[1], "Enter");
    const large = [blocks[1].getAttribute("x"), blocks[1].getAttribute("height"), blocks[0].style.display];
    key(document.activeElement, "Escape");
    return [...large, blocks[0].getAttribute("x"), blocks[0].style.display, $("tree-readout").textContent];
  });
  step("sort", () => {
    const table = $("session-table");
    const button = table.querySelectorAll("th button")[4];
    button.click();
    return [table.tBodies[0].rows[0].cells[4].textContent, button.closest("th").getAttribute("aria-sort")];
  });
  step("cause", () => {
    const row = $("cause-2").nextElementSibling.querySelector("details");
    const before = row.open;
    location.hash = "#cause-2";
    dispatchEvent(new HashChangeEvent("hashchange"));
    return [before, row.open];
  });
  step("print", () => {
    dispatchEvent(new Event("beforeprint"));
    const open = document.querySelectorAll(".more details:not([open])").length;
    dispatchEvent(new Event("afterprint"));
    return [open, document.querySelectorAll(".more details:not([open])").length];
  });
  step("wide", () => document.documentElement.scrollWidth <= innerWidth);
  step("asked", () => performance.getEntriesByType("resource").map((e) => e.name));
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify(seen);
  document.body.append(out);
})();
"""


@pytest.mark.skipif(not BROWSER, reason="no browser is installed")
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_works_with_a_keyboard(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = page._resource

    def driven(name: str) -> str:
        return whole(name) + (_DRIVER if name == "page.js" else "")

    monkeypatch.setattr(page, "_resource", driven)
    file = tmp_path / "page.html"
    file.write_text(page.write(sample.report()), encoding="utf-8")
    seen = run(file, width, tmp_path)
    assert seen["errors"] == []
    steps = seen["steps"]
    focused, role, now, said, readout, hairs = steps["slider"]
    assert focused and role == "slider" and now == "2" and hairs == 3
    assert "requests 3–5" in said and "reused" in said and readout.startswith("requests 3–5")
    first, child, sibling, parent = steps["tree"]
    assert first.startswith("tools, system You help customers: 1,280 tokens, 130 requests")
    assert child.startswith("messages[0] Where is my order 0?")
    assert sibling.startswith("messages[0] Where is my order 1?")
    assert parent == first
    x, height, hidden, back, shown, readout = steps["zoom"]
    assert (x, height, hidden) == ("0.000%", "100.000%", "none")
    assert (back, shown) == ("0.000%", "")
    assert "level" in readout
    assert steps["sort"] == ["23,100", "ascending"]
    assert steps["cause"] == [False, True]
    assert steps["print"][0] == 0 and steps["print"][1] > 0
    assert steps["wide"], "the page scrolls sideways"
    assert steps["asked"] == []


def run(file: Path, width: int, folder: Path) -> Any:
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},900",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    return json.loads(unescape(found[1]))
