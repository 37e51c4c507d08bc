// Format Lua files as StyLua does: node scripts/stylua.mjs [--write] STYLUA.TOML FILE_OR_FOLDER...
// Without --write it names the files that are not formatted, and the status is 1 if there are any.
// A file that is no Lua is named with the reason and left as it is; the status is 1 then too.
import { readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// The formatter as WebAssembly; its npm package has no command of its own.
const stylua = createRequire(new URL("../.tools/stylua/package.json", import.meta.url))("@johnnymorganz/stylua");
const ENUMS = { indent_type: stylua.IndentType, quote_style: stylua.QuoteStyle, syntax: stylua.LuaVersion };

/** The settings of a stylua.toml, which here is lines of `name = value`; one that is not known is an error. */
function settings(path) {
  const known = stylua.Config.new();
  const lines = readFileSync(path, "utf8").split("\n");
  return lines.filter((line) => !/^\s*(#|$)/.test(line)).map((line) => {
    const [, name, word, number] = /^(\w+) = (?:"(\w+)"|(\d+))$/.exec(line) ?? [];
    const value = word === undefined ? Number(number) : ENUMS[name]?.[word];
    if (!(name in known) || value === undefined || Number.isNaN(value)) {
      throw new Error(`${path}: "${line}" is not a setting that is known here`);
    }
    return [name, value];
  });
}

function lua(path) {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path, { withFileTypes: true })
    .filter((entry) => (entry.isDirectory() && entry.name !== "node_modules") || entry.name.endsWith(".lua"))
    .flatMap((entry) => lua(join(path, entry.name)));
}

const write = process.argv[2] === "--write";
const [toml, ...places] = process.argv.slice(write ? 3 : 2);
if (places.length === 0) {
  console.error("usage: node scripts/stylua.mjs [--write] STYLUA.TOML FILE_OR_FOLDER...");
  process.exit(2);
}
const chosen = settings(toml);
const files = places.flatMap(lua).sort();
let changed = 0;
let broken = 0;
for (const file of files) {
  const text = readFileSync(file, "utf8");
  try {
    // The formatter keeps the configuration that it is given, so each file gets its own.
    const config = Object.assign(stylua.Config.new(), Object.fromEntries(chosen));
    const formatted = stylua.formatCode(text, config, undefined, stylua.OutputVerification.Full);
    if (formatted === text) continue;
    changed += 1;
    if (write) writeFileSync(file, formatted);
    console.log(write ? `formatted: ${file}` : `not formatted: ${file}; run: scripts/check --fix`);
  } catch (error) {
    broken += 1;
    console.log(`${file}: ${error}`);
  }
}
console.log(`${files.length} files, ${changed} ${write ? "formatted" : "not formatted"}, ${broken} with errors`);
process.exit(broken > 0 || (changed > 0 && !write) ? 1 : 0);
