// One job: why it is where it is, its attempts, curves, ranks, events, log and manifest.
import { clock, duration, get, html, jobPath, moment, ranFor, since, stream, useEffect, useMemo, useNow, useRef, useState } from "./lib.js";
import { phaseName, t } from "./i18n.js";
import { Actions } from "./actions.js";
import { Chart, columns, overRestarts } from "./charts.js";
import { jobHash, stepText } from "./jobs.js";
import { Log } from "./log.js";
import { Bar, Command, Dialog, Empty, Phase, Space, toneOf, useFilterKey, useWindowed } from "./ui.js";

const TABS = ["overview", "logs", "ranks", "events", "manifest"];
const MOST_LINES = 50000;
const MOST_POINTS = 40000;
const MOST_LANES = 64;
const RANK_HEIGHT = 36;
const FEW_RANKS = 10;

// All that the server tells of a job, over one connection.
function useJob(namespace, name) {
  const kept = useRef(null);
  const [, draw] = useState(0);
  if (!kept.current) kept.current = empty();
  useEffect(() => {
    let frame = 0;
    const ranks = new Map();
    // Lines come faster than anybody reads: draw once a frame, whatever arrives meanwhile.
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
        // Logs and points come again from their beginning.
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
        kept.current.points = [...kept.current.points, ...points].slice(-MOST_POINTS);
        soon();
      },
      lines: (lines) => {
        kept.current.lines = merged(kept.current.lines, lines);
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

// Ranks are read side by side; what was written before the page was opened is put in order of time.
function merged(lines, more) {
  const last = lines.length ? lines[lines.length - 1][2] : null;
  const all = [...lines, ...more];
  if (last && more[0][2] && more[0][2] < last) all.sort((a, b) => (a[2] && b[2] ? (a[2] < b[2] ? -1 : a[2] > b[2] ? 1 : 0) : 0));
  return all.length > MOST_LINES ? all.slice(-MOST_LINES) : all;
}

export default function Job({ namespace, name, tab, row, about, rights }) {
  const known = useJob(namespace, name);
  const chosen = TABS.includes(tab) ? tab : "overview";
  // The list knows sooner what is new, and also tells those who may not see the pods.
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
  const now = useNow();
  const ready = Object.entries(job.ready).map(([role, value]) => `${role} ${value}`).join(" · ");
  const used = job.backoffLimit === undefined ? "" : t("restartsUsed", { used: job.restarts, limit: job.backoffLimit });
  return html`<div class="head">
    <div class="title"><h1>${job.name}</h1><${Phase} phase=${job.phase} /></div>
    <div class="actions"><a class="button" href=${`#/compare?a=${encodeURIComponent(job.key)}`}>${t("compare")}</a>
      <${Actions} job=${job} about=${about} rights=${rights} /></div>
    <dl class="facts">
      ${!about.isLocal && html`<div><dt>${t("namespace")}</dt><dd>${job.namespace}</dd></div>`}
      ${!job.isOver && html`<div><dt>${t("ready")}</dt><dd class="num">${ready || "–"}</dd></div>`}
      <div><dt>${t("attempt")}</dt><dd class="num">${job.attempt}${used && html`<span class="dim"> · ${used}</span>`}</dd></div>
      <div><dt>${t("duration")}</dt><dd class="num">${job.started ? duration(ranFor(job, now)) : "–"}</dd></div>
      <div class="age"><dt>${t("age")}</dt><dd class="num">${since(job.created, null, now)}</dd></div>
      <div class="wide"><dt>${t("progress")}</dt><dd><${Progress} job=${job} /></dd></div>
    </dl></div>`;
}

function Progress({ job }) {
  const told = job.progress;
  const percent = job.phase === "Completed" ? 100 : told?.percent;
  if (percent === undefined && !told) return html`<span class="dim">–</span>`;
  const left = !job.isOver && told?.eta ? `${told.eta} ${t("left")}` : "";
  return html`<span class="progress"><${Bar} percent=${percent} tone=${toneOf(job.phase)} label=${t("progress")} />
    <span class="num">${percent === undefined || percent === null ? "" : `${percent}%`}</span>
    <span class="dim">${[stepText(told), left].filter(Boolean).join(" · ")}</span></span>`;
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

function Overview({ job, known }) {
  const attempts = useMemo(() => attemptsOf(job, known.events, known.record.attempts), [job, known.events, known.record]);
  const points = useMemo(() => overRestarts(known.record.curve, known.points), [known.record, known.points]);
  return html`
    <${Why} explain=${known.explain} job=${job} />
    <${Curves} points=${points} attempts=${attempts} />
    <${Timeline} job=${job} attempts=${attempts} events=${known.events} kept=${known.record.timeline} />
    <${Strip} job=${job} ranks=${known.ranks} activity=${known.activity} />`;
}

function Why({ explain, job }) {
  if (!explain) return html`<div class="why ${toneOf(job.phase)}"><h2 class="sentence">${job.message || t("loading")}</h2></div>`;
  const [first, ...others] = explain.findings;
  return html`<div class="why ${toneOf(job.phase)}">
    <h2 class="sentence">${first.summary}</h2>
    <${Finding} finding=${first} />
    ${explain.log.length > 0 && html`<h3>${t("lastLines")} ${explain.rank}</h3><pre class="last" tabindex="0">${explain.log.join("\n")}</pre>`}
    ${others.map((each) => html`<h3 key=${each.summary}>${t("also")}: ${each.summary}</h3><${Finding} finding=${each} />`)}
    ${explain.unseen.map((each) => html`<p class="dim" key=${each}>${each}</p>`)}</div>`;
}

function Finding({ finding }) {
  return html`${finding.details.length > 0 && html`<ul>${finding.details.map((each) => html`<li key=${each}>${each}</li>`)}</ul>`}
    ${finding.advice.length > 0 && html`<h3>${t("whatToDo")}</h3><ul>${finding.advice.map((each) => html`<li key=${each.text}>${each.text}
      ${each.commands.map((command) => html`<${Command} key=${command} text=${command} />`)}</li>`)}</ul>`}`;
}

function Curves({ points, attempts }) {
  const begin = points.length ? Date.parse(points[0].time) : 0;
  const marks = useMemo(() => attempts.slice(1).map((each) => ({ x: (each.began - begin) / 1000, label: `#${each.number}` })), [attempts, begin]);
  const data = useMemo(() => columns(points, { marks }), [points, marks]);
  const [loss, speed] = useMemo(() => [[data.x, data.loss], [data.x, data.throughput]], [data]);
  // One point is not a curve, and the list of facts has its number.
  if (points.length === 1) return null;
  if (!points.length) return html`<div class="quietbox">${t("noCurve")}</div>`;
  return html`<div class="charts">
    <${Chart} title=${t("loss")} series=${[{ label: "loss", colour: "--blue" }]} data=${loss} marks=${marks} />
    ${data.throughput.some((value) => value !== null) && html`<${Chart} title=${t("throughput")}
      series=${[{ label: "throughput", colour: "--green" }]} data=${speed} marks=${marks} />`}</div>`;
}

// Read the attempts of a job from its events: when each began, why, and when it ran.
function attemptsOf(job, events, kept) {
  const begin = Date.parse(job.created);
  const attempts = [{ number: 0, began: begin, ran: Date.parse(job.started) || null, cause: "" }];
  for (const each of kept.filter((one) => (one.attempt || 0) < job.attempt && one.ended)) {
    const time = Date.parse(each.ended);
    attempts[attempts.length - 1].ended = time;
    attempts.push({ number: (each.attempt || 0) + 1, began: time, ran: null, cause: each.failure?.message || each.message || "" });
  }
  const own = events.filter((event) => event.object.startsWith("PaddleJob/") && event.time);
  for (const event of own) {
    const last = attempts[attempts.length - 1], time = Date.parse(event.time);
    const found = /^attempt (\d+): (.*)/s.exec(event.message);
    const running = attempts.findLast((each) => each.began <= time) || last;
    if (found && Number(found[1]) > last.number) {
      last.ended = time;
      attempts.push({ number: Number(found[1]), began: time, ran: null, cause: found[2] });
    } else if (event.reason === "Running") {
      running.ran ||= time;
    }
  }
  const last = attempts[attempts.length - 1];
  if (job.attempt > last.number) {
    // Its event has expired; the status still knows when it began.
    const time = Date.parse(job.attemptTime) || last.began;
    last.ended = time;
    attempts.push({ number: job.attempt, began: time, ran: null, cause: job.failure?.message || "" });
  }
  if (job.ended) attempts[attempts.length - 1].ended = Date.parse(job.ended);
  return attempts;
}

const PHASES = ["Pending", "Starting", "Running", "Restarting", "Scaling", "Suspended", "Completed", "Failed", "Terminating"];

// The phases of a job, one after the other: what is kept of them, and what its events and its status tell.
function phasesOf(job, events, kept, end) {
  const told = kept.map(({ phase, time }) => ({ phase, from: Date.parse(time) }));
  for (const event of events) {
    if (!event.object.startsWith("PaddleJob/") || !event.time) continue;
    const phase = /^attempt \d+: /.test(event.message) ? (event.type === "Normal" ? "Scaling" : "Restarting") : event.reason;
    if (PHASES.includes(phase)) told.push({ phase, from: Date.parse(event.time) });
  }
  const begin = Date.parse(job.created);
  if (job.started) told.push({ phase: "Running", from: Date.parse(job.started) });
  told.sort((one, other) => one.from - other.from);
  const phases = [{ phase: "Pending", from: begin }];
  for (const each of told) {
    const last = phases[phases.length - 1];
    if (each.phase === last.phase || each.from < begin || each.from > end || ["Completed", "Failed"].includes(each.phase)) continue;
    last.to = each.from;
    phases.push(each);
  }
  const last = phases[phases.length - 1];
  last.to = end;
  // The events of what it is now may have expired.
  if (!job.isOver && last.phase !== job.phase) {
    last.to = Math.max(last.from, Date.parse(job.attemptTime) || last.from);
    phases.push({ phase: job.phase, from: last.to, to: end });
  }
  return phases.filter((each) => each.to > each.from);
}

function Timeline({ job, attempts, events, kept }) {
  const now = useNow();
  const begin = Date.parse(job.created), end = Date.parse(job.ended) || now;
  const phases = phasesOf(job, events, kept, end);
  const present = PHASES.filter((phase) => phases.some((each) => each.phase === phase));
  const place = placing(begin, end);
  const told = ({ phase, from, to }) => `${phaseName(phase)} ${clock(from)} – ${clock(to)} (${duration(to - from)})`;
  return html`<div class="striphead"><h2>${t("timeline")}</h2>
      <span class="legend">${present.map((phase) => html`<span key=${phase}><i class="p-${phase}"></i>${phaseName(phase)}</span>`)}</span></div>
    <div class="timeline" role="img" aria-label=${phases.map(told).join(", ")}>
      ${phases.map((each) => html`<i key=${each.from} class="p-${each.phase}" style=${place(each)} title=${told(each)}></i>`)}
      ${attempts.slice(1).map((each) => html`<b key=${each.number} style=${{ left: place({ from: each.began, to: end }).left }}></b>`)}</div>
    <div class="axis num dim" aria-hidden="true"><span>${moment(begin)}</span><span>${job.ended ? moment(end) : t("now")}</span></div>
    <table class="plain attempts"><thead><tr><th scope="col" class="num">${t("attempt")}</th><th scope="col">${t("started")}</th>
      <th scope="col">${t("duration")}</th><th scope="col">${t("cause")}</th></tr></thead>
    <tbody>${attempts.map((each) => html`<tr key=${each.number}><td class="num">${each.number}</td>
      <td class="num">${moment(each.began)}</td><td class="num">${duration((each.ended || end) - each.began)}</td>
      <td>${each.cause || html`<span class="dim">${each.number ? "–" : t("submitted")}</span>`}</td></tr>`)}</tbody></table>`;
}

// Where a time is drawn, in percent of all of it; what is short stays visible.
function placing(begin, end) {
  const whole = end - begin || 1;
  return ({ from, to }) => {
    const left = Math.min(100, Math.max(0, (100 * (from - begin)) / whole));
    return { left: `${left}%`, width: `${Math.min(100 - left, Math.max(0.3, (100 * (to - from)) / whole))}%` };
  };
}

const SPANS = ["pending", "running", "training", "evaluating", "saving", "waiting", "stalled", "succeeded", "failed"];

// What a rank did: waiting for its container, running, what its recorder or its log tells of that, and how it ended.
function spansOf(rank, told, end, least) {
  const created = Date.parse(rank.created), started = Date.parse(rank.started), ended = Date.parse(rank.ended) || end;
  const spans = [{ state: "pending", from: created || started, to: started || ended }];
  if (started) spans.push({ state: "running", from: started, to: ended });
  for (const [state, from, to] of told) {
    const span = { state: SPANS.includes(state) ? state : "running", from: Math.max(Date.parse(from), started || 0), to: Math.min(Date.parse(to) || end, ended) };
    if (span.to > span.from) spans.push(span);
  }
  if (rank.ended) {
    const from = spans.length > 2 ? Math.max(started || 0, ended - least) : started || ended - least;
    spans.push({ state: rank.exitCode ? "failed" : "succeeded", from, to: ended, isEnd: true });
  }
  return spans.filter((each) => each.to >= each.from);
}

// Every rank over time; of too many first those that something is wrong with.
function Strip({ job, ranks, activity }) {
  const now = useNow();
  if (!ranks.length) return null;
  const begin = ranks.reduce((least, each) => Math.min(least, Date.parse(each.created) || least), Infinity);
  const end = Date.parse(job.ended) || now;
  const place = placing(begin, end);
  const isOdd = (rank) => Boolean(rank.exitCode) || (activity[rank.rank] || []).some(([state]) => state === "stalled");
  const shown = ranks.length > MOST_LANES ? [...ranks.filter(isOdd), ...ranks.filter((rank) => !isOdd(rank))].slice(0, MOST_LANES) : ranks;
  const lanes = shown.map((rank) => [rank, spansOf(rank, activity[rank.rank] || [], end, (end - begin) / 100)]);
  const present = SPANS.filter((state) => lanes.some(([, spans]) => spans.some((each) => each.state === state && each.to - each.from > 0)));
  const told = (each) => (each.isEnd ? t(`span.${each.state}`) : `${t(`span.${each.state}`)} ${duration(each.to - each.from)}`);
  return html`<div class="striphead"><h2>${t("strip")}</h2>
      <span class="legend">${present.map((state) => html`<span key=${state}><i class="s-${state}"></i>${t(`span.${state}`)}</span>`)}</span></div>
    <div class="strip">${lanes.map(([rank, spans]) => {
      const last = rank.ended ? null : spans.findLast((each) => each.to === end);
      const isStopped = ["stalled", "waiting"].includes(last?.state);
      return html`<div key=${rank.rank}><span class="num">${rank.rank}</span><span class="lane" role="img" aria-label=${spans.map(told).join(", ")}>
        ${spans.map((each, index) => html`<i key=${index} class="s-${each.state}" style=${place(each)}
          title=${each.isEnd ? `${told(each)} ${clock(each.to)}` : `${t(`span.${each.state}`)} ${clock(each.from)} – ${clock(each.to)} (${duration(each.to - each.from)})`}></i>`)}
        </span><span class=${rank.exitCode || last?.state === "stalled" ? "red" : "dim"} title=${rank.state}>${isStopped
          ? `${t(`now.${last.state}`)} ${duration(end - last.from)}` : rank.state}</span></div>`;
    })}</div>
    <div class="axis inner num dim" aria-hidden="true"><span>${clock(begin)}</span><span>${clock(end)}</span></div>
    ${ranks.length > MOST_LANES && html`<p><a href=${jobHash(job.key, "ranks")}>${ranks.length - MOST_LANES} ${t("more")}</a></p>`}`;
}

function LogTab({ job, known }) {
  return html`<${Log} job=${job} lines=${known.lines} waiting=${known.waiting} />`;
}

function Ranks({ job, known }) {
  const now = useNow();
  const [chosen, setChosen] = useState(null);
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
      ${ranks.slice(first, last).map((each) => html`<tr key=${each.rank}><td class="num">${each.rank}</td>
      <td><span class=${each.exitCode ? "red" : each.state === "Running" ? "blue" : ""}>${each.state}</span></td>
      <td>${each.node || "–"}</td><td class="num">${each.attempt}</td><td class="num">${each.restarts}</td>
      <td class="num">${since(each.created, null, now)}</td>
      <td><button type="button" class="link" onClick=${() => setChosen(each.rank)}
        aria-label=${`${t("environmentOf")} ${each.rank}`}>${t("environment")}</button></td></tr>`)}
      <${Space} rows=${ranks.length - last} height=${RANK_HEIGHT} columns="7" /></tbody></table>
    ${chosen && html`<${Environment} job=${job} rank=${chosen} onClose=${() => setChosen(null)} />`}`;
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
