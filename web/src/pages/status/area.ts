import type { Area } from "../area.ts";

export const area: Area = {
  name: "status",
  title: "Status",
  icon: "status",
  order: 70,
  key: "m",
  isOffered: () => true,
  load: () => import("./StatusPage.svelte"),
};
