"""The demo's page in a real browser, with made-up answers; needs a Chromium on the PATH."""

import base64
import contextlib
import json
import threading
import urllib.parse

import numpy as np
import pytest

from export.models import CLASSES
from export.page.server import DemoServer
from tests.export.browser import NAMES, find_browser, open_page
from tests.export.demo_stand_in import FAILING, HEADS, LAYERS, StandIn

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(not BROWSER, reason=f"none of {', '.join(NAMES)} is on the PATH")

EVIL = "<img src=x onerror=alert(1)> & <script>alert(2)</script>"
FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
BUSY = "document.body.hasAttribute('aria-busy')"
WIDTHS = {"phone": 360, "desk": 1000}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with open_page(BROWSER, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def servers():
    """Starts the server of a kind, once; gives its address."""
    with contextlib.ExitStack() as stack:
        started = {}

        def of_kind(kind):
            if kind not in started:
                server = started[kind] = stack.enter_context(DemoServer(port=0))
                stack.callback(server.shutdown)
                server.model = StandIn(kind)
                threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
            return started[kind].url

        yield of_kind


@pytest.fixture
def show(page, servers):
    """Opens the page of a kind with texts; checks afterwards that nothing was complained of."""
    page.complaints.clear()
    page.requests.clear()
    allowed = ["data:,"]

    def open_kind(kind, **query):
        allowed.append(servers(kind))
        page.open(f"{servers(kind)}?{urllib.parse.urlencode(query)}")
        page.wait_for(f"!{BUSY}")
        return page

    yield open_kind
    page.call("Emulation.clearDeviceMetricsOverride")
    assert page.complaints == []
    assert page.requests
    assert [url for url in page.requests if not url.startswith(tuple(allowed))] == []


def text_of(page, selector):
    return page.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")


def texts_of(page, selector):
    return page.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
    )


def click(page, selector):
    page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
    page.wait_for(f"!{BUSY}")


@pytest.mark.parametrize("kind", CLASSES)
def test_markup_stays_text(show, kind) -> None:
    text = f"{EVIL} Ada Lovelace [MASK] Paris"
    page = show(kind, **dict.fromkeys(StandIn(kind).inputs, text), run=1, attention=1)
    assert page.evaluate("document.querySelectorAll('img, i, b, main script').length") == 0
    assert text_of(page, "#title") == "stand-in <i>1</i>"
    assert page.evaluate("document.querySelector('textarea').value") == text
    assert text_of(page, "#status") == "1.5 ms"
    assert page.evaluate("document.getElementById('message').hidden")
    assert EVIL.split()[0] in texts_of(page, "#attention tbody th")
    shows_text = ("tagger", "question_answering", "embeddings")
    assert (EVIL in text_of(page, "#answer")) == (kind in shows_text)


@pytest.mark.parametrize("kind", CLASSES)
def test_fits_every_width_and_is_labelled(show, kind) -> None:
    text = "Ada Lovelace [MASK] Paris " + "Donaudampfschifffahrt" * 5
    for width in WIDTHS.values():
        size = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False}
        show(kind).call("Emulation.setDeviceMetricsOverride", **size)
        page = show(kind, **dict.fromkeys(StandIn(kind).inputs, text), run=1, attention=1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    unnamed = """[...document.querySelectorAll('textarea, select, input, button, table')].filter(
        e => !e.labels?.length && !e.ariaLabel && !e.innerText)"""
    assert page.evaluate(f"{unnamed}.length") == 0


def test_typing_and_control_enter_give_labels(show) -> None:
    page = show("classifier", text="")
    assert page.evaluate("document.getElementById('answer-section').hidden")
    page.evaluate("document.querySelector('textarea').focus()")
    page.call("Input.insertText", text="a calm sea \U0001f30a")
    page.press("Enter", 13, control=True)
    page.wait_for("document.body.dataset.runs === '1'")
    assert texts_of(page, "#answer .name") == ["✓ calm", "<b>wild</b>"]
    assert texts_of(page, "#answer .value") == ["75.0 %", "25.0 %"]
    widths = page.evaluate("[...document.querySelectorAll('.fill')].map(e => e.style.width)")
    assert widths == ["75%", "25%"]


def test_an_empty_text_is_fine_and_an_error_is_one_line(show, page) -> None:
    show("classifier", text="", run=1)
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "calm"]
    show("classifier", text=FAILING, run=1)
    assert text_of(page, "#message") == "This text <b>cannot</b> be taken; give another."
    assert text_of(page, "#status") == ""
    # The browser itself tells of the status; no other complaint.
    assert [text for text in page.complaints if "status of 400" not in text] == []
    page.complaints.clear()


@pytest.mark.parametrize("before", ["", "\U0001f600 ", f"{FAMILY}{FAMILY} e\u0301 ", "中\n\n"])
def test_entities_are_coloured_at_their_characters(show, before) -> None:
    page = show("tagger", text=f"{before}Ada Lovelace saw Paris\U0001f600.", run=1)
    marks = "[...document.querySelectorAll('#answer mark')]"
    assert page.evaluate(f"{marks}.map(m => m.firstChild.data)") == ["Ada Lovelace", "Paris"]
    assert texts_of(page, "#answer mark .tag") == ["PER", "<i>LOC</i>"]
    paragraph = "document.querySelector('#answer .text')"
    assert page.evaluate(f"{paragraph}.textContent") == (
        f"{before}Ada LovelacePER saw Paris<i>LOC</i>\U0001f600."
    )
    colours = page.evaluate(f"{marks}.map(m => getComputedStyle(m).backgroundColor)")
    assert len(set(colours)) == 2 and "rgba(0, 0, 0, 0)" not in colours
    assert page.evaluate(f"{marks}[0].title") == "PER: 87.5 %"
    assert texts_of(page, ".legend li") == ["PER: 1", "<i>LOC</i>: 1"]


def test_the_answer_is_marked_behind_an_emoji(show) -> None:
    context = f"{FAMILY} It was in Paris, not Rome."
    page = show("question_answering", question="Where?", context=context, run=1)
    assert text_of(page, "#answer .number") == "Paris"
    assert texts_of(page, "#answer mark") == ["Paris"]
    assert page.evaluate("document.querySelector('#answer .text').textContent") == context
    assert "odds of no answer -1.25" in text_of(page, "#answer .note")
    page = show("question_answering", question="Where?", context="Nobody knows.", run=1)
    assert text_of(page, "#answer .number") == "No answer in this context."
    assert texts_of(page, "#answer mark") == []


def test_a_click_puts_a_piece_into_its_mask(show) -> None:
    page = show("fill_mask", text="A [MASK] and boat [MASK].", run=1)
    assert texts_of(page, ".masks h3") == ["Mask 1", "Mask 2"]
    click(page, ".masks > div:nth-child(2) li:nth-child(2) button")  # ##s joins its word.
    assert page.evaluate("document.querySelector('textarea').value") == "A [MASK] and boats."
    click(page, ".masks li button")
    assert page.evaluate("document.querySelector('textarea').value") == "A river and boats."
    page.wait_for("document.querySelector('#answer').innerText.startsWith('Write [MASK]')")


def test_the_threshold_chooses_labels(show) -> None:
    page = show("multi_label", text="a", run=1)
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "✓ calm", "old"]
    page.evaluate("""(slider => {
        slider.value = 0.7;
        slider.dispatchEvent(new Event('input'));
    })(document.getElementById('threshold'))""")
    assert texts_of(page, "#answer .name") == ["✓ <b>wild</b>", "calm", "old"]


def test_numbers_of_the_other_kinds(show) -> None:
    assert text_of(show("regression", text="a", run=1), "#answer") == "2.500"
    page = show("next_sentence", text="a", text_b="b", run=1)
    assert texts_of(page, "#answer .value") == ["25.0 %", "75.0 %"]
    page = show("embeddings", text="a\n\nb\nc", run=1)
    assert (
        texts_of(page, "#answer tbody td") == "1.00 0.00 0.00 0.00 1.00 0.00 0.00 0.00 1.00".split()
    )
    assert texts_of(show("encoder", text="a b", run=1), ".pieces li") == ["a", "b"]


def test_attention_shows_all_heads_and_the_numbers_of_one(show) -> None:
    page = show("classifier", text="x y z", run=1, attention=1, layer=2, head=3)
    assert page.evaluate("document.querySelectorAll('.overview button').length") == LAYERS * HEADS
    assert texts_of(page, "#attention tbody th") == ["x", "y", "z"]
    cells = "[...document.querySelectorAll('#attention tbody td')].map(e => +e.ariaLabel)"
    expected = [[1, 0, 0], [0.75, 0.25, 0], [0.75, 0, 0.25]]
    np.testing.assert_allclose(np.reshape(page.evaluate(cells), (3, 3)), expected, atol=1e-3)
    click(page, ".overview button:nth-child(2)")
    expected = [[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]]
    np.testing.assert_allclose(np.reshape(page.evaluate(cells), (3, 3)), expected, atol=1e-3)
    assert page.evaluate("[layer, head].map(e => e.value)") == ["0", "1"]
    page.evaluate("""document.querySelectorAll('#attention tbody td')[4]
        .dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))""")
    assert text_of(page, "#cell") == "y looks at y: 0.500"
    page.evaluate("document.querySelector('#attention .matrix').parentElement.focus()")
    page.press("ArrowLeft", 37)
    assert text_of(page, "#cell") == "y looks at x: 0.500"


def test_attention_of_long_texts_shows_the_first_pieces(show) -> None:
    page = show("classifier", text="w " * 75, run=1, attention=1)
    assert "The row has 75 pieces: the first 60 are shown" in text_of(page, "#attention .note")
    names = texts_of(page, "#attention thead th")
    assert len(names) == 61 and names[-1] == "(others)"


def test_floats_are_decoded_as_they_were_sent(show) -> None:
    given = np.array([0.0, 1.0, -2.5, 1e-30, 3.4e38], "<f4")
    text = base64.b64encode(given.tobytes()).decode()
    page = show("regression")
    script = (
        f"import('/attention.js').then(m => {{ window.floats = [...m.decodeFloats('{text}')]; }})"
    )
    page.evaluate(f"{script} && 0")
    page.wait_for("window.floats")
    np.testing.assert_array_equal(np.array(page.evaluate("window.floats"), "<f4"), given)


def test_respects_dark_mode(show, page) -> None:
    colours = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.call("Emulation.setEmulatedMedia", features=[feature])
        show("classifier", text="a", run=1)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    page.call("Emulation.setEmulatedMedia", features=[])
    lightness = [np.mean(eval(colour.removeprefix("rgb"))) for colour in colours]
    assert lightness[0] > 230 and lightness[1] < 40
