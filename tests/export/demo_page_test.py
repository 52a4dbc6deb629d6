"""The demo's page in a real browser, with made-up answers; needs playwright and a Chromium."""

import base64
import contextlib
import shutil
import urllib.parse

import numpy as np
import pytest

from export.models import CLASSES
from tests.export.demo_stand_in import FAILING, HEADS, LAYERS, StandIn, serving

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason=f"none of {', '.join(BROWSERS)} is on the PATH"),
]

EVIL = "<img src=x onerror=alert(1)> & <script>alert(2)</script>"
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
PHONE, DESK = {"width": 360, "height": 700}, {"width": 1000, "height": 700}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
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
            page.wait_for_selector("body[data-ready]:not([aria-busy])")
            return page

        yield open_kind
        page.close()
    # The browser itself tells of a status that is an error.
    assert [text for text in complaints if "status of 400" not in text] == []
    assert requests and all(url.startswith(("http://127.0.0.1:", "data:,")) for url in requests)


def texts_of(page, selector):
    return page.locator(selector).all_text_contents()


def styles_of(page, selector, name):
    script = "(all, name) => all.map(e => getComputedStyle(e)[name])"
    return page.eval_on_selector_all(selector, script, name)


@pytest.mark.parametrize("kind", CLASSES)
def test_markup_stays_text(show, kind) -> None:
    text = f"{EVIL} Ada Lovelace [MASK] Paris"
    page = show(kind, **dict.fromkeys(StandIn(kind).inputs, text), run=1, attention=1)
    assert page.locator("img, i, b, main script").count() == 0
    assert page.inner_text("#title") == "stand-in <i>1</i>"
    assert page.input_value("textarea >> nth=0") == text
    assert page.inner_text("#status") == "1.5 ms" and page.is_hidden("#message")
    assert EVIL.split()[0] in texts_of(page, "#attention tbody th")
    shows_text = ("tagger", "question_answering", "embeddings")
    assert (EVIL in page.inner_text("#answer")) == (kind in shows_text)


@pytest.mark.parametrize("kind", CLASSES)
def test_fits_every_width_and_is_labelled(show, kind) -> None:
    text = "Ada Lovelace [MASK] Paris " + "Donaudampfschifffahrt" * 5
    page = show(kind, **dict.fromkeys(StandIn(kind).inputs, text), run=1, attention=1)
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    unnamed = """all => all.filter(e => !e.labels?.length && !e.ariaLabel && !e.innerText).length"""
    assert page.eval_on_selector_all("textarea, select, input, button, table", unnamed) == 0


def test_a_matrix_that_is_wider_than_a_phone_says_so(show) -> None:
    page = show("classifier", text="word " * 40, run=1, attention=1)
    box = page.locator("#attention .scroller:has(table)")
    hint = page.locator("#attention div:has(> .scroller > table) > .hint")
    assert hint.is_hidden() and "cut" not in box.get_attribute("class")
    page.set_viewport_size(PHONE)
    hint.wait_for(state="visible")
    assert styles_of(page, "#attention .scroller:has(table)", "maskImage") != ["none"]
    box.evaluate("box => box.scrollTo(10000, 0)")
    page.wait_for_selector("#attention .scroller:has(table):not(.cut)")


def test_typing_and_control_enter_give_labels(show) -> None:
    page = show("classifier", text="")
    assert page.is_hidden("#answer-section")
    page.type("textarea", "a calm sea \U0001f30a")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("body[data-runs='1']")
    assert texts_of(page, "#answer .name") == ["✓ calm", "<b>wild</b>"]
    assert texts_of(page, "#answer .value") == ["75.0 %", "25.0 %"]
    fills = page.eval_on_selector_all(".fill", "all => all.map(e => e.style.width)")
    assert fills == ["75%", "25%"]


def test_an_empty_text_is_fine_and_an_error_is_one_line(show) -> None:
    assert texts_of(show("classifier", text="", run=1), "#answer .name")[0] == "✓ <b>wild</b>"
    page = show("classifier", text=FAILING, run=1)
    assert page.inner_text("#message") == "This text <b>cannot</b> be taken; give another."
    assert page.inner_text("#status") == ""


@pytest.mark.parametrize("before", ["", "\U0001f600 ", f"{FAMILY}{FAMILY} e\u0301 ", "中\n\n"])
def test_entities_are_coloured_at_their_characters(show, before) -> None:
    page = show("tagger", text=f"{before}Ada Lovelace saw Paris\U0001f600.", run=1)
    marked = page.eval_on_selector_all("#answer mark", "all => all.map(e => e.firstChild.data)")
    assert marked == ["Ada Lovelace", "Paris"]
    assert texts_of(page, "#answer mark .tag") == ["PER", "<i>LOC</i>"]
    expected = f"{before}Ada LovelacePER saw Paris<i>LOC</i>\U0001f600."
    assert texts_of(page, "#answer .text") == [expected]
    colours = styles_of(page, "#answer mark", "backgroundColor")
    assert len(set(colours)) == 2 and "rgba(0, 0, 0, 0)" not in colours
    assert page.get_attribute("#answer mark >> nth=0", "title") == "PER: 87.5 %"
    assert texts_of(page, ".legend li") == ["PER: 1", "<i>LOC</i>: 1"]


def test_the_answer_is_marked_behind_an_emoji(show) -> None:
    context = f"{FAMILY} It was in Paris, not Rome."
    page = show("question_answering", question="Where?", context=context, run=1)
    assert texts_of(page, "#answer .number") == texts_of(page, "#answer mark") == ["Paris"]
    assert texts_of(page, "#answer .text") == [context]
    assert "odds of no answer -1.25" in page.inner_text("#answer .note")
    page = show("question_answering", question="Where?", context="Nobody knows.", run=1)
    assert page.inner_text("#answer .number") == "No answer in this context."
    assert texts_of(page, "#answer mark") == []


def test_a_click_puts_a_piece_into_its_mask(show) -> None:
    page = show("fill_mask", text="A [MASK] and boat [MASK].", run=1)
    assert texts_of(page, ".masks h3") == ["Mask 1", "Mask 2"]
    page.click(".masks > div:nth-child(2) li:nth-child(2) button")  # ##s joins its word.
    page.wait_for_selector("body[data-runs='2']")
    assert page.input_value("textarea") == "A [MASK] and boats."
    page.click(".masks li button >> nth=0")
    page.wait_for_selector("#answer :text('Write [MASK]')")
    assert page.input_value("textarea") == "A river and boats."


def test_the_threshold_chooses_labels(show) -> None:
    page = show("multi_label", text="a", run=1)
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "✓ calm", "old"]
    page.fill("#threshold", "0.7")
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "calm", "old"]


def test_numbers_of_the_other_kinds(show) -> None:
    assert show("regression", text="a", run=1).inner_text("#answer") == "2.500"
    page = show("next_sentence", text="a", text_b="b", run=1)
    assert texts_of(page, "#answer .value") == ["25.0 %", "75.0 %"]
    page = show("embeddings", text="a\n\nb", run=1)
    assert texts_of(page, "#answer tbody td") == ["1.00", "0.00", "0.00", "1.00"]
    assert texts_of(show("encoder", text="a b", run=1), ".pieces li") == ["a", "b"]


def shown_head(page):
    """Returns layer and head, from 0, that are chosen, and their matrix."""
    place = [int(page.input_value(selector)) for selector in ("#layer", "#head")]
    script = "all => all.map(e => +e.ariaLabel)"
    cells = page.eval_on_selector_all("#attention tbody td", script)
    size = page.locator("#attention tbody tr").count()
    return place, np.reshape(cells, (size, -1))


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
    page.focus("#attention .scroller:has(table)")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#cell") == "y looks at x: 0.500"


def test_attention_opens_at_the_clear_head_until_another_is_chosen(show) -> None:
    page = show("classifier", text="x y z", run=1, attention=1)
    assert shown_head(page)[0] == [1, 1]  # What the stand-in says.
    for chosen in ([1, 1], [0, 2]):
        page.click(f".overview [data-layer='{chosen[0]}'][data-head='{chosen[1]}']")
        page.fill("textarea", f"another text {chosen}")
        page.click("#run")
        page.wait_for_selector(f"#attention th:text('{chosen[1]}]')")
        assert shown_head(page)[0] == chosen


def test_attention_of_long_texts_shows_the_first_pieces(show) -> None:
    page = show("classifier", text="w " * 75, run=1, attention=1)
    assert "75 pieces: the first 60 are shown" in page.inner_text("#attention .note >> nth=0")
    names = texts_of(page, "#attention thead th")
    assert len(names) == 61 and names[-1] == "(others)"


def test_floats_are_decoded_as_they_were_sent(show) -> None:
    given = np.array([0.0, 1.0, -2.5, 1e-30, 3.4e38], "<f4")
    text = base64.b64encode(given.tobytes()).decode()
    script = "async text => [...(await import('/attention.js')).decodeFloats(text)]"
    received = show("regression").evaluate(script, text)
    np.testing.assert_array_equal(np.array(received, "<f4"), given)


def test_respects_dark_mode(show) -> None:
    page = show("classifier", text="a", run=1)
    lightness = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        (colour,) = styles_of(page, "body", "backgroundColor")
        lightness.append(np.mean(eval(colour.removeprefix("rgb"))))
    assert lightness[0] > 230 and lightness[1] < 40
