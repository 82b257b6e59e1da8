# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bodies of the read-only endpoints, on the recorded templates."""

from __future__ import annotations

import copy
import time
from datetime import datetime, timezone
from typing import Any

from sglang.stand_in import release
from sglang.stand_in.args import build_parser
from sglang.stand_in.engine import Engine

#: Not given, the engine resolves these itself: the recorded value is shown.
_RESOLVED_ELSEWHERE = (
    "attention_backend",
    "chunked_prefill_size",
    "cuda_graph_config",
    "dcp_comm_backend",
    "disaggregation_decode_extra_slots",
    "enable_lean_attention",
    "enable_lora",
    "enable_lora_overlap_loading",
    "enable_multimodal",
    "enable_tf32_matmul",
    "enable_tp_lm_head_all_to_all",
    "expert_distribution_recorder_buffer_size",
    "grammar_backend",
    "hicache_ratio",
    "load_balance_method",
    "mamba_full_memory_ratio",
    "max_prefill_tokens",
    "mem_fraction_static",
    "mm_enable_dp_encoder",
    "mm_feature_transport",
    "page_size",
    "prefill_decode_interval",
    "sampling_backend",
    "schedule_policy",
    "speculative_moe_runner_backend",
    "swa_full_tokens_ratio",
    "watermark_config",
)
_SECTIONS = {
    "memory": "memory",
    "disagg": "disaggregation",
    "queues": "queues",
    "spec": "speculative",
    "lora": "lora",
}


class SectionError(ValueError):
    """An unknown section of /v1/loads was asked for."""


class Faces:
    """Builds the bodies for one engine."""

    def __init__(self, engine: Engine, argv: list[str]) -> None:
        self._engine = engine
        self._info = self._resolve(argv)

    def _resolve(self, argv: list[str]) -> dict[str, Any]:
        engine = self._engine
        info: dict[str, Any] = release.read_json(release.role_file("server_info", engine.role))
        parser = build_parser()
        for name, value in vars(engine.args).items():
            default = parser.get_default(name)
            given = value != default
            resolved = name in _RESOLVED_ELSEWHERE or isinstance(info.get(name), (dict, list))
            if name not in info or (resolved and not given):
                continue
            info[name] = value
        if getattr(engine.args, "load_balance_method", "auto") == "auto":
            info["load_balance_method"] = "follow_bootstrap_room" if engine.role == "prefill" else "round_robin"
        info.update(
            random_seed=engine.random_seed,
            max_total_num_tokens=engine.max_total_tokens,
            max_req_input_len=engine.context_length - 6,
            version=release.VERSION,
        )
        if "launch_command" in info:
            info["launch_command"] = " ".join(argv)
        if "attn_dp_size" in info and engine.dp_size > 1:
            info["attn_dp_size"] = engine.dp_size
        return info

    def server_info(self) -> dict[str, Any]:
        """Return the resolved arguments and the state of each DP rank."""
        info = copy.deepcopy(self._info)
        absent = info.pop("internal_state_keys_absent")
        extra = info.pop("internal_states")[0]
        state = {k: v for k, v in info.items() if k not in absent}
        state.update(extra, last_gen_throughput=self._engine.queues.gen_throughput)
        # The order of the recorded body: the version comes behind the states.
        tail: dict[str, Any] = {k: info.pop(k) for k in ("version", "frontend") if k in info}
        info["internal_states"] = [state for _ in range(self._engine.dp_size)]
        return {**info, **tail}

    def model_info(self) -> dict[str, Any]:
        """Return the model's description."""
        args = self._engine.args
        body: dict[str, Any] = release.read_json("model_info.json")
        body.update(
            model_path=args.model_path,
            served_model_name=args.served_model_name,
            tokenizer_path=args.tokenizer_path,
            load_format=args.load_format,
            reasoning_parser=args.reasoning_parser,
            tool_call_parser=args.tool_call_parser,
            disaggregation_mode=self._engine.role,
        )
        return body

    def models(self) -> dict[str, Any]:
        """Return the OpenAI list of models."""
        name = self._engine.args.served_model_name
        card = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": self._engine.context_length,
        }
        return {"object": "list", "data": [card]}

    def _load(self, dp_rank: int) -> dict[str, Any]:
        engine = self._engine
        live = engine.queues
        # Requests are served by the first DP rank; the others stay empty.
        counts = live.counts if dp_rank == 0 else dict.fromkeys(live.counts, 0)
        used = live.used_tokens if dp_rank == 0 else 0
        new = release.FACES >= "0.5.23"
        # The real engine counts those that wait for bootstrap or KV among the waiting ones.
        waiting = sum(counts[name] for name in ("waiting", "prefill_bootstrap", "decode_prealloc", "decode_transfer"))
        load: dict[str, Any] = {
            "timestamp": time.time(),
            "dp_rank": dp_rank,
            "num_running_reqs": counts["running"],
            "num_waiting_reqs": waiting,
            "num_waiting_uncached_tokens": 0,
            "num_used_tokens": used,
            "num_total_tokens": used,
        }
        if new:
            load.update(num_active_tokens=used, num_prealloc_ready_tokens=0)
        load.update(
            max_total_num_tokens=engine.max_total_tokens,
            max_running_requests=engine.args.max_running_requests or 2048,
            token_usage=used / engine.max_total_tokens,
            gen_throughput=live.gen_throughput if counts["running"] else 0.0,
            cache_hit_rate=0.0,
            utilization=0.0 if new and engine.role != "prefill" else -1.0,
        )
        if new:
            load.update(
                total_prefill_uncached_tokens=engine.prompt_tokens_seen,
                total_prefill_busy_us=0,
                decode_moments=None if engine.role == "prefill" else [0.0] * 6,
            )
        load["memory"] = {
            "weight_gb": 0.001,
            "kv_cache_gb": 0.004,
            "graph_gb": 0.0,
            "token_capacity": engine.max_total_tokens,
        }
        load["disaggregation"] = {
            "mode": engine.role,
            "prefill_bootstrap_queue_reqs": counts["prefill_bootstrap"],
            "prefill_inflight_queue_reqs": counts["prefill_inflight"],
            "decode_prealloc_queue_reqs": counts["decode_prealloc"],
            "decode_transfer_queue_reqs": counts["decode_transfer"],
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": engine.transfer_ms,
        }
        load["queues"] = {"waiting": counts["waiting"], "grammar": 0, "paused": 0, "retracted": 0}
        if new:
            load["queues"]["prealloc_ready"] = 0
        return load

    def loads(self, include: str | None, dp_rank: int | None) -> dict[str, Any]:
        """Return the live load of each DP rank, with the sections asked for."""
        wanted = {part.strip() for part in include.split(",")} if include else {"all"}
        unknown = wanted - set(_SECTIONS) - {"core", "all"}
        if unknown and "all" not in wanted:
            valid = sorted({"core", "all", *_SECTIONS})
            raise SectionError(f"Invalid include sections: {unknown}. Valid options: {valid}")
        ranks = range(self._engine.dp_size) if dp_rank is None else [dp_rank]
        loads = []
        for rank in ranks:
            load = self._load(rank)
            if "all" not in wanted:
                for section, field in _SECTIONS.items():
                    if section not in wanted:
                        load.pop(field, None)
            loads.append(load)
        body: dict[str, Any] = {
            "timestamp": datetime.now(timezone.utc).isoformat(),
            "version": release.VERSION,
        }
        if release.FACES >= "0.5.23":
            body.update(accelerator=None, num_accelerators=self._engine.args.tp_size)
        return {**body, "loads": loads}

    def get_load(self) -> list[dict[str, Any]]:
        """Return the older load list."""
        return [
            {
                "dp_rank": load["dp_rank"],
                "num_reqs": load["num_running_reqs"] + load["num_waiting_reqs"],
                "num_waiting_reqs": load["num_waiting_reqs"],
                "num_tokens": load["num_used_tokens"],
                "num_pending_tokens": 0,
                "ts_tic": time.monotonic(),
            }
            for load in self.loads("core", None)["loads"]
        ]
