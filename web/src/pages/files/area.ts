import { mayRead, type Area } from "../area.ts";

export const area: Area = {
  name: "files",
  title: "FileIO",
  icon: "folder",
  order: 20,
  key: "f",
  hasCrumbs: true,
  isOffered: (session) => mayRead(session, "sandbox", "store"),
  load: () => import("./FilesPage.svelte"),
};
