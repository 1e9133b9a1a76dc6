/** Where the person is, and how they get elsewhere. Everything that filters is in the address; nothing secret is. */

import { addressOf, isOwn, parseAddress, withParams, type Address, type Params } from "./address.ts";

class Route implements Address {
  area = $state("");
  path = $state.raw<string[]>([]);
  params = $state.raw(new URLSearchParams());
  /** Grows when the person goes elsewhere, and not when only the filters change. */
  visits = $state(0);
  /** What waits for the person's decision whether to leave unsaved changes behind. */
  blocked = $state.raw<(() => void) | undefined>(undefined);

  /** A parameter of the address; empty if it is missing. */
  param(name: string): string {
    return this.params.get(name) ?? "";
  }
}

export const route = new Route();

const guards = new Set<() => boolean>();
let position = 0;
let isLeaving = false;

/** Ask before the person leaves while `isDirty` says so. Returns a function that ends it. */
export function guardLeaving(isDirty: () => boolean): () => void {
  guards.add(isDirty);
  return () => void guards.delete(isDirty);
}

/** Go to an address of the console. */
export function go(address: string, { replace = false } = {}): void {
  const url = new URL(address, location.href);
  const isElsewhere = url.pathname !== location.pathname;
  if (isElsewhere && isDirty()) {
    route.blocked = () => go(address, { replace });
    return;
  }
  isLeaving = false;
  if (replace || url.href === location.href) {
    history.replaceState({ position }, "", url);
  } else {
    position += 1;
    history.pushState({ position }, "", url);
  }
  arrive(isElsewhere);
}

/** Change parameters of this address, by default without a new entry in the history of the browser. */
export function setParams(changes: Params, { replace = true } = {}): void {
  const query = withParams(route.params, changes).toString();
  go(location.pathname + (query === "" ? "" : `?${query}`), { replace });
}

/** Leave although there are unsaved changes, or stay. */
export function decideLeaving(leave: boolean): void {
  const resume = route.blocked;
  route.blocked = undefined;
  if (!leave || resume === undefined) return;
  isLeaving = true;
  resume();
}

/** Follow the address from now on. */
export function startRouter(): void {
  const state = history.state as { position?: number } | null;
  position = state?.position ?? 0;
  history.replaceState({ position }, "");
  addEventListener("popstate", onHistory);
  addEventListener("beforeunload", (event) => isDirty() && event.preventDefault());
  document.addEventListener("click", onClick);
  arrive(true);
}

function isDirty(): boolean {
  return !isLeaving && [...guards].some((guard) => guard());
}

function onHistory(event: PopStateEvent): void {
  const arrived = (event.state as { position?: number } | null)?.position ?? 0;
  const distance = arrived - position;
  if (distance !== 0 && isDirty()) {
    // The browser has gone there already. It is sent back, and again once the person has decided.
    history.go(-distance);
    route.blocked = () => history.go(distance);
    return;
  }
  isLeaving = false;
  position = arrived;
  arrive(true);
}

/** Links to the console are followed without loading the page again. */
function onClick(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const link = event.composedPath().find((each) => each instanceof HTMLAnchorElement);
  if (link === undefined || link.target !== "" || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (!isOwn(url, location.origin)) return;
  event.preventDefault();
  go(url.href);
}

function arrive(isVisit: boolean): void {
  const address = parseAddress(new URL(location.href));
  route.area = address.area;
  route.path = address.path;
  route.params = address.params;
  if (isVisit) route.visits += 1;
}

export { addressOf };
