"""All changes of a source file that are tried: each a stretch of text and what stands there instead."""

import ast
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
OPPOSITES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True, kw_only=True)
class Change:
    """One change of a file.

    Attributes:
        name: twelve digits that name it, the same as long as the function around it is.
        file: the file, from the root of the repository.
        function: the qualified name of the function or class around it; empty at the top of the file.
        line: its line.
        operator: what kind of change.
        before: the text that is replaced.
        after: what stands there instead.
        start: where the text begins, in bytes.
    """

    name: str
    file: str
    function: str
    line: int
    operator: str
    before: str
    after: str
    start: int

    def applied(self, source: bytes) -> bytes:
        """Returns the source with this change."""
        before = self.before.encode()
        assert source[self.start :].startswith(before)
        return source[: self.start] + self.after.encode() + source[self.start + len(before) :]


def changes(file: str, source: bytes) -> list[Change]:
    """Lists every change of a file.

    Left alone are docstrings, annotations, decorators, texts of errors, assertions, which state what holds anyhow, and the order of what
    `min` and `max` compare.
    """
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    found: list[Change] = []
    counts: dict[str, int] = {}
    for scope, owner in _scopes(tree, ""):
        around = ast.dump(_without_docstring(scope))
        for node, parent in _nodes(scope):
            if not hasattr(node, "end_lineno"):
                continue
            start, end = (
                starts[line - 1] + column for line, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
            )
            before = source[start:end].decode()
            for operator, after in _alternatives(node, parent, scope, imported):
                key = "\0".join((file, owner, around, operator, before, after))
                counts[key] = counts.get(key, -1) + 1
                name = hashlib.sha256(f"{key}\0{counts[key]}".encode()).hexdigest()[:12]
                found.append(
                    Change(
                        name=name, file=file, function=owner, line=node.lineno, operator=operator, before=before, after=after, start=start
                    )
                )
    return found


def _scopes(node: ast.AST, owner: str) -> Iterator[tuple[ast.stmt, str]]:
    """Lists the functions, and the statements outside of functions, with the qualified names around them."""
    for child in getattr(node, "body", []):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, f"{owner}.{child.name}".lstrip(".")
        elif isinstance(child, ast.ClassDef):
            yield from _scopes(child, f"{owner}.{child.name}".lstrip("."))
        elif not _is_text(child) and not isinstance(child, ast.Import | ast.ImportFrom):
            yield child, owner


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _without_docstring(scope: ast.stmt) -> ast.stmt:
    scope = copy.deepcopy(scope)
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
        scope.body = [statement for statement in scope.body if not _is_text(statement)]
    return scope


def _nodes(node: ast.AST, parent: ast.AST | None = None) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Walks through what may be changed."""
    if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr) or _is_text(node) or _is_for_types(node):
        return
    yield node, parent
    left_alone = {"annotation", "returns", "decorator_list", "type_params"}
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "cast", "TypeVar", "warnings.warn"):
        left_alone.add("args")
    for field, value in ast.iter_fields(node):
        if field not in left_alone:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _nodes(child, node)


def _alternatives(node: ast.AST, parent: ast.AST | None, scope: ast.stmt, imported: set[str]) -> Iterator[tuple[str, str]]:
    """Yields the kinds of changes of one node, with what stands in its place."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node, scope)
        return
    if not isinstance(node, ast.expr):
        return
    for operator, changed in _of_expression(node, parent, imported):
        if operator == "method dropped" and isinstance(parent, ast.Expr):
            continue  # without the call nothing is left: that is the statement removed
        yield operator, f"({ast.unparse(ast.fix_missing_locations(changed))})"


def _of_statement(node: ast.stmt, scope: ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Expr(value=ast.Call()):
            yield "statement removed", "pass"
        case ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield "statement removed", "pass"
            yield "arithmetic", ast.unparse(_with(node, op=ARITHMETIC[type(op)]()))
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "statement removed", "pass"
        case ast.Break():
            yield "loop", "continue"
        case ast.Continue():
            yield "loop", "break"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return value", "return None"
            if isinstance(scope, ast.FunctionDef) and scope.returns is not None and ast.unparse(scope.returns) == "bool":
                yield "return value", f"return not ({ast.unparse(value)})"


def _of_expression(node: ast.expr, parent: ast.AST | None, imported: set[str]) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare():
            for index, op in enumerate(node.ops):
                for other in COMPARISONS[type(op)]:
                    yield "comparison", _with(node, ops=[*node.ops[:index], other(), *node.ops[index + 1 :]])
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield "arithmetic", _with(node, op=ARITHMETIC[type(op)]())
        case ast.BoolOp(op=op):
            yield "boolean", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub()):
            yield "sign removed", node.operand
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(value=not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value=value + 1)
        case ast.Call():
            yield from _of_call(node, imported)
        case _:
            yield from _of_structure(node)
    if isinstance(parent, ast.If) and node is parent.test:
        yield "branch", ast.Constant(value=False)
        yield "branch", ast.Constant(value=True)


def _of_structure(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.IfExp():
            yield "branch", node.body
            yield "branch", node.orelse
        case ast.Subscript(slice=ast.Slice() as bounds):
            for bound in ("lower", "upper"):
                if getattr(bounds, bound) is not None:
                    yield "slice", _with(node, slice=_with(bounds, **{bound: None}))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for index, loop in enumerate(node.generators):
                if loop.ifs:
                    yield (
                        "filter removed",
                        _with(node, generators=[*node.generators[:index], _with(loop, ifs=[]), *node.generators[index + 1 :]]),
                    )
        case _:
            pass


def _of_call(node: ast.Call, imported: set[str]) -> Iterator[tuple[str, ast.expr]]:
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield "keyword dropped", _with(node, keywords=[*node.keywords[:index], *node.keywords[index + 1 :]])
    if len(node.args) > 1 and not any(isinstance(argument, ast.Starred) for argument in node.args[:2]):
        first, second, *others = node.args
        if ast.dump(first) != ast.dump(second) and ast.unparse(node.func) not in ("min", "max"):
            yield "arguments swapped", _with(node, args=[second, first, *others])
    match node.func:
        case ast.Name(id=name) if name in OPPOSITES:
            yield "opposite", _with(node, func=ast.Name(id=OPPOSITES[name]))
        case ast.Attribute(attr=name) if name in OPPOSITES:
            yield "opposite", _with(node, func=_with(node.func, attr=OPPOSITES[name]))
        case _:
            pass
    if isinstance(node.func, ast.Attribute):
        receiver: ast.expr = node.func.value
        root = receiver
        while isinstance(root, ast.Attribute):
            root = root.value
        if not (isinstance(root, ast.Name) and root.id in imported | {"self", "cls"}):
            yield "method dropped", receiver


def _with(node: Any, **fields: Any) -> Any:
    """Copies a node with some fields replaced."""
    return type(node)(**{name: fields.get(name, value) for name, value in ast.iter_fields(node)})
