/** Finds files by their name in all roots and projects, for the palette. */

import { answer, api } from "../../lib/api.ts";
import type { Found } from "../../lib/palette.svelte.ts";
import { patternOf } from "./name-pattern.ts";
import { fileAddress, folderAddress, nameOf, parentOf, shown, type Place } from "./place.ts";
import { places } from "./places.svelte.ts";

/** How many files are offered. */
const MOST = 8;
const SECONDS = 2;
/** So many entries of a project are looked at. */
const ENTRIES = 1000;
const LEVELS = 20;

/** The files whose name has this text, those of roots first. A root or a project that fails has none. */
export async function findFiles(text: string, signal: AbortSignal): Promise<Found[]> {
  if (text.length < 2) return [];
  await Promise.all([places.roots.value ?? places.roots.load(), places.projects.value ?? places.projects.load()]);
  const asked = [
    ...(places.roots.value ?? [])
      .map((root): Place => ({ kind: "root", space: root.name, path: "" }))
      .filter((top) => places.against("find-names", top) === undefined)
      .map((top) => inRoot(top, text, signal)),
    ...(places.projects.value ?? [])
      .map((each): Place => ({ kind: "store", space: each.project, path: "" }))
      .map((top) => inProject(top, text, signal)),
  ];
  const found = await Promise.allSettled(asked);
  return found
    .flatMap((each) => (each.status === "fulfilled" ? each.value : []))
    .slice(0, MOST)
    .map(({ place, isFolder }) => {
      const folder = parentOf(place);
      return {
        title: shown(nameOf(place)),
        detail: shown([place.space, folder?.path].filter(Boolean).join("/")),
        icon: isFolder ? "folder" : "file",
        address: isFolder ? folderAddress(place) : fileAddress(place),
      };
    });
}

interface Named {
  place: Place;
  isFolder: boolean;
}

async function inRoot(top: Place, text: string, signal: AbortSignal): Promise<Named[]> {
  const query = { max_results: MOST, timeout_seconds: SECONDS, ...patternOf(text) };
  const found = await answer(
    api.GET("/api/sandbox/{root}/glob", { params: { path: { root: top.space }, query }, signal }),
  );
  return found.matches.map((match) => ({ place: { ...top, path: match.path }, isFolder: match.type === "directory" }));
}

async function inProject(top: Place, text: string, signal: AbortSignal): Promise<Named[]> {
  const query = { depth: LEVELS, limit: ENTRIES };
  const found = await answer(
    api.GET("/api/store/{project}/files", { params: { path: { project: top.space }, query }, signal }),
  );
  const wanted = text.toLowerCase();
  return found.entries
    .filter((entry) => entry.name.toLowerCase().includes(wanted))
    .slice(0, MOST)
    .map((entry) => ({ place: { ...top, path: entry.path.replace(/^\//, "") }, isFolder: entry.type !== "FILE" }));
}
