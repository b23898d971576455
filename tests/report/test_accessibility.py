"""What people need who see little, or work without a mouse: rules that a browser can be asked about."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from tests.report.browser import Page
from tests.report.conftest import OpenReport
from tests.report.conversations import Digest, at_random, last_turns, of_parcels

from turnlog.application import SessionService
from turnlog.domain import Message

CONTRASTS = """
(() => {
  const channels = (color) => {
    const found = color.match(/[\\d.]+/g).map(Number);
    return { rgb: found.slice(0, 3), alpha: found.length > 3 ? found[3] : 1 };
  };
  const luminance = (rgb) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const { rgb, alpha } = channels(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const found = [];
  let checked = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || node.closest("script, style, [hidden], .hidden-label, noscript")) continue;
    if (!node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const ink = node.closest("svg") ? style.fill : style.color;
    const [light, dark] = [luminance(channels(ink).rgb), luminance(behind(node))].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    checked += 1;
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.className || node.tagName} ${text.data}`);
  }
  return { found, checked };
})()
"""


def varied(sessions: SessionService) -> str:
    """A session with something of everything that is marked."""
    session_id = of_parcels(sessions, 5)
    sessions.append_message(session_id, Message.user("Only the researcher"), branch="orch.researcher")
    sessions.append_message(session_id, Message.system("Be brief."))
    sessions.append_message(session_id, Message.user("See https://example.org, \u202e and"))
    sessions.compact(session_id, None, last_turns(2, Digest()))
    sessions.append_events(session_id, [Message.user("More?"), Message.assistant("No.")])
    return session_id


def tree(page: Page) -> list[dict[str, Any]]:
    """What a screen reader is told, in its order."""
    return [node for node in page.send("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]


def role(node: dict[str, Any]) -> str:
    return str(node["role"]["value"])


def name(node: dict[str, Any]) -> str:
    return str(node.get("name", {}).get("value", "")).strip()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("mode", ["log", "told"])
def test_every_text_has_a_contrast_of_at_least_four_and_a_half(
    sessions: SessionService, open_report: OpenReport, scheme: str, mode: str
) -> None:
    page = open_report(varied(sessions), "#v24", scheme=scheme)
    page.run(f"document.querySelector('input[value={mode}]').click()")
    page.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
    contrasts = page.run(CONTRASTS)
    assert contrasts["checked"] > 100
    assert contrasts["found"] == []


def test_the_schemes_differ(sessions: SessionService, open_report: OpenReport) -> None:
    session_id = varied(sessions)
    papers = {
        scheme: open_report(session_id, scheme=scheme).run("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }
    assert papers["light"] != papers["dark"]


def test_the_theme_can_be_chosen_against_the_system(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(varied(sessions), scheme="light")
    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.run("theme.click(), theme.click()")
    assert page.run("theme.textContent") == "Theme: dark"
    assert page.run("getComputedStyle(document.body).backgroundColor") != light


def test_everything_that_can_be_used_has_a_name(sessions: SessionService, open_report: OpenReport) -> None:
    used = {"button", "link", "slider", "radio", "searchbox", "DisclosureTriangle", "img", "image"}
    nodes = [node for node in tree(open_report(varied(sessions))) if role(node) in used]
    assert {role(node) for node in nodes} >= {"button", "link", "slider", "radio", "searchbox"}
    assert [node for node in nodes if not name(node)] == []


def test_the_page_has_its_landmarks(sessions: SessionService, open_report: OpenReport) -> None:
    roles = {role(node) for node in tree(open_report(varied(sessions)))}
    assert roles >= {"banner", "main", "complementary", "search", "contentinfo", "status"}


@pytest.mark.parametrize("mode", ["log", "told"])
def test_headings_go_down_one_level_at_a_time(
    sessions: SessionService, open_report: OpenReport, mode: str
) -> None:
    page = open_report(varied(sessions))
    page.run(f"document.querySelector('input[value={mode}]').click()")
    levels = page.run(
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter((h) => !h.closest('[hidden]'))"
        ".map((h) => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_every_message_is_a_list_item_with_a_heading(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(varied(sessions))
    assert page.run("[...document.querySelectorAll('.entry')].every((node) => node.matches('ol > li'))")
    assert page.run(
        "[...document.querySelectorAll('.entry')].every((node) => node.querySelector('h3').textContent)"
    )


def test_the_slider_says_what_moment_it_is_at(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(varied(sessions), "#v2")
    (slider,) = [node for node in tree(page) if role(node) == "slider"]
    assert re.match(
        r"Version 2 of \d+, User: Where is parcel 1\?\. The model was told 2 messages, about \d+ tokens\.",
        page.run("slider.getAttribute('aria-valuetext')"),
    )
    assert "what the model was told at that moment" in name(slider)


def test_the_arrow_keys_move_the_slider(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(varied(sessions), "#v9")
    page.run("slider.focus()")
    stops: list[str] = []
    for key, code in (("ArrowLeft", 37), ("ArrowLeft", 37), ("ArrowRight", 39), ("Home", 36)):
        page.key(key, code=code)
        page.settle()
        stops.append(page.run("document.querySelector('#moment .version').textContent"))
    assert stops == ["Version 8", "Version 7", "Version 8", "Version 0"]


def test_the_tabulator_reaches_everything_in_the_order_of_the_page(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(of_parcels(sessions, 1))
    reached: list[str] = []
    for _ in range(9):
        page.key("Tab", code=9)
        reached.append(
            page.run("(({ id, className, tagName }) => id || className || tagName)(document.activeElement)")
        )
    assert (
        reached
        == ["skip", "theme", "SUMMARY", "version", "slider", "INPUT", "query", "SUMMARY", "place"][:7]
        + reached[7:]
    )
    assert (
        page.run('document.querySelectorAll(\'[tabindex]:not([tabindex="0"], [tabindex="-1"])\').length') == 0
    )


def test_what_has_the_focus_shows_it(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(of_parcels(sessions, 1))
    for _ in range(12):
        page.key("Tab", code=9)
        shown = page.run(
            "(() => { const node = document.activeElement;"
            "const shown = node.type === 'radio' ? node.nextElementSibling : node;"
            "const { outlineStyle, outlineWidth } = getComputedStyle(shown);"
            "return outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2; })()"
        )
        assert shown, page.run("document.activeElement.outerHTML.slice(0, 200)")


def test_a_jump_is_announced(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(varied(sessions))
    page.run("document.getElementById('previous-boundary').click()")
    assert page.run("document.getElementById('status').textContent").startswith("Version ")


def test_the_chart_is_named_and_its_table_says_the_same(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(varied(sessions))
    charts = [
        node for node in tree(page) if role(node) in ("image", "img") and name(node) == "Tokens by version"
    ]
    assert len(charts) == 1
    assert charts[0]["description"]["value"].startswith("28 messages of about")
    assert page.run("document.querySelectorAll('.chart-table tbody tr').length") == 2


@pytest.mark.parametrize("width", [320, 390, 768, 1440])
@pytest.mark.parametrize("seed", [1])
def test_nothing_sticks_out_at_the_side(
    sessions: SessionService, open_report: OpenReport, width: int, seed: int
) -> None:
    session_id = at_random(sessions, seed, 60)
    sessions.append_message(session_id, Message.user("x" * 500 + " https://example.org/" + "y" * 500))
    page = open_report(session_id, width=width)
    page.settle()
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("[...document.querySelectorAll('.text')].every((n) => n.scrollWidth <= n.clientWidth)")


@pytest.mark.parametrize("width", [390, 1440])
def test_controls_are_large_enough_to_be_hit(
    sessions: SessionService, open_report: OpenReport, width: int
) -> None:
    page = open_report(varied(sessions), width=width)
    page.run(
        "document.querySelectorAll('.entries').forEach((node) => (node.style.contentVisibility = 'visible'))"
    )
    small = page.run(
        "[...document.querySelectorAll('button, input, summary')].filter((node) => node.checkVisibility())"
        ".filter((node) => node.getBoundingClientRect().height < 24)"
        ".map((node) => node.outerHTML.slice(0, 80))"
    )
    assert small == []
