import { mayRead, type Area } from "../area.ts";

export const area: Area = {
  name: "ask",
  title: "Ask",
  icon: "ask",
  order: 10,
  key: "a",
  isOffered: (session) => mayRead(session, "corpus", "gateway"),
  load: () => import("./AskPage.svelte"),
};
