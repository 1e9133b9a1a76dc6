import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  base: "/console/",
  build: {
    // Browsers that know `light-dark()`.
    target: ["es2022", "chrome123", "firefox121", "safari17.5"],
    manifest: true,
    // The policy of the page forbids what the polyfill does, and no supported browser needs it.
    modulePreload: { polyfill: false },
    // Pictures stay files: the policy allows no data addresses in style sheets.
    assetsInlineLimit: 0,
  },
});
