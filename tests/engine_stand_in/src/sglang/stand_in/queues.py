# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The queues a request stands in, and the gauges that are written from them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from sglang.stand_in.metrics import Metrics

#: Queue name -> gauge name.
GAUGES = {
    "waiting": "sglang:num_queue_reqs",
    "running": "sglang:num_running_reqs",
    "prefill_bootstrap": "sglang:num_prefill_bootstrap_queue_reqs",
    "prefill_inflight": "sglang:num_prefill_inflight_queue_reqs",
    "decode_prealloc": "sglang:num_decode_prealloc_queue_reqs",
    "decode_transfer": "sglang:num_decode_transfer_queue_reqs",
}
_PD_QUEUES = ("prefill_bootstrap", "prefill_inflight", "decode_prealloc", "decode_transfer")


class Queues:
    """Live counts; gauges are written only when the real engine writes them."""

    def __init__(self, metrics: Metrics, max_total_tokens: int) -> None:
        self.counts = dict.fromkeys(GAUGES, 0)
        self.used_tokens = 0
        self.max_total_tokens = max_total_tokens
        self._metrics = metrics
        self._last_write = time.monotonic()
        self._tokens_since_write = 0
        self.gen_throughput = 0.0

    @contextlib.contextmanager
    def stand_in(self, queue: str) -> Iterator[None]:
        """Count a request in a queue while the block runs."""
        self.counts[queue] += 1
        try:
            yield
        finally:
            self.counts[queue] -= 1

    def pin(self, queue: str) -> None:
        """Leave a request in a queue for ever: the abort race."""
        self.counts[queue] += 1

    @property
    def pd_busy(self) -> bool:
        """Tell whether a request stands in a PD queue."""
        return any(self.counts[queue] for queue in _PD_QUEUES)

    @property
    def idle(self) -> bool:
        """Tell whether no request stands anywhere."""
        return not any(self.counts.values())

    @property
    def token_usage(self) -> float:
        """Return the used share of the KV cache."""
        return self.used_tokens / self.max_total_tokens

    def write_gauges(self) -> None:
        """Write what /metrics shows until the next time."""
        self._metrics.has_gauges = True
        for queue, gauge in GAUGES.items():
            self._metrics.set(gauge, self.counts[queue])
        self._metrics.set("sglang:gen_throughput", self.gen_throughput)
        self._metrics.set("sglang:num_used_tokens", self.used_tokens)
        self._metrics.set("sglang:kv_used_tokens", self.used_tokens)
        available = self.max_total_tokens - self.used_tokens
        self._metrics.set("sglang:kv_available_tokens", available)
        for gauge in ("token_usage", "full_token_usage"):
            self._metrics.set(f"sglang:{gauge}", self.token_usage)

    def decode_step(self, tokens: int, *, every: int) -> None:
        """Count generated tokens; every 40 steps the gauges are written."""
        self._tokens_since_write += tokens
        if self._tokens_since_write >= every:
            now = time.monotonic()
            self.gen_throughput = self._tokens_since_write / max(now - self._last_write, 1e-3)
            self._last_write, self._tokens_since_write = now, 0
            self.write_gauges()

    def idle_tick(self) -> None:
        """Write the gauges of a fully idle engine."""
        self.gen_throughput = 0.0
        self._last_write, self._tokens_since_write = time.monotonic(), 0
        self.write_gauges()
