import { mayRead, type Area } from "../area.ts";

export const area: Area = {
  name: "sources",
  title: "Sources",
  icon: "sources",
  order: 40,
  key: "s",
  isOffered: (session) => mayRead(session, "gateway"),
  load: () => import("./SourcesPage.svelte"),
};
