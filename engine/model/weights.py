"""Tensors of a checkpoint, from safetensors files only (never pickle)."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from agentkv.engine.errors import UnsupportedModel
from agentkv.engine.model.config import read_json


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files that make up the model, sorted by name.

    Raises `UnsupportedModel` when there are none, or an indexed shard is missing.
    """
    index = model_dir / "model.safetensors.index.json"
    if index.exists():
        names = sorted(set(read_json(index).get("weight_map", {}).values()))
        # A shard is a file beside its index, never a path to somewhere else.
        if any(Path(n).name != n for n in names):
            raise UnsupportedModel(f"{index} points outside its directory.")
        missing = [n for n in names if not (model_dir / n).is_file()]
        if missing:
            raise UnsupportedModel(
                f"{model_dir} lacks {', '.join(missing)}, named in {index.name}."
            )
        return [model_dir / n for n in names]
    single = model_dir / "model.safetensors"
    if single.is_file():
        return [single]
    files = sorted(model_dir.glob("*.safetensors"))
    if files:
        return files
    other = [p.name for p in model_dir.glob("*.bin")] + [p.name for p in model_dir.glob("*.pt")]
    hint = (
        f" It has {', '.join(sorted(other))}, a pickle format that agentkv never loads."
        if other
        else ""
    )
    raise UnsupportedModel(f"{model_dir} holds no safetensors weights.{hint}")


class Weights:
    """Named tensors, read one at a time, as they are in the files (memory-mapped)."""

    def __init__(self, model_dir: Path) -> None:
        self._open: list[Any] = []
        self._where: dict[str, Any] = {}
        for path in weight_files(model_dir):
            try:
                handle = safe_open(path, framework="pt")
            except (SafetensorError, OSError) as error:
                raise UnsupportedModel(
                    f"{path} is not a readable safetensors file: {error}."
                ) from error
            handle.__enter__()
            self._open.append(handle)
            self._where.update(dict.fromkeys(handle.keys(), handle))

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> torch.Tensor:
        """The tensor `name`; `UnsupportedModel` when missing or of another shape than expected."""
        if name not in self._where:
            raise UnsupportedModel(f"The checkpoint lacks the tensor {name}.")
        value: torch.Tensor = self._where[name].get_tensor(name)
        if shape is not None and tuple(value.shape) != shape:
            raise UnsupportedModel(
                f"{name} has shape {tuple(value.shape)}, and config.json says {shape}."
            )
        return value

    def close(self) -> None:
        for handle in self._open:
            handle.__exit__(None, None, None)
        self._open.clear()
        self._where.clear()

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()
