# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap server of a prefill: where its ranks listen for decodes."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web

logger = logging.getLogger(__name__)

_QUERY = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")
#: Asked with all ranks -1, the server describes the prefill instead of a rank.
_DESCRIBED = (
    "attn_tp_size",
    "attn_cp_size",
    "dp_size",
    "pp_size",
    "page_size",
    "kv_cache_dtype",
    "follow_bootstrap_room",
    "enable_dsa_cache_layer_split",
    "enable_kv_cache_sharding",
    "prefill_http_port",
    "decode_allocation_policy",
)
_SINCE_0_5_23 = ("enable_kv_cache_sharding", "decode_allocation_policy")


class BootstrapServer:
    """``/health``, ``/route`` (PUT by ranks, GET by decodes)."""

    def __init__(self, host: str, port: int, release: str) -> None:
        self._host = host
        self._port = port
        self._release = release
        self._about: dict[str, Any] = {}
        self._ranks: dict[tuple[int, ...], dict[str, Any]] = {}
        self._registered = 0
        self.site: web.TCPSite | None = None

    async def start(self) -> None:
        """Listen; a failed bind is logged and nothing else (as the real one does)."""
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_put("/route", self._register)
        app.router.add_get("/route", self._route)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            logger.error("Server error: %s", error)
            await runner.cleanup()
            return
        self.site = site
        logger.info("bootstrap server started on %s:%s", self._host, self._port)

    @property
    def _ready(self) -> bool:
        sizes = [self._about.get(k, 0) for k in _DESCRIBED[:4]]
        expected = sizes[0] * sizes[1] * sizes[2] * sizes[3]
        return 0 < expected <= self._registered

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _register(self, request: web.Request) -> web.Response:
        data = await request.json()
        for key in _DESCRIBED:
            if key in data:
                self._about.setdefault(key, data[key])
        rank = (data["attn_dp_rank"], data["attn_cp_rank"], data["attn_tp_rank"], data["pp_rank"])
        self._ranks[rank] = {"rank_ip": data["rank_ip"], "rank_port": data["rank_port"]}
        self._registered += 1
        return web.Response(text="OK")

    async def _route(self, request: web.Request) -> web.Response:
        texts = [request.query.get(name) for name in _QUERY]
        if not all(texts):
            return web.Response(text="Missing inputs for bootstrap server.", status=400)
        rank = tuple(int(text or 0) for text in texts)
        if not self._ready:
            return web.Response(
                text=f"Prefill server not fully registered yet ({self._registered} workers registered).",
                status=503,
            )
        if rank == (-1, -1, -1, -1):
            absent = _SINCE_0_5_23 if self._release < "0.5.23" else ()
            return web.json_response({k: self._about.get(k) for k in _DESCRIBED if k not in absent})
        if rank not in self._ranks:
            named = " ".join(
                f"{name}={value}" for name, value in zip(("dp_rank", "cp_rank", "tp_rank", "pp_rank"), rank)
            )
            return web.Response(text=f"Bootstrap info not found for {named}", status=404)
        return web.json_response(self._ranks[rank])
