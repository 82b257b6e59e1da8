# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a verification sends, as data: parts of lanes of requests. Pure.

A *part* is one kind of proof. It has *lanes*, which run side by side (at most
``at_a_time`` of them), and a lane has requests, which follow each other. A request is a dict:
``to`` ("router" or "pair"), ``via`` (unit of the router) or ``prefill`` and ``decode``
(units), ``messages``, ``session`` (True: the lane's messages and answers so far come before them),
``max_tokens``, ``temperature``, ``stream``, and what is expected of its answer
(:func:`_answers.judge`); for a soak ``after_seconds`` (it is not sent earlier in its part); for
the abort storm ``drop`` (after how many events, and after how many seconds at the latest, the
client leaves).
"""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _answers, _settings, _topology
from ansible_collections.inferops.sglang_pd.plugins.module_utils._topology import DECODE, PREFILL, ROUTER

SEQUENTIAL = "sequential"
PAIRS = "pairs"
CONCURRENT = "concurrent"
AGENTIC = "agentic"
GOLDEN = "golden"
ABORTS = "aborts"
AFTER_ABORTS = "after_aborts"
SOAK = "soak"

#: No verification at the end of a co-restart.
NONE = "none"

#: In the order in which they run: what proves least load first, and nothing more is sent
#: to a cluster that does not serve the first part.
PARTS = (SEQUENTIAL, PAIRS, GOLDEN, CONCURRENT, AGENTIC, ABORTS, AFTER_ABORTS, SOAK)

#: Parts and sizes of each profile. Sizes that a profile does not name are those of "standard".
PROFILES: dict[str, dict[str, Any]] = {
    "smoke": {"parts": (SEQUENTIAL, GOLDEN)},
    "standard": {
        "parts": (SEQUENTIAL, PAIRS, GOLDEN, CONCURRENT, AGENTIC),
        "requests": 8,
        "pair_transfers": 2,
        "concurrent_requests": 32,
        "sessions": 8,
        "rounds": 3,
        "abort_streams": 60,
        "soak_seconds": 60,
    },
    "stress": {
        "parts": tuple(part for part in PARTS if part != SOAK),
        "pair_transfers": 3,
        "concurrent_requests": 200,
        "sessions": 30,
        "abort_streams": 200,
    },
}
SIZES = tuple(name for name in PROFILES["standard"] if name != "parts")

_NUMBER: dict[str, Any] = {"type": "int"}
#: Options of a verification with their defaults, as an argument spec. A co-restart uses it too.
OPTIONS: dict[str, dict[str, Any]] = {
    "profile": {"type": "str", "choices": list(PROFILES), "default": "standard"},
    "parts": {"type": "list", "elements": "str", "choices": list(PARTS), "default": []},
    **dict.fromkeys(SIZES, _NUMBER),
    "golden": {"type": "list", "elements": "dict", "default": []},
    "prompt": {"type": "str", "default": "say hi briefly"},
    "max_tokens": dict(_NUMBER, default=24),
    "temperature": {"type": "float", "default": 0.6},
    "long_prompt_words": dict(_NUMBER, default=1500),
    "any_text": {"type": "bool", "default": False},
    "request_limit_seconds": {"type": "float", "default": 35},
    "sample_seconds": {"type": "float", "default": 1},
    "stall_seconds": {"type": "float", "default": 20},
    "settle_limit_seconds": {"type": "float", "default": 60},
    "abort_limit_seconds": {"type": "float", "default": 30},
    "recovery_limit_seconds": {"type": "float", "default": 60},
    "baseline": {"type": "str", "choices": ["keep", "renew", "ignore"], "default": "keep"},
    "regression_factor": {"type": "float", "default": 1.5},
    "regression_slack_seconds": {"type": "float", "default": 0.25},
    "fail_on_regression": {"type": "bool", "default": False},
}

#: Failed requests that end a lane, and a part: each may take its full limit.
LANE_FAILURES = 1
PART_FAILURES = 8
#: Seconds between two requests of a soak through the same router: little load, and one within
#: each window that shows a stuck queue.
SOAK_INTERVAL_SECONDS = 5
#: Requests after an abort storm, through each router.
REQUESTS_AFTER_ABORTS = 3
#: Tokens that a request of the storm asks for: it must still run when its client leaves.
ABORT_MAX_TOKENS = 512
#: (events after which the client leaves, seconds after which it leaves at the latest), in turns:
#: before the first token, at the first one, amid the stream.
DROPS = ((1, 0.05), (1, 1.0), (8, 2.0), (1, 0.3), (24, 3.0))

#: Words of the long prompt of a pair: several times the page of any KV cache.
_LOREM = (
    "The unit starts, the port opens, the health check answers, and still no request is served: "
    "only a transfer of real pages from prefill to decode proves the path. "
)
_RESULT = (
    "Tool result {round} of session {word}: the command exited with status {status} after {seconds} s and "
    "printed {lines} lines; the last one reads 'queue {queue} holds {held} requests'. "
)


def after_co_restart(profile: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the verification that ends a co-restart.

    :param profile: ``none`` or one of :data:`PROFILES`. Its sequential requests are those of
        the co-restart's own proof, and not sent again. Without golden answers nothing remains of
        ``smoke``.
    :param given: options that are not the default ones.
    """
    options = dict({name: option.get("default") for name, option in OPTIONS.items()}, **given)
    if profile == NONE:
        return options
    parts = [part for part in PROFILES[profile]["parts"] if part != SEQUENTIAL]
    if not options["golden"]:
        parts.remove(GOLDEN)
    return dict(options, profile=profile, parts=parts)


def model_of(members: list[dict[str, Any]]) -> str:
    """Return the name by which the engines of a cluster know their model."""
    # A model's name is no secret, what else is in the settings may be.
    settings = _topology.serving(members)[0]["settings"]
    return str(settings.get("served_model_name") or settings["model_path"])


def problems_of(options: dict[str, Any]) -> list[dict[str, str]]:
    """Return what is wrong with the options of a verification."""
    problems = []
    for part in options["parts"]:
        if part not in PARTS:
            problems.append(
                _topology.problem(
                    "known parts",
                    "part {0!r} is unknown{1}; there are {2}".format(
                        part, _settings.suggestion(part, PARTS), ", ".join(PARTS)
                    ),
                    variable="pd_verify_parts",
                )
            )
    for number, item in enumerate(options["golden"]):
        wrong = _wrong_golden(item)
        if wrong:
            problems.append(
                _topology.problem(
                    "golden answers can be compared", "item {0} {1}".format(number, wrong), variable="pd_verify_golden"
                )
            )
    for name in SIZES:
        if options.get(name) is not None and options[name] < 1:
            problems.append(
                _topology.problem(
                    "at least one request",
                    "{0} is {1}; leave out the part instead".format(name, options[name]),
                    variable="pd_verify_" + name,
                )
            )
    return problems


def _wrong_golden(item: Any) -> str:
    if not isinstance(item, dict) or not item.get("prompt") or not isinstance(item.get("text"), str):
        return "wants prompt and text"
    match = item.get("match", _answers.EQUALS)
    if match not in (_answers.EQUALS, _answers.CONTAINS, _answers.MATCHES):
        return "has match {0!r}; there are equals, contains, matches".format(match)
    if match == _answers.MATCHES:
        try:
            re.compile(item["text"])
        except re.error as trouble:
            return "is no regular expression: {0}".format(trouble)
    return ""


def sizes(options: dict[str, Any]) -> dict[str, int]:
    """Return how many of everything: the option's value, else the profile's."""
    profile = dict(PROFILES["standard"], **PROFILES[options["profile"]])
    return {name: profile[name] if options.get(name) is None else int(options[name]) for name in SIZES}


def plan(members: list[dict[str, Any]], options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a verification of one cluster, in order.

    :param members: of the cluster; ``host`` and ``unit`` tell them apart, engines by rank 0.
    :param options: ``profile``; ``parts`` ([] for the profile's); ``golden``; each of
        :data:`SIZES` or None; ``prompt``, ``max_tokens``, ``temperature`` of the founding
        check; ``any_text``; ``long_prompt_words``.
    """
    chosen = options["parts"] or PROFILES[options["profile"]]["parts"]
    made = [_BUILD[part](members, options, sizes(options)) for part in PARTS if part in chosen]
    return [part for part in made if part["lanes"]]


def _part(part: str, shape: str, lanes: list[list[dict[str, Any]]], **more: Any) -> dict[str, Any]:
    return dict(
        {
            "part": part,
            "shape": shape,
            "lanes": lanes,
            "at_a_time": len(lanes),
            "lane_failures": LANE_FAILURES,
            "part_failures": PART_FAILURES,
            "cold_first": False,
        },
        **more,
    )


def _routed(router: str, text: str, options: dict[str, Any], max_tokens: int = 0, **more: Any) -> dict[str, Any]:
    return dict(
        {
            "to": "router",
            "via": router,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens or options["max_tokens"],
            "temperature": options["temperature"],
            "stream": False,
        },
        **more,
    )


def _routers(members: list[dict[str, Any]]) -> list[str]:
    return [name_of(member) for member in members if member["role"] == ROUTER]


def name_of(member: dict[str, Any]) -> str:
    """Return what tells a member from all others of its cluster: units repeat over hosts."""
    return "{0}@{1}".format(member["unit"], member["host"])


def _sequential(members: list[dict[str, Any]], options: dict[str, Any], many: dict[str, int]) -> dict[str, Any]:
    lanes = [[_routed(router, options["prompt"], options)] * many["requests"] for router in _routers(members)]
    shape = "{0} x {1} tokens".format(many["requests"], options["max_tokens"])
    # One router after the other: the latencies are those of an idle cluster.
    return _part(SEQUENTIAL, shape, lanes, at_a_time=1, lane_failures=2, cold_first=True)


def _after_aborts(members: list[dict[str, Any]], options: dict[str, Any], _many: dict[str, int]) -> dict[str, Any]:
    lanes = [[_routed(router, options["prompt"], options)] * REQUESTS_AFTER_ABORTS for router in _routers(members)]
    shape = "{0} x {1} tokens".format(REQUESTS_AFTER_ABORTS, options["max_tokens"])
    return _part(AFTER_ABORTS, shape, lanes, at_a_time=1)


def _soak(members: list[dict[str, Any]], options: dict[str, Any], many: dict[str, int]) -> dict[str, Any]:
    """Return requests spread over a time, while the queues are sampled: what comes late shows, too."""
    times = [*range(0, many["soak_seconds"], SOAK_INTERVAL_SECONDS), many["soak_seconds"]]
    lanes = [
        [_routed(router, options["prompt"], options, after_seconds=seconds) for seconds in times]
        for router in _routers(members)
    ]
    shape = "one each {0} s for {1} s x {2} tokens".format(
        SOAK_INTERVAL_SECONDS, many["soak_seconds"], options["max_tokens"]
    )
    return _part(SOAK, shape, lanes)


def _pairs(members: list[dict[str, Any]], options: dict[str, Any], many: dict[str, int]) -> dict[str, Any]:
    serving = _topology.serving(members)
    short = options["prompt"]
    repeats = options["long_prompt_words"] // len(_LOREM.split()) + 1
    lanes = []
    for prefill in (m for m in serving if m["role"] == PREFILL):
        for decode in (m for m in serving if m["role"] == DECODE):
            lane = []
            for number in range(many["pair_transfers"]):
                # A number of its own keeps each prompt out of the prefix cache: pages are computed and sent.
                for text in (short, "Transfer {0}. ".format(number) + _LOREM * repeats):
                    lane.append(
                        {
                            "to": "pair",
                            "prefill": name_of(prefill),
                            "decode": name_of(decode),
                            "messages": [{"role": "user", "content": text}],
                            "max_tokens": options["max_tokens"],
                            "temperature": options["temperature"],
                            "stream": False,
                        }
                    )
            lanes.append(lane)
    shape = "{0} short and {0} long x {1} tokens".format(many["pair_transfers"], options["max_tokens"])
    return _part(PAIRS, shape, lanes, at_a_time=4)


def _golden(members: list[dict[str, Any]], options: dict[str, Any], _many: dict[str, int]) -> dict[str, Any]:
    lanes = []
    for router in _routers(members):
        lane = [
            _routed(router, item["prompt"], options, item.get("max_tokens", 0), temperature=0, golden=item)
            for item in options["golden"]
        ]
        lanes += [lane] if lane else []
    return _part(GOLDEN, "{0} answers".format(len(options["golden"])), lanes, lane_failures=PART_FAILURES)


def _concurrent(members: list[dict[str, Any]], options: dict[str, Any], many: dict[str, int]) -> dict[str, Any]:
    routers, count = _routers(members), many["concurrent_requests"]
    lanes = [
        [_routed(routers[n % len(routers)], "{0}, as number {1}".format(options["prompt"], n), options, stream=True)]
        for n in range(count if routers else 0)
    ]
    return _part(CONCURRENT, "{0} at a time x {1} tokens".format(count, options["max_tokens"]), lanes)


def word_of(session: int) -> str:
    """Return the word that belongs to one session alone; no model makes it up."""
    return "session-{0:03d}-{1:04x}".format(session, (session * 40503 + 0x1D5A) & 0xFFFF)


def _agentic(members: list[dict[str, Any]], options: dict[str, Any], many: dict[str, int]) -> dict[str, Any]:
    routers, sessions = _routers(members), many["sessions"]
    words = [word_of(session) for session in range(sessions)]
    lanes = []
    for session in range(sessions if routers else 0):
        lane = []
        for number in range(many["rounds"]):
            if number == 0:
                text = "You are in {0}. Find out why the queue does not drain. Say which tool you call first.".format(
                    words[session]
                )
            else:
                text = _tool_result(words[session], session, number) + "Say which tool you call next."
            lane.append(
                _routed(
                    routers[session % len(routers)],
                    text,
                    options,
                    stream=True,
                    session=True,
                    foreign=[word for word in words if word != words[session]],
                )
            )
        lanes.append(lane)
    shape = "{0} sessions x {1} rounds x {2} tokens".format(sessions, many["rounds"], options["max_tokens"])
    return _part(AGENTIC, shape, lanes)


def _tool_result(word: str, session: int, number: int) -> str:
    """Return what a tool gave: longer each round, different for each session."""
    return "".join(
        _RESULT.format(
            round=number,
            word=word,
            status=(session + line) % 3,
            seconds=(session * 7 + line) % 60,
            lines=session * 11 + line,
            queue=line,
            held=(session + line * 3) % 40,
        )
        for line in range(8 * number)
    )


def _aborts(members: list[dict[str, Any]], options: dict[str, Any], many: dict[str, int]) -> dict[str, Any]:
    routers, streams = _routers(members), many["abort_streams"]
    lanes = []
    for number in range(streams if routers else 0):
        events, seconds = DROPS[number % len(DROPS)]
        text = "Stream {0} of the storm. ".format(number) + _LOREM * 4
        request = _routed(routers[number % len(routers)], text, options, ABORT_MAX_TOKENS, stream=True)
        lanes.append([dict(request, drop={"events": events, "seconds": seconds})])
    return _part(ABORTS, "{0} streams".format(streams), lanes, part_failures=streams + 1)


_BUILD = {
    SEQUENTIAL: _sequential,
    PAIRS: _pairs,
    GOLDEN: _golden,
    CONCURRENT: _concurrent,
    AGENTIC: _agentic,
    ABORTS: _aborts,
    AFTER_ABORTS: _after_aborts,
    SOAK: _soak,
}


def expected_of(request: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return what :mod:`_answers` shall expect of a request's answer."""
    return {
        "max_tokens": request["max_tokens"],
        "foreign": request.get("foreign", ()),
        "golden": request.get("golden"),
        "any_text": options["any_text"],
    }


def body_of(request: dict[str, Any], before: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """Return the body of a chat request.

    :param before: messages of the lane's requests before this one, with their answers.
    """
    body = {
        "model": model,
        "messages": [*before, *request["messages"]],
        "max_tokens": request["max_tokens"],
        "temperature": request["temperature"],
    }
    if request["stream"]:
        body.update(stream=True, stream_options={"include_usage": True})
    return body


def describe(part: dict[str, Any]) -> str:
    """Return what a part sends, in words, for check mode and progress."""
    count = sum(len(lane) for lane in part["lanes"])
    first = part["lanes"][0][0]
    if first["to"] == "pair":
        way = "straight to each of {0} prefill x decode pairs".format(len(part["lanes"]))
    else:
        routers = sorted({request["via"] for lane in part["lanes"] for request in lane})
        way = "through {0}".format(", ".join(routers))
    side_by_side = ", {0} at a time".format(part["at_a_time"]) if part["at_a_time"] > 1 else ", one after the other"
    leave = ", each left by its client" if "drop" in first else ""
    return "{0}: {1} requests ({2}) {3}{4}{5}".format(part["part"], count, part["shape"], way, side_by_side, leave)
