"""A server on a port of its own, and who asks it."""

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

uvicorn = pytest.importorskip("uvicorn")


class Client:
    """What a client may send; every answer is checked for what all answers have."""

    def __init__(self, port):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method, path, body=None, kind="application/json", **headers):
        """A status, the headers and what the body says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, {"content-type": kind} | headers)
        answer = connection.getresponse()
        content, said = answer.read(), answer.headers
        connection.close()
        if content in (b"", b"Invalid HTTP request received.") and answer.status == 400:
            return 400, said, ""  # not even uvicorn understood it
        assert "default-src 'none'" in said["content-security-policy"]
        assert said["x-content-type-options"] == "nosniff"
        if not said["content-type"].startswith("application/json"):
            return answer.status, said, content.decode()
        content = json.loads(content)
        if answer.status >= 400:
            assert [*content] == ["error"], content
            assert content["error"].endswith("."), content
            assert "Traceback" not in content["error"]
        return answer.status, said, content

    def post(self, path, **body):
        status, _, said = self.ask("POST", path, json.dumps(body))
        return status, said

    def get(self, path):
        status, _, said = self.ask("GET", path)
        return status, said


@contextmanager
def listening(app):
    """Run an application for as long as the block takes."""
    place = socket.create_server(("127.0.0.1", 0), backlog=512)
    config = uvicorn.Config(app, access_log=False, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([place],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Client(place.getsockname()[1])
    server.should_exit = True
    thread.join()
