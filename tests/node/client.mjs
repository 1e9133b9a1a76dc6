// Drives one MCP server over streamable HTTP with an official TypeScript client and prints what it saw as JSON.
//
//   MCP_TOKEN=… node client.mjs [--sdk 1|2] [--pin VERSION] URL [TOOL [JSON-ARGUMENTS]]
//
// --sdk 1 is `@modelcontextprotocol/sdk` (the default), --sdk 2 is `@modelcontextprotocol/client`; --pin asks the
// latter for exactly one protocol revision. Without TOOL the tools are listed and nothing is called.
// stdout: {sdk, protocolVersion, server, tools: [...], result?}. A failure prints {error} on stderr and exits 1; a
// tool that answers `isError: true` is a result like any other. Wrong usage exits 2.

import { parseArgs } from "node:util";

const USAGE = "usage: client.mjs [--sdk 1|2] [--pin VERSION] URL [TOOL [JSON-ARGUMENTS]]";
const DEADLINE_MS = 30_000;
const IDENTITY = { name: "armarium-test-client", version: "1.0.0" };

const CONNECT = {
  1: async (url, requestInit) => {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(IDENTITY);
    const transport = new StreamableHTTPClientTransport(url, { requestInit });
    await client.connect(transport, { timeout: DEADLINE_MS });
    return { client, transport, protocolVersion: transport.protocolVersion };
  },
  2: async (url, requestInit, pin) => {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const client = new Client(IDENTITY, pin ? { versionNegotiation: { mode: { pin } } } : {});
    const transport = new StreamableHTTPClientTransport(url, { requestInit });
    await client.connect(transport, { timeout: DEADLINE_MS });
    return { client, transport, protocolVersion: client.getNegotiatedProtocolVersion() };
  },
};

function readArguments() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { sdk: { type: "string", default: "1" }, pin: { type: "string" } },
  });
  const [url, tool, toolArguments = "{}"] = positionals;
  const pinWithoutChoice = values.pin !== undefined && values.sdk !== "2";
  if (url === undefined || positionals.length > 3 || !(values.sdk in CONNECT) || pinWithoutChoice) {
    throw new Error(USAGE);
  }
  return { ...values, url: new URL(url), tool, toolArguments: JSON.parse(toolArguments) };
}

async function allTools(client) {
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? {} : { cursor }, { timeout: DEADLINE_MS });
    tools.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return tools;
}

async function drive({ sdk, pin, url, tool, toolArguments }) {
  const token = process.env.MCP_TOKEN;
  const requestInit = token ? { headers: { Authorization: `Bearer ${token}` } } : {};
  const { client, transport, protocolVersion } = await CONNECT[sdk](url, requestInit, pin);
  try {
    const seen = { sdk, protocolVersion, server: client.getServerVersion(), tools: await allTools(client) };
    if (tool !== undefined) {
      const call = { name: tool, arguments: toolArguments };
      // The first SDK takes the result schema as its second argument, the second one has dropped it.
      const rest = sdk === "1" ? [undefined, { timeout: DEADLINE_MS }] : [{ timeout: DEADLINE_MS }];
      seen.result = await client.callTool(call, ...rest);
    }
    // A stateless server has no session to end; then there is no id and nothing is sent.
    await transport.terminateSession();
    return seen;
  } finally {
    await client.close();
  }
}

function printError(error) {
  const { name, code, message } = error;
  // The first SDK puts the HTTP status into `code`, the second one beside it.
  const status = error.status ?? (typeof code === "number" && code > 0 ? code : undefined);
  process.stderr.write(`${JSON.stringify({ error: { name, code, status, message } })}\n`);
}

let request;
try {
  request = readArguments();
} catch (error) {
  printError(error);
  process.exit(2);
}
try {
  process.stdout.write(`${JSON.stringify(await drive(request), null, 2)}\n`);
} catch (error) {
  printError(error);
  process.exitCode = 1;
}
