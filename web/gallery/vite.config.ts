import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// The page of the components: tests open it instead of the console, under the same policy.
export default defineConfig({
  root: "gallery",
  plugins: [svelte({ configFile: "../svelte.config.js" })],
  base: "/console/",
  publicDir: "../public",
  build: { target: ["es2022", "chrome123"], modulePreload: { polyfill: false }, assetsInlineLimit: 0, minify: false },
});
