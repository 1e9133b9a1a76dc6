/** The servers behind the gateway as administrators see them. */

import type { JsonObject } from "./schema.ts";

export interface Health {
  state: string;
  last_error?: string;
  last_error_code?: string;
  last_error_hint?: string;
  retry_in_s?: number;
  in_flight: number;
  calls: number;
  failures: number;
  connections: number;
  tools?: number;
  notes?: string[];
  tool_errors: number;
  last_tool_error?: string;
  server_name?: string;
  server_version?: string;
}

export interface AdminServer {
  name: string;
  kind: "rag" | "generic";
  entry: JsonObject;
  /** null for a disabled server. */
  health: Health | null;
}

export interface Overview {
  servers: AdminServer[];
  files: Record<string, string | null>;
  last_reload: string | null;
  /** Why newer files are not in use. */
  problems: string[];
}

export const FILES: Record<AdminServer["kind"], string> = { rag: "rag-mcp.json", generic: "mcp.json" };
