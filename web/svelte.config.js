// Read by Vite and by svelte-check. A warning of the compiler, such as one about accessibility, is an error.
export default {
  compilerOptions: { runes: true },
  onwarn(warning) {
    throw new Error(`${warning.filename}: ${warning.code}: ${warning.message}`);
  },
};
