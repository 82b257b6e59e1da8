# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The /metrics face: recorded families, live values, no series before its time."""

from __future__ import annotations

import math
from typing import Any

from sglang.stand_in import release

#: Labels whose value comes from the engine, not from the recording.
_OWN = ("engine_type", "model_name", "tp_rank", "pp_rank", "moe_ep_rank", "pid", "dp_rank")

#: Gauges that the scheduler writes once, when it starts. It writes the others with its batches.
_AT_START = (
    "sglang:max_total_num_tokens",
    "sglang:weight_memory_usage_gb",
    "sglang:kv_cache_memory_usage_gb",
    "sglang:graph_memory_usage_gb",
    "sglang:page_size",
    "sglang:num_pages",
    "sglang:context_len",
    "sglang:startup_available_gpu_memory_gb",
    "sglang:engine_startup_time",
    "sglang:engine_load_weights_time",
)

Labels = tuple[tuple[str, str], ...]


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class _Histogram:
    """Observations of one series."""

    def __init__(self, bounds: list[str]) -> None:
        self.bounds = bounds
        self.counts = [0] * len(bounds)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.total += value
        for index, bound in enumerate(self.bounds):
            if value <= float(bound.replace("+Inf", "inf")):
                self.counts[index] += 1

    @property
    def count(self) -> int:
        return self.counts[-1] if self.counts else 0


class Metrics:
    """All families of one engine process."""

    def __init__(
        self,
        role: str,
        model_name: str,
        *,
        scheduler_pid: int,
        extra_labels: dict[str, Any],
        tp_ranks: int = 1,
        dp_ranks: int = 0,
    ) -> None:
        self._own = {
            "engine_type": "unified" if role == "null" else role,
            "model_name": model_name,
            "tp_rank": "0",
            "pp_rank": "0",
            "moe_ep_rank": "0",
            "pid": str(scheduler_pid),
        }
        self._extra = {key: str(value) for key, value in extra_labels.items()}
        self._tp_ranks = tp_ranks
        self._dp_ranks = dp_ranks
        #: Whether the scheduler has written its gauges. The warm-up makes a prefill or plain
        #: engine do so; a decode does it at its first batches, or after 30 idle seconds.
        self.has_gauges = role != "decode"
        self._families: dict[str, dict[str, Any]] = {}
        self._values: dict[str, dict[Labels, float | _Histogram]] = {}
        for family in release.read_json(release.role_file("metrics", role)):
            self._families[family["name"]] = family
            self._values[family["name"]] = {}
            if not family.get("on_demand"):
                self._fill(family)

    def _fill(self, family: dict[str, Any]) -> None:
        """Create the series that are there from the start."""
        name = family["name"]
        if family["type"] == "histogram":
            for recorded in family["labels"]:
                self._values[name][self._labels(name, recorded)] = _Histogram(family["buckets"])
        else:
            for recorded, value in family["series"]:
                self._values[name][self._labels(name, recorded)] = value

    def _recorded_labels(self, name: str) -> list[str]:
        family = self._families[name]
        if family["type"] == "histogram":
            return list(family["labels"][0]) if family["labels"] else []
        return list(family["series"][0][0]) if family["series"] else []

    def _labels(self, name: str, given: dict[str, str]) -> Labels:
        keys = self._recorded_labels(name) or list(given)
        labels = {k: self._own.get(k, given.get(k, "")) for k in keys}
        if "tp_rank" in labels and self._dp_ranks:
            labels["dp_rank"] = "0"
        if "engine_type" in labels:
            labels.update(self._extra)
        return tuple(sorted(labels.items()))

    def inc(self, name: str, by: float = 1.0, /, **labels: str) -> None:
        """Add to a counter; its first increment makes it appear."""
        if name in self._families:
            key = self._labels(name, labels)
            values = self._values[name]
            values[key] = float(values.get(key, 0.0)) + by  # type: ignore[arg-type]

    def set(self, name: str, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        if name in self._families:
            self._values[name][self._labels(name, labels)] = value

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Add an observation to a histogram."""
        family = self._families.get(name)
        if family is None:
            return
        key = self._labels(name, labels)
        histogram = self._values[name].setdefault(key, _Histogram(family["buckets"]))
        assert isinstance(histogram, _Histogram)
        histogram.observe(value)

    def touch(self, name: str, value: float) -> None:
        """Add to every series of a family that the recording has."""
        family = self._families.get(name)
        if family is None:
            return
        if family["type"] == "histogram":
            for labels in family["labels"]:
                self.observe(name, value, **labels)
        else:
            for labels, _ in family["series"]:
                self.inc(name, value, **labels)

    def _copies(self, labels: Labels) -> list[dict[str, str]]:
        """Repeat a scheduler's series for every rank that reports."""
        base = dict(labels)
        if "tp_rank" not in base:
            return [base]
        copies = []
        for dp_rank in range(max(1, self._dp_ranks)):
            for tp_rank in range(self._tp_ranks):
                copy = dict(base, tp_rank=str(tp_rank))
                if self._dp_ranks:
                    copy["dp_rank"] = str(dp_rank)
                copies.append(copy)
        return copies

    @staticmethod
    def _line(name: str, labels: dict[str, str], value: float) -> str:
        inside = ",".join(f'{k}="{_escape(v)}"' for k, v in sorted(labels.items()))
        return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"

    def _is_there_at_once(self, name: str) -> bool:
        """Tell whether a family does not wait for the scheduler's first batches."""
        is_of_scheduler = self._families[name]["type"] == "gauge" and "tp_rank" in self._recorded_labels(name)
        return not is_of_scheduler or name in _AT_START

    def render(self, overrides: dict[str, Any]) -> str:
        """Return the text exposition; overrides are gauge values set by a fault."""
        lines: list[str] = []
        for name, family in self._families.items():
            series = self._values[name]
            if not series or not (self.has_gauges or name in overrides or self._is_there_at_once(name)):
                continue
            lines += [f"# HELP {name} {family['help']}", f"# TYPE {name} {family['type']}"]
            for key, value in series.items():
                for labels in self._copies(key):
                    if isinstance(value, _Histogram):
                        lines.append(self._line(f"{name}_sum", labels, value.total))
                        for bound, count in zip(value.bounds, value.counts):
                            bucket = dict(labels, le=bound)
                            lines.append(self._line(f"{name}_bucket", bucket, count))
                        lines.append(self._line(f"{name}_count", labels, value.count))
                    else:
                        shown = float(overrides.get(name, value))
                        lines.append(self._line(name, labels, shown))
        return "\n".join(lines) + "\n"
