// Small components that several pages use.
import { html, useEffect, useRef, useState } from "./lib.js";
import { phaseName, t } from "./i18n.js";

const TONES = {
  Running: "blue", Completed: "green", Failed: "red", Restarting: "amber", Scaling: "amber",
  Suspended: "grey", Pending: "grey", Starting: "grey", Terminating: "grey",
};

export const toneOf = (phase) => TONES[phase] || "grey";

// A phase as a shape and a word: not everyone can tell the colours apart.
export function Phase({ phase }) {
  return html`<span class="phase ${toneOf(phase)}"><${Mark} phase=${phase} />${phaseName(phase)}</span>`;
}

function Mark({ phase }) {
  const paths = {
    Completed: html`<path d="M2.5 6.5 5 9l4.5-5.5" />`,
    Failed: html`<path d="m3 3 6 6m0-6-6 6" />`,
    Suspended: html`<path d="M4 3v6m4-6v6" />`,
    Running: html`<circle class="solid" cx="6" cy="6" r="3.2" />`,
    Restarting: html`<path d="M9.3 4.2A4 4 0 1 0 10 6.4M9.6 1.8v2.6H7" />`,
  };
  return html`<svg class="mark" viewBox="0 0 12 12" aria-hidden="true">
    ${paths[phase] || html`<circle cx="6" cy="6" r="3.2" />`}
  </svg>`;
}

export function Bar({ percent, tone, label }) {
  const known = percent !== null && percent !== undefined;
  return html`<span class="bar ${tone}" role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${known ? percent : undefined}>
    <span style=${{ width: `${known ? percent : 0}%` }}></span></span>`;
}

export const jobHash = (key, tab = "") =>
  `#/jobs/${key.split("/").map(encodeURIComponent).join("/")}${tab ? `/${tab}` : ""}`;

export const restartsText = (count) => `${count} ${t(count === 1 ? "restart" : "restarts").toLowerCase()}`;

export function stepText(progress) {
  if (!progress) return "";
  const parts = [];
  if (progress.epoch) parts.push(`${t("epoch")} ${progress.epoch}${progress.epochs ? `/${progress.epochs}` : ""}`);
  if (progress.step) parts.push(`${t("step")} ${progress.step}${progress.steps ? `/${progress.steps}` : ""}`);
  return parts.join(" · ");
}

// Facts as [label, value, class]; those without a value are left out.
export function Facts({ facts }) {
  return html`<dl class="facts">${facts.filter(([, value]) => value || value === 0).map(([label, value, name]) => html`
    <div key=${label} class=${name}><dt>${label}</dt><dd class="num">${value}</dd></div>`)}</dl>`;
}

// Shown in place of the content of a page.
export function Empty({ title, tone, level = "h1", children }) {
  return html`<div class="empty ${tone || ""}" role=${tone === "red" ? "alert" : "status"}>
    <${level}>${title}<//>${children}</div>`;
}

export function Command({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<span class="command"><code>${text}</code>
    <button type="button" class="quiet small" onClick=${copy}>${copied ? t("copied") : t("copy")}</button></span>`;
}

export function Dialog({ title, onClose, children }) {
  const dialog = useRef();
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${onClose}
      onClick=${(event) => event.target === dialog.current && dialog.current.close()}>
    <div class="dialog"><div class="dialoghead"><h2 id="dialog-title">${title}</h2>
      <button type="button" class="quiet" aria-label=${t("close")} onClick=${() => dialog.current.close()}>×</button></div>${children}</div></dialog>`;
}

// Messages that appear at the bottom for a few seconds, with an undo button if the change can be undone.
const listeners = new Set();
let nextNotice = 0;

export function notify(text, { tone = "", undo = null } = {}) {
  const notice = { id: (nextNotice += 1), text, tone, undo };
  for (const listener of listeners) listener(notice);
}

const NOTICE_MILLISECONDS = 8000;

export function Notices() {
  const [shown, setShown] = useState([]);
  useEffect(() => {
    const drop = (id) => setShown((before) => before.filter((each) => each.id !== id));
    const listener = (notice) => {
      setShown((before) => [...before.slice(-2), notice]);
      setTimeout(() => drop(notice.id), NOTICE_MILLISECONDS);
    };
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  const close = (id) => setShown((before) => before.filter((each) => each.id !== id));
  return html`<div class="notices" role="status" aria-live="polite">
    ${shown.map((each) => html`<div class="notice ${each.tone}" key=${each.id}><span>${each.text}</span>
      ${each.undo && html`<button type="button" class="link" onClick=${() => { close(each.id); each.undo(); }}>${t("undo")}</button>`}
      <button type="button" class="quiet small" aria-label=${t("close")} onClick=${() => close(each.id)}>×</button>
    </div>`)}</div>`;
}

// Return a ref for the field that the filter key focuses.
export function useFilterKey() {
  const field = useRef();
  useEffect(() => {
    const onFilter = () => field.current?.focus();
    addEventListener("paddlejob-filter", onFilter);
    return () => removeEventListener("paddlejob-filter", onFilter);
  }, []);
  return field;
}

const STEP = 10;

// Return the range of visible rows of a long list. All rows have the same height, and the window scrolls.
export function useWindowed(count, rowHeight, anchor) {
  const [range, setRange] = useState([0, 60]);
  useEffect(() => {
    const measure = () => {
      const top = anchor.current ? anchor.current.getBoundingClientRect().top : 0;
      // Move in steps, so that most scroll events change nothing in the page.
      const first = Math.max(0, (Math.floor(-top / rowHeight / STEP) - 1) * STEP);
      const last = Math.min(count, first + Math.ceil(innerHeight / rowHeight) + 3 * STEP);
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [count, rowHeight]);
  return [Math.min(range[0], count), Math.min(range[1], count)];
}

// Takes the place of table rows that are not visible.
export function Space({ rows, height, columns }) {
  return rows > 0 && html`<tr class="space" aria-hidden="true"><td colspan=${columns} style=${{ height: `${rows * height}px` }}></td></tr>`;
}
