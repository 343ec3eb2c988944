"""Files that readers see whole: the old content or the new, never a part."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, content: bytes, mode: int | None = None) -> None:
    """Replace a file's content. Raises OSError, and leaves the old content then."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(content)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
