# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print what the HTTP faces of an engine look like, as JSON. Runs on a test host.

Usage: python3 - PORT BOOTSTRAP_PORT (0: none) < faces.py

``answers``: status and content type of each request's answer, and the shape of what a GET gives. ``metrics``: type of
each family; label names of each sample name. The shape of a JSON body is its fields with the
types of their values.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0}
#: A request that is not transferred: the engine's own health check has this bootstrap host.
FAKE = {"bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
#: Method, path, body. /metrics first: the others show in it.
REQUESTS = [
    ("GET", "/metrics", None),
    ("GET", "/health", None),
    ("GET", "/health_generate", None),
    ("GET", "/ready", None),
    ("GET", "/ping", None),
    ("GET", "/get_load", None),
    ("GET", "/server_info", None),
    ("GET", "/get_server_info", None),
    ("GET", "/model_info", None),
    ("GET", "/get_model_info", None),
    ("GET", "/v1/models", None),
    ("GET", "/v1/loads", None),
    ("GET", "/v1/loads?include=disagg", None),
    ("GET", "/v1/loads?include=core,memory", None),
    ("GET", "/v1/loads?include=nonsense", None),
    ("GET", "/there-is-no-such-path", None),
    ("GET", "/v1/chat/completions", None),
    ("POST", "/health", {}),
    ("POST", "/v1/chat/completions", {"model": "tiny"}),
    ("POST", "/v1/chat/completions", {**CHAT, **FAKE}),
    ("POST", "/generate", {"text": "hi", "sampling_params": {"max_new_tokens": 2}, **FAKE}),
    ("POST", "/v1/completions", {"model": "tiny", "prompt": "hi", "max_tokens": 2, **FAKE}),
    ("POST", "/abort_request", {"rid": "nobody's"}),
    ("GET", "/flush_cache", None),
    ("POST", "/flush_cache", {}),
    ("GET", "/freeze_gc", None),
    ("POST", "/freeze_gc", {}),
]
BOOTSTRAP_REQUESTS = [("GET", "/health", None), ("GET", "/route", None), ("GET", "/nothing", None)]
TYPES = {bool: "boolean", int: "number", float: "number", str: "text", type(None): "null"}


def shape(value: object) -> object:
    """Return fields and types, without values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return ["list", shape(value[0])] if value else ["list"]
    return TYPES[type(value)]


def answer(method: str, url: str, body: object) -> tuple[int, str, str]:
    """Return status, content type and text of an answer."""
    request = urllib.request.Request(
        url, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as got:
            return (
                got.status,
                got.headers.get_content_type() if got.headers["Content-Type"] else "",
                got.read().decode(),
            )
    except urllib.error.HTTPError as got:
        return got.code, got.headers.get_content_type() if got.headers["Content-Type"] else "", got.read().decode()


def described(method: str, base: str, path: str, body: object) -> dict[str, object]:
    """Return what an answer looks like."""
    status, content_type, text = answer(method, base + path, body)
    found: dict[str, object] = {"status": status, "content_type": content_type}
    # Of what completions tell besides the text, the stand-in has only a part.
    if content_type == "application/json" and text and method == "GET":
        found["fields"] = shape(json.loads(text))
    return found


def metrics(text: str) -> dict[str, object]:
    """Return types and label names."""
    families = list(text_string_to_metric_families(text))
    return {
        "types": {family.name: family.type for family in families},
        "labels": {sample.name: sorted(sample.labels) for family in families for sample in family.samples},
    }


def main() -> None:
    """Ask everything."""
    port, bootstrap_port = sys.argv[1:]
    base = f"http://127.0.0.1:{port}"
    first = metrics(answer("GET", base + "/metrics", None)[2])
    answers = {
        f"{method} {path} {json.dumps(body) if body else ''}".strip(): described(method, base, path, body)
        for method, path, body in REQUESTS
    }
    if bootstrap_port != "0":
        for method, path, body in BOOTSTRAP_REQUESTS:
            answers[f"bootstrap {method} {path}"] = described(method, f"http://127.0.0.1:{bootstrap_port}", path, body)
    json.dump({"metrics": first, "answers": answers}, sys.stdout)


if __name__ == "__main__":
    main()
