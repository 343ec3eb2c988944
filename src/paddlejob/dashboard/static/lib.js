// Shared helpers: Preact with htm, requests, streams, and formats of numbers and times.
import { h, render, Component, Fragment } from "./vendor/preact.js";
import { useCallback, useEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.js";
import htm from "./vendor/htm.js";

export const html = htm.bind(h);
export { Component, Fragment, render, useCallback, useEffect, useMemo, useRef, useState };

// An error response; `message` is a sentence for the user.
export class Refused extends Error {
  constructor(message, { status = 0, problems = [], signIn = false } = {}) {
    super(message);
    Object.assign(this, { status, problems, signIn });
  }
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused("the dashboard does not answer; check that its command is still running");
  }
  const type = answer.headers.get("Content-Type") || "";
  const body = type.startsWith("application/json") ? await answer.json() : { error: (await answer.text()).trim() };
  if (!answer.ok) throw new Refused(body.error, { status: answer.status, ...body });
  return body;
}

export const get = (path) => request(path);
export const post = (path, body = {}) =>
  request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const jobPath = (namespace, name) =>
  `api/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

const HIDDEN_MILLISECONDS = 30000;
const AGAIN_MILLISECONDS = 3000;
const FINAL = [401, 403, 404];

// Return why a stream was refused, or null for a temporary error, such as a proxy without a connection.
async function refusal(path) {
  const peek = new AbortController();
  try {
    const answer = await fetch(path, { signal: peek.signal });
    if (!FINAL.includes(answer.status)) return null;
    return new Refused((await answer.json().catch(() => ({}))).error || "", { status: answer.status });
  } catch {
    return null;
  } finally {
    peek.abort();
  }
}

// Open a stream and return a function that closes it. `on` has a function for each event, and `open` and `broken`;
// `broken` gets the reason if the stream stays closed. A hidden page closes its stream: a browser has six connections
// for all its tabs.
export function stream(path, on) {
  let source = null;
  let last = "";
  let timer = 0;
  const connect = () => {
    const mark = last ? `${path.includes("?") ? "&" : "?"}last=${encodeURIComponent(last)}` : "";
    source = new EventSource(path + mark);
    source.onopen = () => on.open?.();
    source.onerror = async ({ target }) => {
      if (target.readyState !== EventSource.CLOSED) return on.broken?.(null);
      // The browser neither gives the reason nor tries again.
      const why = await refusal(path);
      if (source !== target) return undefined;
      if (!why) timer = setTimeout(() => source === target && connect(), AGAIN_MILLISECONDS);
      return on.broken?.(why);
    };
    for (const [name, take] of Object.entries(on)) {
      if (name === "open" || name === "broken") continue;
      source.addEventListener(name, (event) => {
        if (event.lastEventId) last = event.lastEventId;
        take(JSON.parse(event.data));
      });
    }
  };
  const disconnect = () => {
    source?.close();
    source = null;
  };
  const onVisibility = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(disconnect, HIDDEN_MILLISECONDS);
    else if (source === null) connect();
  };
  document.addEventListener("visibilitychange", onVisibility);
  connect();
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", onVisibility);
    disconnect();
  };
}

let fixedTime = 0;

// Fix the time that ages refer to. A saved page does not change.
export function fixTime(milliseconds) {
  fixedTime = milliseconds;
}

// Return the current time, updated every second for ages that count up.
export function useNow(milliseconds = 1000) {
  const [now, setNow] = useState(fixedTime || Date.now());
  useEffect(() => {
    if (fixedTime) return undefined;
    const timer = setInterval(() => setNow(Date.now()), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
  return now;
}

export function useHash() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const onChange = () => setHash(location.hash);
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return hash;
}

// State that survives reloads: for all tabs, or with `sessionStorage` for this tab.
export function useKept(name, initial, storage = localStorage) {
  const [value, setValue] = useState(() => storage.getItem(`paddlejob.${name}`) ?? initial);
  const keep = useCallback((next) => {
    storage.setItem(`paddlejob.${name}`, next);
    setValue(next);
  }, [name]);
  return [value, keep];
}

// Format a duration as kubectl does: 45s, 3m20s, 2h5m, 3d4h.
export function duration(milliseconds) {
  const whole = Math.max(0, Math.floor(milliseconds / 1000));
  const minutes = Math.floor(whole / 60), hours = Math.floor(whole / 3600), days = Math.floor(whole / 86400);
  const two = (large, unit, small, smaller) => (small ? `${large}${unit}${small}${smaller}` : `${large}${unit}`);
  if (whole < 120) return `${whole}s`;
  if (minutes < 10) return two(minutes, "m", whole % 60, "s");
  if (minutes < 180) return `${minutes}m`;
  if (hours < 8) return two(hours, "h", minutes % 60, "m");
  if (hours < 48) return `${hours}h`;
  return days < 8 ? two(days, "d", hours % 24, "h") : `${days}d`;
}

export const since = (begin, end, now) =>
  begin ? duration((end ? Date.parse(end) : now) - Date.parse(begin)) : "–";

// Return how many milliseconds a job has run, without suspensions.
export const ranFor = (job, now) =>
  1000 * job.ranBefore + (job.activeSince ? (Date.parse(job.ended) || now) - Date.parse(job.activeSince) : 0);

export const clock = (time) => (time ? new Date(time).toLocaleTimeString([], { hour12: false }) : "");

// Format a time of today, or a date and time.
export const moment = (time) => (new Date(time).toDateString() === new Date().toDateString() ? clock(time) : day(time));

// Format a time for readers in different time zones.
export const utc = (time) => (time ? `${new Date(time).toISOString().slice(0, 19).replace("T", " ")} UTC` : "");

export const day = (time) => (time ? new Date(time).toLocaleString([], { dateStyle: "medium", timeStyle: "short", hour12: false }) : "–");

export function number(value) {
  if (value === null || value === undefined || value === "") return "";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return size >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(4)));
}
