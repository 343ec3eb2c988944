// The frame of all pages: navigation, connection state and keyboard shortcuts.
import { get, html, post, render, stream, useEffect, useHash, useKept, useRef, useState } from "./lib.js";
import { languages, preferred, selectLanguage, t } from "./i18n.js";
import { Jobs } from "./jobs.js";
import { Namespaces, scopeHash } from "./namespaces.js";
import { Dialog, Empty, Notices, notify } from "./ui.js";

// The token has been used. Remove it from the address, which users copy.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

const PATIENCE_MILLISECONDS = 1500;

// Pages are loaded when they are first opened.
const PAGES = {
  jobs: () => import("./job.js"),
  compare: () => import("./compare.js"),
  new: () => import("./submit.js"),
  history: () => import("./history.js"),
  signIn: () => import("./signin.js"),
};

// Return the jobs of a namespace: "" for all namespaces, null for the default of the server.
function useJobs(scope) {
  const rows = useRef(new Map());
  const [shown, setShown] = useState([]);
  const [state, setState] = useState({ state: "loading", message: "" });
  useEffect(() => {
    let lost = 0;
    rows.current = new Map();
    setShown([]);
    setState({ state: "loading", message: "" });
    const draw = () => setShown([...rows.current.values()]);
    return stream(scope === null ? "api/jobs" : `api/jobs?namespace=${encodeURIComponent(scope)}`, {
      open: () => {
        clearTimeout(lost);
        lost = 0;
      },
      broken: (why) => {
        if (why) setState({ state: why.status === 401 ? "signedOut" : "forbidden", message: why.message });
        // Do not mention an interruption that ends quickly.
        else lost ||= setTimeout(() => setState({ state: "disconnected", message: t("reconnecting") }), PATIENCE_MILLISECONDS);
      },
      state: setState,
      all: (all) => {
        rows.current = new Map(all.map((row) => [row.key, row]));
        draw();
      },
      change: ({ rows: changed, gone }) => {
        for (const key of gone) rows.current.delete(key);
        for (const row of changed) rows.current.set(row.key, row);
        draw();
      },
    });
  }, [scope]);
  return [shown, state];
}

function usePage(name) {
  const [loaded, setLoaded] = useState({});
  useEffect(() => {
    PAGES[name]?.().then((module) => setLoaded((before) => ({ ...before, [name]: module.default })));
  }, [name]);
  return loaded[name];
}

function useRights(namespace) {
  const [rights, setRights] = useState(new Set());
  useEffect(() => {
    if (!namespace) return;
    get(`api/rights/${encodeURIComponent(namespace)}`).then((found) => setRights(new Set(found)), () => {});
  }, [namespace]);
  return rights;
}

function App() {
  const [language, setLanguage] = useKept("language", preferred());
  const [theme, setTheme] = useKept("theme", "auto");
  const [about, setAbout] = useState(null);
  const [helps, setHelps] = useState(false);
  const [chooses, setChooses] = useState(false);
  const [kept, keep] = useKept("scope", null, sessionStorage);
  const hash = useHash();
  selectLanguage(language);
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [first, ...rest] = path.split("/").map(decodeURIComponent);
  const pageName = first === "jobs" && rest.length >= 2 ? "jobs" : ["compare", "history", "new"].includes(first) ? first : "";
  // #/jobs/NAMESPACE selects a namespace for all pages, and #/jobs selects all namespaces.
  const chosen = first === "jobs" && rest.length < 2 ? rest[0] || "" : kept;
  const [rows, state] = useJobs(chosen);
  const scope = chosen ?? about?.scope;
  const isSignedOut = about?.signIn || state.state === "signedOut";
  const Page = usePage(isSignedOut ? "signIn" : pageName);
  const namespace = pageName === "jobs" ? rest[0] : about?.isLocal ? "default" : scope || about?.namespace;
  const rights = useRights(isSignedOut ? "" : namespace);

  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  useEffect(() => {
    get("api/about").then(setAbout, (refused) => refused.signIn && setAbout({ signIn: true, user: true }));
  }, []);
  useEffect(() => {
    if (chosen !== null && chosen !== kept) keep(chosen);
  }, [chosen]);
  const opened = useRef(false);
  useEffect(() => {
    const title = pageName === "jobs" ? rest[1] : pageName && t(pageName);
    document.title = title ? `${title} · PaddleJob` : "PaddleJob";
  }, [pageName, rest[1], language]);
  useEffect(() => {
    scrollTo(0, 0);
    // The focused element was on the previous page. Keyboard users continue in the new one.
    if (opened.current) document.getElementById("main")?.focus({ preventScroll: true });
    opened.current = true;
  }, [pageName, rest[1]]);
  useEffect(() => onKeys(() => setHelps(true)), []);

  if (isSignedOut && about?.user) {
    return Page && html`<${Page} wasSignedIn=${!about.signIn} />`;
  }
  if (isSignedOut) {
    return html`<main><${Empty} title=${t("signedOut")} tone="red"><p class="dim">${t("signedOutHint")}</p><//></main>`;
  }
  if (!about) return html`<header><span class="brand"><img src="static/icon.svg" alt="" width="20" height="20" />PaddleJob</span></header>`;
  const row = pageName === "jobs" ? rows.find((each) => each.key === `${rest[0]}/${rest[1]}`) : null;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>${t("skip")}</a>
    <header>
      <a class="brand" href=${scopeHash(chosen)}><img src="static/icon.svg" alt="" width="20" height="20" />PaddleJob</a>
      <${Place} about=${about} scope=${scope} onChoose=${() => setChooses(true)} />
      <nav>
        <a href=${scopeHash(chosen)} aria-current=${!pageName ? "page" : undefined}>${t(about.isLocal ? "runs" : "jobs")}</a>
        <a href="#/history" aria-current=${pageName === "history" ? "page" : undefined}>${t("history")}</a>
        <a href="#/compare" aria-current=${pageName === "compare" ? "page" : undefined}>${t("compare")}</a>
        ${rights.has("submit") && html`<a href="#/new" aria-current=${pageName === "new" ? "page" : undefined}>${t("new")}</a>`}
      </nav>
      <span class="grow"></span>
      ${about.user && html`<${Account} user=${about.user} />`}
      <span class="connection ${state.state}" role="status"><i aria-hidden="true"></i>${t(state.state)}</span>
      <select aria-label=${t("language")} value=${language} onChange=${(event) => setLanguage(event.target.value)}>
        ${languages.map(([id, name]) => html`<option key=${id} value=${id}>${name}</option>`)}</select>
      <select aria-label=${t("theme")} value=${theme} onChange=${(event) => setTheme(event.target.value)}>
        ${["auto", "light", "dark"].map((id) => html`<option key=${id} value=${id}>${t(`theme.${id}`)}</option>`)}</select>
    </header>
    ${state.state === "disconnected" && (rows.length > 0 || pageName) && html`<div class="banner" role="alert">${t("reconnecting")}
      ${state.message !== t("reconnecting") && html` <span class="dim">${state.message}</span>`}</div>`}
    <main id="main" tabindex="-1">
      ${pageName
        ? Page && html`<${Page} key=${pageName + rest.slice(0, 2)} namespace=${rest[0]} name=${rest[1]} tab=${rest[2]} row=${row}
            query=${query} rows=${rows} about=${about} rights=${rights} scope=${scope} />`
        : html`<${Jobs} rows=${rows} state=${state} about=${about} scope=${scope} mayCreate=${rights.has("submit")}
            onChoose=${() => setChooses(true)} />`}
    </main>
    <${Notices} />
    ${helps && html`<${Help} onClose=${() => setHelps(false)} />`}
    ${chooses && html`<${Namespaces} about=${about} scope=${scope} onClose=${() => setChooses(false)} />`}`;
}

function Place({ about, scope, onChoose }) {
  if (about.isLocal) return html`<span class="place" title=${about.directory}>${t("thisMachine")}</span>`;
  return html`<span class="place">${about.context && html`<span>${about.context} ·</span>`}
    <button type="button" class="quiet" aria-haspopup="dialog" aria-label=${`${t("namespace")}: ${scope || t("allNamespaces")}`}
      title=${t("chooseNamespace")} onClick=${onChoose}>${scope || t("allNamespaces")}<i aria-hidden="true"></i></button></span>`;
}

function Account({ user }) {
  const name = user.replace(/^system:serviceaccount:/, "");
  const leave = () => post("api/sign-out").then(() => location.reload(), (refused) => notify(refused.message, { tone: "red" }));
  return html`<span class="account"><span class="name" title=${user}>${name}</span>
    <button type="button" class="quiet small" onClick=${leave}>${t("signOut")}</button></span>`;
}

function onKeys(help) {
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const isTyping = event.target.closest?.("input, textarea, select");
    if (event.key === "Escape") {
      if (isTyping) event.target.blur();
      else if (location.hash.startsWith("#/")) location.hash = "#/";
      return;
    }
    if (isTyping) return;
    const act = {
      "/": () => dispatchEvent(new Event("paddlejob-filter")),
      "?": help,
      n: () => { location.hash = "#/new"; },
      j: () => moveFocus(1),
      k: () => moveFocus(-1),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    } else if (/^[1-5]$/.test(event.key)) {
      document.querySelectorAll('[role="tab"]')[Number(event.key) - 1]?.click();
    }
  };
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

function moveFocus(by) {
  const links = [...document.querySelectorAll("a.job")];
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at < 0 ? 0 : at + by))]?.focus();
}

function Help({ onClose }) {
  const keys = [["/", "key.filter"], ["j k", "key.move"], ["Enter", "key.open"], ["1 – 5", "key.tabs"], ["n", "key.new"],
    ["Esc", "key.back"], ["?", "key.help"]];
  return html`<${Dialog} title=${t("keys")} onClose=${onClose}>
    <dl class="keys">${keys.map(([key, word]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${t(word)}</dd></div>`)}</dl><//>`;
}

const place = document.getElementById("app");
place.replaceChildren();
render(html`<${App} />`, place);
