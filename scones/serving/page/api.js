// Talking to the server, and saying what became of it.

import { element } from "./dom.js";

const SLOW = 1000;
const AGAIN = 2000;

/** Where the server wants an API key: the one that was typed, for this visit. */
let key = "";

/** The server answered that it will not, and why. */
export class Refusal extends Error {
  constructor(message, status, seconds) {
    super(message);
    this.status = status;
    this.seconds = seconds;
  }
}

/** There was no answer. */
class Unreachable extends Error {}

/** POST a JSON body, or GET where there is none. */
export async function ask(path, body, signal) {
  const request = { signal, headers: key ? { "X-API-Key": key } : {} };
  if (body) {
    request.method = "POST";
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let reply;
  let said;
  try {
    reply = await fetch(path, request);
    said = await reply.json().catch((broken) => { if (broken.name === "AbortError" || reply.ok) throw broken; });
  } catch (failure) {
    if (failure.name === "AbortError") throw failure;
    throw new Unreachable();
  }
  if (reply.ok) return said;
  const message = typeof said?.error === "string" ? said.error : `The server answered ${reply.status}.`;
  throw new Refusal(message, reply.status, Number(reply.headers.get("Retry-After")) || 1);
}

/**
 * Make `work(signal, …)` into a function that leaves its previous run behind, and whose `place`
 * says if it is slow, was refused, or got no answer. What got none, or came at a busy time, is
 * tried again by itself.
 */
export function attempts(place, work) {
  let controller;
  let timer;

  async function run(...given) {
    stop();
    const { signal } = (controller = new AbortController());
    timer = setTimeout(() => say("slow", "Still working on it …"), SLOW);
    try {
      await work(signal, ...given);
      if (!signal.aborted) run.cancel();
    } catch (failure) {
      if (signal.aborted) return;
      clearTimeout(timer);
      explain(failure, () => run(...given));
    }
  }

  function stop() {
    controller?.abort();
    clearTimeout(timer);
  }

  function explain(failure, again) {
    if (failure instanceof Unreachable) {
      say("offline", "The server does not answer. Your text is kept, and this goes on when it is back.");
      timer = setTimeout(again, AGAIN);
    } else if (failure.status === 429 || failure.status === 503) {
      say("slow", "The server is busy; trying again in a moment.");
      timer = setTimeout(again, 1000 * failure.seconds);
    } else if (failure.status === 401) {
      const field = element("input", { type: "password", "aria-label": "API key" });
      const onsubmit = (event) => { event.preventDefault(); key = field.value; again(); };
      say("failed", `${failure.message} `, element("form", { onsubmit }, field, " ", element("button", { class: "quiet" }, "Use this key")));
    } else {
      if (!(failure instanceof Refusal)) console.error(failure);
      const said = failure instanceof Refusal ? failure.message : "Something on this page went wrong.";
      say("failed", `${said} `, element("button", { type: "button", class: "quiet", onclick: again }, "Try again"));
    }
  }

  /** The same words leave the place alone, so that they are not read out again. */
  function say(kind, text = "", ...more) {
    if (place.dataset.said === text) return;
    place.className = `status ${kind}`;
    place.dataset.said = text;
    place.replaceChildren(text, ...more);
  }

  /** Forget it, whatever it was. */
  run.cancel = () => { stop(); say(""); };
  return run;
}
