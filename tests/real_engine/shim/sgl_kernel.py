# Copyright: InferOps maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In the place of ``sgl_kernel``, a package of CUDA kernels that sglang imports in any case.

Every name can be imported; whoever calls one is told that it does not exist here. The
work is done by sglang's own ``*_native`` paths, which use torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

#: sglang 0.5.23 wants at least this release.
__version__ = "0.4.10"
#: A package, so that its submodules are looked for, and not found, in the usual way.
__path__: list[str] = []


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} is a CUDA kernel; there is none on this CPU")

    kernel.__name__ = name
    return kernel
