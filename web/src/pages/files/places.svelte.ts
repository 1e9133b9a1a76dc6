/** The roots and projects that the person sees, and the tree over all of them. It stays while pages come and go. */

import { answer, api } from "../../lib/api.ts";
import { Problem } from "../../lib/problem.ts";
import { Query } from "../../lib/query.svelte.ts";
import { session } from "../../lib/session.svelte.ts";
import { TreeModel, type TreeNode } from "../../lib/tree.svelte.ts";
import { reasonAgainst, type Action, type RootFacts } from "./allowed.ts";
import { sorted } from "./entries.ts";
import { listFolder } from "./operations.ts";
import { idOf, inside, shown, wayTo, type Place } from "./place.ts";

export interface Project {
  project: string;
  files: number;
  more_files: boolean;
  bytes: number;
  kept_bytes: number;
  quota_bytes: number;
  pending: number;
  updated_at?: string | undefined;
}

const MOST_IN_TREE = 20_000;

class Places {
  readonly roots = new Query<readonly RootFacts[]>(async (signal) => {
    if (!session.offers("list_roots")) return [];
    return (await answer(api.GET("/api/sandbox/roots", { signal }))).roots;
  });

  readonly projects = new Query<readonly Project[]>(async (signal) => {
    if (!session.offers("file_list")) return [];
    const all: Project[] = [];
    for (let cursor: string | undefined, isFirst = true; isFirst || cursor; isFirst = false) {
      const found = await answer(
        api.GET("/api/store", { params: { query: { limit: 200, ...(cursor ? { cursor } : {}) } }, signal }),
      );
      all.push(...found.projects);
      cursor = found.next_cursor;
    }
    return all;
  });

  readonly tree = new TreeModel<Place | null>(async (node) => {
    if (node.data === null) return [];
    const folder = node.data;
    const page = await listFolder(folder, undefined, new AbortController().signal);
    const nodes = sorted(page.entries, { by: "name", isDescending: false })
      .slice(0, MOST_IN_TREE)
      .filter((entry) => entry.kind !== "other")
      .map((entry) => nodeOf(inside(folder, entry.name), entry.name, entry.kind === "folder"));
    if (page.next === undefined) return nodes;
    return [...nodes, { id: `${node.id}…`, label: "… more: open the folder", isFolder: false, data: folder }];
  });

  /** Nothing else is known of a root than what it allows. */
  rootOf(place: Place): RootFacts | undefined {
    return place.kind === "root" ? this.roots.value?.find((root) => root.name === place.space) : undefined;
  }

  projectOf(place: Place): Project | undefined {
    return place.kind === "store" ? this.projects.value?.find((each) => each.project === place.space) : undefined;
  }

  /** Why the person cannot do this there; undefined if nothing is known that forbids it. */
  against(action: Action, place: Place): string | undefined {
    return reasonAgainst(action, place, {
      root: this.rootOf(place),
      isReadOnlyPerson: session.current?.principal.read_only ?? false,
      offers: (tool) => session.offers(tool),
    });
  }

  async load(): Promise<void> {
    await Promise.all([this.roots.load(), this.projects.load()]);
  }

  /** Open the folders above a place, so that the tree shows it. */
  async reveal(place: Place): Promise<void> {
    const above = wayTo(place).slice(0, -1);
    for (const folder of above) {
      const name = folder.path === "" ? folder.space : (folder.path.split("/").at(-1) ?? "");
      const node = nodeOf(folder, name, true);
      if (this.tree.folder(node.id)?.isOpen !== true) await this.tree.open(node);
    }
  }

  /** Load again what the tree shows of a folder. */
  async refresh(folder: Place): Promise<void> {
    const id = idOf(folder);
    if (this.tree.folder(id)?.children === undefined) return;
    await this.tree.reload(nodeOf(folder, "", true));
  }
}

export const places = new Places();

function nodeOf(place: Place, name: string, isFolder: boolean): TreeNode<Place | null> {
  return { id: idOf(place), label: shown(name), isFolder, data: place };
}

/** The nodes at the top of the tree. */
export function topOf(roots: readonly RootFacts[], projects: readonly Project[]): TreeNode<Place | null>[] {
  return [
    ...roots.map((root) => nodeOf({ kind: "root", space: root.name, path: "" }, root.name, true)),
    ...projects.map((each) => nodeOf({ kind: "store", space: each.project, path: "" }, each.project, true)),
  ];
}

/** A problem in the words of the person: what the file rules of the server deny. */
export function inWords(problem: Problem): string {
  if (problem.code === "CREDENTIALS_HIDDEN")
    return "The name is that of a file with credentials, so its content is hidden.";
  return problem.message;
}
