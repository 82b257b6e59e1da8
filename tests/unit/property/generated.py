# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plays generated histories, always the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st


def play_all(histories: st.SearchStrategy[Any], many: int, play: Callable[[Any], None], shrink: bool = True) -> None:
    """Play so many histories; raise what the first one raises that breaks a rule.

    :param shrink: whether to look for the shortest one that breaks it.
    """

    @settings(
        max_examples=many,
        derandomize=True,
        print_blob=True,
        deadline=None,
        database=None,
        phases=list(Phase) if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories)
    def hold(history: Any) -> None:
        play(history)

    hold()


#: Histories that a mutant may survive before it is called undetected.
MUTANTS_MAY_SURVIVE = 1500


def assert_caught(
    error: type[Exception], rules: tuple[str, ...], histories: st.SearchStrategy[Any], play: Callable[[Any], None]
) -> None:
    """Assert that a history breaks a rule, and that it is one of these.

    :param error: what breaking a rule raises; its ``rule`` says which one.
    """
    with pytest.raises(error) as caught:
        play_all(histories, MUTANTS_MAY_SURVIVE, play, shrink=False)
    assert caught.value.rule in rules, str(caught.value)[:2000]
