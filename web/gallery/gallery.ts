import "../src/styles/tokens.css";
import "../src/styles/base.css";

import { mount } from "svelte";

import { applyPreferences } from "../src/lib/preferences.svelte.ts";
import { startRouter } from "../src/lib/router.svelte.ts";
import { startShortcuts } from "../src/lib/shortcuts.svelte.ts";
import Gallery from "./Gallery.svelte";

applyPreferences();
startRouter();
startShortcuts();
const target = document.getElementById("app");
if (target !== null) mount(Gallery, { target });
