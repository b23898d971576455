"""The page in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.report.browser import Browser, Page
from tests.report.conftest import OpenReport
from tests.report.conversations import AUDIT, Digest, at_random, last_turns, of_parcels, record, with_calls

from turnlog.application import SessionService
from turnlog.domain import Message, Role, SessionEvent
from turnlog.domain.log import superseded_system
from turnlog.infrastructure.report import write_report

TOLD_AT_EVERY_VERSION = """
(() => {
  const slider = document.getElementById("slider");
  document.querySelector("input[name=mode][value=told]").click();
  const found = [];
  for (let version = 0; version <= Number(slider.max); version += 1) {
    slider.value = version;
    slider.dispatchEvent(new Event("change"));
    const groups = {};
    for (const section of document.querySelectorAll("#told section:not([hidden])")) {
      groups[section.classList[1]] = [...section.querySelectorAll(".entry")]
        .filter((node) => node.checkVisibility()).map((node) => node.id.slice(2));
    }
    found.push({ groups, tokens: document.getElementById("told-tokens").textContent });
  }
  return found;
})()
"""


def go(page: Page, version: int) -> None:
    page.run(f'slider.value = {version}; slider.dispatchEvent(new Event("change"))')


def kinds(page: Page) -> dict[str, str]:
    """What the page says of each message."""
    found: dict[str, str] = page.run(
        "Object.fromEntries([...document.querySelectorAll('.entry.message')]"
        ".map((node) => [node.id.slice(2), node.querySelector('.chip').textContent]))"
    )
    return found


def sent(events: tuple[SessionEvent, ...]) -> list[str]:
    superseded = superseded_system(events)
    return [event.id for event in events if event.id not in superseded]


@pytest.mark.parametrize(
    ("seed", "branch"), [(1, None), (2, None), (3, "orch.researcher"), (4, "other"), (5, None)]
)
def test_at_every_version_the_page_tells_what_the_service_says_was_told(
    sessions: SessionService, open_report: OpenReport, seed: int, branch: str | None
) -> None:
    session_id = at_random(sessions, seed, 90)
    found = open_report(session_id, branch=branch).run(TOLD_AT_EVERY_VERSION)
    assert len(found) == sessions.version(session_id) + 1
    for version, shown in enumerate(found):
        told = sessions.view(session_id, at_version=version).told_events(branch)
        assert [one for group in shown["groups"].values() for one in group] == sent(told), version


def test_the_page_counts_the_tokens_that_the_service_counts(
    sessions: SessionService, open_report: OpenReport
) -> None:
    session_id = of_parcels(sessions)
    sessions.compact(session_id, None, last_turns(2, Digest()))
    page = open_report(session_id)
    tokens = sessions.usage(session_id).tokens
    assert page.run("document.getElementById('told-tokens').textContent") == f"≈ {tokens:,} tokens"


def test_the_parts_of_a_boundary_are_told_apart(sessions: SessionService, open_report: OpenReport) -> None:
    session_id = of_parcels(sessions, 4)
    result = sessions.compact(session_id, None, last_turns(2, Digest()))
    new = sessions.append_message(session_id, Message.user("And parcel 5?"))
    found = kinds(open_report(session_id))
    boundary = result.boundary.boundary if result.boundary else None
    assert boundary is not None
    assert {found[one] for one in boundary.pinned} == {"Pinned"}
    assert {found[one] for one in boundary.summary} == {"Summary"}
    assert {found[one] for one in boundary.preserved} == {"Preserved"}
    assert {found[event.id] for event in result.covered_events} == {"Covered"}
    assert found[new.id] == "In view"


def test_what_was_not_yet_said_says_so(sessions: SessionService, open_report: OpenReport) -> None:
    session_id = of_parcels(sessions, 2)
    page = open_report(session_id, "#v3")
    said = [event.id for event in sessions.get_events(session_id) if event.version <= 3]
    assert {one for one, kind in kinds(page).items() if kind != "Not yet"} == set(said)


def test_later_instructions_replace_earlier_ones(sessions: SessionService, open_report: OpenReport) -> None:
    sessions.create("s")
    first = sessions.append_message("s", Message.system("Be long."))
    sessions.append_message("s", Message.system("Be brief."))
    assert kinds(open_report("s"))[first.id] == "Replaced"


def test_the_messages_of_another_branch_are_marked(sessions: SessionService, open_report: OpenReport) -> None:
    sessions.create("s")
    other = sessions.append_message("s", Message.user("Search"), branch="researcher")
    assert kinds(open_report("s"))[other.id] == "Other branch"
    assert kinds(open_report("s", branch="researcher"))[other.id] == "In view"


def test_a_version_inside_a_write_is_said_to_be_one(
    sessions: SessionService, open_report: OpenReport
) -> None:
    session_id = of_parcels(sessions, 4)
    result = sessions.compact(session_id, None, last_turns(2, Digest()))
    assert result.boundary is not None
    page = open_report(session_id, f"#v{result.boundary.version}")
    assert page.run("document.getElementById('inside').hidden") is False
    go(page, result.boundary.version + 2)
    assert page.run("document.getElementById('inside').hidden") is True


# --- going somewhere


def test_a_link_to_a_version_shows_that_moment(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(of_parcels(sessions), "#v7")
    assert page.run("slider.value") == "7"
    assert page.run("document.querySelector('.entry.now .place').textContent") == "v7"


@pytest.mark.parametrize("event_id", ["plain", "ä ö/#?%", "%41", "<b>", "a\u202eb"])
def test_a_link_to_an_event_goes_to_it(
    sessions: SessionService, open_report: OpenReport, event_id: str
) -> None:
    session_id = of_parcels(sessions, 40)
    sessions.append_message(session_id, Message.user("Here"), event_id=event_id)
    sessions.append_events(session_id, [Message.assistant(f"{number}") for number in range(40)])
    page = open_report(session_id, f"#e-{quote(event_id, safe='')}")
    page.settle()
    assert page.run("document.activeElement.id.slice(2)") == event_id
    top = page.run("document.activeElement.getBoundingClientRect().top")
    assert 0 < top < 900


def test_the_link_of_an_entry_leads_to_it(sessions: SessionService, open_report: OpenReport) -> None:
    sessions.create("s")
    event = sessions.append_message("s", Message.user("Here"), event_id="ä & <b>")
    page = open_report("s")
    page.run("document.querySelector('.place').click()")
    assert page.run("location.hash") == "#e-" + quote(event.id, safe="")
    assert page.run("document.activeElement.id.slice(2)") == event.id


@pytest.mark.parametrize("fragment", ["#e-nobody", "#e-%E0%A4%A", "#v99999999", "#x", "#v-1"])
def test_a_link_to_nothing_leaves_a_working_page(
    sessions: SessionService, open_report: OpenReport, fragment: str
) -> None:
    page = open_report(of_parcels(sessions), fragment)
    assert page.run("document.documentElement.hasAttribute('data-ready')")
    assert not page.events("Runtime.exceptionThrown")


def test_moving_the_slider_changes_the_address(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(of_parcels(sessions))
    go(page, 5)
    assert page.run("location.hash") == "#v5"


def test_the_buttons_go_from_boundary_to_boundary(sessions: SessionService, open_report: OpenReport) -> None:
    session_id = of_parcels(sessions, 4)
    sessions.compact(session_id, None, last_turns(2, Digest()))
    first = sessions.version(session_id)
    sessions.append_events(session_id, [Message.user("More?"), Message.user("And more?")])
    sessions.compact(session_id, None, last_turns(1))
    second = sessions.version(session_id)
    sessions.append_message(session_id, Message.assistant("No."))
    page = open_report(session_id)
    stops: list[int] = []
    for name in ("previous", "previous", "next"):
        page.run(f"document.getElementById('{name}-boundary').click()")
        stops.append(int(page.run("slider.value")))
    assert stops == [second, first, second]


def test_a_click_into_the_chart_goes_to_that_version(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(of_parcels(sessions, 5))
    box = page.run(
        "(({left, top, width, height}) => ({left, top, width, height}))(plot.getBoundingClientRect())"
    )
    x, y = box["left"] + box["width"] * 0.5, box["top"] + box["height"] / 2
    for kind in ("mousePressed", "mouseReleased"):
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert page.run("Math.abs(slider.value - slider.max / 2) <= 1")


def test_a_part_of_a_long_log_shows_its_versions_and_names_the_others(
    sessions: SessionService, browser: Browser, tmp_path: Path
) -> None:
    session_id = of_parcels(sessions, 30)
    sessions.compact(session_id, None, last_turns(2))
    written = write_report(sessions, session_id, tmp_path / "page.html", messages_of_part=50)
    page = browser.page()
    page.open(written.files[1], "#v75")
    told = page.run("document.getElementById('told-count').textContent")
    assert told == f"in {len(sessions.view(session_id, at_version=75).ids)} messages"
    go(page, 3)
    assert page.run("notice.querySelector('a').getAttribute('href')") == "page.html#v3"
    page.close()


# --- calls


def test_a_call_shows_what_it_was_told(sessions: SessionService, open_report: OpenReport) -> None:
    session_id, version = with_calls(sessions)
    page = open_report(session_id, f"#v{version}")
    told = [event.id for event in sessions.view(session_id, at_version=version).told_events()]
    sent = {told[place] for place in (0, 2, 3, 5, 6, 11)}
    found = kinds(page)
    in_view = {"Pinned", "Summary", "Preserved", "In view"}
    assert {one for one, kind in found.items() if kind in in_view} == sent
    assert {one for one, kind in found.items() if kind == "Left out"} == set(told) - sent
    assert page.run("document.getElementById('told-count').textContent") == "in 6 messages"


def test_a_call_shows_what_was_sent_and_not_stored(sessions: SessionService, open_report: OpenReport) -> None:
    session_id, version = with_calls(sessions)
    shown = open_report(session_id, f"#v{version}").run("document.getElementById('call').textContent")
    for text in (
        "some-model",
        "Answer in Swedish.",
        "Never stored",
        "Sent in another form, in place of v6[shortened]",
        '"max_output_tokens": 99',
        "1,234 tokens in, 5 tokens out, 810 ms, ended by stop",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"patch": ["v", "a body"], "form": "compact"}, "The application made this request itself"),
        (
            {"told": ["0"], "picked": True, "filter": {"last_n": 1}, "view": 1},
            "A filter left some of the view out",
        ),
        ({"told": ["0"], "picked": True, "filter": {"last_n": 1}}, None),
        ({"told": ["0"]}, None),
    ],
)
def test_a_call_of_which_the_page_does_not_know_what_it_held_says_so(
    sessions: SessionService, open_report: OpenReport, payload: dict[str, Any], said: str | None
) -> None:
    session_id = of_parcels(sessions, 1)
    prompt = {"call": "c", "attempt": 1, "view": sessions.version(session_id), "model": "m", **payload}
    version = record(sessions, session_id, "PROMPT_RENDERED", "c", prompt)
    shown = open_report(session_id, f"#v{version}").run(
        "document.querySelector('.inexact')?.textContent ?? null"
    )
    assert shown is None if said is None else shown.startswith(said)


def test_the_call_of_another_branch_is_no_stop(sessions: SessionService, open_report: OpenReport) -> None:
    session_id = of_parcels(sessions, 1)
    prompt = {"call": "c", "attempt": 1, "view": sessions.version(session_id), "told": ["0"]}
    record(sessions, session_id, "PROMPT_RENDERED", "c", prompt, branch="researcher")
    assert open_report(session_id).run("document.getElementById('next-call').hidden") is True
    assert (
        open_report(session_id, branch="researcher").run("document.getElementById('next-call').hidden")
        is False
    )


def test_the_buttons_go_from_call_to_call(sessions: SessionService, open_report: OpenReport) -> None:
    session_id, version = with_calls(sessions)
    page = open_report(session_id)
    assert page.run("document.getElementById('previous-call').hidden") is False
    page.run("document.getElementById('previous-call').click()")
    assert page.run("slider.value") == str(version)
    assert page.run("document.querySelectorAll('.call-tick').length") == 1


def test_without_calls_there_are_no_buttons_for_them(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(of_parcels(sessions, 1))
    assert page.run("document.getElementById('next-call').hidden") is True


# --- reading


def test_calls_are_folded_and_open_to_their_arguments(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(of_parcels(sessions, 1))
    assert page.run("[...document.querySelectorAll('.fold')].every((fold) => !fold.open)")
    assert page.run("document.querySelector('.fold.call .text').textContent") == '{\n  "parcel": 1\n}'


def test_a_result_links_the_call_that_it_answers(sessions: SessionService, open_report: OpenReport) -> None:
    session_id = of_parcels(sessions, 1)
    call = next(event for event in sessions.get_events(session_id) if event.tool_calls)
    href = open_report(session_id).run("document.querySelector('.fold.result a').getAttribute('href')")
    assert href == f"#e-{call.id}"


def test_search_finds_words_whatever_their_case_also_in_folded_calls(
    sessions: SessionService, open_report: OpenReport
) -> None:
    session_id = of_parcels(sessions, 12)
    page = open_report(session_id)
    page.run("query.focus()")
    page.send("Input.insertText", text='"PARCEL": 7')
    page.key("Enter", code=13, text="\r")
    assert page.run("hits.textContent") == "1 of 1"
    assert page.run("document.querySelector('.fold.call[open]').textContent.includes('\"parcel\": 7')")
    assert page.run("CSS.highlights.get('found-now').size") >= 1


def test_search_goes_through_the_hits_both_ways(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(of_parcels(sessions, 3))
    page.run("query.focus()")
    page.send("Input.insertText", text="is in lund")
    told: list[str] = []
    for shift in (False, False, True):
        page.key("Enter", code=13, shift=shift, text="\r")
        told.append(page.run("hits.textContent"))
    assert told == ["1 of 3", "2 of 3", "1 of 3"]


@pytest.mark.parametrize("text", [".*", "(", "[a-z]+", "\\d", "a|b"])
def test_search_takes_its_text_as_it_stands(
    sessions: SessionService, open_report: OpenReport, text: str
) -> None:
    session_id = of_parcels(sessions, 1)
    sessions.append_message(session_id, Message.user(f"literally {text} here"))
    page = open_report(session_id)
    page.run("query.focus()")
    page.send("Input.insertText", text=text)
    page.key("Enter", code=13, text="\r")
    assert page.run("hits.textContent") == "1 of 1"


def test_only_addresses_of_the_web_become_links(sessions: SessionService, open_report: OpenReport) -> None:
    sessions.create("s")
    said = (
        "See https://example.org/a?b=1&c=(2), (http://example.com/x_(y)). javascript:alert(1) "
        "data:text/html,x file:///etc/passwd https://exa\u202emple.org HTTPS://EXAMPLE.ORG/q!"
    )
    sessions.append_message("s", Message.user(said))
    page = open_report("s")
    assert page.run("[...document.querySelectorAll('.text a')].map((node) => node.getAttribute('href'))") == [
        "https://example.org/a?b=1&c=(2)",
        "http://example.com/x_(y)",
        "https://exa",
        "HTTPS://EXAMPLE.ORG/q",
    ]
    assert page.run(
        "[...document.querySelectorAll('.text a')].every((node) => node.rel.includes('noopener'))"
    )


def test_what_hides_or_steers_is_a_visible_mark(sessions: SessionService, open_report: OpenReport) -> None:
    sessions.create("s")
    sessions.append_message(
        "s", Message.user("a\0b\x1bc\u202ed\u2066e\u200bf\ufeffg\ud800h\x85i\U000e0041j\r\nk")
    )
    text = open_report("s").run("document.querySelector('.text').textContent")
    assert text == "aNULbESCcU+202EdU+2066eU+200BfU+FEFFgU+D800hU+0085iU+E0041j\nk"


def test_each_text_takes_its_direction_from_itself(sessions: SessionService, open_report: OpenReport) -> None:
    sessions.create("s")
    sessions.append_events("s", [Message.user("איפה החבילה?"), Message.assistant("In Lund.")])
    page = open_report("s")
    found = page.run(
        "[...document.querySelectorAll('.text')].map((node) => getComputedStyle(node).direction)"
    )
    assert found == ["rtl", "ltr"]


# --- hostile texts

HOSTILE = (
    "</script><script>window.hit = 1</script>",
    "<!--<script>",
    "<img src=x onerror='window.hit = 1'><svg onload='window.hit = 1'>",
    "<iframe srcdoc='<script>parent.hit = 1</script>'>",
    "]]><style>@import 'https://evil.example/x.css'</style>",
    "{{ 7 * 7 }} {% raw %} ${window.hit = 1}",
    "javascript:window.hit=1",
    "a\u2028b\u2029c",
    "\0\x01\x1b[31m",
    "\ud800 \udc00 \udc00\ud800",
    "\u202eevil\u202c \u2067x",
    "https://evil.example/<img src=x>",
    "__proto__",
    "constructor",
)


def hostile_session(sessions: SessionService) -> str:
    """The texts in every place that takes them."""
    id_of = [text for text in HOSTILE if "\0" not in text and "\ud800" not in text]
    session_id = id_of[0]
    sessions.create(
        session_id, metadata={"title": HOSTILE[0] + HOSTILE[8] + HOSTILE[9], "user.name": HOSTILE[2]}
    )
    for number, text in enumerate(HOSTILE):
        event_id = f"{number}{text}" if text in id_of else None
        context = {"actor": text}
        parts: list[dict[str, Any]] = [
            {"type": "text", "content": text},
            {"type": "reasoning", "content": text},
            {"type": "tool_call", "id": text, "name": text, "arguments": json.dumps({text: text})},
            {"type": "uri", "modality": text, "uri": text, "mime_type": text},
            {"type": "uri", "modality": "image", "uri": f"data:image/png;base64,{text}"},
            {"type": "blob", "modality": "image", "mime_type": text, "content": text},
            {"type": "file", "modality": text, "file_id": text},
            {"type": text, "name": text},
        ]
        sessions.append_message(
            session_id, Message.assistant(parts, metadata={text: text}), event_id=event_id, context=context
        )
        sessions.append_message(session_id, Message.tool(text, id=text, name=text))
        sessions.append_message(session_id, Message.user(text))
        sessions.append_event(session_id, AUDIT, {text: text})
        sessions.append_message(
            session_id, Message.user(text), branch=text if text in id_of and "." not in text else "b"
        )
    sessions.compact(session_id, None, HostilyNamed())
    return session_id


class HostilyNamed:
    """A strategy whose name is hostile."""

    def __str__(self) -> str:
        return HOSTILE[2] + HOSTILE[0] + HOSTILE[10]

    def compact(self, request: Any) -> Any:
        return last_turns(3).compact(request)


def test_hostile_texts_run_nothing_load_nothing_and_break_no_rule(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(hostile_session(sessions))
    page.run(TOLD_AT_EVERY_VERSION)
    page.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
    page.settle()
    assert page.run("typeof window.hit") == "undefined"
    assert not page.events("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
    assert not page.events("Audits.issueAdded", "Runtime.consoleAPICalled")
    requests = [event["params"]["request"]["url"] for event in page.events("Network.requestWillBeSent")]
    assert [url for url in requests if not url.startswith("file:///")] == []
    assert len(requests) == 1


def test_hostile_texts_are_shown_in_full(sessions: SessionService, open_report: OpenReport) -> None:
    page = open_report(hostile_session(sessions))
    shown = page.run(
        "[...document.querySelectorAll('.entry.user')].map((node) => node.querySelector('.text').textContent)"
    )
    for text in HOSTILE[:7]:
        assert text in shown


def test_hostile_texts_add_no_elements_but_those_of_the_page(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(hostile_session(sessions))
    assert page.run("document.scripts.length") == 2
    assert (
        page.run("document.querySelectorAll('style, link, iframe, object, base, form:not(#search)').length")
        == 1
    )
    assert page.run("document.querySelectorAll('main svg, main img').length") == 0
    assert page.run(
        "[...document.querySelectorAll('main a')].every((a) => /^(#|https?:)/i.test(a.getAttribute('href')))"
    )


def test_a_picture_in_the_message_is_drawn(sessions: SessionService, open_report: OpenReport) -> None:
    sessions.create("s")
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    blob = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": dot}
    sessions.append_message("s", Message.user([blob]))
    page = open_report("s")
    assert (
        page.run(
            "(async (image) => { await image.decode(); return image.naturalWidth })"
            "(document.querySelector('main img'))"
        )
        == 1
    )
    assert not page.events("Log.entryAdded")


# --- print


def test_the_printed_form_opens_what_is_folded_and_leaves_the_controls_out(
    sessions: SessionService, open_report: OpenReport
) -> None:
    page = open_report(of_parcels(sessions, 2))
    page.send("Emulation.setEmulatedMedia", media="print")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("[...document.querySelectorAll('main details')].every((fold) => fold.open)")
    assert page.run("getComputedStyle(bar).display") == "none"
    assert page.run("getComputedStyle(document.querySelector('.entries')).contentVisibility") == "visible"
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("[...document.querySelectorAll('main details')].every((fold) => !fold.open)")


def test_the_page_prints(sessions: SessionService, open_report: OpenReport) -> None:
    few, many = (
        open_report(of_parcels(sessions, turns, f"of {turns}")).pdf().count(b"/Type /Page\n")
        for turns in (1, 20)
    )
    assert 1 <= few < many


def test_a_call_that_a_filter_picked_for_shows_what_it_picked(
    sessions: SessionService, open_report: OpenReport
) -> None:
    session_id = of_parcels(sessions, 3)
    told = sessions.view(session_id).told()
    of_the_user = [place for place, message in enumerate(told) if message.role is Role.USER]
    picked = {"picked": True, "filter": {"roles": ["user"]}, "told": [f"0-{len(of_the_user) - 1}"]}
    prompt = {"call": "c", "attempt": 1, "view": sessions.version(session_id), "model": "m", **picked}
    version = record(sessions, session_id, "PROMPT_RENDERED", "c", prompt)

    page = open_report(session_id, f"#v{version}")

    assert page.run("document.querySelector('.inexact')?.textContent ?? null") is None
    data = json.loads(page.run("document.querySelector('script[type=\"application/json\"]').textContent"))
    (call,) = [entry["call"] for entry in data["entries"] if entry["v"] == version]
    assert call["told"] == [[place, place] for place in of_the_user]


def test_a_redacted_message_shows_who_did_it_and_why_and_nothing_of_it(
    sessions: SessionService, open_report: OpenReport
) -> None:
    session_id = of_parcels(sessions, 1)
    secret = sessions.append_message(session_id, Message.user("My number is 4711."))
    sessions.redact(session_id, secret.id, reason="asked to", by="ada")

    page = open_report(session_id)

    shown = page.run(f"document.getElementById('e-' + {json.dumps(secret.id)}).textContent")
    assert ("asked to" in shown, "ada" in shown) == (True, True)
    assert "4711" not in page.run("document.documentElement.outerHTML")
