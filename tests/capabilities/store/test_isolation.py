"""Every statement of the store that touches a table of tenants names the tenant, and every statement can be run."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from armarium.capabilities import store
from armarium.capabilities.store.database.schema import migrations
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.foundation.sql import queries

PACKAGE = "armarium.capabilities.store.database.sql"
FUNCTION = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION (\w+)\(.*?AS \$\$(.*?)\$\$", re.DOTALL)
FUNCTIONS = [(name, body) for _, _, sql in migrations() for name, body in FUNCTION.findall(sql)]
# Not our functions: their own statements are walked through.
NO_TABLE = "|".join(rf"{name}\b" for name, _ in FUNCTIONS)
TOUCHED = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|USING|,)\s+(?:ONLY\s+)?(?!{NO_TABLE})(mcp_\w+)", re.IGNORECASE)
INLINE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+mcp_\w+")
STATEMENT = re.compile(r"\b(?:SELECT|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)


def named_statements() -> list[tuple[str, str]]:
    """Every statement of the package with its name."""
    found = [entry.name for entry in files(PACKAGE).iterdir() if entry.name.endswith(".sql")]
    return [(f"{file}:{name}", text) for file in sorted(found) for name, text in queries(PACKAGE, file).items()]


def statements_of_functions() -> list[tuple[str, str]]:
    """What the functions in the database do, statement by statement."""
    return [
        (f"{function}:{number}", statement)
        for function, body in FUNCTIONS
        for number, statement in enumerate(re.sub(r"--[^\n]*", "", body).split(";"), 1)
        if STATEMENT.search(statement)
    ]


def blocks(statement: str) -> list[str]:
    """A statement and its inner ones, each without those inside it."""
    open_blocks, closed = [""], list[str]()
    for character in re.sub(r"'[^']*'|--[^\n]*", "", statement):
        if character == "(":
            open_blocks.append("")
        elif character == ")":
            inner = open_blocks.pop()
            if STATEMENT.search(inner):
                closed.append(inner)
            else:
                open_blocks[-1] += f"({inner})"
        else:
            open_blocks[-1] += character
    return [*closed, *open_blocks]


def careless(statement: str) -> list[str]:
    """The tables of tenants that are touched without their tenant being named in the same place."""
    return [
        table
        for block in blocks(statement)
        for table in TOUCHED.findall(block)
        if len(TOUCHED.findall(block)) > block.count("apikey_hash")
    ]


@pytest.mark.contract("S6.2-1")
@pytest.mark.parametrize(("name", "statement"), [*named_statements(), *statements_of_functions()])
def test_a_statement_on_tenants_rows_names_the_tenant(name: str, statement: str) -> None:
    assert careless(statement) == []


@pytest.mark.parametrize(
    ("statement", "tables"),
    [
        ("SELECT path FROM mcp_files", ["mcp_files"]),
        ("SELECT (SELECT 1 FROM mcp_files WHERE id = $1) FROM mcp_files WHERE apikey_hash = $1", ["mcp_files"]),
        ("DELETE FROM mcp_file_chunks WHERE id IN (SELECT id FROM x WHERE apikey_hash = $1)", ["mcp_file_chunks"]),
        ("UPDATE mcp_files SET path = 'apikey_hash'", ["mcp_files"]),
        ("INSERT INTO mcp_files (path) VALUES ($1) -- apikey_hash", ["mcp_files"]),
        (
            "SELECT FROM mcp_files JOIN mcp_file_chunks USING (id) WHERE apikey_hash = $1",
            ["mcp_files", "mcp_file_chunks"],
        ),
        ("INSERT INTO mcp_files (apikey_hash, path) VALUES ($1, $2)", []),
        ("INSERT INTO mcp_files(path) SELECT path FROM mcp_file_write($1)", ["mcp_files"]),
        ("SELECT FROM mcp_files WHERE (apikey_hash, project) = ($1, $2)", []),
    ],
)
def test_a_careless_statement_is_noticed(statement: str, tables: list[str]) -> None:
    assert careless(statement) == tables


def test_no_statement_on_tenants_rows_hides_in_a_module() -> None:
    modules = list(Path(store.__file__).parent.rglob("*.py"))
    assert len(modules) > 30
    assert [module.name for module in modules if INLINE.search(module.read_text(encoding="utf-8"))] == []


@pytest.mark.contract("S6.2-1")
async def test_row_security_covers_every_table_of_tenants(database: StoreDatabase, tenant: str) -> None:
    async with database.read_transaction(tenant) as connection:
        tables = await connection.fetch(
            "SELECT relname, relrowsecurity AND relforcerowsecurity AS secured, "
            "(SELECT count(*) FROM pg_policy WHERE polrelid = pg_class.oid) AS policies "
            "FROM pg_class WHERE relname LIKE 'mcp\\_%' AND relkind = 'r'"
        )
    assert len(tables) >= 7
    assert [table["relname"] for table in tables if not table["secured"] or table["policies"] != 1] == []


@pytest.mark.parametrize(("name", "statement"), named_statements())
async def test_every_statement_fits_the_schema(database: StoreDatabase, tenant: str, name: str, statement: str) -> None:
    async with database.write_transaction(tenant) as connection:
        await connection.execute(f"PREPARE tried AS {statement}")
        await connection.execute("DEALLOCATE tried")
