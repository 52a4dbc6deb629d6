"""A server that speaks as much of Hugging Face's protocol as a download needs, for one process.

    GET  /api/models/ORG/NAME/revision/REVISION   the commit
    GET  /api/models/ORG/NAME/tree/COMMIT         its files, with sizes and checksums
    HEAD /ORG/NAME/resolve/REVISION/FILE          commit, checksum and size in headers
    GET  /ORG/NAME/resolve/REVISION/FILE          the content

Written after the requests that huggingface_hub 2.4 makes, and its documentation of the endpoints.
"""

import contextlib
import dataclasses
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Iterator

API = "/api/models/([^/]+/[^/]+|[^/]+)(?:/(revision|tree)/(.*))?"
REVISION = "0123456789abcdef0123456789abcdef01234567"


@dataclasses.dataclass
class HubServer:
    """What the server holds and what it was asked for.

    Attributes:
      files: content by "org/name" and by file; by "org/name@COMMIT" where a commit differs.
      revisions: branches and tags, the commit by its name.
      gated: names of models that ask to agree first.
      broken: files that arrive with other bytes than the list says.
      requests: method and path of each, in order.
    """

    files: dict[str, dict[str, bytes]]
    revisions: dict[str, str] = dataclasses.field(default_factory=lambda: {"main": REVISION})
    gated: tuple[str, ...] = ()
    broken: dict[str, bytes] = dataclasses.field(default_factory=dict)
    requests: list[str] = dataclasses.field(default_factory=list)
    url: str = ""

    def downloaded(self) -> list[str]:
        """Returns the files whose content was sent, by name."""
        gets = [r.split(" ")[1] for r in self.requests if r.startswith("GET ") and "/resolve/" in r]
        return sorted(path.split("/", 5)[5] for path in gets)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests for what its `hub` holds."""

    hub: HubServer

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        if match := re.fullmatch(API, path):
            self._answer_api(match[1], match[2] or "revision", match[3] or "main")
        elif match := re.fullmatch("/([^/]+/[^/]+)/resolve/([^/]+)/(.*)", path):
            self._answer_file(*match.groups(), with_body)
        else:
            self._refuse(404, "EntryNotFound")

    def _commit(self, name: str, revision: str) -> str | None:
        """Returns the commit, or None after an error was sent."""
        if name in self.hub.gated:
            self._refuse(403, "GatedRepo")
        elif name not in self.hub.files:
            self._refuse(404, "RepoNotFound")
        elif revision in self.hub.revisions.values():
            return revision
        elif revision in self.hub.revisions:
            return self.hub.revisions[revision]
        else:
            self._refuse(404, "RevisionNotFound")
        return None

    def _answer_api(self, name: str, what: str, revision: str) -> None:
        if (commit := self._commit(name, revision)) is None:
            return
        answer: object = {"id": name, "modelId": name, "sha": commit, "siblings": []}
        if what == "tree":
            files = self.hub.files.get(f"{name}@{commit}", self.hub.files[name])
            answer = [self._listed(*file) for file in files.items()]
        self._send(json.dumps(answer).encode(), {"Content-Type": "application/json"})

    def _listed(self, file: str, content: bytes) -> dict[str, object]:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        listed: dict[str, object] = {"type": "file", "oid": oid, "size": len(content)}
        if is_large(file):
            sha = hashlib.sha256(content).hexdigest()
            listed["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 134}
        return {**listed, "path": file}

    def _answer_file(self, name: str, revision: str, file: str, with_body: bool) -> None:
        if (commit := self._commit(name, revision)) is None:
            return None
        files = self.hub.files.get(f"{name}@{commit}", self.hub.files[name])
        if file not in files:
            return self._refuse(404, "EntryNotFound")
        content = files[file]
        listed = self._listed(file, content)
        etag = listed["lfs"]["oid"] if is_large(file) else listed["oid"]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}
        if is_large(file):
            headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
        return self._send(self.hub.broken.get(file, content), headers, with_body)

    def _send(self, content: bytes, headers: dict[str, str], with_body: bool = True) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextlib.contextmanager
def serve(files: dict[str, dict[str, bytes]]) -> Iterator[HubServer]:
    """Serves models until the block ends."""
    hub = HubServer(files)

    handler = type("Handler", (Handler,), {"hub": hub})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def is_large(file: str) -> bool:
    """True for what the hub stores apart from git, with a SHA-256."""
    return file.endswith((".safetensors", ".bin", ".h5"))
