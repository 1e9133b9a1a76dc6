"""The tree-sitter grammars: which nodes of a language are definitions, and their names."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser

_MAX_NAME_CHARS = 100
_MAX_WRAPPERS = 4


@dataclass(frozen=True, slots=True)
class Grammar:
    """The node types of a language that the chunker uses."""

    definitions: Mapping[str, str]
    """Node types of definitions, with the keyword of the language for each."""
    constants: Mapping[str, str] = field(default_factory=dict[str, str])
    """Node types that are definitions at the top level if they span several lines."""
    wrappers: frozenset[str] = frozenset()
    """Node types that wrap a definition, such as decorators or exports."""
    attached: frozenset[str] = frozenset()
    """Node types, besides comments, that belong to the following definition."""
    module: str | None = None
    """The Python module, without `tree_sitter_`, when it is not named like the language."""
    function: str = "language"
    named: frozenset[str] = field(init=False)
    """All node types that may have a name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "named", self.wrappers.union(self.definitions, self.constants))


_C_DEFINITIONS = {
    "function_definition": "function", "struct_specifier": "struct", "union_specifier": "union",
    "enum_specifier": "enum", "type_definition": "typedef", "preproc_function_def": "#define",
}  # fmt: skip
_C_CONSTANTS = {"declaration": "", "preproc_def": "#define"}
_JAVASCRIPT_DEFINITIONS = {
    "function_declaration": "function", "generator_function_declaration": "function*", "class_declaration": "class",
    "method_definition": "method",
}  # fmt: skip
_JAVASCRIPT_CONSTANTS = {"lexical_declaration": "const", "variable_declaration": "var"}
_TYPESCRIPT = Grammar(
    {
        **_JAVASCRIPT_DEFINITIONS, "abstract_class_declaration": "class", "interface_declaration": "interface",
        "enum_declaration": "enum", "type_alias_declaration": "type", "internal_module": "namespace",
        "module": "module", "function_signature": "function",
    },
    _JAVASCRIPT_CONSTANTS,
    wrappers=frozenset({"export_statement", "ambient_declaration", "expression_statement"}),
    attached=frozenset({"decorator"}),
    function="language_typescript",
)  # fmt: skip

GRAMMARS: Mapping[str, Grammar] = {
    "python": Grammar(
        {"function_definition": "def", "class_definition": "class"}, {"assignment": ""},
        wrappers=frozenset({"decorated_definition", "expression_statement"}),
    ),
    "javascript": Grammar(
        _JAVASCRIPT_DEFINITIONS, _JAVASCRIPT_CONSTANTS,
        wrappers=frozenset({"export_statement"}), attached=frozenset({"decorator"}),
    ),
    "typescript": _TYPESCRIPT,
    "tsx": replace(_TYPESCRIPT, module="typescript", function="language_tsx"),
    "go": Grammar(
        {"function_declaration": "func", "method_declaration": "func", "type_declaration": "type"},
        {"const_declaration": "const", "var_declaration": "var"},
    ),
    "rust": Grammar(
        {
            "function_item": "fn", "function_signature_item": "fn", "struct_item": "struct", "enum_item": "enum",
            "union_item": "union", "trait_item": "trait", "impl_item": "impl", "mod_item": "mod",
            "type_item": "type", "macro_definition": "macro_rules!",
        },
        {"const_item": "const", "static_item": "static"},
        attached=frozenset({"attribute_item"}),
    ),
    "java": Grammar({
        "class_declaration": "class", "interface_declaration": "interface", "enum_declaration": "enum",
        "record_declaration": "record", "annotation_type_declaration": "@interface",
        "method_declaration": "method", "constructor_declaration": "constructor",
        "compact_constructor_declaration": "constructor",
    }),
    "c": Grammar(_C_DEFINITIONS, _C_CONSTANTS),
    "cpp": Grammar(
        {
            **_C_DEFINITIONS, "class_specifier": "class", "namespace_definition": "namespace",
            "concept_definition": "concept", "alias_declaration": "using",
        },
        _C_CONSTANTS,
        wrappers=frozenset({"template_declaration"}), attached=frozenset({"access_specifier"}),
    ),
    "c_sharp": Grammar({
        "namespace_declaration": "namespace", "class_declaration": "class", "struct_declaration": "struct",
        "interface_declaration": "interface", "enum_declaration": "enum", "record_declaration": "record",
        "delegate_declaration": "delegate", "method_declaration": "method",
        "constructor_declaration": "constructor", "destructor_declaration": "destructor",
        "property_declaration": "property", "event_declaration": "event",
        "local_function_statement": "function",
    }),
    "ruby": Grammar(
        {"class": "class", "module": "module", "method": "def", "singleton_method": "def self."},
        {"assignment": ""},
    ),
    "php": Grammar(
        {
            "function_definition": "function", "class_declaration": "class", "interface_declaration": "interface",
            "trait_declaration": "trait", "enum_declaration": "enum", "method_declaration": "function",
        },
        {"const_declaration": "const", "namespace_definition": "namespace"},
        function="language_php",
    ),
    "bash": Grammar({"function_definition": "function"}),
    "kotlin": Grammar(
        {
            "class_declaration": "class", "object_declaration": "object", "companion_object": "companion object",
            "function_declaration": "fun", "secondary_constructor": "constructor", "type_alias": "typealias",
        },
        {"property_declaration": "val"},
    ),
    "scala": Grammar(
        {
            "class_definition": "class", "object_definition": "object", "trait_definition": "trait",
            "enum_definition": "enum", "function_definition": "def", "function_declaration": "def",
            "given_definition": "given", "type_definition": "type", "package_object": "package object",
            "extension_definition": "extension",
        },
        {"val_definition": "val", "var_definition": "var"},
    ),
}  # fmt: skip

_parsers = threading.local()


def parser_for(name: str) -> Parser:
    """The parser of a language in `GRAMMARS` for this thread: parsers are not thread-safe."""
    parser: Parser | None = getattr(_parsers, name, None)
    if parser is None:
        from tree_sitter import Parser

        parser = Parser(_language(name))
        setattr(_parsers, name, parser)
    return parser


@cache
def _language(name: str) -> Language:
    from tree_sitter import Language

    grammar = GRAMMARS[name]
    module = importlib.import_module(f"tree_sitter_{grammar.module or name}")
    pointer: object = getattr(module, grammar.function)()
    return Language(pointer)


def unwrapped(grammar: Grammar, node: Node) -> Node:
    """The definition inside decorators, exports and the like, or the node itself."""
    inner = node
    for _ in range(_MAX_WRAPPERS):
        if inner.type not in grammar.wrappers:
            return inner
        if (within := next((child for child in inner.named_children if child.type in grammar.named), None)) is None:
            return node
        inner = within
    return node


def title(grammar: Grammar, node: Node, *, constants_too: bool) -> str | None:
    """The title of a definition, such as `class UserStore`; None for other nodes."""
    word = grammar.definitions.get(node.type)
    if word is None and constants_too:
        word = grammar.constants.get(node.type)
    if word is None:
        return None
    if word == "class" and any(child.type == "interface" for child in node.children[:4]):
        # Kotlin's grammar has one node type for classes and interfaces.
        word = "interface"
    if not (name := _name(node)):
        return word or None
    if word.endswith("."):
        return word + name
    return f"{word} {name}" if word else name


def _name(node: Node) -> str:
    kind = node.type
    if kind == "impl_item":
        trait, implementer = node.child_by_field_name("trait"), node.child_by_field_name("type")
        return " for ".join(_text(part) for part in (trait, implementer) if part)
    named = node.child_by_field_name("name") or node.child_by_field_name("left")
    if named is None and node.child_by_field_name("declarator"):
        named = _declared(node)
    if named is None:
        # `type X struct`, `const x = …`: the name is one level deeper.
        parts = [child.child_by_field_name("name") or _identifier(child) for child in node.named_children]
        named = next((part for part in parts if part), None) or _identifier(node)
    receiver = node.child_by_field_name("receiver")
    if named and receiver and kind == "method_declaration":
        holder = _text(receiver).strip("()").split(" ")[-1].lstrip("*").partition("[")[0]
        return f"{holder}.{_text(named)}"
    return _text(named) if named else ""


def _declared(node: Node) -> Node:
    """The innermost declarator: in `char *name(int)`, the name."""
    for _ in range(16):
        if (inner := node.child_by_field_name("declarator")) is None:
            break
        node = inner
    return node


def _identifier(node: Node) -> Node | None:
    return next((child for child in node.named_children if child.type.endswith("identifier")), None)


def _text(node: Node) -> str:
    text = (node.text or b"")[: 4 * _MAX_NAME_CHARS].decode(errors="ignore")
    return " ".join(text.split())[:_MAX_NAME_CHARS]
