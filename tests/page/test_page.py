"""The page in a real browser, before a real server (`make test-page`)."""

import json
import random
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from visiting import Server, Visitor, phrases

pytestmark = pytest.mark.slow


def test_typing_translates(visitor):
    for sentence in phrases("de", 3):
        visitor.page.fill("#text", "")
        visitor.page.locator("#text").press_sequentially(sentence, delay=10)
        shown = visitor.translated(sentence)
        (found,) = visitor.ask("translate", text=sentence)["translations"][0]["sentences"]
        assert shown == found["text"]
        # Underlined is what has alternatives, and nothing else.
        several = [one for one in found["tokens"] if one["alternatives"] and one["text"]]
        words = visitor.page.locator("#translation .word")
        assert (words.count() > 0) == (several != [])
        for word in words.all():
            assert any(one["text"].strip() in word.text_content() for one in several)


def test_paragraphs_keep_their_lines_and_directions_can_be_turned(visitor):
    one, other = phrases("en", 2)
    visitor.page.locator("label", has_text="English → German").click()
    visitor.type(one)
    visitor.page.fill("#text", f"{one}\n\n{other}")
    answers = visitor.ask("translate", source="en", target="de", text=f"{one}\n\n{other}")
    whole = answers["translations"][0]["text"]
    visitor.page.wait_for_function(
        "text => document.querySelector('#translation').textContent === text", arg=whole
    )
    assert whole.count("\n\n") == 1
    visitor.page.click("#next")
    assert visitor.page.locator("#all q.sentence").text_content() == other


def test_another_word_is_chosen_and_the_rest_follows(visitor, picture):
    sentence = visitor.type_one_with_alternatives()
    word = random.choice(visitor.page.locator("#translation .word").all())
    before = visitor.page.evaluate(
        "word => { const range = document.createRange(); range.setStart(translation, 0);"
        "range.setEndBefore(word); return range.toString().trim(); }",
        word.element_handle(),
    )
    word.click()
    items = visitor.page.locator("#choices [role=menuitemradio]")
    assert items.first.locator(".what").text_content() == word.text_content()
    assert items.count() >= 2
    chosen = items.nth(1)
    # Its first piece may be half a word; the server knows the whole.
    visitor.page.wait_for_function(
        "item => !item.querySelector('.what').textContent.endsWith('…')",
        arg=chosen.element_handle(),
    )
    picture(visitor.page, "alternatives")
    said = chosen.locator(".what").text_content()
    earlier = visitor.translation
    chosen.click()
    visitor.page.wait_for_selector("#undo:not([hidden])")
    after = visitor.translation
    assert after != earlier
    # A mark of punctuation stands without a space before it.
    assert after.replace(" ", "").startswith(f"{before}{said}".replace(" ", ""))

    # A link carries the sentence and what was chosen.
    assert visitor.open(visitor.page.url).wait_for_function(
        "text => document.querySelector('#translation').textContent.trim() === text", arg=after
    )
    visitor.page.click("#undo")
    visitor.page.wait_for_selector("#undo", state="hidden")
    assert visitor.translation == earlier
    assert visitor.page.locator("#text").input_value() == sentence


def test_the_lattice_and_its_slider(visitor, picture):
    sentence = visitor.type_one_with_alternatives()
    counts = []
    for key in ("Home", "End"):
        visitor.page.locator("#least").press(key)
        visitor.page.wait_for_function(
            "least => new URLSearchParams(location.hash).get('least') === least",
            arg={"Home": "0.6", "End": "0.01"}[key],
        )
        least = float(parse_qs(urlsplit(visitor.page.url).fragment)["least"][0])
        found = visitor.ask("alternatives", text=sentence, threshold=least)
        count = found["lattice"]["translations"]
        text = f"{count} translation{'s' * (count != 1)} of at least {least:.0%}".replace("%", " %")
        verdict = visitor.page.locator("#all .verdict", has_text=text)
        verdict.wait_for()
        said = "none is missing" if count else "which is proved"
        assert (said in verdict.text_content()) == found["certificate"]["complete"]
        counts.append(count)
        listed = visitor.page.locator("#all ol.bars li > .what").all_text_contents()
        assert listed == [one["text"] for one in found["alternatives"]]
    assert counts[0] < counts[1]
    drawn = " ".join(visitor.page.locator("#all svg text").all_text_contents())
    assert all(word in drawn for word in re.findall(r"\w+", listed[0]))
    picture(visitor.page, "lattice")


def test_the_drawing_spells_the_translations_and_nothing_else(visitor):
    words = ["tea", "cream", "jam", "first", "scone", "now", "never", "!"]
    for _ in range(20):
        texts = {" ".join(random.choices(words, k=random.randint(1, 6))) for _ in range(12)}
        spelled = visitor.page.evaluate(
            """async (texts) => {
                const { automaton } = await import("/lattice.js");
                const on = ([word, { to }]) => ways(to).map((rest) => word + rest);
                const ways = (state) => [
                    ...(state.final ? [""] : []),
                    ...[...state.ways].flatMap(on),
                ];
                return ways(automaton(texts.map((text) => ({ text, probability: Math.random() }))));
            }""",
            sorted(texts),
        )
        assert sorted(spelled) == sorted(texts)


def test_is_mine_right(visitor, picture):
    sentence, other = phrases("de", 2)
    right = visitor.type(sentence)
    wrong = visitor.ask("translate", text=other)["translations"][0]["text"]
    visitor.page.click("#tab-mine")
    judged = visitor.page.locator("#mine .judged")
    for mine in (right, wrong):
        score = visitor.ask("score", text=sentence, translation=mine)["sentence"]
        visitor.page.fill("#own", mine)
        verdict = visitor.page.locator("#mine .verdict")
        visitor.page.wait_for_function(
            "mine => [...document.querySelectorAll('#mine .judge')].map((one) => "
            "one.firstChild.textContent).join('').startsWith(mine.replaceAll(' ', ''))",
            arg=mine,
        )
        verdict.filter(
            has_text="It fits" if score["probability"] >= 0.5 else "Look again"
        ).wait_for()
        kinds = judged.locator(".judge").evaluate_all("all => all.map((one) => one.className)")
        unlikely = any("unlikely" in kind for kind in kinds)
        assert unlikely == any(one["probability"] < 0.1 for one in score["tokens"])
    assert unlikely
    picture(visitor.page, "score")
    button = judged.locator("button.unlikely").first
    button.click()
    visitor.page.locator("#choices [role=menuitemradio]").nth(1).click()
    assert visitor.page.locator("#own").input_value() != wrong


def test_softmax_shares_what_scones_does_not(visitor, picture):
    visitor.page.click("#tab-twins")
    both = visitor.page.locator("#wholes .side")
    both.nth(1).wait_for()
    picture(visitor.page, "softmax beside SCONES")
    sums = []
    for name in ("softmax", "scones"):
        (listed,) = visitor.page.locator(f"#wholes .{name}").all()
        told = visitor.ask(
            "alternatives",
            model=f"tea-{name}",
            text=visitor.page.locator("#tea").input_value(),
            n_best=6,
        )["alternatives"]
        texts = listed.locator(".what").all_text_contents()
        assert texts == [one["text"] for one in told]
        sums.append(sum(one["probability"] for one in told))
        shared = visitor.page.locator(f"#shared .{name} p b").text_content()
        sums.append(int(re.search(r"\d+", shared)[0]) / 100)
    assert max(sums[:2]) <= 1.001  # of softmax, which has 1 to share
    sentence = visitor.page.locator("#tea").input_value()
    visitor.page.click("#another")
    visitor.page.wait_for_function(
        "old => document.querySelector('#tea').value !== old", arg=sentence
    )


def test_a_link_carries_the_settings(visitor):
    sentence = visitor.type(phrases("de", 1)[0]) and visitor.page.locator("#text").input_value()
    visitor.page.click("#tab-mine")
    visitor.page.fill("#own", "Cream first & jam = second + #1?")
    visitor.page.wait_for_function("() => location.hash.includes('mine=')")
    again = visitor.open(visitor.page.url)
    again.locator("#mine .judge").first.wait_for()
    assert again.locator("#own").input_value() == "Cream first & jam = second + #1?"
    assert again.locator("#text").input_value() == sentence
    assert again.locator("#tab-mine").get_attribute("aria-selected") == "true"


def test_what_stands_in_a_link_is_text(browser, server):
    visitor = Visitor(browser, server)
    evil = "<img src=x onerror=document.title='evil'><b>Guten Morgen!</b>"
    page = visitor.open(f"{visitor.server.address}#text={evil}&mine={evil}&keep=0 {evil}&least=x")
    page.wait_for_selector("#sure:not(:empty)")
    assert page.title() == "SCONES"
    assert page.locator("#translation img, #all img, #mine img").count() == 0
    assert all("400" in one or "422" in one for one in visitor.complaints)  # such pieces are none
    visitor.context.close()


def test_dark_and_light(browser, server):
    paper = "getComputedStyle(document.body).backgroundColor"
    for scheme in ("light", "dark"):
        visitor = Visitor(browser, server, color_scheme=scheme)
        system = visitor.page.evaluate(paper)
        assert (sum(map(int, re.findall(r"\d+", system))) < 380) == (scheme == "dark")
        visitor.page.click("#theme")
        chosen = visitor.page.evaluate(paper)
        assert chosen != system
        visitor.page.reload()
        assert visitor.page.evaluate(paper) == chosen
        assert visitor.complaints == []
        visitor.context.close()


def test_a_phone_has_room_for_it(browser, server, picture):
    visitor = Visitor(browser, server, viewport={"width": 360, "height": 740}, has_touch=True)
    visitor.type_one_with_alternatives()
    for view in ("all", "mine", "twins"):
        visitor.page.click(f"#tab-{view}")
        if view == "mine":
            visitor.page.fill("#own", " ".join(phrases("en", 3)))
        waited = {"all": "#all svg", "mine": "#mine .judge", "twins": "#wholes .side"}[view]
        visitor.page.locator(waited).first.wait_for()
        width = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"
        assert visitor.page.evaluate(width) <= 360
        picture(visitor.page, f"phone {view}")
    visitor.page.locator("#translation .word").last.tap()
    box = visitor.page.locator("#choices").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    assert visitor.complaints == []
    visitor.context.close()


def test_without_a_mouse(visitor):
    visitor.type_one_with_alternatives()
    keys, focus = visitor.page.keyboard, "document.activeElement."
    visitor.page.focus("#text")
    for _ in range(5):
        keys.press("Tab")
        if visitor.page.evaluate(f"{focus}classList.contains('word')"):
            break
    assert visitor.page.evaluate(f"{focus}classList.contains('word')")
    first = visitor.page.locator("#translation .word").first.text_content()
    keys.press("End")
    last = visitor.page.locator("#translation .word").last.text_content()
    assert visitor.page.evaluate(f"{focus}textContent") == last
    keys.press("ArrowRight")  # round again
    assert visitor.page.evaluate(f"{focus}textContent") == first
    keys.press("Enter")
    visitor.page.wait_for_selector("#choices:popover-open")
    assert visitor.page.evaluate(f"{focus}getAttribute('role')") == "menuitemradio"
    keys.press("Escape")
    visitor.page.wait_for_selector("#choices:not(:popover-open)", state="attached")
    assert visitor.page.evaluate(f"{focus}textContent") == first
    earlier = visitor.translation
    keys.press("ArrowDown")
    visitor.page.wait_for_selector("#choices:popover-open")
    keys.press("Enter")
    visitor.page.wait_for_selector("#undo:not([hidden])")
    assert visitor.translation != earlier
    assert visitor.page.evaluate("document.activeElement !== document.body")
    visitor.page.focus("[role=tab][aria-selected=true]")
    keys.press("ArrowRight")
    assert visitor.page.locator("#tab-mine").get_attribute("aria-selected") == "true"
    assert visitor.page.locator("#mine").is_visible()


def test_the_server_stops_and_comes_back(browser, picture):
    pytest.importorskip("fastapi")
    server = Server()
    visitor = Visitor(browser, server)
    first, second = phrases("de", 2)
    visitor.type(first)
    server.stop()
    visitor.page.fill("#text", second)
    visitor.page.locator("#status.offline", has_text="does not answer").wait_for()
    picture(visitor.page, "offline")
    assert visitor.page.locator("#text").input_value() == second
    server.start()
    try:
        visitor.translated(second)
        visitor.page.wait_for_selector("#status", state="hidden")
        assert all("ERR_CONNECTION" in one for one in visitor.complaints)
    finally:
        visitor.context.close()
        server.stop()


def test_refusals_are_told_and_slowness_too(browser, server, picture):
    visitor = Visitor(browser, server)
    answers = [
        (400, {}, "This sentence is <b>too</b> odd."),
        (429, {"Retry-After": "1"}, "Too many are waiting."),
    ]

    def answer(route):
        if not answers:
            visitor.page.wait_for_timeout(1500)
            return route.continue_()
        status, headers, sentence = answers.pop(0)
        return route.fulfill(status=status, headers=headers, body=json.dumps({"error": sentence}))

    visitor.page.route("**/v1/translate", answer)
    (sentence,) = phrases("de", 1)
    visitor.page.fill("#text", sentence)
    visitor.page.locator("#status.failed", has_text="This sentence is <b>too</b> odd.").wait_for()
    picture(visitor.page, "failed")
    visitor.page.click("#status button")
    visitor.page.locator("#status.slow", has_text="busy").wait_for()
    visitor.page.locator("#status.slow", has_text="Still working").wait_for()
    visitor.translated(sentence)
    visitor.page.wait_for_selector("#status", state="hidden")
    visitor.page.fill("#text", "Zu lang! " * 1000)
    visitor.page.locator("#length", has_text="at most 5,000").wait_for()
    visitor.context.close()


def test_a_key_is_asked_for_where_one_is_wanted(browser, server):
    visitor = Visitor(browser, server)

    def door(route):
        if route.request.headers.get("x-api-key") == "jam":
            return route.continue_()
        error = json.dumps({"error": "The API key is missing or wrong."})
        return route.fulfill(status=401, body=error)

    visitor.page.route("**/v1/**", door)
    visitor.page.reload()
    for key in ("cream", "jam"):
        visitor.page.get_by_label("API key").fill(key)
        visitor.page.keyboard.press("Enter")
    (sentence,) = phrases("de", 1)
    visitor.type(sentence)
    visitor.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browser, server, scheme, picture):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    visitor = Visitor(browser, server, color_scheme=scheme)

    def look(state):
        visitor.page.wait_for_timeout(300)  # transitions of colours
        found = axe.run(visitor.page)
        picture(visitor.page, f"{scheme} {state}")
        assert found.violations_count == 0, f"{state}\n{found.generate_report()}"

    visitor.page.locator("#examples li").first.wait_for()
    look("empty")
    visitor.type_one_with_alternatives()
    visitor.page.locator("#all svg").wait_for()
    look("all")
    visitor.page.locator("#translation .word").first.click()
    look("choices")
    assert visitor.page.locator("#choices").is_visible()
    visitor.page.keyboard.press("Escape")
    visitor.page.click("#tab-mine")
    visitor.page.fill("#own", " ".join(phrases("en", 2)))
    visitor.page.locator("#mine .unlikely").first.wait_for()
    look("mine")
    visitor.page.click("#tab-twins")
    visitor.page.locator("#wholes .side").first.wait_for()
    look("twins")
    visitor.page.route("**/v1/translate", lambda route: route.fulfill(status=400, body="{}"))
    visitor.page.fill("#text", "Tee")
    visitor.page.locator("#status.failed").wait_for()
    look("failed")
    visitor.context.close()
