import "./styles/tokens.css";
import "./styles/base.css";

import { mount } from "svelte";

import { applyPreferences } from "./lib/preferences.svelte.ts";
import { startRouter } from "./lib/router.svelte.ts";
import { openSession, takeCode } from "./lib/session.svelte.ts";
import { startShortcuts } from "./lib/shortcuts.svelte.ts";
import App from "./shell/App.svelte";

// First of all: the code of a link must not stay in the address.
const code = takeCode();

applyPreferences();
startRouter();
startShortcuts();
void openSession(code);

const target = document.getElementById("app");
if (target !== null) mount(App, { target });
