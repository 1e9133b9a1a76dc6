"""Extracts HTML as Markdown, with the source lines of each line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from armarium.retrieval.chunks import ExtractedText
from armarium.retrieval.encodings import decode
from armarium.retrieval.extractors.html_tokens import Token, attribute, resolved, tokens

_DROPPED = frozenset({"script", "style", "template", "svg", "noscript", "iframe", "object", "noembed", "noframes"})
_RAW = frozenset({"script", "style"})
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "dir",
        "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "head", "header", "hgroup", "hr",
        "html", "legend", "main", "menu", "ol", "option", "p", "section", "select", "summary", "table", "tbody",
        "tfoot", "thead", "ul",
    }
)  # fmt: skip
_CLOSE_TOGETHER = frozenset(
    {"dd", "dt", "option", "legend", "body", "head", "html", "tbody", "thead", "tfoot", "figcaption"}
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LISTS = frozenset({"ul", "ol", "menu", "dir"})
_MAX_LIST_DEPTH = 8
_CELLS = frozenset({"td", "th"})
_SPACES = re.compile(r"[ \t\n\r\f\v\u00a0]+")


@dataclass(slots=True)
class RenderedPage:
    """The Markdown lines, with the lines of the page that each comes from."""

    lines: list[str] = field(default_factory=list[str])
    source_lines: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    title: str | None = None


def extract_html(data: bytes) -> ExtractedText:
    """The visible text of the page, without navigation, scripts and styles."""
    page = render(decode(data))
    return ExtractedText(
        "\n".join(page.lines), structure="markdown", title=page.title, source_lines=page.source_lines or [(1, 1)]
    )


def render(page: str) -> RenderedPage:
    """The Markdown of a page. Navigation is dropped, unless the page contains nothing else."""
    rendered = _Renderer(page, _DROPPED | {"nav"}).render()
    return rendered if rendered.lines else _Renderer(page, _DROPPED).render()


class _Renderer:
    def __init__(self, page: str, dropped: frozenset[str]) -> None:
        self._page = page
        self._dropped = dropped
        self._out = RenderedPage()
        self._words: list[str] = []
        """The pieces of the current line."""
        self._has_text = False
        self._first = self._last = 1
        """The lines of the page that the current line comes from."""
        self._prefix = ""
        self._lists: list[str] = []
        self._keeps_breaks = True
        self._row_cells = -1
        """The number of cells in the current table row; -1 outside of rows."""
        self._gap = False
        self._preformatted = self._fence_opened = False
        self._last_closing: dict[str, int] = {}

    def render(self) -> RenderedPage:
        line, counted_to = 1, 0
        dropping, depth, in_title = "", 0, False
        for token in tokens(self._page):
            line += self._page.count("\n", counted_to, token.start)
            counted_to = token.start
            if dropping:
                if token.tag == dropping:
                    depth += -1 if token.closing else 1
                    # Without this, an element that is opened more often than closed would drop the rest of the page.
                    if depth == 0 or token.start == self._last_closing.get(dropping):
                        dropping = ""
            elif not token.tag:
                if in_title:
                    self._out.title = self._out.title or " ".join(resolved(token.content).split()) or None
                else:
                    self._text(token.content, line)
            elif self._is_dropped(token):
                dropping, depth = token.tag, 1
            elif token.tag == "title":
                in_title = not token.closing
            else:
                self._tag(token, line)
        self._end_line()
        return self._out

    def _is_dropped(self, token: Token) -> bool:
        if token.closing:
            return False
        if token.tag in _RAW:
            return True
        return (token.tag in self._dropped or self._is_navigation(token)) and self._closes_later(token)

    def _is_navigation(self, token: Token) -> bool:
        # Known elements only, because the page is searched once for each name.
        may_be = "nav" in self._dropped and token.tag in _BLOCKS and "navigation" in token.content
        return may_be and attribute(token.content, "role") == "navigation"

    def _closes_later(self, token: Token) -> bool:
        """Whether an element has a closing tag. Without one, the rest of the page is not its content."""
        if token.tag not in self._last_closing:
            closings = re.finditer(rf"</{re.escape(token.tag)}(?=[\s/>])", self._page, re.IGNORECASE)
            self._last_closing[token.tag] = max((found.start() for found in closings), default=-1)
        return self._last_closing[token.tag] > token.start and not token.content.endswith("/")

    def _tag(self, token: Token, line: int) -> None:
        tag = token.tag
        if tag in _HEADINGS:
            self._end_block()
            self._prefix = "" if token.closing else _HEADINGS[tag]
            self._keeps_breaks = token.closing
        elif tag == "pre":
            self._pre(token.closing, line)
        elif tag == "br":
            self._line_break()
        elif tag == "img":
            if alt := attribute(token.content, "alt"):
                self._text(" ".join(alt.split()), line)
        elif tag == "li":
            self._item(token.closing)
        elif tag == "tr":
            self._end_line()
            self._row_cells = -1 if token.closing else 0
            self._keeps_breaks = token.closing
        elif tag in _CELLS:
            if not token.closing and self._row_cells >= 0:
                self._words += [" | "] if self._row_cells else []
                self._row_cells += 1
        elif tag in _BLOCKS and self._row_cells < 0:
            self._block(tag, token.closing)
        elif tag in _BLOCKS:
            self._words.append(" ")
            if tag == "table" and token.closing:
                self._block(tag, True)

    def _block(self, tag: str, closing: bool) -> None:
        if tag in _LISTS:
            if not closing:
                self._lists.append(tag)
            elif self._lists:
                self._lists.pop()
        self._keeps_breaks = self._keeps_breaks or not self._prefix
        if tag == "table":
            self._row_cells, self._keeps_breaks = -1, True
        nested = bool(self._lists) and (tag in _LISTS or bool(self._prefix))
        if tag in _CLOSE_TOGETHER or nested:
            self._end_line()
        else:
            self._end_block()

    def _item(self, closing: bool) -> None:
        self._end_line()
        depth = min(max(len(self._lists), 1), _MAX_LIST_DEPTH)
        self._prefix = "" if closing else "  " * (depth - 1) + "- "
        self._keeps_breaks = closing

    def _pre(self, closing: bool, line: int) -> None:
        if closing != self._preformatted:
            return
        self._end_block()
        self._preformatted = self._fence_opened = not closing
        self._gap = self._gap and not closing
        self._write("```", line, line)
        self._first = self._last = line
        self._gap = closing

    def _line_break(self) -> None:
        if self._row_cells >= 0 or not self._keeps_breaks:
            self._words.append(" ")
        else:
            self._end_line()

    def _text(self, text: str, line: int) -> None:
        # Split before references are resolved: a reference to a line feed does not end a line of the page.
        for number, piece in enumerate(text.split("\n"), start=line):
            if number > line:
                self._page_line_ends()
            if piece and not (piece.isspace() and not self._preformatted):
                if not self._has_text:
                    self._first = number
                self._has_text = True
                self._last = number
            self._words.append(resolved(piece))

    def _page_line_ends(self) -> None:
        if self._preformatted:
            if not self._has_text:
                self._first = self._last = self._last + 1
            self._write_preformatted()
        else:
            self._line_break()

    def _end_block(self) -> None:
        self._end_line()
        self._gap = True

    def _end_line(self) -> None:
        if self._preformatted:
            if self._has_text:
                self._write_preformatted()
            return
        text = _SPACES.sub(" ", "".join(self._words)).strip()
        self._words.clear()
        if self._has_text and text.strip(" |"):
            self._write(self._prefix + text, self._first, self._last)
            self._prefix = ""
        self._has_text = False

    def _write_preformatted(self) -> None:
        text = "".join(self._words).replace("\n", " ").replace("\r", " ")
        self._words.clear()
        if text or not self._fence_opened:  # the line break after <pre> is not part of the text
            self._write(text, self._first, self._last)
        self._has_text = self._fence_opened = False

    def _write(self, text: str, first: int, last: int) -> None:
        if self._gap and self._out.lines:
            self._out.lines.append("")
            self._out.source_lines.append((first, first))
        self._gap = False
        self._out.lines.append(text)
        self._out.source_lines.append((first, last))
