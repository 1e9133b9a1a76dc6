/** Reads server-sent events from the body of a response. */

export interface ServerEvent {
  event: string;
  data: string;
}

/** The events of a stream, as they arrive. Comments are left out. */
export async function* eventsOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  let event = "message";
  let data: string[] = [];
  for await (const line of linesOf(stream)) {
    if (line === "") {
      if (data.length > 0) yield { event, data: data.join("\n") };
      event = "message";
      data = [];
      continue;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      // A carriage return at the end may be the first half of a line end.
      const held = rest.endsWith("\r") && !done ? 1 : 0;
      const lines = rest.slice(0, rest.length - held).split(/\r\n|\r|\n/);
      rest = (lines.pop() ?? "") + rest.slice(rest.length - held);
      yield* lines;
      if (done) return;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
