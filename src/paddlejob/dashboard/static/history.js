// Jobs that have ended, also those that are gone, and what is kept of one of them.
import { clock, day, duration, get, html, since, useEffect, useMemo, useNow, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Chart, columns } from "./charts.js";
import { jobHash } from "./jobs.js";
import { Empty, Phase, toneOf } from "./ui.js";

const MOST_SHOWN = 300;

export default function History({ namespace, name, rows, scope, about }) {
  return name ? html`<${Postmortem} namespace=${namespace} name=${name} rows=${rows} about=${about} />` : html`<${List} rows=${rows} scope=${scope} />`;
}

function useFetched(path) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => {
    setFound(null);
    get(path).then(setFound, (refused) => setError(refused.message));
  }, [path]);
  return [found, error];
}

const Loading = () => html`<div class="skeleton" role="status" aria-label=${t("loading")}><div><i></i><i></i><i></i></div></div>`;

function List({ rows, scope }) {
  const now = useNow();
  const [text, setText] = useState("");
  const [all, error] = useFetched(`api/history?namespace=${encodeURIComponent(scope)}`);
  const present = useMemo(() => new Set(rows.map((row) => row.key)), [rows]);
  if (error) return html`<${Empty} title=${t("forbidden")} tone="red"><p>${error}</p><//>`;
  if (!all) return html`<h1>${t("history")}</h1><${Loading} />`;
  const ended = all.filter((each) => each.ended);
  const wanted = text.trim().toLowerCase();
  const found = ended.filter((each) => !wanted || `${each.key} ${each.failure?.message || each.message || ""}`.toLowerCase().includes(wanted));
  if (!ended.length) return html`<${Empty} title=${t("noHistory")}><p class="dim">${t("noHistoryHint")}</p><//>`;
  return html`<div class="toolbar"><h1>${t("history")}</h1><span class="dim">${t("historyHint")}</span><span class="grow"></span>
      <input type="search" class="filter" placeholder=${t("filter")} aria-label=${t("filter")} value=${text} onInput=${(event) => setText(event.target.value)} /></div>
    <table class="plain history"><thead><tr><th scope="col">${t("name")}</th><th scope="col">${t("status")}</th>
      <th scope="col">${t("ended")}</th><th scope="col" class="num">${t("duration")}</th><th scope="col" class="num">${t("attempts")}</th>
      <th scope="col">${t("firstFailure")}</th></tr></thead>
    <tbody>${found.slice(0, MOST_SHOWN).map((each) => html`<tr key=${each.record}>
      <td><a class="job" href=${`#/history/${encodeURIComponent(each.namespace)}/${encodeURIComponent(each.record)}`}>${scope === "" && html`<span class="dim">${each.namespace}/</span>`}${each.name}</a>
        ${!present.has(each.key) && html` <span class="tag">${t("gone")}</span>`}</td>
      <td><${Phase} phase=${each.result} /></td><td class="num">${day(each.ended)}</td>
      <td class="num">${since(each.started || each.created, each.ended, now)}</td><td class="num">${(each.attempt || 0) + 1}</td>
      <td>${each.failure?.message || html`<span class="dim">–</span>`}</td></tr>`)}</tbody></table>
    ${found.length > MOST_SHOWN && html`<p class="dim after">${found.length - MOST_SHOWN} ${t("more")}</p>`}`;
}

function Postmortem({ namespace, name, rows, about }) {
  const [record, error] = useFetched(`api/history/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  const data = useMemo(() => {
    const { x, loss } = columns(record?.curve || []);
    return [x, loss];
  }, [record]);
  if (error) return html`<${Empty} title=${t("jobMissing")}><p class="dim">${error}</p><p><a class="button" href="#/history">${t("history")}</a></p><//>`;
  if (!record) return html`<${Loading} />`;
  const { summary, attempts, timeline } = record;
  const key = `${summary.namespace}/${summary.name}`;
  // One point is not a curve.
  const isCurve = data[0].length > 1;
  const took = duration(Date.parse(summary.ended) - Date.parse(summary.started || summary.created));
  return html`<div class="head"><div class="title"><h1>${summary.name}</h1><${Phase} phase=${summary.result} /></div>
      <div class="actions">${isCurve && html`<a class="button" href=${`#/compare?a=${encodeURIComponent(`~${namespace}/${name}`)}`}>${t("compare")}</a>`}
        ${rows.some((row) => row.key === key) && html`<a class="button" href=${jobHash(key)}>${t("backToJob")}</a>`}</div>
      <dl class="facts">${!about.isLocal && html`<div><dt>${t("namespace")}</dt><dd>${summary.namespace}</dd></div>`}
        <div><dt>${t("ended")}</dt><dd class="num">${day(summary.ended)}</dd></div><div><dt>${t("duration")}</dt><dd class="num">${took}</dd></div>
        <div><dt>${t("restarts")}</dt><dd class="num">${summary.restarts || 0}</dd></div></dl></div>
    <div class="why ${toneOf(summary.result)}"><h2 class="sentence">${summary.failure?.message || summary.message || summary.result}</h2></div>
    ${isCurve && html`<div class="charts one"><${Chart} title=${t("loss")} series=${[{ label: "loss", colour: "--blue" }]} data=${data} /></div>`}
    ${attempts.map((each, index) => html`<${Attempt} key=${index} attempt=${each} isLast=${index === attempts.length - 1} />`)}
    ${timeline.length > 0 && html`<h2>${t("phases")}</h2><table class="plain"><tbody>${timeline.map((each, index) => html`<tr key=${index}>
      <td class="num">${clock(each.time)}</td><td><${Phase} phase=${each.phase} /></td><td>${each.message || each.reason}</td></tr>`)}</tbody></table>`}`;
}

function Attempt({ attempt, isLast }) {
  const ranks = attempt.ranks || [], changes = attempt.changes || [];
  return html`<h2>${t("attempt")} ${attempt.attempt || 0} <span class="dim">${attempt.failure?.message || attempt.message || attempt.result}</span></h2>
    ${changes.length > 0 && html`<table class="plain"><caption class="dim">${t("changes")}</caption><tbody>${changes.map((each) => html`<tr key=${each.name}>
      <th scope="row">${each.name}</th><td><del>${each.before}</del></td><td>${each.after}</td></tr>`)}</tbody></table>`}
    ${ranks.map((rank, index) => html`<details key=${rank.rank} open=${isLast && index === 0}><summary><b class="num">${rank.rank}</b>
      <span class=${rank.exitCode ? "red" : "dim"}> ${[rank.reason || rank.state, rank.exitCode].filter(Boolean).join(" ")}</span></summary>
      ${rank.text && html`<pre class="last" tabindex="0">${rank.text}</pre>`}</details>`)}`;
}
