import { mayRead, type Area } from "../area.ts";

export const area: Area = {
  name: "findings",
  title: "Findings",
  icon: "findings",
  order: 30,
  key: "i",
  isOffered: (session) => mayRead(session, "registry"),
  load: () => import("./FindingsPage.svelte"),
};
