"""HTML becomes Markdown with the source lines of each line."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.retrieval.chunks import ExtractedText
from armarium.retrieval.document_types import classify
from armarium.retrieval.extractors.document import extract_document


def extracted(page: str) -> ExtractedText:
    return extract_document(classify("a.html", b""), page.encode())


def numbered(page: str) -> list[tuple[str, int, int]]:
    result = extracted(page)
    assert result.source_lines is not None
    return [
        (line, first, last)
        for line, (first, last) in zip(result.text.split("\n"), result.source_lines, strict=True)
        if line
    ]


def test_a_page_becomes_markdown_with_the_lines_it_came_from() -> None:
    page = """<!doctype html><html><head><title>Apples &amp; pears</title><style>p { color: red }</style></head>
<body>
<h1>Main
title</h1>
<p>First <b>bold</b>ly put,
second line.<br>third</p>
<ul>
  <li>one</li>
  <li><p>two</p><ul><li>nested</li></ul></li>
</ul>
<pre>
def f():
    return 1 &lt; 2
</pre>
<table><tr><th>Name</th><th>Size</th></tr>
<tr><td>pear</td>
<td><p>3</p></td></tr></table>
tail <a href="https://example.com">link</a>
</body></html>"""
    assert numbered(page) == [
        ("# Main title", 3, 4),
        ("First boldly put,", 5, 5),
        ("second line.", 6, 6),
        ("third", 6, 6),
        ("- one", 8, 8),
        ("- two", 9, 9),
        ("  - nested", 9, 9),
        ("```", 11, 11),
        ("def f():", 12, 12),
        ("    return 1 < 2", 13, 13),
        ("```", 14, 14),
        ("Name | Size", 15, 15),
        ("pear | 3", 16, 17),
        ("tail link", 18, 18),
    ]
    result = extracted(page)
    assert (result.title, result.structure, result.is_file) == ("Apples & pears", "markdown", False)


def test_scripts_styles_comments_and_navigation_are_not_text() -> None:
    page = (
        "<nav><ul><li>Home</li></ul></nav><div role='navigation'><div>Menu</div></div>"
        "<script>let a = '<p>code</p>'</script><style>b{}</style>"
        "<!-- remark <p> --><svg><text>drawn</text></svg><template>later</template><p>Shown.</p>"
    )
    assert extracted(page).text == "Shown."


def test_a_page_that_is_nothing_but_navigation_keeps_it() -> None:
    assert extracted("<nav><a href=1>Contents</a></nav>").text == "Contents"


def test_navigation_that_never_ends_does_not_swallow_the_page() -> None:
    assert "Shown." in extracted("<nav><p>Shown.").text
    assert "Shown." in extracted("<nav><nav>Menu</nav><p>Shown.").text


def test_pictures_are_told_by_their_alternative_text() -> None:
    assert extracted('<p>See <img src=a.png alt="the  harbour"></p>').text == "See the harbour"


def test_a_reference_to_a_line_end_does_not_shift_the_lines_below() -> None:
    assert numbered("<p>a&#10;&#13;b</p>\n<p>c</p>") == [("a b", 1, 1), ("c", 2, 2)]


def test_quotes_and_angle_brackets_inside_attributes_do_not_end_a_tag() -> None:
    assert extracted('<p title="a > b">x</p><p class=odd">y</p><a href=\'1>2\'>z</a>').text == "x\n\ny\n\nz"


def test_a_page_in_another_encoding_is_read() -> None:
    assert extract_document(classify("a.html", b""), "<p>Größe</p>".encode("latin-1")).text == "Größe"


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a ",
        '<a "',
        "<a ='",
        "<!--",
        "<![",
        "<?",
        "</",
        "<nav>",
        "<ul><li>x",
        "<td>x",
        "&#1",
        "<b>x ",
        "<pre>\n",
        "x\n<i>",
    ],
)
def test_time_grows_with_size_and_not_with_its_square(piece: str) -> None:
    def seconds(size: int) -> float:
        page = (piece * (size // len(piece) + 1))[:size].encode()
        started = process_time()
        extract_document(classify("a.html", b""), page)
        return process_time() - started

    seconds(1000)
    assert seconds(200_000) < 40 * seconds(20_000) + 0.2


def test_many_names_of_elements_cost_no_more_than_one() -> None:
    page = "".join(f"<x{number} role=navigation>word</x{number}>" for number in range(20_000))
    started = process_time()
    assert extracted(page).text == "word" * 20_000
    assert process_time() - started < 5


# None of these words can contain "unseen", which marks what must not be shown.
WORDS = st.text("abcdefghijklmnop", min_size=3, max_size=8)
ATTRIBUTES = st.sampled_from(["", " class=x", ' id="a>b"'])
BREAKS = st.sampled_from([" ", "\n", "\n\n  "])


@st.composite
def pages(draw: st.DrawFn) -> tuple[str, list[tuple[str, int]]]:
    """A page, and every visible word of it with the line it stands on; words are numbered to be unique."""
    page = ""
    words: list[tuple[str, int]] = []

    def text() -> None:
        nonlocal page
        for word in draw(st.lists(WORDS, min_size=1, max_size=5)):
            unique = f"{word}{len(words)}x"
            page += draw(BREAKS)
            words.append((unique, page.count("\n") + 1))
            page += unique + draw(st.sampled_from(["", " ", "&nbsp;"]))

    def element(depth: int) -> None:
        nonlocal page
        kinds = [
            "p",
            "div",
            "h2",
            "ul",
            "table",
            "pre",
            "b",
            "a",
            "section",
            "blockquote",
            "td",
            "li",
            "br",
            "text",
            "script",
        ]
        kind = draw(st.sampled_from(kinds))
        if kind == "text" or depth > 4:
            text()
            return
        if kind == "script":
            page += "<script>unseen\n</script>"
            return
        page += f"<{kind}{draw(ATTRIBUTES)}>"
        for _ in range(draw(st.integers(0, 3))):
            element(depth + 1)
        page += f"</{kind}>" if draw(st.integers(0, 5)) else ""

    for _ in range(draw(st.integers(1, 4))):
        element(0)
    return page, words


@given(pages())
def test_every_visible_word_is_in_the_lines_its_source_lines_name(generated: tuple[str, list[tuple[str, int]]]) -> None:
    page, words = generated
    lines = numbered(page)
    for word, source_line in words:
        places = [(first, last) for line, first, last in lines if word in line]
        assert len(places) == 1, word
        assert places[0][0] <= source_line <= places[0][1]
    assert "unseen" not in extracted(page).text


@given(st.text("<>/!-?'\"= \n&#;abpdivnavtrul"))
def test_any_markup_gives_a_source_for_every_line_and_none_beyond_the_page(page: str) -> None:
    result = extracted(page)
    assert result.source_lines is not None
    assert len(result.source_lines) == len(result.text.split("\n"))
    for first, last in result.source_lines:
        assert 1 <= first <= last <= page.count("\n") + 1
