# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole rolls as data, at the pace of real ones: plan and events for any number of clusters and any outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.inferops.sglang_pd.plugins.module_utils import _scope, _walk

from .rolls import MADE_AT, ROLL

HOSTILE = (
    "\"'><script>alert(1)</script><svg onload=alert(2)> | ` `` **b** _i_ [l](http://192.0.2.1) @all #1 "
    "\x1b[31mred\x07 \u202e\ud800\ufffe 模型 " + "W" * 300
)
#: Seconds of each step of a co-restart.
TAKES = {
    "drain": 8,
    "stop_prefill": 5,
    "start_prefill": 35,
    "stop_decode": 5,
    "start_decode": 30,
    "restart_router": 4,
    "requests": 6,
    "verify": 25,
    "settle": 5,
}
FAILURE = (
    "gate not passed within 900 s: sglang-{0}-decode.service on {0}-2 is failed (exit status 1)\n"
    "  python[812]: RuntimeError: CUDA error: out of memory\n  systemd[1]: Main process exited, code=exited, status=1"
)


def planned(name: str, wave: int, **more: Any) -> dict[str, Any]:
    """Return a cluster as a plan has it that restarts it."""
    hosts = ["{0}-{1}".format(name, number) for number in (1, 2)]
    units = [("prefill", hosts[0]), ("decode", hosts[1]), ("router", hosts[0])]
    return {
        "model": "deepseek-v4",
        "domains": ["rack{0}".format(1 + wave % 2)],
        "hosts": hosts,
        "condition": "serves",
        "evidence": "",
        "decision": "roll",
        "why": "a co-restart is due: the configuration of sglang-{0}-decode.service on {0}-2 changed".format(name),
        "wave": wave,
        "due": ["the configuration of sglang-{0}-decode.service on {0}-2 changed".format(name)],
        "stages": ["prefill", "decode", "router"],
        "scope": {"rule": _scope.WHOLE_CHAIN, "reason": "the configuration of engines changed"},
        "restarts": [
            {
                "unit": "sglang-{0}-{1}.service".format(name, role),
                "host": host,
                "role": role,
                "action": "restart",
                "reason": "its configuration changed" if role == "decode" else "the chain restarts as a whole",
            }
            for role, host in units
        ],
        "settings": [
            {
                "host": hosts[1],
                "unit": "sglang-{0}-decode.service".format(name),
                "setting": "cuda_graph_max_bs",
                "carrier": "--cuda-graph-max-bs-decode",
                "deployed": "96",
                "running": "64",
                "state": "pending",
                "evidence": "deployed after its start",
            }
        ],
        "generation": 7,
        "expected_seconds": 125.0,
        "warnings": [],
        **more,
    }


def left(decision: str, why: str, **more: Any) -> dict[str, Any]:
    """Return a cluster as a plan has it that leaves it alone."""
    none: dict[str, Any] = {"wave": 0, "due": [], "stages": [], "restarts": [], "settings": [], "warnings": []}
    about = {"model": "deepseek-v4", "domains": ["rack1"], "hosts": ["x"], "condition": "serves", "evidence": ""}
    return {**about, **none, "decision": decision, "why": why, **more}


def plan(waves: list[list[str]], alone: dict[str, dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """Return a plan of these waves.

    :param alone: clusters that it leaves alone, see :func:`left`.
    """
    clusters = {name: planned(name, number) for number, wave in enumerate(waves, start=1) for name in wave}
    return {
        "format": 1,
        "roll": ROLL,
        "made_at": MADE_AT,
        "owner": "ops@ci pid 17",
        "purpose": "weekly roll",
        "decision": "go" if waves else "nothing",
        "problems": [],
        "warnings": [],
        "options": {
            "max_unavailable": "1",
            "max_unavailable_per_domain": "",
            "canary": waves[0] if waves else [],
            "batch": "25%",
            "soak_seconds": 60,
            "failure_budget": 0,
            "repair": False,
        },
        "expected_seconds": 185.0 * len(waves),
        "waves": [
            {
                "number": number,
                "kind": "canary" if number == 1 else "batch",
                "clusters": names,
                "hosts": [host for name in names for host in clusters[name]["hosts"]],
                "soak_seconds": 60,
                "expected_seconds": 185.0,
                "pause_after": False,
                "unavailable": {
                    "models": {"deepseek-v4": {"clusters": len(names), "of": len(clusters), "most": len(names)}},
                    "domains": {"rack{0}".format(1 + number % 2): {"clusters": len(names), "of": 9, "most": 9}},
                },
            }
            for number, names in enumerate(waves, start=1)
        ],
        "clusters": {**clusters, **(alone or {})},
        **more,
    }


def refused(**more: Any) -> dict[str, Any]:
    """Return a plan that is refused."""
    problem = {
        "rule": "capacity stays",
        "message": "c is down (no answer within 35 s), which leaves no room for model deepseek-v4: repair it first, "
        "-e pd_roll_repair=true",
        "host": "",
        "variable": "pd_roll_max_unavailable",
    }
    alone = {"c": left("refused", "it is down", condition="down", evidence="no answer within 35 s")}
    return plan([], alone, **{"decision": "refused", "problems": [problem], **more})


class Story:
    """A roll as it goes: every call appends events and moves the clock."""

    def __init__(self, of: dict[str, Any], began_at: float = MADE_AT + 30):
        self.plan = of
        self.now = began_at
        self.events: list[dict[str, Any]] = []

    def tell(self, event: str, **more: Any) -> None:
        """Append an event."""
        self.events.append({"at": round(self.now, 3), "roll": self.plan["roll"], "event": event, **more})

    def begin(self) -> None:
        """Begin the roll, or begin it again."""
        counts = {"waves": len(self.plan["waves"]), "clusters": len(self.plan["clusters"])}
        self.tell("roll_began", owner=self.plan["owner"], purpose=self.plan["purpose"], **counts)
        self.now += 2

    def wave(self, number: int, outcomes: dict[str, str], soak: str = "ok") -> list[str]:
        """Walk a wave; its clusters at the same time.

        :param outcomes: by cluster: done, widened, failed, rolled_back, refused, nothing, or cut_off (the roll is
            killed amid its decodes).
        :param soak: failed: the first of the clusters that did well fails it.
        :return: the clusters that failed.
        """
        wave = self.plan["waves"][number - 1]
        self.tell("wave_began", wave=number, kind=wave["kind"], clusters=wave["clusters"])
        began, before, moments, ends = self.now, len(self.events), [], {}
        for place, name in enumerate(wave["clusters"]):
            self.now = began + 0.3 * place
            ends[name] = self._walk_cluster(number, name, outcomes.get(name, "done"))
            moments.append(self.now)
        self.now = max(moments, default=began)
        self.events[before:] = sorted(self.events[before:], key=lambda event: float(event["at"]))
        if "cut_off" in [outcomes.get(name) for name in wave["clusters"]]:
            return []
        done = [name for name, end in ends.items() if end["outcome"] == "done"]
        if done:
            self.tell("soak_began", wave=number, clusters=done, seconds=wave["soak_seconds"])
            self.now += wave["soak_seconds"]
            if soak == "failed":
                message = "it failed its soak: request 3: no answer within 35 s"
                ends[done[0]].update(outcome="failed", message=message)
            self.tell("soak_ended", wave=number, clusters=done, outcome=soak, message=ends[done[0]]["message"])
        for name, end in ends.items():
            self.tell("cluster_ended", wave=number, cluster=name, **end)
        failed = [name for name, end in ends.items() if end["outcome"] in ("failed", "rolled_back", "refused")]
        self.tell("wave_ended", wave=number, failed=failed)
        self.now += 3
        return failed

    def _walk_cluster(self, wave: int, name: str, outcome: str) -> dict[str, Any]:
        """Walk the steps of a cluster; return what is told of it when its wave ends."""
        one = self.plan["clusters"][name]
        end: dict[str, Any] = {"outcome": outcome, "message": "", "generation": one["generation"]}
        end.update(stopped=outcome not in ("refused", "nothing"), latency={"before": None, "after": None})
        if outcome == "nothing":
            return end
        if outcome == "refused":
            end.update(message="cluster {0} is locked by ops@other pid 4".format(name))
            self._step(wave, one, name, "lock", "refused", end["message"])
        elif outcome == "cut_off":
            self._attempt(wave, one, name, "start_decode", "")
        elif outcome in ("failed", "rolled_back"):
            message = FAILURE.format(name)
            self._attempt(wave, one, name, "start_decode", message)
            end.update(message="step start_decode on {0}-2: {1}".format(name, message))
            if outcome == "rolled_back":
                self._attempt(wave, one, name)
                end.update(generation=one["generation"] + 1, message="ROLLED BACK to generation 6: " + end["message"])
        else:
            if outcome == "widened":
                self._attempt(wave, one, name, "requests", "8 of 8 requests failed")
            self._attempt(wave, one, name)
            end.update(outcome="done")
        if outcome in ("done", "widened", "rolled_back"):
            before = {"median_seconds": 0.59, "p95_seconds": 0.62}
            end["latency"] = {"before": before, "after": {"median_seconds": 0.57, "p95_seconds": 0.61}}
        return end

    def _attempt(
        self, wave: int, one: dict[str, Any], name: str, fails_at: str = "", message: str | None = None
    ) -> None:
        """Walk all steps, or up to one that fails (``message``) or never ends (no message)."""
        for step in _walk.STEPS:
            if step == fails_at and not message:
                self.tell("step_began", wave=wave, cluster=name, host=one["hosts"][1], step=step)
                self.now += 20
                about = {"wave": wave, "cluster": name, "host": one["hosts"][1], "step": step}
                self.tell("waiting", message="not healthy yet, 20 s of 900 s", **about)
                return
            if step == fails_at:
                self._step(wave, one, name, step, "failed", message or "")
                for last in ("record", "unlock"):
                    self._step(wave, one, name, last)
                return
            self._step(wave, one, name, step)

    def _step(
        self, wave: int, one: dict[str, Any], name: str, step: str, outcome: str = "ok", message: str = ""
    ) -> None:
        began = self.now
        hosts = one["hosts"][1:] if outcome != "ok" else one["hosts"]
        for host in hosts:
            about = {"wave": wave, "cluster": name, "host": host, "step": step}
            self.now = began
            self.tell("step_began", **about)
            self.now = began + TAKES.get(step, 0.5)
            self.tell("step_ended", outcome=outcome, message=message, **about)

    def end(self, outcome: str, why: str = "", remaining: list[str] | None = None) -> None:
        """End the roll."""
        self.tell("roll_ended", outcome=outcome, why=why, remaining=remaining or [])


def names(count: int) -> list[str]:
    """Return names of clusters."""
    return ["c{0:0{1}d}".format(number, len(str(count))) for number in range(1, count + 1)]


def fleet(
    count: int, outcomes: dict[str, str] | None = None, size: int = 2, budget: int = 0, alone: int = 0
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return plan and events of a roll over so many clusters: one canary, then waves.

    :param outcomes: of clusters by name; all others are done.
    :param size: clusters of a wave.
    :param budget: failures after which the roll goes on.
    :param alone: how many more clusters the plan leaves alone.
    """
    outcomes, given = outcomes or {}, names(count)
    waves = [given[:1]] + [given[place : place + size] for place in range(1, count, size)]
    others = {
        "x{0}".format(number): left("skip" if number % 4 else "maintenance", "nothing is due" if number % 4 else "disk")
        for number in range(alone)
    }
    story = Story(plan(waves, others))
    story.begin()
    failed: list[str] = []
    for number in range(1, len(waves) + 1):
        failed += story.wave(number, outcomes)
        if "cut_off" in [outcomes.get(name) for name in waves[number - 1]]:
            return story.plan, story.events
        if len(failed) > budget:
            rest = [name for wave in waves[number:] for name in wave]
            story.end("failed", "{0} failed, and the budget is {1}".format(", ".join(failed), budget), rest)
            return story.plan, story.events
    story.end("failed" if failed else "done")
    return story.plan, story.events


def resumed() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a roll that was killed amid its second cluster, and ended well an hour later by another process."""
    first, events = fleet(4, {"c2": "cut_off"}, size=1)
    again = plan([["c2"], ["c3", "c4"]], {"c1": left("skip", "done by this roll at 16:53")}, made_at=MADE_AT + 3600)
    assert first["roll"] == again["roll"]
    story = Story(again, MADE_AT + 3630)
    story.begin()
    story.wave(1, {})
    story.wave(2, {})
    story.end("done")
    return again, events + story.events


def hostile() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a roll in which whatever is text is hostile."""
    of, events = fleet(4, {"c2": "failed", "c3": "rolled_back"}, size=2)
    clusters = of["clusters"]

    def spoilt(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key + HOSTILE if key in clusters else key: one if key in KEPT else spoilt(one)
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [spoilt(one) for one in value]
        # Clusters must stay apart.
        return value + HOSTILE if value in clusters else HOSTILE if isinstance(value, str) else value

    of["warnings"] = [HOSTILE]
    of["problems"] = [{"rule": HOSTILE, "message": HOSTILE, "host": HOSTILE, "variable": HOSTILE}]
    return spoilt(of), [spoilt(event) for event in events]


#: What readers of a roll go by; the rest may say anything.
KEPT = ("event", "at", "decision", "outcome", "step", "state", "role", "roll", "kind")


def secretive(secret: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a roll in which things that look like secrets got everywhere."""
    of, events = fleet(2, {"c2": "failed"}, size=1)
    spilled = 'exec: python --api-key {0} {{"api_key": "{0}"}} HF_TOKEN={0}'.format(secret)
    one = of["clusters"]["c2"]
    of.update(purpose=spilled, owner=spilled, warnings=[spilled])
    one.update(why=spilled, evidence=spilled, condition="down", scope={"rule": spilled, "reason": spilled})
    one["settings"][0].update(evidence=spilled)
    one["settings"] += [
        dict(one["settings"][0], setting="api_key", carrier="--api-key", deployed=secret, running=secret),
        dict(one["settings"][0], setting="extra_env", carrier="HF_TOKEN", deployed=secret, running=""),
    ]
    one["restarts"][0].update(reason=spilled)
    of["problems"] = [{"rule": spilled, "message": spilled, "host": spilled, "variable": ""}]
    for event in events:
        for key in ("message", "why"):
            if event.get(key):
                event[key] = spilled
    return of, events


def directory(path: Path, of: dict[str, Any], events: list[dict[str, Any]]) -> Path:
    """Write plan and events as a roll does."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "plan.json").write_text(json.dumps(of))
    (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return path
