import type { Area } from "../area.ts";

export const area: Area = {
  name: "activity",
  title: "Activity",
  icon: "activity",
  order: 60,
  key: "l",
  isOffered: () => true,
  load: () => import("./ActivityPage.svelte"),
};
