"""`agentkv`: the list of commands, and the one place where an error becomes an exit code.

A command's module is imported when the command runs, so `agentkv --help` stays instant. Each
module has either a Typer `app` or a function with the command's name.

stdout is data, stderr is progress and errors. Exit codes: 0 ok, 1 findings or a failed check,
2 usage, 3 environment, 4 remote, 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from agentkv.engine.errors import EngineError

OK, FINDINGS, USAGE, ENVIRONMENT, REMOTE, INTERRUPTED = 0, 1, 2, 3, 4, 130

COMMANDS = {
    "lint": "Find, price and fix the prompt layouts that break prefix reuse.",
    "rule": "Explain a rule of the linter.",
    "trace": "Replay request logs: what was reused, what was lost, and to what.",
    "explain": "Why one request could not reuse all of another one's prompt.",
    "demo": "Run a small LangChain agent on a real model, with and without a cache-friendly layout.",
    "chat": "Chat with a model, or answer one prompt.",
    "serve": "Serve a model over HTTP, OpenAI-compatible.",
    "models": "List, pull and remove models.",
    "cache": "Look into a cache of KV, check it, move it, clear it.",
    "bench": "Measure speed, bookkeeping and exactness on this machine.",
    "doctor": "Check what the engine needs and whether it works here.",
    "version": "Print the versions of agentkv and of what it runs on.",
}


class Lazy(TyperGroup):
    """A group that knows its commands by name, and imports one when it is asked to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_help_option(self, ctx: Any) -> Any:
        """Without a value, Typer loads pydantic to find out that `--help` was not given: a tenth of
        a second before every command."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"agentkv.cli.{cmd_name}")
        app = getattr(module, "app", None)
        if app is None:
            app = plain_app()
            app.command(cmd_name, help=COMMANDS[cmd_name])(getattr(module, cmd_name))
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def plain_app(**settings: Any) -> typer.Typer:
    """A Typer application in this program's style: plain help, errors handled in `main`."""
    return typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


app = plain_app(cls=Lazy, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        from agentkv import __version__

        print(f"agentkv {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Prefix KV reuse for agents: run them, and see what was cached and why the rest was not."""


def exit_code(error: EngineError) -> int:
    """The exit code that an engine error stands for."""
    from agentkv.engine import errors

    if isinstance(
        error, (errors.InvalidRequest, errors.ContextLengthExceeded, errors.PoolTooSmall)
    ):
        return USAGE
    if isinstance(error, (errors.ModelNotFound, errors.UnsupportedModel, errors.PullFailed)):
        return ENVIRONMENT
    return REMOTE


def fail(message: str, code: int) -> NoReturn:
    """Print `error: MESSAGE` on stderr and exit."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    # As an exception, so that a pull or a server under way cleans up after itself.
    raise SystemExit(128 + signum)


def main() -> None:
    """The console script."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in _ENGINE_MODULES:
            fail(
                f"{error.name} is not installed, and this command needs it. Install the engine: "
                "pip install 'agentkv[engine]'",
                ENVIRONMENT,
            )
        raise
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output went away (agentkv ... | head): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(OK) from None
    except Exception as error:
        # Looked up, not imported: whoever raised one has imported it, and `--help` need not.
        errors = sys.modules.get("agentkv.engine.errors")
        if errors is not None and isinstance(error, errors.EngineError):
            fail(str(error), exit_code(error))
        raise


_ENGINE_MODULES = {
    "blake3",
    "gguf",
    "h11",
    "huggingface_hub",
    "jinja2",
    "prometheus_client",
    "safetensors",
    "starlette",
    "tokenizers",
    "torch",
    "transformers",
    "uvicorn",
}
