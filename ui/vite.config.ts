import { defineConfig } from "vite";

// FEDERATOR_URL names a running federator, for `npm run dev` only.
const server = process.env["FEDERATOR_URL"];
const proxied = ["/query", "/fleet", "/flat", "/members", "/ui/session", "/ui/oidc", "/ui/relay"];

export default defineConfig({
  base: "/ui/",
  build: {
    outDir: "dist",
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy has no room for data: scripts and styles
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  worker: { format: "es" },
  ...(server === undefined ? {} : {
    server: { proxy: Object.fromEntries(proxied.map((path) => [path, { target: server, secure: false }])) },
  }),
});
