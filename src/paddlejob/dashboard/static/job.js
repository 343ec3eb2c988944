// The page of one job: overview, log, ranks, events and manifest.
import { clock, get, html, jobPath, since, stream, useEffect, useMemo, useNow, useRef, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Actions } from "./actions.js";
import { Log } from "./log.js";
import { Overview, Summary } from "./overview.js";
import { Dialog, Empty, jobHash, Space, useFilterKey, useWindowed } from "./ui.js";

const TABS = ["overview", "logs", "ranks", "events", "manifest"];
const MAX_LINES = 50000;
const MAX_POINTS = 40000;
const RANK_HEIGHT = 36;
const FEW_RANKS = 10;

// Return everything the server sends about a job, over one connection.
function useJob(namespace, name) {
  const kept = useRef(null);
  const [, draw] = useState(0);
  if (!kept.current) kept.current = empty();
  useEffect(() => {
    let frame = 0;
    const ranks = new Map();
    // Draw once per frame, however many lines arrive.
    const soon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        draw((count) => count + 1);
      });
    };
    const set = (field) => (value) => {
      kept.current[field] = value;
      soon();
    };
    const close = stream(`${jobPath(namespace, name)}/stream?logs=1`, {
      open: () => {
        // The server sends logs and points from the beginning again.
        ranks.clear();
        Object.assign(kept.current, { lines: [], points: [], ranks: [], trouble: "" });
        soon();
      },
      broken: (why) => {
        if (why && !kept.current.job) kept.current.refused = why;
        soon();
      },
      job: set("job"),
      record: set("record"),
      activity: set("activity"),
      ranks: ({ changed, gone }) => {
        for (const rank of gone) ranks.delete(rank);
        for (const rank of changed) ranks.set(rank.rank, rank);
        set("ranks")([...ranks.values()].sort(byRank));
      },
      events: set("events"),
      explain: set("explain"),
      trouble: set("trouble"),
      gone: () => set("isGone")(true),
      points: (points) => {
        kept.current.points = [...kept.current.points, ...points].slice(-MAX_POINTS);
        soon();
      },
      lines: (lines) => {
        kept.current.lines = mergeLines(kept.current.lines, lines);
        soon();
      },
      marker: ({ text, inLog }) => {
        if (inLog) kept.current.lines = [...kept.current.lines, ["", 0, null, text]];
        else kept.current.waiting = text;
        soon();
      },
    });
    return () => {
      close();
      cancelAnimationFrame(frame);
    };
  }, [namespace, name]);
  return kept.current;
}

const empty = () => ({ job: null, ranks: [], activity: {}, record: { attempts: [], curve: [], timeline: [] }, events: [], explain: null, points: [], lines: [], trouble: "", isGone: false, refused: null });

const ROLES = ["ps", "worker", "heter"];
const roleOf = (rank) => rank.rank.slice(0, rank.rank.lastIndexOf("-"));
const indexOf = (rank) => Number(rank.rank.slice(rank.rank.lastIndexOf("-") + 1));
const byRank = (a, b) => ROLES.indexOf(roleOf(a)) - ROLES.indexOf(roleOf(b)) || indexOf(a) - indexOf(b);

// The server reads all ranks in parallel. Sort older lines by time.
function mergeLines(lines, more) {
  const last = lines.length ? lines[lines.length - 1][2] : null;
  const all = [...lines, ...more];
  if (last && more[0][2] && more[0][2] < last) all.sort((a, b) => (a[2] && b[2] ? (a[2] < b[2] ? -1 : a[2] > b[2] ? 1 : 0) : 0));
  return all.length > MAX_LINES ? all.slice(-MAX_LINES) : all;
}

export default function Job({ namespace, name, tab, row, about, rights }) {
  const known = useJob(namespace, name);
  const chosen = TABS.includes(tab) ? tab : "overview";
  // The row of the list is newer, and is there for users who may not read the pods.
  const job = known.job ? { ...known.job, ...row } : row;
  if (known.isGone || known.refused) {
    const title = known.isGone ? "jobGone" : known.refused.status === 403 ? "forbidden" : "jobMissing";
    return html`<${Empty} title=${t(title)}>
      <p class="dim">${known.refused?.message || `${namespace}/${name}`}</p><p><a class="button" href="#/">${t("backToJobs")}</a>
      ${title !== "forbidden" && html`<a class="button" href="#/history">${t("history")}</a>`}</p><//>`;
  }
  if (!job) return html`<div class="skeleton" role="status" aria-label=${t("loading")}><div><i></i><i></i><i></i></div></div>`;
  const pages = { overview: Overview, logs: LogTab, ranks: Ranks, events: Events, manifest: Manifest };
  return html`
    <${Head} job=${job} about=${about} rights=${rights} />
    ${known.trouble && html`<div class="banner" role="alert">${known.trouble}</div>`}
    <${Tabs} job=${job} chosen=${chosen} counts=${{ ranks: known.ranks.length, events: known.events.length }} />
    <section id="panel" role="tabpanel" aria-labelledby=${`tab-${chosen}`} tabindex="0" class=${`tab-${chosen}`}>
      <${pages[chosen]} job=${job} known=${known} />
    </section>`;
}

function Head({ job, about, rights }) {
  return html`<${Summary} job=${job} isLocal=${about.isLocal} actions=${html`
    <a class="button" href=${`#/compare?a=${encodeURIComponent(job.key)}`}>${t("compare")}</a>
    <${Actions} job=${job} about=${about} rights=${rights} />`} />`;
}

function Tabs({ job, chosen, counts }) {
  const onKey = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = TABS[(TABS.indexOf(chosen) + by + TABS.length) % TABS.length];
    location.hash = jobHash(job.key, next);
    document.getElementById(`tab-${next}`).focus();
  };
  return html`<div class="tabs" role="tablist" onKeyDown=${onKey}>
    ${TABS.map((id) => html`<button type="button" key=${id} id=${`tab-${id}`} role="tab" aria-selected=${id === chosen}
      aria-controls="panel" tabindex=${id === chosen ? 0 : -1} onClick=${() => { location.hash = jobHash(job.key, id); }}>
      ${t(id)}${counts[id] ? html` <b>${counts[id]}</b>` : ""}</button>`)}</div>`;
}

function LogTab({ job, known }) {
  return html`<${Log} job=${job} lines=${known.lines} waiting=${known.waiting} />`;
}

function Ranks({ job, known }) {
  const now = useNow();
  const [chosen, setChosen] = useState(null);
  const [opened, setOpened] = useState(null);
  const body = useRef();
  const [text, setText] = useState("");
  const search = useFilterKey();
  const wanted = text.trim().toLowerCase();
  const ranks = useMemo(() => known.ranks.filter((each) => `${each.rank} ${each.state} ${each.node}`.toLowerCase().includes(wanted)), [known.ranks, wanted]);
  const [first, last] = useWindowed(ranks.length, RANK_HEIGHT, body);
  if (!known.ranks.length) return html`<div class="quietbox">${t("noRanks")}</div>`;
  return html`${known.ranks.length > FEW_RANKS && html`<div class="logbar"><input ref=${search} type="search" placeholder=${t("filterRanks")} aria-label=${t("filterRanks")} value=${text}
      onInput=${(event) => setText(event.target.value)} /><span class="num dim" role="status">${ranks.length} / ${known.ranks.length}</span></div>`}
    <table class="plain ranks"><thead><tr><th scope="col">${t("rank")}</th><th scope="col">${t("status")}</th>
      <th scope="col">${t("node")}</th><th scope="col" class="num">${t("attempt")}</th><th scope="col" class="num">${t("restarts")}</th>
      <th scope="col" class="num">${t("age")}</th><th scope="col">${t("environment")}</th></tr></thead>
    <tbody ref=${body}><${Space} rows=${first} height=${RANK_HEIGHT} columns="7" />
      ${ranks.slice(first, last).map((each) => html`<tr key=${each.rank}><td class="num">${each.rank}${each.ranks && html` <button type="button" class="link" onClick=${() => setOpened(each.rank)}
        aria-label=${`${t("rank")} ${each.ranks}: ${t("processesOf")} ${each.rank}`}>${t("rank")} ${each.ranks}</button>`}</td>
      <td><span class=${each.exitCode ? "red" : each.state === "Running" ? "blue" : ""}>${each.state}</span></td>
      <td>${each.node || "–"}</td><td class="num">${each.attempt}</td><td class="num">${each.restarts}</td>
      <td class="num">${since(each.created, null, now)}</td>
      <td><button type="button" class="link" onClick=${() => setChosen(each.rank)}
        aria-label=${`${t("environmentOf")} ${each.rank}`}>${t("environment")}</button></td></tr>`)}
      <${Space} rows=${ranks.length - last} height=${RANK_HEIGHT} columns="7" /></tbody></table>
    ${chosen && html`<${Environment} job=${job} rank=${chosen} onClose=${() => setChosen(null)} />`}
    ${opened && html`<${Processes} job=${job} rank=${opened} onClose=${() => setOpened(null)} />`}`;
}

// The processes of a pod, one for each card.
function Processes({ job, rank, onClose }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => {
    get(`${jobPath(job.namespace, job.name)}/processes/${encodeURIComponent(rank)}`).then(setFound, (refused) => setError(refused.message));
  }, [rank]);
  const refused = error || found?.find((each) => each.trouble)?.trouble;
  return html`<${Dialog} title=${`${t("processesOf")} ${rank}`} onClose=${onClose}>
    ${refused ? html`<p class="red">${refused}</p>` : found && !found.length ? html`<p class="dim">${t("noProcesses")}</p>` : html`
      <div class="scroll" tabindex="0"><table class="plain processes"><thead><tr><th scope="col" class="num">${t("rank")}</th>
        <th scope="col">${t("card")}</th><th scope="col" class="num">${t("step")}</th><th scope="col" class="num">${t("loss")}</th>
        <th scope="col">${t("lastLine")}</th></tr></thead>
      <tbody>${(found || []).map((each) => html`<tr key=${each.rank}><td class="num">${each.rank}</td><td>${each.device || "–"}</td>
        <td class="num">${each.step || "–"}${each.total >= each.step && each.step ? `/${each.total}` : ""}</td>
        <td class="num">${each.loss || "–"}</td><td>${each.lastLine}</td></tr>`)}</tbody></table></div>`}<//>`;
}

function Environment({ job, rank, onClose }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const [text, setText] = useState("");
  useEffect(() => {
    get(`${jobPath(job.namespace, job.name)}/environment/${encodeURIComponent(rank)}`).then(setFound, (refused) => setError(refused.message));
  }, [rank]);
  const wanted = text.toLowerCase();
  const shown = Object.entries(found || {}).filter((each) => each.join("=").toLowerCase().includes(wanted));
  return html`<${Dialog} title=${`${t("environmentOf")} ${rank}`} onClose=${onClose}>
    ${error ? html`<p class="red">${error}</p>` : html`
      <input type="search" placeholder=${t("filterVariables")} aria-label=${t("filterVariables")} value=${text} onInput=${(event) => setText(event.target.value)} />
      <div class="scroll" tabindex="0"><table class="plain env"><tbody>${shown.map(([name, value]) => html`<tr key=${name}>
        <th scope="row">${name}</th><td>${value}</td></tr>`)}</tbody></table></div>`}<//>`;
}

function Events({ known }) {
  if (!known.events.length) return html`<div class="quietbox">${t("noEvents")}</div>`;
  return html`<table class="plain events"><thead><tr><th scope="col">${t("time")}</th><th scope="col">${t("reason")}</th>
      <th scope="col">${t("object")}</th><th scope="col">${t("message")}</th></tr></thead>
    <tbody>${[...known.events].reverse().map((each, index) => html`<tr key=${index} class=${each.type === "Warning" ? "warning" : ""}>
      <td class="num">${clock(each.time) || "–"}</td><td>${each.reason}${each.count > 1 && html` <b class="dim">×${each.count}</b>`}</td>
      <td class="dim">${each.object.replace(/^(\w+)\//, "$1 ")}</td><td>${each.message}</td></tr>`)}</tbody></table>`;
}

function Manifest({ job }) {
  const [text, setText] = useState("");
  const [error, setError] = useState("");
  useEffect(() => {
    get(`${jobPath(job.namespace, job.name)}/manifest`).then((found) => setText(found.text), (refused) => setError(refused.message));
  }, [job.key]);
  if (error) return html`<div class="quietbox red">${error}</div>`;
  return html`<div class="manifest"><button type="button" class="quiet small" onClick=${() => navigator.clipboard.writeText(text)}>${t("copy")}</button>
    <pre tabindex="0">${text}</pre></div>`;
}
