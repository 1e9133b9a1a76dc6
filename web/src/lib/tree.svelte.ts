/** A tree whose folders are loaded when they are opened. */

import { asProblem, type Problem } from "./problem.ts";

export interface TreeNode<T> {
  /** Unique in the tree. */
  id: string;
  label: string;
  isFolder: boolean;
  data: T;
}

export interface TreeRow<T> {
  node: TreeNode<T>;
  level: number;
  position: number;
  size: number;
  isOpen: boolean;
}

interface Folder<T> {
  children: readonly TreeNode<T>[] | undefined;
  isOpen: boolean;
  isLoading: boolean;
  problem: Problem | undefined;
}

export class TreeModel<T> {
  #roots = $state.raw<readonly TreeNode<T>[]>([]);
  #folders = $state.raw<ReadonlyMap<string, Folder<T>>>(new Map());
  #load: (node: TreeNode<T>) => Promise<readonly TreeNode<T>[]>;

  /** The rows that are visible now, in order. */
  readonly rows: readonly TreeRow<T>[] = $derived(this.#flatten(this.#roots, 1));

  constructor(load: (node: TreeNode<T>) => Promise<readonly TreeNode<T>[]>) {
    this.#load = load;
  }

  setRoots(roots: readonly TreeNode<T>[]): void {
    this.#roots = roots;
  }

  folder(id: string): Folder<T> | undefined {
    return this.#folders.get(id);
  }

  /** Open a folder, and load what is in it if that is not known yet. */
  async open(node: TreeNode<T>): Promise<void> {
    if (!node.isFolder) return;
    this.#set(node.id, { isOpen: true });
    if (this.#folders.get(node.id)?.children === undefined) await this.reload(node);
  }

  close(node: TreeNode<T>): void {
    this.#set(node.id, { isOpen: false });
  }

  /** Load again what is in a folder. What was shown stays until then. */
  async reload(node: TreeNode<T>): Promise<void> {
    if (this.#folders.get(node.id)?.isLoading) return;
    this.#set(node.id, { isLoading: true, problem: undefined });
    try {
      this.#set(node.id, { children: await this.#load(node) });
    } catch (thrown) {
      this.#set(node.id, { problem: asProblem(thrown) });
    } finally {
      this.#set(node.id, { isLoading: false });
    }
  }

  #set(id: string, changes: Partial<Folder<T>>): void {
    const none: Folder<T> = { children: undefined, isOpen: false, isLoading: false, problem: undefined };
    this.#folders = new Map(this.#folders).set(id, { ...(this.#folders.get(id) ?? none), ...changes });
  }

  #flatten(nodes: readonly TreeNode<T>[], level: number): TreeRow<T>[] {
    const rows: TreeRow<T>[] = [];
    nodes.forEach((node, index) => {
      const folder = this.#folders.get(node.id);
      const isOpen = node.isFolder && (folder?.isOpen ?? false);
      rows.push({ node, level, position: index + 1, size: nodes.length, isOpen });
      // Not spread into the call: a folder may have more entries than a call may have arguments.
      if (isOpen && folder?.children) for (const row of this.#flatten(folder.children, level + 1)) rows.push(row);
    });
    return rows;
  }
}
