import { mayRead, type Area } from "../area.ts";

export const area: Area = {
  name: "file",
  title: "File",
  icon: "file",
  within: "files",
  hasCrumbs: true,
  isOffered: (session) => mayRead(session, "sandbox", "store", "corpus"),
  load: () => import("./FilePage.svelte"),
};
