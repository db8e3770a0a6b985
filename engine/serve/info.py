"""`GET /server_info` and `GET /model_info`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agentkv.engine.kv.redis import shown
from agentkv.engine.serve.service import Service, service_of
from agentkv.engine.serve.wire import JSONReply


async def server_info(request: Request) -> Response:
    """Arguments as resolved, the pool, the queue, and `cache_hit_rate` over the process's life."""
    service = service_of(request)
    engine = service.engine
    # The engine answers between two steps, which may be a while.
    stats = await asyncio.to_thread(engine.stats)
    return JSONReply(
        {
            "version": _version(),
            "model": engine.model_name,
            "status": service.phase,
            "max_model_len": engine.max_model_len,
            "page_size": engine.page_size,
            "dtype": engine.dtype_name,
            "device": engine.device_name,
            "attention": engine.attention_name,
            "deterministic": engine.config.deterministic,
            "num_http_requests": service.in_flight,
            **stats,
            "args": _arguments(service),
        }
    )


async def model_info(request: Request) -> Response:
    """What the model is."""
    engine = service_of(request).engine
    return JSONReply(
        {
            "model_path": engine.config.model,
            "served_model_name": engine.model_name,
            "is_generation": True,
            "max_model_len": engine.max_model_len,
            "vocab_size": engine.vocab_size,
            "dtype": engine.dtype_name,
            "kv_dtype": engine.kv_dtype_name,
            "device": engine.device_name,
            "attention": engine.attention_name,
            "page_size": engine.page_size,
            "fingerprint": engine.fingerprint,
        }
    )


def _arguments(service: Service) -> dict[str, Any]:
    """The flags, after defaults were filled in. Keys are counted, never shown."""
    engine, config = service.engine, service.config
    remote = engine.config.remote_cache
    return {
        **asdict(engine.config),
        "remote_cache": None if remote is None else shown(remote),
        "pool_tokens": engine.pool_tokens,
        "max_model_len": engine.max_model_len,
        "dtype": engine.dtype_name,
        "device": engine.device_name,
        "attention": engine.attention_name,
        "kv_dtype": engine.kv_dtype_name,
        "host_kv_dtype": engine.host_kv_dtype_name,
        "host": config.host,
        "port": config.port,
        "api_keys": len(config.api_keys),
        "allowed_hosts": list(config.allowed_hosts),
        "drain_timeout": config.drain_timeout,
    }


def _version() -> str:
    try:
        return version("agentkv")
    except PackageNotFoundError:
        return "0+unknown"
