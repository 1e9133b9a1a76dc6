import assert from "node:assert/strict";
import { test } from "node:test";

import { eventsOf, type ServerEvent } from "../src/lib/sse.ts";

async function read(chunks: (string | Uint8Array)[]): Promise<ServerEvent[]> {
  const encoder = new TextEncoder();
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(typeof chunk === "string" ? encoder.encode(chunk) : chunk);
      controller.close();
    },
  });
  const events: ServerEvent[] = [];
  for await (const event of eventsOf(stream)) events.push(event);
  return events;
}

const TEXT =
  ': keep-alive\r\n\r\nevent: text\ndata: {"a":\ndata: "ü"}\nid: 7\n\ndata:bare\r\revent: empty\n\ndata: cut';
const EVENTS = [
  { event: "text", data: '{"a":\n"ü"}' },
  { event: "message", data: "bare" },
];

test("events are read, comments and unfinished events are not", async () => {
  assert.deepEqual(await read([TEXT]), EVENTS);
});

test("it does not matter where the stream is cut", async () => {
  const bytes = new TextEncoder().encode(TEXT);
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    assert.deepEqual(await read([bytes.slice(0, cut), bytes.slice(cut)]), EVENTS, `cut after ${cut} bytes`);
  }
  assert.deepEqual(await read(Array.from(bytes, (byte) => Uint8Array.of(byte))), EVENTS);
});

test("a reader that stops cancels the stream", async () => {
  let isCancelled = false;
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new TextEncoder().encode("data: x\n\n")),
    cancel: () => void (isCancelled = true),
  });
  for await (const event of eventsOf(stream)) {
    assert.equal(event.data, "x");
    break;
  }
  assert.ok(isCancelled);
});
