from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.conversations import of_parcels

from turnlog.application import SessionService
from turnlog.domain import Message, SessionNotFoundError
from turnlog.domain.errors import InvalidIdError
from turnlog.infrastructure.report import ReportExistsError, ReportExtraMissingError, write_report
from turnlog.infrastructure.report.writing import json_for_html

HOSTILE = "</script><!--<img src=x onerror=alert(1)>&amp;\u2028\0\ud800"


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in ("script", "style"):
            self.texts.setdefault(self._inside, []).append(data)
            self._inside = ""


@pytest.fixture
def page(sessions: SessionService, tmp_path: Path) -> str:
    sessions.create("s", metadata={"title": HOSTILE, "user.name": HOSTILE})
    sessions.append_message("s", Message.user(HOSTILE), event_id="<script>&")
    (file,) = write_report(sessions, "s", tmp_path / "page.html").files
    return file.read_text("utf-8")


def test_a_value_as_json_is_ascii_in_which_nothing_begins_or_ends_an_element() -> None:
    text = json_for_html({"<!--": HOSTILE, "ü": "\u2029"})
    assert text.isascii()
    assert not re.search(r"[<>&]", text)
    assert json.loads(text) == {"<!--": HOSTILE, "ü": "\u2029"}


def test_the_policy_allows_our_script_and_our_style_and_no_other(page: str) -> None:
    found = Elements(page)
    (policy,) = [
        attributes["content"] or ""
        for _, attributes in found.found
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    _, script = found.texts["script"]
    (style,) = found.texts["style"]
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (script, style)]
    assert unescape(policy).split("; ")[:4] == [
        "default-src 'none'",
        f"script-src 'sha256-{hashes[0]}'",
        f"style-src 'sha256-{hashes[1]}'",
        "img-src data:",
    ]


def test_the_policy_stands_in_front_of_everything_that_it_governs(page: str) -> None:
    tags = [tag for tag, _ in Elements(page).found]
    assert tags[:4] == ["html", "head", "meta", "meta"]


def test_the_page_names_no_other_file_and_has_no_handlers_or_styles_of_its_own(page: str) -> None:
    for tag, attributes in Elements(page).found:
        assert not attributes.keys() & {"src", "srcset", "style", "action", "data", "integrity"}
        assert not any(name.startswith("on") for name in attributes)
        assert tag not in ("iframe", "object", "embed", "base", "link")
        if "href" in attributes:
            assert (attributes["href"] or "").startswith("#")


def test_texts_of_the_session_make_no_elements(page: str, sessions: SessionService, tmp_path: Path) -> None:
    sessions.create("plain", metadata={"title": "t", "user.name": "n"})
    sessions.append_message("plain", Message.user("hi"), event_id="i")
    (other,) = write_report(sessions, "plain", tmp_path / "plain.html").files
    tags, others = ([tag for tag, _ in Elements(text).found] for text in (page, other.read_text("utf-8")))
    assert tags == others


def test_nothing_in_the_script_makes_nodes_of_text() -> None:
    pieces = list((Path(write_report.__code__.co_filename).parent / "script").glob("*.js"))
    assert len(pieces) == 10
    script = "".join(piece.read_text("utf-8") for piece in pieces)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|createContextualFragment"
        r"|DOMParser|fetch\(|XMLHttpRequest|import\(|setTimeout\(['\"`]",
        script,
    )


def test_a_file_that_exists_is_kept(sessions: SessionService, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("mine", "utf-8")
    with pytest.raises(ReportExistsError, match="--force"):
        write_report(sessions, of_parcels(sessions), file)
    assert file.read_text("utf-8") == "mine"


def test_a_file_that_exists_is_replaced_when_that_is_asked_for(
    sessions: SessionService, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text("mine", "utf-8")
    write_report(sessions, of_parcels(sessions), file, replace=True)
    assert file.read_text("utf-8").startswith("<!doctype html>")


def test_a_session_that_does_not_exist_writes_nothing(sessions: SessionService, tmp_path: Path) -> None:
    with pytest.raises(SessionNotFoundError):
        write_report(sessions, "nobody", tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_malformed_branch_writes_nothing(sessions: SessionService, tmp_path: Path) -> None:
    with pytest.raises(InvalidIdError):
        write_report(sessions, of_parcels(sessions), tmp_path / "page.html", branch="a..b")
    assert not list(tmp_path.iterdir())


def title_of(sessions: SessionService, session_id: str, folder: Path) -> str:
    (file,) = write_report(sessions, session_id, folder / "titled.html").files
    found = re.search("<title>(.*) · turnlog</title>", file.read_text("utf-8"))
    return unescape(found[1]) if found else ""


def test_the_page_has_the_title_of_the_session(sessions: SessionService, tmp_path: Path) -> None:
    assert title_of(sessions, of_parcels(sessions), tmp_path) == "Parcels"


def test_without_a_title_the_page_is_named_after_the_first_turn(
    sessions: SessionService, tmp_path: Path
) -> None:
    sessions.create("s")
    sessions.append_events("s", [Message.assistant("Hi!"), Message.user("Where\n is it? " + "x" * 99)])
    assert title_of(sessions, "s", tmp_path) == "Where is it? " + "x" * 67 + "…"


def test_without_a_turn_the_page_is_named_after_the_session(sessions: SessionService, tmp_path: Path) -> None:
    sessions.create("s")
    assert title_of(sessions, "s", tmp_path) == "s"


def test_an_empty_session_is_a_page_too(sessions: SessionService, tmp_path: Path) -> None:
    sessions.create("empty")
    written = write_report(sessions, "empty", tmp_path / "page.html")
    assert (written.messages, written.version) == (0, 0)
    assert "Nothing has been said yet." in written.files[0].read_text("utf-8")


def test_a_page_that_fails_leaves_no_file(sessions: SessionService, tmp_path: Path) -> None:
    session_id = of_parcels(sessions, 30)
    (tmp_path / "page-2.html").mkdir()
    with pytest.raises(OSError):
        write_report(sessions, session_id, tmp_path / "page.html", replace=True, messages_of_part=50)
    assert [path.name for path in tmp_path.iterdir()] == ["page-2.html"]


def test_a_long_log_becomes_a_page_per_part_and_each_links_all(
    sessions: SessionService, tmp_path: Path
) -> None:
    session_id = of_parcels(sessions, 30)
    written = write_report(sessions, session_id, tmp_path / "a page.html", messages_of_part=50)
    assert [file.name for file in written.files] == ["a page.html", "a page-2.html", "a page-3.html"]
    for file in written.files:
        links = [
            attributes["href"]
            for tag, attributes in Elements(file.read_text("utf-8")).found
            if tag == "a" and "skip" not in (attributes.get("class") or "")
        ]
        assert links == ["a%20page.html", "a%20page-2.html", "a%20page-3.html"]


def test_without_the_extra_the_error_says_what_to_install(
    sessions: SessionService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ReportExtraMissingError, match=r"pip install 'turnlog\[report\]'"):
        write_report(sessions, of_parcels(sessions), tmp_path / "page.html")
