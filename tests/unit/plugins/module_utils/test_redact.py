# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is hidden, and what is left as it is."""

from __future__ import annotations

import pytest
from ansible_collections.inferops.sglang_pd.plugins.module_utils import _redact


@pytest.mark.parametrize(
    "text",
    [
        "--api-key canary",
        "--api-key=canary",
        "--admin-api-key canary --port 1",
        '{"api_key": "canary"}',
        "Environment=HF_TOKEN=canary",
        "env: API_KEY=canary VLLM=1",
        "password=canary",
    ],
)
def test_values_of_what_is_named_like_a_secret_are_hidden(text: str) -> None:
    hidden = _redact.redact(text, [])
    assert "canary" not in hidden
    assert _redact.HIDDEN in hidden


def test_known_secrets_are_hidden_wherever_they_are() -> None:
    assert _redact.redact("xcanaryx", ["canary", ""]) == "x********x"


@pytest.mark.parametrize(
    "text", ["max_tokens=24", "#new-token: 24, #cached-token: 0", "keys=3", "--tokenizer-path /models/m", "monkey = 1"]
)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    assert _redact.redact(text, []) == text
