"""The API says what the translator says, and refuses the rest in one sentence."""

import json
import os
import signal
import socket
import time
import urllib.parse

import pytest

import scones
from scones.search.translations import Translation
from scones.serving import answers

PAIR = {"source": "de", "target": "en"}


@pytest.fixture(scope="module")
def translator(tiny_model):
    return scones.load(tiny_model, "cpu")


def check(sentence, found):
    assert sentence["text"] == found.text
    assert sentence["log_prob"] == pytest.approx(found.log_prob, abs=1e-3)
    assert "".join(token["text"] for token in sentence["tokens"]).strip() == found.text
    assert all(0 <= token["probability"] <= 1 for token in sentence["tokens"])


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_translations_are_those_of_the_translator(client, translator, tea_pairs, search):
    texts = [source for source, _ in tea_pairs[:5]]
    status, said = client.post("/v1/translate", text=texts, search=search, **PAIR)
    assert (status, said["model"]) == (200, "scones")
    for one, (found,) in zip(
        said["translations"], translator.translate(texts, search), strict=True
    ):
        assert one["text"] == found.text
        if found.finished:
            check(one["sentences"][0], found)


def test_paragraphs_are_put_together_again(client, translator):
    status, said = client.post("/v1/translate", text="\n Tee.  Wasser!\n\n\n Ja.\n", **PAIR)
    (whole,) = said["translations"]
    one, two, three = (found.text for (found,) in translator.translate(["Tee.", "Wasser!", "Ja."]))
    assert (status, whole["text"]) == (200, f"\n {one}  {two}\n\n\n {three}\n")
    assert client.post("/v1/translate", text=["", " \n"], **PAIR)[1]["translations"] == [
        {"text": "", "sentences": []},
        {"text": " \n", "sentences": []},
    ]


def test_alternatives_are_those_of_exact_search(client, translator, tea_pairs):
    from scones.search.frontier import ExactOptions

    text = tea_pairs[0][0]
    asked = {"text": text, "n_best": 3, "max_states": 300, **PAIR}
    status, said = client.post("/v1/alternatives", **asked)
    ((_, found),) = translator.exact([text], ExactOptions(3, max_states=300))
    texts = [one["text"] for one in said["alternatives"]]
    texts += [other["text"] for one in said["alternatives"] for other in one["variants"]]
    assert status == 200
    assert {*texts} == {one.text for one in found.translations}
    assert said["certificate"]["complete"] == found.certificate.proved
    assert said["lattice"]["translations"] == len(found.translations)
    assert said["certificate"]["states"] <= 300


def test_limits_may_be_lowered_and_never_raised(client):
    text = "Tee und Wasser und Milch und Tee und Wasser und Milch."
    began = time.monotonic()
    asked = {"text": text, "threshold": 0.001, "max_states": 10**9, "max_seconds": 1e9}
    status, said = client.post("/v1/alternatives", **asked, **PAIR)
    assert status == 200
    assert said["certificate"]["states"] <= 2000
    assert time.monotonic() - began < 30
    asked |= {"max_states": 7}
    assert client.post("/v1/alternatives", **asked, **PAIR)[1]["certificate"]["states"] <= 7


def test_scores_and_continuations(client, translator, tea_pairs):
    text, translation = tea_pairs[0]
    _, said = client.post("/v1/score", text=text, translation=translation, **PAIR)
    assert said["sentence"]["log_prob"] == pytest.approx(
        translator.score([(text, translation)])[0], abs=1e-3
    )
    for prefix in ("Some te", ["▁The"]):
        status, said = client.post("/v1/continue", text=text, prefix=prefix, **PAIR)
        given = prefix if isinstance(prefix, str) else (tuple(prefix),)
        ((found,),) = translator.translate([text], prefix=given)
        assert (status, said["sentence"]["text"]) == (200, found.text)
        _, said = client.post("/v1/alternatives", text=text, prefix=prefix, n_best=2, **PAIR)
        begins = prefix if isinstance(prefix, str) else "The"
        assert all(one["text"].startswith(begins) for one in said["alternatives"])


def test_models_and_the_state_of_the_server(client):
    models = client.get("/v1/models")[1]["models"]
    assert [(one["name"], one["layer"]) for one in models] == [
        ("scones", "scones"),
        ("softmax", "softmax"),
    ]
    assert models[0]["limits"]["max_states"] == 2000
    assert client.get("/health") == (200, {"status": "ok"})
    assert client.get("/ready")[0] == 200
    assert 'scones_waiting{lane="fast"} 0.0' in client.get("/metrics")[1]
    assert (
        client.post("/v1/translate", text="Tee.", model="softmax", **PAIR)[1]["model"] == "softmax"
    )


def test_the_page_and_the_documentation_load_nothing_from_elsewhere(client):
    for path in ("/", "/docs"):
        status, headers, text = client.ask("GET", path)
        assert status == 200
        assert headers["content-type"].startswith("text/html")
        assert "//" not in text.replace("</", "")
    assert "/v1/alternatives" in client.get("/docs")[1]
    assert "/v1/alternatives" in client.get("/openapi.json")[1]["paths"]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/translate", {"text": "Tee.", "source": "de", "target": "fi"}, 404, "no such model"),
        ("/v1/translate", {"text": "Tee.", "model": "../scones", **PAIR}, 404, "no such model"),
        ("/v1/translate", {"text": "T" * 401, **PAIR}, 413, "401 characters"),
        ("/v1/translate", {"text": "Tee " * 90, "split": False, **PAIR}, 413, "split it"),
        ("/v1/translate", {"text": 7, **PAIR}, 422, "text"),
        ("/v1/translate", {"text": "Tee.", "sneaky": 1, **PAIR}, 422, "sneaky"),
        ("/v1/translate", {"text": "Tee.", "share": float("nan"), **PAIR}, 422, "share"),
        ("/v1/translate", {"text": "Tee.", "beam_size": 1000, **PAIR}, 422, "beam_size"),
        ("/v1/translate", {"text": "\ud800", **PAIR}, 422, "half a character"),
        ("/v1/score", {"text": "Tee.", **PAIR}, 422, "translation"),
        ("/v1/continue", {"text": "Tee.", "prefix": ["no such"], **PAIR}, 400, "no piece for"),
        ("/v1/continue", {"text": "Tee.", "prefix": "a b c " * 20, **PAIR}, 400, "shorten"),
        ("/v1/alternatives", {"text": "Tee.", "n_best": 2, "threshold": 0.1, **PAIR}, 422, "both"),
        ("/v1/alternatives", {"text": "Tee.", "max_seconds": 0, **PAIR}, 422, "max_seconds"),
        (
            "/translate",
            {"q": "Tee.", "source": "de", "target": "en", "format": "html"},
            422,
            "text",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(client, path, body, status, said):
    found, answer = client.post(path, **body)
    assert found == status
    assert said in answer["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"\xff\xfe", 422),
        (b"[" * 20_000, 413),
        (b'{"text": ' + b"[" * 100 + b"]" * 100 + b"}", 422),
        (b"9" * 5000, 400),
        (b"x" * 200_000, 413),
    ],
)
def test_bodies_that_are_no_requests(client, body, status):
    assert client.ask("POST", "/v1/translate", body)[0] == status


@pytest.mark.parametrize(
    "path", ["/..%2f..%2fetc/passwd", "/%2e%2e/app.py", "/index.html%00.js", "/nothing", "/app.py"]
)
def test_nothing_in_a_request_reaches_a_path(client, path):
    assert client.get(path)[0] == 404


def test_libretranslate(client, translator):
    text = "Wir trinken heute Tee und essen Kuchen. Ja."
    sentences = ["Wir trinken heute Tee und essen Kuchen.", "Ja."]
    right = " ".join(found.text for (found,) in translator.translate(sentences))
    form = urllib.parse.urlencode({"q": text, "source": "de", "target": "en"})
    _, _, said = client.ask("POST", "/translate", form, "application/x-www-form-urlencoded")
    assert said == {"translatedText": right}
    status, said = client.post("/translate", q=[text, text], source="auto", target="en")
    assert (status, said["translatedText"]) == (200, [right, right])
    assert said["detectedLanguage"]["language"] == "de"
    _, said = client.post("/translate", q="Tee.", source="de", target="en", alternatives=2)
    assert len(said["alternatives"]) <= 2
    assert client.get("/languages")[1] == [{"code": "de", "name": "German", "targets": ["en"]}]


def test_a_client_of_libretranslate_that_nobody_here_wrote(client, translator):
    theirs = pytest.importorskip("libretranslatepy").LibreTranslateAPI(client.url)
    ((found,),) = translator.translate(["Das ist Tee."])
    assert theirs.translate("Das ist Tee.", "de", "en") == found.text
    assert [one["code"] for one in theirs.languages()] == ["de"]
    assert theirs.detect("Das ist eine Tasse Tee für dich.")[0]["language"] == "de"


def test_what_a_request_lacks_is_said_plainly(client):
    body = json.dumps({"text": "Tee.", **PAIR})
    status, _, said = client.ask("POST", "/v1/translate", body, "application/x-www-form-urlencoded")
    assert (status, "content-type: application/json" in said["error"]) == (422, True)
    status, _, said = client.ask("POST", "/v1/translate", body[:-5])
    assert (status, "only a part of it" in said["error"]) == (422, True)


def test_a_client_that_goes_away_is_forgotten(client, running):
    body = json.dumps({"text": "Tee und Wasser.", "threshold": 0.001, **PAIR})
    head = "POST /v1/alternatives HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    for _ in range(12):
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
            time.sleep(0.05)
    until = time.monotonic() + 20
    while len(running.hall.exact) and time.monotonic() < until:
        time.sleep(0.05)
    assert len(running.hall.exact) == 0
    assert client.post("/v1/alternatives", text="Tee.", n_best=1, **PAIR)[0] == 200


def test_a_process_that_dies_is_replaced(client, running):
    os.kill(running.hall.exact._owner._process.pid, signal.SIGKILL)
    status, _ = client.post("/v1/alternatives", text="Tee.", **PAIR)
    assert status == 503
    assert client.post("/v1/alternatives", text="Tee.", **PAIR)[0] == 200
    assert client.get("/ready")[0] == 200


def test_tokens_and_groups():
    euro = ["▁Caf", "<0xC3>", "<0xA9>", "▁", "<0xE2>", "<0x82>", "<0xAC>", "<0xFF>", "</s>"]
    assert answers._texts(euro) == [" Caf", "", "é", " ", "", "", "€", "�", ""]
    texts = ["I am sorry.", "I am sorry!", "Sorry.", "sorry"]
    groups = answers._grouped([Translation(text, (), -1.0, None) for text in texts])
    assert [group["text"] for group in groups] == ["I am sorry.", "Sorry."]
    assert [group["variants"][0]["text"] for group in groups] == ["I am sorry!", "sorry"]
