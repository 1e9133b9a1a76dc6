/** Files on their way to the server. They continue when the person goes to another page of the console. */

import { Problem, problemOf } from "../../lib/problem.ts";
import { noteExpiry, proofHeader, unreachable } from "../../lib/session.svelte.ts";
import { createFile, saveText, stateOf, statOf } from "./operations.ts";
import { besideName, inside, nameOf, parentOf, refOf, type Place } from "./place.ts";

export type UploadState = "waiting" | "running" | "conflict" | "done" | "failed" | "cancelled";

const AT_ONCE = 2;
let last = 0;

export class Upload {
  readonly id = (last += 1);
  readonly file: File;
  target = $state.raw() as Place;
  state = $state<UploadState>("waiting");
  sent = $state(0);
  problem = $state.raw<Problem>();
  /** What is replaced: the state of the file when the person decided so. */
  replaces: string | undefined;
  request: XMLHttpRequest | undefined;

  constructor(file: File, target: Place) {
    this.file = file;
    this.target = target;
  }

  get isOver(): boolean {
    return this.state === "done" || this.state === "failed" || this.state === "cancelled";
  }
}

class Uploads {
  all = $state<Upload[]>([]);
  /** Called with the folder of each file that has arrived. */
  readonly arrivals = new Set<(folder: Place) => void>();

  get isBusy(): boolean {
    return this.all.some((each) => !each.isOver);
  }

  add(file: File, target: Place): void {
    this.all.push(new Upload(file, target));
    this.#continue();
  }

  cancel(upload: Upload): void {
    upload.state = "cancelled";
    upload.request?.abort();
    this.#continue();
  }

  /** Replace the file that is there now. */
  async replace(upload: Upload): Promise<void> {
    const present = await statOf(upload.target, undefined, true).catch(() => undefined);
    upload.replaces = present && stateOf(upload.target, present);
    this.#again(upload);
  }

  /** Keep the file that is there, and give this one another name. */
  keepBoth(upload: Upload, taken: ReadonlySet<string>): void {
    const folder = parentOf(upload.target);
    if (folder === undefined) return;
    const name = nameOf(upload.target);
    upload.target = inside(folder, besideName(name, new Set([...taken, name]), upload.target.kind));
    this.#again(upload);
  }

  retry(upload: Upload): void {
    this.#again(upload);
  }

  /** Forget those that are over. */
  clear(): void {
    this.all = this.all.filter((each) => !each.isOver);
  }

  #again(upload: Upload): void {
    upload.state = "waiting";
    upload.sent = 0;
    upload.problem = undefined;
    this.#continue();
  }

  #continue(): void {
    for (const upload of this.all) {
      if (this.all.filter((each) => each.state === "running").length >= AT_ONCE) return;
      if (upload.state === "waiting") void this.#run(upload);
    }
  }

  async #run(upload: Upload): Promise<void> {
    upload.state = "running";
    try {
      if (upload.target.kind === "root") await sendBytes(upload);
      else await sendText(upload);
      upload.state = "done";
      upload.sent = upload.file.size;
      const folder = parentOf(upload.target);
      if (folder) for (const arrived of this.arrivals) arrived(folder);
    } catch (thrown) {
      const problem = thrown instanceof Problem ? thrown : new Problem(String(thrown), { code: "UPLOAD_FAILED" });
      // Cancelled meanwhile?
      if (upload.state === "running") {
        const isConflict = problem.code === "ALREADY_EXISTS" || problem.code === "CONFLICT";
        upload.state = isConflict ? "conflict" : "failed";
        upload.problem = problem;
      }
    } finally {
      this.#continue();
    }
  }
}

export const uploads = new Uploads();

addEventListener("beforeunload", (event) => {
  if (uploads.isBusy) event.preventDefault();
});

/** Only XMLHttpRequest tells how much of a body was sent. */
function sendBytes(upload: Upload): Promise<void> {
  return new Promise((resolve, reject) => {
    const query = new URLSearchParams({ ref: refOf(upload.target) });
    if (upload.replaces) query.set("if_match", upload.replaces);
    else query.set("create_only", "true");
    const request = (upload.request = new XMLHttpRequest());
    request.open("PUT", `/api/raw?${query}`);
    for (const [name, value] of Object.entries(proofHeader())) request.setRequestHeader(name, value);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => (upload.sent = event.loaded);
    request.onerror = () => reject(unreachable());
    request.onabort = () => reject(new Problem("cancelled", { code: "CANCELLED" }));
    request.onload = () => {
      if (request.status === 401) noteExpiry();
      if (request.status < 300) resolve();
      else reject(problemOf(request.status, parsed(request.responseText)));
    };
    request.send(upload.file);
  });
}

/** A project holds only text. */
async function sendText(upload: Upload): Promise<void> {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await upload.file.arrayBuffer());
  } catch {
    throw new Problem("the file is no text in UTF-8, and a project holds only text", {
      code: "NOT_TEXT",
      hint: "upload it into a root",
    });
  }
  if (upload.replaces) await saveText(upload.target, text, upload.replaces);
  else await createFile(upload.target, text);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** A file that was dropped, with its path in the folder that was dropped. */
export interface Dropped {
  file: File;
  path: string;
}

/** All files of what was dropped, also those in folders. */
export async function filesOf(transfer: DataTransfer): Promise<Dropped[]> {
  // The items are gone after the first await.
  const dropped = [...transfer.items].map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  const all: Dropped[] = [];
  for (const { entry, file } of dropped) {
    if (entry) await collect(entry, "", all);
    else if (file) all.push({ file, path: file.name });
  }
  return all;
}

async function collect(entry: FileSystemEntry, above: string, all: Dropped[]): Promise<void> {
  const path = `${above}${entry.name}`;
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    all.push({ file, path });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (part.length === 0) return;
    for (const inner of part) await collect(inner, `${path}/`, all);
  }
}
