"""The demo's page in a real browser, with made-up answers; needs playwright and a Chromium."""

import contextlib
import re
import shutil
import urllib.parse

import numpy as np
import pytest

from tests.export.demo_stand_in import FAILING, HEADS, LAYERS, MORE, StandIn, serving

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("playwright.sync_api", programs=BROWSERS),
]

EVIL = "<img src=x onerror=alert(1)> & <script>alert(2)</script>"
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
# Markup, an emoji of five code points, an accent of its own, and a word wider than a phone.
TEXT = (
    f"{EVIL} {FAMILY} e\u0301\n Ada Lovelace [MASK] Paris\U0001f600 {'Donaudampfschifffahrt' * 5}"
)
MARKED = TEXT.replace("Lovelace", "LovelacePER").replace("Paris", "Paris<i>LOC</i>")
# What elements show of the answer to TEXT.
SHOWN = {
    "classifier": {".name": ["✓ <b>wild</b>", "calm"], ".value": ["75.0 %", "25.0 %"]},
    "multi_label": {".name": ["✓ <b>wild</b>", "✓ calm", "old"]},
    "zero_shot": {
        ".name": [
            *(f"✓ {TEXT.splitlines()[1]}", TEXT.splitlines()[0]),
            *(f"✓ {TEXT.splitlines()[1]}", TEXT.splitlines()[0]),
        ],
        ".value": ["66.7 %", "33.3 %", "75.0 %", "25.0 %"],
    },
    "regression": {".number": ["2.500"]},
    "tagger": {
        ".text": [MARKED],
        "mark": ["Ada LovelacePER", "Paris<i>LOC</i>"],
        ".legend li": ["PER: 1", "<i>LOC</i>: 1"],
        "tbody td": ["Ada Lovelace", "PER", "87.5 %", "Paris", "<i>LOC</i>", "87.5 %"],
    },
    "question_answering": {
        ".text": [TEXT],
        ".number": ["Paris"],
        "mark": ["Paris"],
        ".note": ["Score 3.50; odds of no answer -1.25."],
    },
    "fill_mask": {
        "h3": ["Mask 1"],
        ".name": ["river", "##s", " sea"],
        ".value": ["50.0 %", "25.0 %", "12.5 %"],
    },
    "next_sentence": {".value": ["25.0 %", "75.0 %"]},
    "reranker": {
        ".note": ["Line 2  0.125", "Line 1  0.000"],
        "strong": [
            word
            for line in TEXT.split("\n")[::-1]
            for word in re.findall(r"[A-Za-z]+", line)
            if len(word) > 2
        ],
    },
    "search": {".note": ["<i>d</i>  0.750", "e  0.500"], ".text": [TEXT, "Other words; PARIS."]},
    "embeddings": {"tbody td": ["1.00", "0.00", "0.00", "1.00"]},
    "encoder": {".pieces li": TEXT.split()},
}
PHONE, DESK = {"width": 360, "height": 700}, {"width": 1000, "height": 700}
MATRIX = "#attention .scroller:has(table)"


@pytest.fixture(scope="module")
def browser():
    from playwright import sync_api as playwright

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER)
        yield browser
        browser.close()


@pytest.fixture
def show(browser):
    """Opens the page of a kind with texts; checks afterwards that nothing was complained of."""
    page, complaints, requests = browser.new_page(viewport=DESK), [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message) or dialog.dismiss())
    page.on("request", lambda request: requests.append(request.url))
    with contextlib.ExitStack() as stack:

        def open_kind(kind, **query):
            port = stack.enter_context(serving(StandIn(kind)))
            page.goto(f"http://127.0.0.1:{port}/?{urllib.parse.urlencode(query)}")
            page.wait_for_selector("body:not([aria-busy])")
            return page

        yield open_kind
        page.close()
    # The browser itself tells of a status that is an error.
    assert [text for text in complaints if "status of 400" not in text] == []
    assert requests and all(url.startswith(("http://127.0.0.1:", "data:,")) for url in requests)


@contextlib.contextmanager
def answered(page):
    """Waits for the answer to what is done inside."""
    with page.expect_response("**/api/answer"):
        yield
    page.wait_for_selector("body:not([aria-busy])")


def texts_of(page, selector):
    return page.locator(selector).all_text_contents()


def styles_of(page, selector, name):
    script = "(all, name) => all.map(e => getComputedStyle(e)[name])"
    return page.eval_on_selector_all(selector, script, name)


@pytest.mark.parametrize("kind", SHOWN)
def test_every_kind_is_shown_as_text_labelled_and_fits(show, kind) -> None:
    page = show(kind, **dict.fromkeys(StandIn(kind).inputs, TEXT), run=1, attention=1)
    for selector, expected in SHOWN[kind].items():
        assert texts_of(page, f"#answer {selector}") == expected, selector
    colours = styles_of(page, "#answer mark", "backgroundColor")
    assert len(set(colours)) == len(colours) and "rgba(0, 0, 0, 0)" not in colours
    assert page.locator("img, i, b, main script").count() == 0
    assert page.inner_text("#title") == "stand-in <i>1</i>"
    assert page.input_value("textarea >> nth=0") == TEXT
    assert page.inner_text("#status") == "1.5 ms" and page.is_hidden("#message")
    assert "<img" in texts_of(page, "#attention tbody th")
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    unnamed = """all => all.filter(e => !e.labels?.length && !e.ariaLabel && !e.innerText).length"""
    assert page.eval_on_selector_all("textarea, select, input, button, table", unnamed) == 0


def test_a_text_that_is_longer_than_the_page_is_answered_whole(show) -> None:
    page, text = show("tagger", text=""), "word " * 5000 + "Ada Lovelace saw Paris."
    page.fill("textarea", text)
    with answered(page):
        page.click("#run")
    marked = text.replace("Lovelace", "LovelacePER").replace("Paris", "Paris<i>LOC</i>")
    assert texts_of(page, "#answer .text") == [marked] and page.is_hidden("#message")
    assert page.evaluate("document.documentElement.scrollWidth") <= DESK["width"]


def test_a_matrix_that_is_wider_than_a_phone_says_so(show) -> None:
    page = show("classifier", text="word " * 40, run=1, attention=1)
    hint = page.locator("#attention div:has(> .scroller > table) > .hint")
    assert hint.is_hidden() and "cut" not in page.get_attribute(MATRIX, "class")
    page.set_viewport_size(PHONE)
    hint.wait_for(state="visible")
    assert styles_of(page, MATRIX, "maskImage") != ["none"]
    page.locator(MATRIX).evaluate("box => box.scrollTo(10000, 0)")
    page.wait_for_selector(f"{MATRIX}:not(.cut)")


def test_typing_and_control_enter_run_and_an_error_is_one_line(show) -> None:
    page = show("classifier", text="")
    assert page.is_hidden("#answer-section")
    page.type("textarea", "a calm sea \U0001f30a")
    with answered(page):
        page.keyboard.press("Control+Enter")
    assert texts_of(page, "#answer .name") == ["✓ calm", "<b>wild</b>"]
    fills = page.eval_on_selector_all(".fill", "all => all.map(e => e.style.width)")
    assert fills == ["75%", "25%"]
    page.fill("textarea", FAILING)
    with answered(page):
        page.click("#run")
    assert page.inner_text("#message") == "This text <b>cannot</b> be taken; give another."
    assert page.inner_text("#status") == ""


def test_a_question_without_an_answer(show) -> None:
    page = show("question_answering", question="Where?", context="Nobody knows.", run=1)
    assert texts_of(page, "#answer .number") == ["No answer in this context."]
    assert texts_of(page, "#answer mark") == []


def test_a_click_puts_a_piece_into_its_mask(show) -> None:
    page = show("fill_mask", text="A [MASK] and boat [MASK].", run=1)
    with answered(page):
        page.click(".masks > div:nth-child(2) li:nth-child(2) button")  # ##s joins its word.
    assert page.input_value("textarea") == "A [MASK] and boats."
    with answered(page):
        page.click(".masks li button >> nth=0")
    assert page.input_value("textarea") == "A river and boats."
    assert "[MASK]" in page.inner_text("#answer")
    page = show("fill_mask", text="A [MASK] boat.", run=1)
    with answered(page):
        page.click(".masks li:nth-child(3) button")  # It brings its space, as byte-level BPE does.
    assert page.input_value("textarea") == "A sea boat."


def test_gaps_are_filled_in_and_unlikely_words_marked(show) -> None:
    page = show("fill_mask", text="A [GAP:1-3] boat.", run=1)
    assert texts_of(page, "#answer .name") == ["A sea boat."]
    with answered(page):
        page.click("#answer .bars button")
    assert page.input_value("textarea") == "A sea boat."
    page = show("fill_mask", text="In \U0001f600 Paris, <b>.", run=1)
    assert texts_of(page, "#answer .unlikely") == ["Paris"]
    assert page.get_attribute("#answer .unlikely", "title") == "0.1 %; rather: Rome"
    with answered(page):
        page.click("#answer .unlikely")
    assert page.input_value("textarea") == "In \U0001f600 Rome, <b>."
    assert "one to four pieces" in page.inner_text("#answer")
    page = show("fill_mask", text="Paris, Paris.", run=1)
    with answered(page):
        page.click("#rewrite")
    assert page.input_value("textarea") == "Rome, Rome."
    page = show("fill_mask", text="A [MASK] [MASK].", run=1)
    assert texts_of(page, "#answer h3") == ["Mask 1", "Mask 2", "Whole texts"]


def test_the_threshold_chooses_labels(show) -> None:
    page = show("multi_label", run=1)
    assert page.input_value("#threshold") == "0.5"
    assert texts_of(page, "#answer output") == ["50.0 %"]
    page.fill("#threshold", "0.7")
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "calm", "old"]


def test_the_thresholds_of_the_model_come_first(show, monkeypatch) -> None:
    """Probabilities are 0.625 (calm), 0.75 and 0.25 (old)."""
    thresholds = {"calm": 0.7, "<b>wild</b>": 0.3, "old": 0.2}
    monkeypatch.setitem(MORE, "multi_label", {**MORE["multi_label"], "thresholds": thresholds})
    page = show("multi_label", run=1)
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "calm", "✓ old"]
    assert page.eval_on_selector_all(".least", "all => all.map(e => e.style.left)") == [
        *("30%", "70%", "20%")
    ]
    assert page.input_value("#threshold") == "0.4"
    page.fill("#threshold", "0.6")
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "✓ calm", "old"]
    assert texts_of(page, "#answer output") == ["60.0 %"]

    monkeypatch.setitem(MORE["multi_label"], "thresholds", dict.fromkeys(thresholds, 0.65))
    page = show("multi_label", run=1)
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "calm", "old"]
    assert page.input_value("#threshold") == "0.65"
    assert texts_of(page, "#answer output") == ["65.0 %"]


def shown_head(page):
    """Returns layer and head, from 0, that are chosen, and their matrix."""
    place = [int(page.input_value(selector)) for selector in ("#layer", "#head")]
    script = "all => all.map(e => +e.ariaLabel)"
    cells = page.eval_on_selector_all("#attention tbody td", script)
    return place, np.reshape(cells, (page.locator("#attention tbody tr").count(), -1))


def test_attention_shows_all_heads_and_the_numbers_of_one(show) -> None:
    page = show("classifier", text="x y z", run=1, attention=1, layer=2, head=3)
    assert page.locator(".overview button").count() == LAYERS * HEADS
    assert texts_of(page, "#attention tbody th") == ["x", "y", "z"]
    place, received = shown_head(page)
    assert place == [1, 2]
    np.testing.assert_allclose(received, [[1, 0, 0], [0.75, 0.25, 0], [0.75, 0, 0.25]], atol=1e-3)
    page.click(".overview button >> nth=1")
    place, received = shown_head(page)
    assert place == [0, 1]
    np.testing.assert_allclose(received, [[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]], atol=1e-3)
    page.hover("#attention tbody td >> nth=4")
    assert page.inner_text("#cell") == "y looks at y: 0.500"
    page.focus(MATRIX)
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#cell") == "y looks at x: 0.500"


def test_attention_opens_at_the_clear_head_until_another_is_chosen(show) -> None:
    page = show("classifier", run=1, attention=1)
    assert shown_head(page)[0] == [1, 1]  # What the stand-in says.
    page.select_option("#head", index=2)
    page.fill("textarea", "w " * 75)
    with answered(page):
        page.click("#run")
    assert shown_head(page)[0] == [1, 2]
    assert "75 pieces: the first 60 are shown" in page.inner_text("#attention .note >> nth=0")
    names = texts_of(page, "#attention thead th")
    assert len(names) == 61 and names[-1] == "(others)"


def test_attention_of_several_lines_is_shown_of_the_one_that_is_chosen(show) -> None:
    page = show("embeddings", text="a b\nc d", run=1, attention=1)
    assert texts_of(page, "#attention tbody th") == ["a", "b"]
    page.select_option("#line", index=1)
    page.wait_for_selector("#attention tbody th:text('d')")


def test_respects_dark_mode(show) -> None:
    page = show("classifier")
    lightness = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        (colour,) = styles_of(page, "body", "backgroundColor")
        lightness.append(np.mean(eval(colour.removeprefix("rgb"))))
    assert lightness[0] > 230 and lightness[1] < 40
