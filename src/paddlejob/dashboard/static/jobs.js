// The list of jobs, filtered and sorted. Only visible rows are in the page.
import { Component, duration, html, ranFor, since, useKept, useMemo, useNow, useRef } from "./lib.js";
import { t } from "./i18n.js";
import { Bar, Command, Empty, jobHash, Phase, restartsText, Space, stepText, toneOf, useFilterKey, useWindowed } from "./ui.js";

const GROUPS = {
  all: () => true,
  active: (row) => ["Running", "Scaling"].includes(row.phase),
  waiting: (row) => !row.isOver && !["Running", "Scaling"].includes(row.phase),
  failed: (row) => row.isOver && row.phase !== "Completed",
  completed: (row) => row.phase === "Completed",
};

const TOLD = new Set(["Pending", "Starting", "Restarting", "Scaling", "Suspended", "Failed", "Lost", "Terminating"]);

const percentOf = (row) => (row.phase === "Completed" ? 100 : row.progress?.percent ?? null);
const created = (row) => Date.parse(row.created) || 0;
const COLUMNS = [
  { id: "name", by: (row) => row.key },
  { id: "status", by: (row) => row.phase },
  { id: "progress", by: (row) => percentOf(row) ?? -1 },
  { id: "loss", by: (row) => Number(row.progress?.loss ?? Infinity) },
  { id: "throughput", by: (row) => parseFloat(row.progress?.throughput ?? "-1") },
  { id: "ready", by: null },
  { id: "duration", by: (row) => ranFor(row, Date.now()) },
  { id: "age", by: (row) => -created(row) },
];

// The default order: active jobs first, then the newest.
const usual = (a, b) => a.isOver - b.isOver || created(b) - created(a) || a.key.localeCompare(b.key);

function sortRows(rows, order) {
  const column = COLUMNS.find((each) => each.id === order.replace("-", "") && each.by);
  if (!column) return rows.sort(usual);
  const sign = order.startsWith("-") ? -1 : 1;
  return rows.sort((a, b) => {
    const x = column.by(a), y = column.by(b);
    return sign * (x < y ? -1 : x > y ? 1 : 0) || usual(a, b);
  });
}

export function Jobs({ rows, state, about, scope, mayCreate, onChoose }) {
  const [group, setGroup] = useKept("group", "all");
  const [order, setOrder] = useKept("order", "");
  const [text, setText] = useKept("filter", "");
  const [namespace, setNamespace] = useKept("namespace", "");
  const search = useFilterKey();
  const namespaces = useMemo(() => [...new Set(rows.map((row) => row.namespace))].sort(), [rows]);
  const within = namespaces.includes(namespace) ? namespace : "";
  const found = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    return rows.filter((row) => (!within || row.namespace === within)
      && (!wanted || `${row.key} ${row.reason} ${row.message}`.toLowerCase().includes(wanted)));
  }, [rows, text, within]);
  const shown = useMemo(
    () => sortRows(found.filter(GROUPS[group] || GROUPS.all), order), [found, group, order]);

  if (state.state === "loading" && !rows.length) return html`<${Skeleton} />`;
  if (state.state === "forbidden") {
    return html`<${Empty} title=${t("forbidden")} tone="red"><p>${state.message}</p><p class="dim">${t("forbiddenHint")}</p>
      <p><button type="button" class="primary" onClick=${onChoose}>${t("chooseNamespace")}</button></p><//>`;
  }
  if (!rows.length && state.state === "disconnected") {
    return html`<${Empty} title=${t("disconnected")} tone="red"><p>${state.message}</p><//>`;
  }
  if (!rows.length) return html`<${NoJobs} about=${about} scope=${scope} mayCreate=${mayCreate} onChoose=${onChoose} />`;

  const clear = () => { setText(""); setGroup("all"); setNamespace(""); };
  return html`
    <div class="toolbar">
      <h1>${t(about.isLocal ? "runs" : "jobs")}</h1>
      <div class="chips" role="group" aria-label=${t("status")}>
        ${Object.keys(GROUPS).map((id) => html`<button type="button" key=${id} aria-pressed=${group === id}
          onClick=${() => setGroup(id)}>${t(id)} <b>${found.filter(GROUPS[id]).length}</b></button>`)}
      </div>
      <span class="grow"></span>
      ${namespaces.length > 1 && html`<select aria-label=${t("namespace")} value=${within}
          onChange=${(event) => setNamespace(event.target.value)}>
        <option value="">${t("allNamespaces")}</option>
        ${namespaces.map((each) => html`<option key=${each}>${each}</option>`)}</select>`}
      <input ref=${search} type="search" class="filter" placeholder=${t("filter")} aria-label=${t("filter")} value=${text}
        onInput=${(event) => setText(event.target.value)} />
    </div>
    ${shown.length
      ? html`<${Table} rows=${shown} order=${order} setOrder=${setOrder} manyNamespaces=${!about.isLocal && scope === ""} />`
      : html`<${Empty} level="h2" title=${t("noMatch")}><button type="button" onClick=${clear}>${t("clearFilter")}</button><//>`}`;
}

function Table({ rows, order, setOrder, manyNamespaces }) {
  const body = useRef();
  const now = useNow();
  const rowHeight = matchMedia("(max-width: 640px)").matches ? 60 : 52;
  const isWide = matchMedia("(min-width: 1101px)").matches;
  const [first, last] = useWindowed(rows.length, rowHeight, body);
  const turn = (id) => setOrder(order === id ? `-${id}` : order === `-${id}` ? "" : id);
  const direction = (id) => (order === id ? "ascending" : order === `-${id}` ? "descending" : undefined);
  return html`<table class="jobs" aria-rowcount=${rows.length + 1}>
    <thead><tr>${COLUMNS.map(({ id, by }) => html`<th key=${id} class=${`c-${id}`} scope="col" aria-sort=${direction(id)}>
      ${by ? html`<button type="button" onClick=${() => turn(id)}>${t(id)}${direction(id) && html`<i aria-hidden="true">${
        direction(id) === "ascending" ? "↑" : "↓"}</i>`}</button>` : t(id)}</th>`)}</tr></thead>
    <tbody ref=${body}>
      <${Space} rows=${first} height=${rowHeight} columns=${COLUMNS.length} />
      ${rows.slice(first, last).map((row, index) => html`<${Row} key=${row.key} row=${row} now=${now} index=${first + index} isWide=${isWide}
        manyNamespaces=${manyNamespaces} />`)}
      <${Space} rows=${rows.length - last} height=${rowHeight} columns=${COLUMNS.length} />
    </tbody></table>`;
}

// Draw a row again only when one of its properties has changed.
class Row extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((name) => next[name] !== this.props[name]);
  }

  render({ row, now, index, isWide, manyNamespaces }) {
    const told = TOLD.has(row.phase) ? row.message || row.reason : "";
    const open = (event) => {
      if (event.target.closest("a") || getSelection().toString()) return;
      location.hash = jobHash(row.key);
    };
    return html`<tr aria-rowindex=${index + 2} onClick=${open}>
      <td class="c-name"><a href=${jobHash(row.key)} class="job">${manyNamespaces && html`<span class="dim">${row.namespace}/</span>`}${row.name}</a>
        ${told && !isWide ? html`<span class="reason ${toneOf(row.phase)}" title=${told}>${told}</span>`
          : html`<span class="reason">${[row.mode, row.restarts && restartsText(row.restarts)].filter(Boolean).join(" · ")}</span>`}</td>
      <td class="c-status"><${Phase} phase=${row.phase} /></td>
      ${told && isWide
        // The reason why a job does not train takes the columns of its last numbers.
        ? html`<td class="c-progress" colspan="3"><span class="told">${row.progress && html`<${Progress} row=${row} short />`}
          <span class="reason ${toneOf(row.phase)}" title=${told}>${told}</span></span></td>`
        : html`<td class="c-progress"><${Progress} row=${row} /></td>
          <td class="c-loss num">${row.progress?.loss}</td>
          <td class="c-throughput num"><${Quantity} text=${row.progress?.throughput} /></td>`}
      <td class="c-ready num">${row.isOver ? html`<span class="dim">–</span>` : html`<${Ready} ready=${Object.entries(row.ready)} />`}</td>
      <td class="c-duration num">${row.started ? duration(ranFor(row, now)) : "–"}</td>
      <td class="c-age num">${since(row.created, null, now)}</td>
    </tr>`;
  }
}

// A number and its unit, such as 1156 samples/s.
function Quantity({ text = "" }) {
  const [value, ...unit] = text.split(" ");
  return html`${value}${unit.length > 0 && html` <span class="dim unit">${unit.join(" ")}</span>`}`;
}

function Ready({ ready }) {
  if (ready.length < 2) return ready[0]?.[1];
  return ready.map(([role, value]) => html`<span class="role" key=${role}><span class="dim">${role}</span> ${value}</span>`);
}

function Progress({ row, short }) {
  const percent = percentOf(row);
  if (percent === null && !row.progress) return html`<span class="dim">–</span>`;
  return html`<span class="progress"><${Bar} percent=${percent} tone=${toneOf(row.phase)} label=${`${t("progress")} ${row.name}`} />
    <span class="num">${percent === null ? "" : `${percent}%`}</span>
    ${!short && html`<span class="dim steps" title=${stepText(row.progress)}>${stepText(row.progress)}</span>`}</span>`;
}

function NoJobs({ about, scope, mayCreate, onChoose }) {
  const command = about.isLocal ? "paddlejob run job.yaml" : `kubectl pdj submit -n ${scope || about.namespace} job.yaml`;
  const title = about.isLocal ? t("noRuns") : scope ? `${t("noJobsIn")} ${scope}` : t("noJobs");
  return html`<${Empty} title=${title}>
    <p class="dim">${t(about.isLocal ? "noRunsHint" : "noJobsHint")}</p>
    <p><${Command} text=${command} /></p>
    <p>${mayCreate && html`<a class="button primary" href="#/new">${t("new")}</a>`}
      ${!about.isLocal && html` <button type="button" onClick=${onChoose}>${t("chooseNamespace")}</button>`}</p><//>`;
}

function Skeleton() {
  return html`<div class="toolbar"><h1>${t("jobs")}</h1></div>
    <div class="skeleton" role="status" aria-label=${t("loading")}>
      ${Array.from({ length: 6 }, (_, index) => html`<div key=${index}><i></i><i></i><i></i></div>`)}</div>`;
}
