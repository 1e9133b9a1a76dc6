/** A form from a JSON schema: its fields, and the places of mistakes in it. */

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type JsonObject = { [name: string]: Json };
export type Path = readonly (string | number)[];

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string;
  description?: string;
  default?: Json;
  enum?: Json[];
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  required?: string[];
}

export type FieldKind = "text" | "number" | "switch" | "choice" | "lines" | "pairs" | "object" | "list";

export interface Field {
  name: string;
  kind: FieldKind;
  description: string;
  default: Json | undefined;
  /** Of a choice. */
  choices: readonly string[];
  isWhole: boolean;
  isRequired: boolean;
  /** Of an object, or of each element of a list. */
  fields: readonly Field[];
}

/** What a person fills in first. Everything else follows in the order of the schema. */
const FIRST = ["id", "name", "description", "enabled", "groups", "url", "headers", "command", "args", "env", "cwd"];

/** The fields of an object in the schema. */
export function fieldsOf(schema: Schema, root: Schema = schema): Field[] {
  const { properties = {}, required = [] } = resolved(schema, root);
  const fields = Object.entries(properties).map(([name, property]) =>
    fieldOf(name, property, root, required.includes(name)),
  );
  const rank = (field: Field) => (FIRST.indexOf(field.name) + FIRST.length + 1) % (FIRST.length + 1);
  return fields
    .map((field, index) => ({ field, index }))
    .sort((one, other) => rank(one.field) - rank(other.field) || one.index - other.index)
    .map(({ field }) => field);
}

function fieldOf(name: string, property: Schema, root: Schema, isRequired: boolean): Field {
  const schema = resolved(property, root);
  const kind = kindOf(schema, root);
  const inner = kind === "object" ? schema : kind === "list" ? (schema.items ?? {}) : undefined;
  return {
    name,
    kind,
    description: property.description ?? schema.description ?? "",
    default: property.default ?? schema.default,
    choices: (schema.enum ?? []).map(String),
    isWhole: schema.type === "integer",
    isRequired,
    fields: inner === undefined ? [] : fieldsOf(inner, root),
  };
}

function kindOf(schema: Schema, root: Schema): FieldKind {
  if (schema.enum) return "choice";
  switch (schema.type) {
    case "boolean":
      return "switch";
    case "integer":
    case "number":
      return "number";
    case "array":
      return resolved(schema.items ?? {}, root).type === "object" ? "list" : "lines";
    case "object":
      return schema.properties ? "object" : "pairs";
    default:
      return "text";
  }
}

/** The schema without references and without the alternative of null, which counts as absent. */
function resolved(schema: Schema, root: Schema): Schema {
  if (schema.$ref !== undefined) {
    const found = root.$defs?.[schema.$ref.replace("#/$defs/", "")] ?? {};
    return { ...resolved(found, root), ...without(schema, "$ref") };
  }
  const real = schema.anyOf?.filter((each) => each.type !== "null") ?? [];
  return real.length === 1 && real[0] ? { ...resolved(real[0], root), ...without(schema, "anyOf") } : schema;
}

function without(schema: Schema, name: "$ref" | "anyOf"): Schema {
  return Object.fromEntries(Object.entries(schema).filter(([each]) => each !== name));
}

/** A copy of the object in which the value at the path is another one; undefined removes it. */
export function withValue(object: JsonObject, path: Path, value: Json | undefined): JsonObject {
  return changed(object, path, value) as JsonObject;
}

function changed(value: Json | undefined, [step, ...rest]: Path, to: Json | undefined): Json | undefined {
  if (step === undefined) return to;
  if (typeof step === "number") {
    const list = Array.isArray(value) ? [...value] : [];
    const inner = changed(list[step], rest, to);
    if (inner === undefined) list.splice(step, 1);
    else list[step] = inner;
    return list;
  }
  const object: JsonObject = isObject(value) ? { ...value } : {};
  const inner = changed(object[step], rest, to);
  if (inner === undefined) delete object[step];
  else object[step] = inner;
  return object;
}

/** The value at the path. */
export function valueAt(value: Json | undefined, path: Path): Json | undefined {
  let found: Json | undefined = value;
  for (const step of path) {
    if (Array.isArray(found) && typeof step === "number") found = found[step];
    else if (isObject(found) && typeof step === "string") found = found[step];
    else return undefined;
  }
  return found;
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export interface Mistake {
  path: Path;
  message: string;
}

/** A mistake as the server tells it: its place is in backticks and begins with the name of the server. */
export function mistakeOf(problem: string, server: string): Mistake {
  const place = /`([^`]+)`/.exec(problem)?.[1];
  if (place === undefined || (place !== server && !place.startsWith(`${server}.`) && !place.startsWith(`${server}[`))) {
    return { path: [], message: problem };
  }
  const path = [...place.slice(server.length).matchAll(/\.([^.[\]]+)|\[(\d+)\]/g)].map(
    ([, name, index]) => name ?? Number(index),
  );
  return { path, message: problem };
}

/** The line of a value in the text that `JSON.stringify(object, null, 2)` writes, from 1. */
export function lineOf(object: JsonObject, path: Path): number {
  if (path.length === 0) return 1;
  const marker = "\u0000here";
  const parent = path.slice(0, -1);
  const last = path.at(-1);
  if (valueAt(object, path) === undefined) return lineOf(object, parent);
  // The value is replaced by a mark, which is on the line where the value begins.
  const marked = last === undefined ? object : withValue(object, path, marker);
  const lines = JSON.stringify(marked, null, 2).split("\n");
  return lines.findIndex((line) => line.includes(JSON.stringify(marker).slice(1, -1))) + 1;
}

/** The mistakes to show at an object itself: those about it, and about what it has no field for. */
export function mistakesAt(mistakes: readonly Mistake[], path: Path, fields: readonly Field[]): Mistake[] {
  return mistakesBelow(mistakes, path).filter((mistake) => {
    const next = mistake.path[path.length];
    return next === undefined || (typeof next === "string" && fields.every((field) => field.name !== next));
  });
}

/** The mistakes about a value and what is in it. */
export function mistakesBelow(mistakes: readonly Mistake[], path: Path): Mistake[] {
  return mistakes.filter((mistake) => path.every((step, index) => mistake.path[index] === step));
}

/** The object without the empty objects on the way to a value that was removed. */
export function pruned(object: JsonObject, path: Path): JsonObject {
  const parent = path.slice(0, -1);
  if (parent.length === 0 || typeof parent.at(-1) === "number") return object;
  const value = valueAt(object, parent);
  if (!isObject(value) || Object.keys(value).length > 0) return object;
  return pruned(withValue(object, parent, undefined), parent);
}
