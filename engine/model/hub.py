"""Models from Hugging Face: safetensors and JSON only."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from agentkv.engine.errors import EngineError, ModelNotFound, PullFailed
from agentkv.engine.model.progress import Progress
from agentkv.engine.model.vet import no_safetensors, vet, vet_config

# Whatever else is in the repository (pickles, code, folders of other formats) is never fetched.
_PLAIN = ["*.json", "*.jinja"]
_WEIGHTS = ["*.safetensors"]
_FOLDERS = "*/*"
_MISTRAL = "consolidated*"
"""Mistral's repositories hold the weights twice; this is the copy in Mistral's own naming."""


def cached(repo: str) -> Path | None:
    """The model in Hugging Face's own cache on this machine, if all of it is there."""
    from huggingface_hub import snapshot_download

    try:
        return vet(Path(snapshot_download(repo, local_files_only=True)), repo)
    except (OSError, ValueError, EngineError):
        return None


def download(repo: str, out: Path, *, known: Sequence[str], progress: Progress) -> None:
    """Fetch the model `repo` into the empty directory `out`, and write its manifest.

    Raises `ModelNotFound`, `UnsupportedModel` (before any weight is fetched) or `PullFailed`.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    progress(f"looking up {repo}", 0, 1)
    try:
        info = HfApi().model_info(repo)
        weights = [
            sibling.rfilename
            for sibling in info.siblings or []
            if sibling.rfilename.endswith(".safetensors") and "/" not in sibling.rfilename
        ]
        if not weights:
            raise no_safetensors(repo)
        progress(f"looking up {repo}", 1, 1)
        skipped = [_FOLDERS]
        if not all(name.startswith("consolidated") for name in weights):
            skipped.append(_MISTRAL)
        for patterns in (_PLAIN, _WEIGHTS):
            snapshot_download(
                repo,
                revision=info.sha,
                local_dir=out,
                allow_patterns=patterns,
                ignore_patterns=skipped,
            )
            vet_config(out, repo)
    except GatedRepoError as error:
        raise PullFailed(
            f"{repo} asks for consent before it can be fetched. Accept its terms on its page, then "
            "log in: hf auth login"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(
            repo,
            known=known,
            hint="Hugging Face has no public model of that name, or you are not logged in.",
        ) from error
    except (HfHubHTTPError, OSError, RuntimeError, ValueError) as error:
        raise _failed(repo, error) from error
    except Exception as error:
        # The hub's HTTP client has errors of its own that are no OSError (connection, time-out).
        if type(error).__module__.split(".")[0] not in {
            "httpx",
            "httpx2",
            "httpcore",
            "httpcore2",
            "requests",
        }:
            raise
        raise _failed(repo, error) from error
    shutil.rmtree(out / ".cache", ignore_errors=True)
    license_ = str(getattr(info.card_data, "license", None) or "unknown")
    manifest = {
        "schema": 1,
        "name": repo,
        "source": f"Hugging Face {repo} at {info.sha}",
        "license": license_,
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _failed(repo: str, error: Exception) -> PullFailed:
    why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return PullFailed(
        f"{repo} could not be fetched from Hugging Face: {why}. "
        "Check the network (HF_ENDPOINT, HTTPS_PROXY), or give a directory that holds the model."
    )
