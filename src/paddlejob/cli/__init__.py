"""The command line. `catalog` lists the verbs; each is imported when it is used."""

from __future__ import annotations

import signal


def paddlejob() -> None:
    """Run `paddlejob`."""
    _exit_quietly_on_interrupt()
    from paddlejob.cli.main import main  # noqa: PLC0415 - slow enough to be interrupted, as are the others

    main()


def kubectl_pdj() -> None:
    """Run `kubectl pdj`."""
    _exit_quietly_on_interrupt()
    from paddlejob.cli.kubectl import main  # noqa: PLC0415

    main()


def kubectl_complete_pdj() -> None:
    """Run `kubectl_complete-pdj`, which kubectl calls to complete `kubectl pdj`."""
    _exit_quietly_on_interrupt()
    from paddlejob.cli.completion import main  # noqa: PLC0415

    main()


def _exit_quietly_on_interrupt() -> None:
    """Let Ctrl-C end the process without a traceback until a verb handles it (`LazyGroup.invoke`)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
