"""Requests made to break something: no 5xx, no traceback, no hang, whatever they say."""

import json
import random
import time

import pytest

PATHS = ("/v1/translate", "/v1/alternatives", "/v1/score", "/v1/continue", "/translate", "/detect")
GETS = ("/", "/docs", "/openapi.json", "/v1/models", "/health", "/ready", "/metrics", "/languages")
FIELDS = ["text", "source", "target", "model", "search", "beam_size", "length_penalty", "share"]
FIELDS += ["tokens", "split", "threshold", "n_best", "prefix", "max_states", "max_seconds"]
FIELDS += ["translation", "q", "format", "alternatives", "api_key", "__proto__", "\x00", ""]
TEXTS = [
    "",
    " ",
    "\0",
    "\n\n\n",
    "Tee." * 30,
    "T" * 5000,
    "\ud800",
    "\udfff Tee",
    "𝔗𝔢𝔢",
    "\u202eeeT",
]
TEXTS += ["' OR 1=1 --", "<script>alert(1)</script>", "../../etc/passwd", "%s%n%x", "${jndi:ldap}"]
TEXTS += ["{|}\\", "▁▁▁", "</s>", "<0xC3>", "<unk><pad>", "e\u0301" * 99, "ß" * 399, "\u2028" * 200]
TEXTS += [
    "a.b.c." * 60,
    "…?!" * 130,
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿" * 20,
    "\ufeff",
    "\ufdd0\uffff",
    "日本語。" * 50,
    "1" * 300,
]
NUMBERS = [0, -1, 1, 2, 10**6, 10**18, 10**30, -(10**30), 0.5, 1e-300, 1e308, -0.0, float("nan")]
NUMBERS += [float("inf"), -float("inf"), True, None, "1", "NaN"]
BODIES = [b"", b"null", b"[]", b"0", b'"', b"{", b'{"text":}', b"\x00", b"\xff\xfe\x00", b"NaN"]
BODIES += [b"[" * 3000, b'{"a":' * 900, b"9" * 4400, b'{"text": "' + b"\\ud800" * 500 + b'"}']
BODIES += [
    b"\xef\xbb\xbf{}",
    b"q=%ff%fe&source=de",
    b"q" * 4000,
    b"&" * 3000,
    b"=" * 99,
    b"\r\n" * 99,
]
KINDS = [
    "application/json",
    "application/x-www-form-urlencoded",
    "text/plain",
    "",
    "x",
    "multipart/",
]
KINDS += ["multipart/form-data; boundary=x", "application/json; charset=utf-7", "application/xml"]
HEADERS = [{"authorization": "Bearer"}, {"authorization": "\x7f" * 500}, {"x-api-key": "k" * 4000}]
HEADERS += [{"content-encoding": "gzip"}, {"origin": "https://evil.example"}, {"accept": "*" * 99}]
HEADERS += [{"transfer-encoding": "chunked"}, {"expect": "100-continue"}, {"range": "bytes=9-1"}]
HEADERS += [{"x-forwarded-for": "1.1.1.1"}, {"upgrade": "websocket"}, {"cookie": ";" * 999}, {}]


def thing(chance, depth=0):
    """Any value of JSON, rather a hostile one."""
    if depth < 3 and chance.random() < 0.15:
        inside = [thing(chance, depth + 1) for _ in range(chance.randrange(4))]
        return inside if chance.random() < 0.5 else dict(zip(FIELDS, inside, strict=False))
    return chance.choice([chance.choice(TEXTS), chance.choice(NUMBERS)])


def fields(chance, path):
    """A request that is nearly right, and wrong somewhere."""
    said = {"text": "Tee.", "translation": "Tea.", "prefix": "Te"} | {"q": "Tee."}
    needs = {"score": ["text", "translation"], "continue": ["text", "prefix"]}
    wanted = needs.get(path.rpartition("/")[2], ["text"] if path.startswith("/v1") else ["q"])
    asked = {name: said[name] for name in wanted} | {"source": "de", "target": "en"}
    for _ in range(chance.randrange(3)):
        asked[chance.choice([*asked, *FIELDS])] = thing(chance)
    if chance.random() < 0.1:
        del asked[chance.choice([*asked])]
    return asked


def hostile(number):
    """The method, path, body, kind and headers of one of very many requests."""
    chance = random.Random(number)
    path, headers = chance.choice(PATHS), chance.choice(HEADERS) if number % 4 == 0 else {}
    if number % 10 == 0:
        method = chance.choice(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "X"])
        odd = [
            "/%00",
            "/" + "a" * 3000,
            "/v1/../metrics",
            "//",
            "/?" + "q=1&" * 500,
            "/%ff",
            "/v1/",
        ]
        return method, chance.choice([*PATHS, *GETS, *odd]), b"", chance.choice(KINDS), headers
    if number % 5 == 0:
        return "POST", path, chance.choice(BODIES), chance.choice(KINDS), headers
    kind = "application/json" if number % 6 else chance.choice(KINDS)
    return "POST", path, json.dumps(fields(chance, path)).encode(), kind, headers


def check(client, numbers):
    for number in numbers:
        method, path, body, kind, headers = hostile(number)
        began = time.monotonic()
        try:
            status, _, _ = client.ask(method, path, body, kind, **headers)
        except ConnectionError:  # what is no HTTP may be cut off
            assert headers or method == "X", number
            continue
        except json.JSONDecodeError:
            assert method == "HEAD", number
            continue
        assert status < 500, (number, method, path, body[:200])
        assert time.monotonic() - began < 30, number
    assert client.get("/health") == (200, {"status": "ok"})
    assert (
        client.post("/v1/score", text="Tee.", translation="Tea.", source="de", target="en")[0]
        == 200
    )


def test_hostile_requests_are_answered(client, caplog):
    check(client, range(150))
    assert "Traceback" not in caplog.text


@pytest.mark.slow
def test_very_many_hostile_requests_are_answered(client, caplog):
    check(client, range(2000))
    assert "Traceback" not in caplog.text


@pytest.mark.slow
def test_the_description_of_the_api_holds(client):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    described = schemathesis.openapi.from_url(f"{client.url}/openapi.json")
    checks = [not_a_server_error, content_type_conformance]
    checks += [response_schema_conformance, status_code_conformance]
    operations = [one.ok() for one in described.get_all_operations()]
    assert len(operations) > 8

    @settings(max_examples=400, suppress_health_check=list(HealthCheck))
    @given(st.one_of([operation.as_strategy() for operation in operations]))
    def fuzzed(case):
        case.call_and_validate(base_url=client.url, checks=checks)

    fuzzed()
