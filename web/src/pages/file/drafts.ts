/** Texts whose saving failed. They are kept in this browser until they are saved or thrown away. */

export interface Draft {
  text: string;
  /** The state of the file that the text was made from. */
  base: string;
  at: string;
}

const DATABASE = "armarium";
const STORE = "unsaved";

/** Whose text it is, and of which file. */
export function keyOf(person: string, ref: string): string {
  return `${person} ${ref}`;
}

export async function keepDraft(key: string, draft: Draft): Promise<void> {
  await inStore("readwrite", (store) => store.put(draft, key));
}

export async function draftOf(key: string): Promise<Draft | undefined> {
  return (await inStore("readonly", (store) => store.get(key))) as Draft | undefined;
}

export async function forgetDraft(key: string): Promise<void> {
  await inStore("readwrite", (store) => store.delete(key));
}

async function inStore(mode: IDBTransactionMode, ask: (store: IDBObjectStore) => IDBRequest): Promise<unknown> {
  const database = await opened();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode);
      const request = ask(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () =>
        reject(transaction.error ?? new Error("the browser stores nothing"));
    });
  } finally {
    database.close();
  }
}

function opened(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => void request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the browser stores nothing"));
  });
}
