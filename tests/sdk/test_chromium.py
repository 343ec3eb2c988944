"""What a notebook shows of a job, in a real browser: readable on white and on black, and nothing runs."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from paddlejob.sdk.html import render
from paddlejob.sdk.snapshot import RankState
from sdk.test_html import snapshot

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RUNS = "".join(
    f'<{tag} onload="{do}" onerror="{do}" src=x>{do}</{tag}>'
    for tag in ("script", "img", "svg", "iframe")
    for do in ("document.title = 'ran'",)
)
LEAST_CONTRAST = 4.0
MEASURE = """
<pre id="measured"></pre><script>
const channels = (css) => (css.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
function backdrop(node) {
  for (let each = node; each; each = each.parentElement) {
    const found = channels(getComputedStyle(each).backgroundColor);
    if (found.length < 4 || found[3] === 1) return found.slice(0, 3);
  }
  return [255, 255, 255];
}
function opacity(node) {
  return node ? Number(getComputedStyle(node).opacity) * opacity(node.parentElement) : 1;
}
const found = [];
for (const node of document.querySelectorAll("#job *")) {
  if (node.tagName === "title" || ![...node.childNodes].some((each) => each.nodeType === 3)) continue;
  const style = getComputedStyle(node);
  const colour = node.tagName === "text" ? style.fill : style.color;
  found.push({text: node.textContent, colour: channels(colour).slice(0, 3), backdrop: backdrop(node),
              opacity: opacity(node), width: node.getBoundingClientRect().width});
}
window.onload = () => {
  document.getElementById("measured").textContent = JSON.stringify({found, title: document.title});
};
</script>
"""


def luminance(colour):
    parts = [each / 255 for each in colour]
    linear = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(text):
    seen = [
        each * text["opacity"] + below * (1 - text["opacity"])
        for each, below in zip(text["colour"], text["backdrop"], strict=True)
    ]
    light, dark = sorted((luminance(seen), luminance(text["backdrop"])), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def measured(tmp_path, fragment, *, doctype, colours):
    page = tmp_path / "page.html"
    background, colour = colours
    page.write_text(
        f"{doctype}<html><head><meta charset=utf-8><title>quiet</title></head>"
        f'<body><div id="job" style="background:{background};color:{colour}">{fragment}</div>{MEASURE}'
        "</body></html>"
    )
    done = subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--dump-dom", f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout, re.DOTALL)
    return json.loads(html.unescape(found[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
@pytest.mark.parametrize("colours", [("#ffffff", "#111111"), ("#111111", "#e6e6e6")], ids=["light", "dark"])
@pytest.mark.parametrize("doctype", ["<!doctype html>", ""], ids=["standard", "quirks"])
def test_a_job_can_be_read_and_does_nothing(tmp_path, doctype, colours):
    shown = render(
        snapshot(
            name=RUNS,
            lines=["epoch 1/2 step 1/2 loss 1", f"epoch 1/2 step 2/2 loss 0.5 {RUNS}"],
            ranks=[RankState("worker-0", "Running"), RankState(RUNS, RUNS, 2)],
            phase="Running",
            message=RUNS,
        )
    )
    result = measured(tmp_path, shown, doctype=doctype, colours=colours)
    assert result["title"] == "quiet"
    texts = result["found"]
    assert {"worker-0", "Running", "restarts", "2", "50%"} <= {each["text"] for each in texts}
    assert [each for each in texts if each["width"] == 0 and each["text"].strip()] == []
    assert [each for each in texts if contrast(each) < LEAST_CONTRAST] == []
