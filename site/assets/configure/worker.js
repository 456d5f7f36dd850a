/* Runs the recommender: Python in WebAssembly, loaded from this site and kept in the browser's cache.

Messages in: {id, call, args}, where call is a function of recommender.site.browser.worker; the first one is
{runtime, files}. Messages out: {progress}, {ready}, {failed}, and {id, value} or {id, error}. */

const decompressed = response => new Response(response.body.pipeThrough(new DecompressionStream("gzip")));
let base, cache, python, parser, parsing, call, tidy;

async function kept(name) {
  const url = base + name;
  const known = await cache?.match(url);
  if (known) return known;
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${response.status} ${url}`);
  await cache?.put(url, response.clone());
  return response;
}

async function read(name, count = () => {}) {
  const response = await kept(name);
  const counted = new TransformStream({
    transform(chunk, out) {
      count(chunk.byteLength);
      out.enqueue(chunk);
    },
  });
  return (await decompressed(new Response(response.body.pipeThrough(counted))).arrayBuffer());
}

/** Import a module that is compressed: no other way gives the browser its text. */
async function importFrom(source) {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return await import(address);
  } finally {
    URL.revokeObjectURL(address);
  }
}

async function openCache(runtime) {
  const name = `recommender ${runtime}`;
  try {
    for (const old of await caches.keys()) if (old.startsWith("recommender ") && old !== name) await caches.delete(old);
    return await caches.open(name);
  } catch {
    return null;  // no cache without HTTPS: the browser's own keeps the files
  }
}

async function start({ runtime, files }) {
  base = runtime;
  cache = await openCache(runtime);
  const whole = Object.values(files).reduce((sum, bytes) => sum + bytes, 0);
  let received = 0;
  const count = bytes => postMessage({ progress: Math.min((received += bytes) / whole, 1) });
  const [{ loadPyodide }, wasm, library, app, engine] = await Promise.all([
    import(`${base}pyodide.mjs`), ...Object.keys(files).map(name => read(name, count)),
  ]);
  // Pyodide asks for these two files by itself.
  const own = { "pyodide.asm.wasm": [wasm, "application/wasm"], "python_stdlib.zip": [library, "application/zip"] };
  const ask = self.fetch;
  self.fetch = (address, options) => {
    const [content, type] = own[String(address?.url ?? address).split("/").pop()] ?? [];
    return content ? Promise.resolve(new Response(content, { headers: { "Content-Type": type } })) : ask(address, options);
  };
  python = await loadPyodide({ indexURL: base, createPyodideModule: (await importFrom(engine)).default });
  self.fetch = ask;
  python.unpackArchive(app, "zip", { extractDir: "/app" });
  python.runPython("import sys; sys.path.insert(0, '/app')");
  ({ call, tidy } = python.pyimport("recommender.site.browser.worker"));
  postMessage({ ready: true });
}

/** Load the parser once: a call that comes while it loads waits for it too. */
const parse = () => (parsing ??= loadParser().catch(error => {
  parsing = null;
  throw error;
}));

async function loadParser() {
  const [{ Parser, Language }, engine, grammar] = await Promise.all([
    read("web-tree-sitter.js.bin").then(importFrom), read("web-tree-sitter.wasm.bin"), read("tree-sitter-bash.wasm.bin"),
  ]);
  await Parser.init({ wasmBinary: new Uint8Array(engine), locateFile: name => base + name });  // a module without an address asks where its file is
  parser = new Parser();
  parser.setLanguage(await Language.load(new Uint8Array(grammar)));
}

/** Give a tree as JSON, for the stand-in of Python's tree_sitter: six numbers a node, parents first. */
self.parseBash = text => {
  const kinds = new Map(), fields = new Map([["", 0]]), nodes = [];
  const number = (known, name) => known.get(name) ?? (known.set(name, known.size), known.size - 1);
  const tree = parser.parse(text);
  const cursor = tree.walk();
  const visit = () => {
    const node = cursor.currentNode;
    const flags = node.isNamed + 2 * node.isMissing + 4 * node.hasError;
    nodes.push(number(kinds, node.type), flags, node.startIndex, node.endIndex, number(fields, cursor.currentFieldName ?? ""), node.childCount);
    if (cursor.gotoFirstChild()) {
      do visit(); while (cursor.gotoNextSibling());
      cursor.gotoParent();
    }
  };
  visit();
  tree.delete();
  return JSON.stringify({ kinds: [...kinds.keys()], fields: [...fields.keys()], nodes });
};

let started;
onmessage = async ({ data }) => {
  try {
    if (data.runtime) return await (started = start(data));
    await started;
    if (data.call === "questions" || (data.call === "run" && data.args[0][0] === "review")) await parse();
    postMessage({ id: data.id, value: JSON.parse(call(data.call, JSON.stringify(data.args))) });
    tidy();
  } catch (error) {
    postMessage(data.runtime ? { failed: String(error) } : { id: data.id, error: String(error) });
  }
};
