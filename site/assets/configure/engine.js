/* The recommender in its worker: started once, called by name, ended if a call takes too long. */

const LONGEST_MS = 60_000;

/** Return the engine of a page that has its description in #runtime. */
export function pageEngine(tell) {
  const assets = new URL("../", import.meta.url);
  const runtime = JSON.parse(document.getElementById("runtime").textContent);
  return new Engine(assets, runtime && { runtime: new URL(runtime.folder, assets).href, files: runtime.files }, tell);
}

export class Engine {
  /** `tell` gets {progress}, {ready} or {failed}. */
  constructor(assets, runtime, tell) {
    Object.assign(this, { assets, runtime, tell, calls: new Map(), next: 1, worker: null, ready: false });
  }

  get possible() {
    return Boolean(this.runtime && globalThis.WebAssembly && globalThis.Worker && globalThis.DecompressionStream);
  }

  start() {
    if (this.worker || !this.possible) return;
    this.worker = new Worker(new URL("configure/worker.js", this.assets), { type: "module" });
    this.worker.onmessage = ({ data }) => this.#hear(data);
    this.worker.onerror = event => this.#fail(event.message || "the worker did not start");
    this.worker.postMessage(this.runtime);
  }

  /** Call a function; fail if the worker cannot start, or the call takes too long. */
  call(name, ...args) {
    this.start();
    return new Promise((resolve, reject) => {
      if (!this.worker) return reject(new Error("no worker"));
      const id = this.next++;
      this.calls.set(id, { resolve, reject, timer: this.ready && this.#limit() });
      this.worker.postMessage({ id, call: name, args });
    });
  }

  /** Wait until no call is under way: the worker answers one after the other. */
  async idle() {
    while (this.calls.size) await new Promise(resolve => (this.wake = resolve));
  }

  #limit() {
    return setTimeout(() => this.#fail("it took too long"), LONGEST_MS);
  }

  #hear(data) {
    if (data.ready) {
      this.ready = true;
      for (const each of this.calls.values()) each.timer = this.#limit();
    }
    if (data.failed) return this.#fail(data.failed);
    const call = this.calls.get(data.id);
    if (!call) return this.tell(data);
    this.calls.delete(data.id);
    if (!this.calls.size) this.wake?.();
    clearTimeout(call.timer);
    if ("value" in data) call.resolve(data.value);
    else call.reject(new Error(data.error));
  }

  #fail(why) {
    this.worker?.terminate();
    Object.assign(this, { worker: null, ready: false });
    for (const { reject, timer } of this.calls.values()) {
      clearTimeout(timer);
      reject(new Error(why));
    }
    this.calls.clear();
    this.wake?.();
    this.tell({ failed: why });
  }
}
