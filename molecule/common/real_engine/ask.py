#!/usr/bin/python3
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send chat requests with temperature 0, all of them at once, and print what became of each.

Usage: ask.py URL MODEL LIMIT_SECONDS MAX_TOKENS < PROMPTS > ANSWERS

PROMPTS is a JSON list of texts. ANSWERS is one of the same length and order, of objects with
``text`` ("" where there is none), ``finish_reason``, ``error`` ("" where the request was
answered) and ``seconds``. Standard library only: it runs on the test hosts.
"""

from __future__ import annotations

import concurrent.futures
import json
import sys
import time
import urllib.error
import urllib.request


def ask(url: str, model: str, limit_seconds: float, max_tokens: int, prompt: str) -> dict[str, object]:
    """Send one request; a request that is not answered in time is an answer with an error."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    begun = time.monotonic()
    answer: dict[str, object] = {"text": "", "finish_reason": "", "error": ""}
    try:
        with urllib.request.urlopen(request, timeout=limit_seconds) as response:
            choice = json.load(response)["choices"][0]
            answer.update(text=choice["message"]["content"] or "", finish_reason=choice["finish_reason"])
    except urllib.error.HTTPError as refused:
        answer["error"] = f"HTTP {refused.code}: {refused.read(300).decode(errors='replace')}"
    except (OSError, ValueError, KeyError) as failed:
        answer["error"] = f"{type(failed).__name__}: {failed}"
    answer["seconds"] = round(time.monotonic() - begun, 2)
    return answer


def main() -> None:
    """Ask all at once."""
    url, model, limit_seconds, max_tokens = sys.argv[1:]
    prompts = json.load(sys.stdin)
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        answers = pool.map(lambda prompt: ask(url, model, float(limit_seconds), int(max_tokens), prompt), prompts)
        json.dump(list(answers), sys.stdout)


if __name__ == "__main__":
    main()
