"""Turns a function into a script: its source and the source of the globals it uses.

Source instead of pickles: users can read it, and any Python with the same packages can run it.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType

from paddlejob.sdk.errors import JobError

_OF_EVERY_MODULE = ("__name__", "__file__", "__doc__")
_MAX_LITERAL = 10_000
"""Maximum characters of a constant; larger values are data and should be passed as files."""


def script_of(
    function: Callable[..., object], arguments: Mapping[str, object], shipped: Iterable[str] = ()
) -> str:
    """Return a script that calls a function with arguments.

    `shipped` are the user's modules in `files`. Raises JobError for objects that cannot be shipped.
    """
    main = _plain_function(function)
    writer = _Writer(main, frozenset(shipped))
    writer.define(main.__name__, main)
    given = ", ".join(f"{name}={_argument(name, value)}" for name, value in arguments.items())
    try:
        inspect.signature(main).bind(**arguments)
    except TypeError as error:
        raise JobError(f"{main.__name__}({given}): {error}; pass them as args={{...}}") from None
    return writer.text(f'if __name__ == "__main__":\n    {main.__name__}({given})\n')


def _plain_function(function: Callable[..., object]) -> FunctionType:
    found = inspect.unwrap(function)
    if not isinstance(found, FunctionType):
        raise JobError(f"{function!r} is not a function defined with def; wrap it in one")
    if found.__name__ == "<lambda>":
        raise JobError("a lambda cannot be shipped; write it as a function with def")
    if inspect.iscoroutinefunction(found):
        raise JobError(f"{found.__name__} is asynchronous; ship a function that calls asyncio.run")
    return found


def _argument(name: str, value: object) -> str:
    text = _literal(value)
    if text is None:
        raise JobError(
            f"args[{name!r}] is {_kind(value)}, which cannot be shipped; pass numbers, strings, lists, dicts"
        )
    return text


class _Writer:
    """Collects a script: imports first, then constants and definitions after their dependencies."""

    def __init__(self, main: FunctionType, shipped: frozenset[str]) -> None:
        self._globals = main.__globals__
        self._home = main.__module__
        self._directory = _directory_of(main)
        self._shipped = shipped
        self._has_future = bool(main.__code__.co_flags & __future__.annotations.compiler_flag)
        self._imports: set[str] = set()
        self._body: list[str] = []
        self._done: set[str] = set()

    def text(self, ending: str) -> str:
        """Return the whole script."""
        head = ["from __future__ import annotations"] if self._has_future else []
        imports = sorted(self._imports, key=lambda line: (line.startswith("from"), line))
        parts = ["\n".join((*head, *imports)), *self._body, ending]
        return "\n\n\n".join(part for part in parts if part)

    def define(self, name: str, value: FunctionType | type) -> None:
        """Add a function or class of the user after its dependencies."""
        self._done.add(name)
        if isinstance(value, FunctionType) and value.__closure__:
            free = ", ".join(value.__code__.co_freevars)
            raise JobError(
                f"{name} uses {free} of the enclosing function, which cannot be shipped; pass it in args="
            )
        source = _class_in_cells(value, self._globals) or _source(name, value)
        tree = ast.parse(source)
        for each in _global_names(source, has_future=self._has_future):
            self._provide(each, name, tree)
        self._body.append(source)
        if value.__name__ != name:
            self._body.append(f"{name} = {value.__name__}")

    def _provide(self, name: str, user: str, tree: ast.Module) -> None:
        """Add a global that a definition uses."""
        if name not in self._globals:
            if not hasattr(builtins, name) and name not in _OF_EVERY_MODULE:
                raise JobError(f"{user} uses {name}, which is not defined")
            return
        value = self._globals[name]
        if isinstance(value, ModuleType):
            self._import_module(name, value, user, tree)
        elif name not in self._done and name not in _OF_EVERY_MODULE:
            self._done.add(name)
            self._provide_value(name, value, user)

    def _provide_value(self, name: str, value: object, user: str) -> None:
        own = inspect.unwrap(value) if callable(value) else value
        if isinstance(own, FunctionType | type) and own.__module__ == self._home:
            self.define(name, own if isinstance(own, type) else _plain_function(own))
        elif module := _module_of(value):
            self._check_installed(module, user)
            original = getattr(value, "__name__", "")
            alias = "" if original == name else f" as {name}"
            self._imports.add(f"from {module} import {original}{alias}")
        elif (text := _literal(value)) is not None:
            self._body.append(f"{name} = {text}")
        else:
            raise JobError(
                f"{user} uses {name}, which is {_kind(value)} and cannot be shipped; create it inside {user}"
            )

    def _import_module(self, name: str, module: ModuleType, user: str, tree: ast.Module) -> None:
        path = module.__name__
        self._check_installed(path, user)
        self._imports.add(f"import {path}" if path == name else f"import {path} as {name}")
        self._imports |= {f"import {each}" for each in _submodules(tree, name, path)}

    def _check_installed(self, module: str, user: str) -> None:
        """Raise JobError for a module of the user that is not shipped."""
        top = module.partition(".")[0]
        file = getattr(sys.modules.get(top), "__file__", None)
        if top in self._shipped or not file or top in sys.stdlib_module_names:
            return
        path = Path(file).resolve()
        path = path.parent if path.name == "__init__.py" else path
        if path.parent in (Path.cwd(), self._directory):
            raise JobError(f"{user} uses your module {module}; ship it with files=[{path.name!r}]")


def _directory_of(function: FunctionType) -> Path | None:
    file = Path(function.__code__.co_filename)
    return file.resolve().parent if file.is_file() else None


def _source(name: str, value: FunctionType | type) -> str:
    """Return the source of a definition. Raises JobError."""
    try:
        source = textwrap.dedent(inspect.getsource(value)).rstrip()
        # Code run by exec shares its file name with other such code.
        is_it = getattr(ast.parse(source).body[0], "name", "") == value.__name__
    except (OSError, TypeError, SyntaxError):
        is_it, source = False, ""
    if not is_it:
        raise JobError(f"the source of {name} is unknown; define it in a file or in a notebook cell")
    return source


def _class_in_cells(value: FunctionType | type, namespace: Mapping[str, object]) -> str:
    """Return the source of a class in a notebook cell. `inspect` finds only functions there."""
    cells = namespace.get("In")
    if not isinstance(value, type) or value.__module__ != "__main__" or not isinstance(cells, list):
        return ""
    for cell in reversed(cells):
        try:
            nodes = ast.parse(cell).body
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name == value.__name__:
                return ast.unparse(node)
    return ""


def _global_names(source: str, *, has_future: bool) -> list[str]:
    """Return the global names that a definition uses, in alphabetical order."""
    source = f"from __future__ import annotations\n{source}" if has_future else source
    top = symtable.symtable(source, "source", "exec")
    own = {each.get_name() for each in top.get_symbols() if each.is_assigned() or each.is_namespace()}
    found = {each.get_name() for each in top.get_symbols() if each.is_referenced()} - own
    for table in _scopes(top.get_children()):
        found |= {each.get_name() for each in table.get_symbols() if each.is_global()} - own
    return sorted(found)


def _scopes(tables: Iterable[symtable.SymbolTable]) -> Iterator[symtable.SymbolTable]:
    for table in tables:
        yield table
        yield from _scopes(table.get_children())


def _submodules(tree: ast.Module, name: str, module: str) -> list[str]:
    """Return the submodules that a definition uses through the name of a module, such as `xml.etree`."""
    found = set()
    for node in ast.walk(tree):
        path = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
        if path and path[0] == name:
            inner = [".".join((module, *path[1:end])) for end in range(2, len(path) + 1)]
            found |= {each for each in inner if isinstance(sys.modules.get(each), ModuleType)}
    return sorted(found)


def _module_of(value: object) -> str:
    """Return the module from which a value can be imported by name, empty if there is none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return ""
    return module if getattr(sys.modules.get(module), name, None) is value else ""


def _literal(value: object) -> str | None:
    """Return the source of a constant, None for other values."""
    try:
        text = repr(value)
        is_same = len(text) <= _MAX_LITERAL and ast.literal_eval(text) == value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return text if is_same else None


def _kind(value: object) -> str:
    kind = type(value)
    if kind in (str, bytes, list, tuple, dict, set) and len(repr(value)) > _MAX_LITERAL:
        return f"a {kind.__name__} too large for a program"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"an object of type {name}"
