"""The command line: one module a verb."""

from __future__ import annotations

import signal


def paddlejob() -> None:
    """Run `paddlejob`."""
    _let_interrupts_end_us()
    from paddlejob.cli.main import main  # noqa: PLC0415 - takes long enough to be interrupted, as the others

    main()


def kubectl_pdj() -> None:
    """Run `kubectl pdj`."""
    _let_interrupts_end_us()
    from paddlejob.cli.cluster.main import main  # noqa: PLC0415

    main()


def kubectl_complete_pdj() -> None:
    """Offer kubectl's completion what can follow `kubectl pdj`."""
    _let_interrupts_end_us()
    from paddlejob.cli.cluster.complete import main  # noqa: PLC0415

    main()


def _let_interrupts_end_us() -> None:
    """Let Ctrl-C end the process without a traceback until a verb handles it (`Verbs.invoke`)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
