# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What unmodified sglang needs to run with a CPU build of torch.

Imported at the start of every interpreter of the environment, by a line of its ``.pth``
file. It imports nothing heavy: each replacement is made when, and only when, the module
it belongs to is imported. No file of a package is edited.

=================================== =====================================================
module                              what is replaced, and why
=================================== =====================================================
``torchvision``                     the operators ``nms`` and ``qnms`` are declared: its
                                    wheel brings them compiled for CUDA, and its import
                                    registers kernels for operators that must exist.
                                    sglang imports it for image models; none runs here.
``nixl_cu12._api``                  memory kind ``VRAM`` means ``DRAM``: sglang registers
                                    the KV cache as GPU memory, whatever the device; here
                                    it is host memory. The transfer itself is untouched.
``sglang...mooncake.conn``          the sender takes no index tensors on the host: those
                                    are pinned memory with CUDA events.
=================================== =====================================================

``sgl_kernel``, a package of CUDA kernels, is replaced by the module beside this one.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Before(importlib.abc.MetaPathFinder):
    """Calls a function once, just before a module is looked for."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action
        self._done = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find nothing: other finders do."""
        if fullname == self._name and not self._done:
            self._done = True
            self._action()
        return None


class _After(importlib.abc.MetaPathFinder):
    """Calls a function with a module that has just been executed."""

    def __init__(self, name: str, action: Callable[[Any], None]) -> None:
        self._name = name
        self._action = action
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find what the other finders find, with a longer execution."""
        if fullname != self._name or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._action(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _declare_operators_of_torchvision() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    # Declarations end with the object that made them.
    sys._declared_for_torchvision = library  # type: ignore[attr-defined]


def _take_host_memory_for_gpu_memory(nixl_api: Any) -> None:
    agent = nixl_api.nixl_agent
    initialise = agent.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - replaces the class's own
        initialise(self, *args, **kwargs)
        self.nixl_mems["VRAM"] = self.nixl_mems["DRAM"]

    agent.__init__ = __init__


def _send_indices_as_arrays(mooncake_conn: Any) -> None:
    mooncake_conn.MooncakeKVSender.supports_host_tensor_indices = False


sys.meta_path[:0] = [
    _Before("torchvision", _declare_operators_of_torchvision),
    _After("nixl_cu12._api", _take_host_memory_for_gpu_memory),
    _After("sglang.srt.disaggregation.mooncake.conn", _send_indices_as_arrays),
]
