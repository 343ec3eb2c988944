// The list of finished jobs, deleted ones included, and the record of one of them.
import { day, get, html, since, useEffect, useMemo, useNow, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Record } from "./record.js";
import { Empty, jobHash, Phase } from "./ui.js";

const MAX_SHOWN = 300;

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
    <tbody>${found.slice(0, MAX_SHOWN).map((each) => html`<tr key=${each.record}>
      <td><a class="job" href=${`#/history/${encodeURIComponent(each.namespace)}/${encodeURIComponent(each.record)}`}>${scope === "" && html`<span class="dim">${each.namespace}/</span>`}${each.name}</a>
        ${!present.has(each.key) && html` <span class="tag">${t("gone")}</span>`}</td>
      <td><${Phase} phase=${each.result} /></td><td class="num">${day(each.ended)}</td>
      <td class="num">${since(each.started || each.created, each.ended, now)}</td><td class="num">${(each.attempt || 0) + 1}</td>
      <td>${each.failure?.message || html`<span class="dim">–</span>`}</td></tr>`)}</tbody></table>
    ${found.length > MAX_SHOWN && html`<p class="dim after">${found.length - MAX_SHOWN} ${t("more")}</p>`}`;
}

function Postmortem({ namespace, name, rows, about }) {
  const [record, error] = useFetched(`api/history/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
  if (error) return html`<${Empty} title=${t("jobMissing")}><p class="dim">${error}</p><p><a class="button" href="#/history">${t("history")}</a></p><//>`;
  if (!record) return html`<${Loading} />`;
  const key = `${record.summary.namespace}/${record.summary.name}`;
  const actions = html`
    ${record.curve.length > 1 && html`<a class="button" href=${`#/compare?a=${encodeURIComponent(`~${namespace}/${name}`)}`}>${t("compare")}</a>`}
    ${rows.some((row) => row.key === key) && html`<a class="button" href=${jobHash(key)}>${t("backToJob")}</a>`}`;
  return html`<${Record} record=${record} isLocal=${about.isLocal} actions=${actions} />`;
}
