import type { Area } from "../area.ts";

export const area: Area = {
  name: "admin",
  title: "Admin",
  icon: "admin",
  order: 50,
  key: "d",
  isOffered: (session) => session.principal.administers.length > 0,
  load: () => import("./AdminPage.svelte"),
};
