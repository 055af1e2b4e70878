// One file comes out, web/dist/index.html, with script and style inside: the server embeds it, and it asks nobody else
// for anything. The licences of what went into it come out beside it.
import react from "@vitejs/plugin-react";
import license from "rollup-plugin-license";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

const text = (packages) =>
  packages
    .sort((a, b) => a.name.localeCompare(b.name))
    .map((p) => `${p.name} ${p.version}: ${p.license}\n\n${(p.licenseText ?? "").trim()}\n`)
    .join("\n----\n\n");

export default defineConfig({
  plugins: [
    react(),
    viteSingleFile({ removeViteModuleLoader: true }),
    license({ thirdParty: { output: { file: "dist/LICENSES.txt", template: text } } }),
  ],
  build: { target: "es2022", reportCompressedSize: false },
  // `npm run dev` beside a server on its usual port
  server: { proxy: Object.fromEntries(["/v1", "/props"].map((p) => [p, "http://127.0.0.1:8080"])) },
});
