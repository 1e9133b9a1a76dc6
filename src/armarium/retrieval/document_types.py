"""Classifies files by their name and first bytes."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Literal

from armarium.retrieval.encodings import wide_encoding

DocType = Literal[
    "code", "text", "md", "data", "html", "pdf", "word", "slides", "sheet", "epub", "email",
    "image", "audio", "archive", "binary_ignored",
]  # fmt: skip
"""The values of `documents.doc_type`."""

HEAD_BYTES = 4096
"""How many bytes of a file `classify` needs."""


@dataclass(frozen=True, slots=True)
class DocumentFormat:
    """The type and the format of a file."""

    doc_type: DocType
    name: str
    """The format itself: `python`, `csv`, `docx`, `tar.gz`."""


_CODE_EXTENSIONS = {
    "python": "py pyi pyw pyx pxd", "javascript": "js mjs cjs jsx", "typescript": "ts mts cts", "tsx": "tsx",
    "go": "go", "rust": "rs", "java": "java", "c": "c h", "cpp": "cc cpp cxx c++ hh hpp hxx h++ ipp tpp inl ino",
    "c_sharp": "cs csx", "ruby": "rb rake gemspec ru podspec", "php": "php phtml php4 php5 php7",
    "bash": "sh bash zsh ksh bats",
    "kotlin": "kt kts", "scala": "scala sc sbt", "swift": "swift", "objective_c": "m mm", "dart": "dart", "lua": "lua",
    "perl": "pl pm", "r": "r", "julia": "jl", "haskell": "hs lhs", "elixir": "ex exs", "erlang": "erl hrl",
    "clojure": "clj cljs cljc edn", "ocaml": "ml mli", "fsharp": "fs fsi fsx", "elm": "elm", "nim": "nim nims",
    "zig": "zig", "verilog": "v sv svh vh", "vhdl": "vhd vhdl", "groovy": "groovy gradle gvy",
    "sql": "sql psql ddl dml",
    "proto": "proto", "thrift": "thrift", "graphql": "graphql gql", "terraform": "tf tfvars hcl", "cmake": "cmake",
    "make": "mk mak am", "dockerfile": "dockerfile containerfile", "powershell": "ps1 psm1 psd1", "batch": "bat cmd",
    "fish": "fish", "assembly": "asm s nasm", "fortran": "f f77 f90 f95 f03 f08", "pascal": "pas pp dpr",
    "ada": "adb ads", "cobol": "cob cbl cpy", "lisp": "lisp lsp cl el scm rkt", "prolog": "prolog", "tcl": "tcl",
    "solidity": "sol", "vue": "vue", "svelte": "svelte", "astro": "astro", "css": "css scss sass less styl",
    "crystal": "cr", "d": "d di", "visual_basic": "vb vbs bas", "awk": "awk", "nix": "nix", "bicep": "bicep",
    "rego": "rego", "cuda": "cu cuh", "shader": "glsl vert frag hlsl wgsl metal", "starlark": "bzl bazel star",
    "vim": "vim", "jq": "jq", "apex": "cls trigger", "haxe": "hx", "cue": "cue", "jsonnet": "jsonnet libsonnet",
    "coffee": "coffee",
    "idl": "idl", "wat": "wat", "gdscript": "gd", "just": "just", "m4": "m4 ac", "meson": "meson", "qml": "qml",
}  # fmt: skip
_OTHER_EXTENSIONS: dict[DocType, dict[str, str]] = {
    "md": {"markdown": "md markdown mdown mkd mkdn mdx qmd rmd"},
    "text": {
        "text": "txt text log out err", "rst": "rst rest", "asciidoc": "adoc asciidoc", "latex": "tex ltx sty bib",
        "org": "org", "subtitles": "srt vtt", "diff": "diff patch", "textile": "textile", "wiki": "wiki mediawiki",
        "po": "po pot",
    },
    "data": {
        "csv": "csv", "tsv": "tsv tab", "json": "json geojson json5 jsonc har webmanifest avsc",
        "jsonl": "jsonl ndjson", "yaml": "yaml yml", "toml": "toml", "ipynb": "ipynb", "lock": "lock", "ics": "ics",
        "vcf": "vcf",
        "ini": "ini cfg conf cnf properties env editorconfig desktop service socket timer",
        "xml": "xml xsd xsl xslt rss atom plist resx csproj vbproj fsproj props targets wsdl kml gpx",
    },
    "html": {"html": "html htm xhtml shtml"}, "pdf": {"pdf": "pdf"}, "epub": {"epub": "epub"},
    "email": {"eml": "eml", "mbox": "mbox"}, "word": {"docx": "docx docm dotx dotm"},
    "slides": {"pptx": "pptx pptm ppsx potx"}, "sheet": {"xlsx": "xlsx xlsm xltx xltm"},
    "image": {
        "png": "png", "jpeg": "jpg jpeg", "gif": "gif", "webp": "webp", "tiff": "tif tiff", "bmp": "bmp",
        "avif": "avif", "heic": "heic heif", "svg": "svg",
    },
    "audio": {
        "mp3": "mp3", "wav": "wav", "ogg": "ogg oga opus", "flac": "flac", "m4a": "m4a", "aac": "aac", "webm": "weba",
    },
    "archive": {"zip": "zip", "tar": "tar", "tar.gz": "tgz", "tar.bz2": "tbz2 tbz", "tar.xz": "txz"},
    # Programs, models and packages in a container format, without readable text.
    "binary_ignored": {
        "zip": "jar war ear apk ipa aar whl nupkg vsix xpi npz pt odt ods odp", "gzip": "gz", "bzip2": "bz2",
        "xz": "xz",
    },
}  # fmt: skip
_WELL_KNOWN: dict[DocType, dict[str, str]] = {
    "code": {
        "dockerfile": "dockerfile containerfile", "make": "makefile gnumakefile", "cmake": "cmakelists.txt",
        "groovy": "jenkinsfile", "ruby": "vagrantfile rakefile gemfile podfile brewfile fastfile guardfile",
        "just": "justfile", "starlark": "build workspace tiltfile", "python": "snakefile sconstruct sconscript wscript",
        "meson": "meson.build", "go_mod": "go.mod go.work", "procfile": "procfile", "vim": ".vimrc", "lisp": ".emacs",
        "bash": ".bashrc .bash_profile .bash_aliases .profile .zshrc .zshenv .zprofile .envrc pkgbuild",
    },
    "text": {
        "text": "readme license licence copying notice authors contributors changelog changes news todo codeowners",
    },
    "data": {
        "ini": ".gitignore .gitattributes .gitmodules .gitconfig .dockerignore .editorconfig .npmrc .env",
        "toml": "pipfile", "json": ".babelrc .eslintrc .prettierrc", "lock": "go.sum",
        "requirements": "requirements.txt",
    },
}  # fmt: skip
_INTERPRETERS = {
    "bash": "sh bash zsh ksh dash ash", "javascript": "node nodejs", "typescript": "deno bun ts-node tsx",
    "python": "python pypy uv", "ruby": "ruby", "php": "php", "perl": "perl", "lua": "lua luajit", "r": "rscript",
    "groovy": "groovy", "scala": "scala", "kotlin": "kotlin", "awk": "awk gawk mawk", "fish": "fish",
    "powershell": "pwsh", "make": "make", "julia": "julia", "tcl": "tclsh wish", "elixir": "elixir", "swift": "swift",
}  # fmt: skip


def _by_key(tables: dict[DocType, dict[str, str]]) -> dict[str, DocumentFormat]:
    return {
        key: DocumentFormat(doc_type, name)
        for doc_type, table in tables.items()
        for name, keys in table.items()
        for key in keys.split()
    }


_BY_EXTENSION = _by_key({"code": _CODE_EXTENSIONS, **_OTHER_EXTENSIONS})
_BY_NAME = _by_key(_WELL_KNOWN)
_BY_INTERPRETER = _by_key({"code": _INTERPRETERS})
_TAR_ENDINGS = {".tar.gz": "tar.gz", ".tar.bz2": "tar.bz2", ".tar.xz": "tar.xz"}

_TEXT = DocumentFormat("text", "text")
_HTML = DocumentFormat("html", "html")
_UNREADABLE = DocumentFormat("binary_ignored", "binary")

# Signatures that plain text could start with include bytes that text cannot contain. The first match decides.
_SIGNATURES: dict[DocType, dict[str, bytes]] = {
    "pdf": {"pdf": rb"%PDF-"},
    "archive": {"zip": rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"},
    "image": {
        "png": rb"\x89PNG\r\n", "jpeg": rb"\xff\xd8\xff", "gif": rb"GIF8[79]a.{4}[\x80-\xff\0]",
        "webp": rb"RIFF.{4}WEBPVP8", "tiff": rb"II[*+]\0|MM\0[*+]", "bmp": rb"BM.{4}\0\0\0\0",
        "avif": rb"\0\0\0.ftypavi[fs]", "heic": rb"\0\0\0.ftyp(?:heic|heix|mif1|msf1)",
    },
    "audio": {
        "mp3": rb"ID3[\x02-\x04][\0-\x0f]|\xff[\xfa\xfb\xf2\xf3][\x10-\xef]",
        "aac": rb"\xff[\xf0\xf1\xf8\xf9][\x40-\x7f\x80-\xbf]", "wav": rb"RIFF.{4}WAVEfmt ", "ogg": rb"OggS\0",
        "flac": rb"fLaC[\0\x80]", "m4a": rb"\0\0\0.ftyp(?:M4A |M4B )",
    },
    "binary_ignored": {
        "gzip": rb"\x1f\x8b\x08", "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)", "xz": rb"\xfd7zXZ\0",
        "binary":
        rb"\x7fELF|MZ.{0,60}\0|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe|\xfe\xed\xfa[\xce\xcf]|\0asm|\0\0\0.ftyp|\x1aE\xdf\xa3"
        rb"|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|\x28\xb5\x2f\xfd|SQLite format 3\0|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
        rb"|!<arch>\n|wOF[F2]|\0\x01\0\0\0|OTTO\0|PAR1.*\0|\x93NUMPY|\x80[\x02-\x05][\x80-\xff}(\]c]",
    },
}  # fmt: skip
_BY_SIGNATURE = {name: DocumentFormat(doc_type, name) for doc_type, names in _SIGNATURES.items() for name in names}
_MAGIC = re.compile(
    b"|".join(b"(?P<%s>%s)" % (name.encode(), sign) for names in _SIGNATURES.values() for name, sign in names.items()),
    re.DOTALL,
)
_OLE = b"\xd0\xcf\x11\xe0"
_ZIP_CONTENTS = (
    (b"mimetypeapplication/epub+zip", DocumentFormat("epub", "epub")),
    (b"word/", DocumentFormat("word", "docx")),
    (b"ppt/", DocumentFormat("slides", "pptx")),
    (b"xl/", DocumentFormat("sheet", "xlsx")),
)
_ZIP_TYPES = frozenset({"word", "slides", "sheet", "epub"})
_TEXT_TYPES = frozenset({"code", "text", "md", "data", "html", "email"})
_SHEBANG = re.compile(rb"#![ \t]*(\S+)(?:[ \t]+(?:-S[ \t]*)?(\S+))?")
_LOOKS_LIKE_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE)
_PRINTABLE = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\n\v\f\r\b\x1b"})
_MAX_CONTROL_SHARE = 0.05


def classify(rel_path: str, head: bytes) -> DocumentFormat:
    """The format of a file. If name and content contradict each other, the content decides."""
    named = _by_name(rel_path)
    if magic := _MAGIC.match(head):
        assert magic.lastgroup is not None
        return _by_signature(magic.lastgroup, named, head)
    if head[257:262] == b"ustar" and not (named and named.doc_type in _TEXT_TYPES and b"\0" not in head):
        return DocumentFormat("archive", "tar")
    if named is None or named.doc_type in _TEXT_TYPES:
        return _readable(named, head)
    if named.name != "svg" and _contradicts(named, head):
        return _HTML if _LOOKS_LIKE_HTML.match(head) else _TEXT
    return named


def _by_name(rel_path: str) -> DocumentFormat | None:
    name = rel_path[rel_path.rfind("/") + 1 :].lower()
    if (known := _BY_NAME.get(name)) is not None:
        return known
    stem, dot, extension = name.rpartition(".")
    if not dot:
        return None
    for ending, archive in _TAR_ENDINGS.items():
        if name.endswith(ending):
            return DocumentFormat("archive", archive)
    if (known := _BY_EXTENSION.get(extension)) is not None:
        return known
    # `Dockerfile.dev`, `Makefile.am` and `readme.old` are classified by their stem.
    return _BY_NAME.get(stem.partition(".")[0]) if stem else None


def _by_signature(signature: str, named: DocumentFormat | None, head: bytes) -> DocumentFormat:
    if signature == "zip":
        return _zip_contents(named, head)
    if signature in {"gzip", "bzip2", "xz"}:
        if named and named.doc_type == "archive" and named.name.startswith("tar."):
            return named
        if signature == "gzip" and _unpacked_head(head)[257:262] == b"ustar":
            return DocumentFormat("archive", "tar.gz")
    if head.startswith(_OLE) and named and named.doc_type in _ZIP_TYPES:
        return named  # an encrypted office document: extraction reports it
    return _BY_SIGNATURE[signature]


def _zip_contents(named: DocumentFormat | None, head: bytes) -> DocumentFormat:
    seen = next((inside for mark, inside in _ZIP_CONTENTS if mark in head), None)
    if named and (named.doc_type in _ZIP_TYPES or named.name == "zip"):
        # The content of a document overrides its extension, but a plain archive may contain a folder word/.
        return seen if seen and named.doc_type in _ZIP_TYPES else named
    return seen if seen and (b"[Content_Types].xml" in head or seen.name == "epub") else _BY_SIGNATURE["zip"]


def _unpacked_head(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, 512)
    except zlib.error:
        return b""


def _readable(named: DocumentFormat | None, head: bytes) -> DocumentFormat:
    if looks_binary(head):
        return _UNREADABLE
    if named is not None and named.doc_type != "text":
        return named
    if head.startswith(b"#!") and (script := _by_shebang(head)):
        return script
    if named is None and _LOOKS_LIKE_HTML.match(head):
        return _HTML
    return named or _TEXT


def _by_shebang(head: bytes) -> DocumentFormat | None:
    if not (match := _SHEBANG.match(head)):
        return None
    programs = [word.rpartition(b"/")[2].decode("ascii", "replace").lower() for word in match.groups(b"")]
    program = programs[1] if programs[0] == "env" else programs[0]
    return _BY_INTERPRETER.get(program.rstrip("0123456789.-"))


def _contradicts(named: DocumentFormat, head: bytes) -> bool:
    """Whether a file with the name of a binary format is plain text, such as a Git LFS pointer."""
    if named.doc_type == "pdf":
        return bool(_LOOKS_LIKE_HTML.match(head))  # anything else is reported as a damaged PDF
    return bool(head) and head.isascii() and not looks_binary(head)


def looks_binary(head: bytes) -> bool:
    """Whether these bytes are not text in any encoding."""
    if b"\0" in head:
        return wide_encoding(head) is None
    return len(head.translate(None, _PRINTABLE)) > len(head) * _MAX_CONTROL_SHARE and wide_encoding(head) is None
