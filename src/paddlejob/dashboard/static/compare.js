// Compares the curves of two jobs, which may have been deleted.
import { day, get, html, jobPath, number, stream, useEffect, useMemo, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Chart, columns, overRestarts } from "./charts.js";
import { Phase } from "./ui.js";

const COLOURS = ["--blue", "--orange"];
const MAX_GONE = 200;
const recordKey = (gone) => `~${gone.namespace}/${gone.record}`;

// Return the points of a job, or with a key that begins with ~, of the record of a deleted job.
function usePoints(key) {
  const [points, setPoints] = useState([]);
  useEffect(() => {
    setPoints([]);
    if (!key) return undefined;
    const [namespace, name] = key.replace("~", "").split("/");
    if (key.startsWith("~")) {
      get(`api/history/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`).then(({ curve }) => setPoints(curve), () => {});
      return undefined;
    }
    let kept = [], told = [];
    const draw = () => setPoints(overRestarts(kept, told));
    return stream(`${jobPath(namespace, name)}/stream`, {
      open: () => { told = []; },
      record: ({ curve }) => { kept = curve; draw(); },
      points: (more) => { told = [...told, ...more]; draw(); },
    });
  }, [key]);
  return points;
}

function useGone(scope, rows) {
  const [ended, setEnded] = useState([]);
  useEffect(() => {
    get(`api/history?namespace=${encodeURIComponent(scope)}`).then((all) => setEnded(all.filter((each) => each.ended)), () => {});
  }, [scope]);
  return useMemo(() => {
    const present = new Set(rows.map((row) => row.key));
    return ended.filter((each) => !present.has(each.key)).slice(0, MAX_GONE);
  }, [ended, rows]);
}

// Join two tables of points into one that has the x values of both.
function joinColumns(a, b, field) {
  const x = [...new Set([...a.x, ...b.x])].sort((one, other) => one - other);
  const align = (of) => {
    const values = new Map(of.x.map((at, index) => [at, of[field][index]]));
    // Undefined means that only the other job has a value here; null is a gap.
    return x.map((at) => values.get(at));
  };
  return [x, align(a), align(b)];
}

export default function Compare({ rows, query, scope }) {
  const chosen = new URLSearchParams(query);
  const keys = [chosen.get("a") || "", chosen.get("b") || ""];
  const byStep = chosen.get("x") === "step";
  const points = [usePoints(keys[0]), usePoints(keys[1])];
  const [a, b] = [useMemo(() => columns(points[0], { byStep }), [points[0], byStep]), useMemo(() => columns(points[1], { byStep }), [points[1], byStep])];
  const loss = useMemo(() => joinColumns(a, b, "loss"), [a, b]);
  const speed = useMemo(() => joinColumns(a, b, "throughput"), [a, b]);
  const choose = (name, value) => {
    chosen.set(name, value);
    location.hash = `#/compare?${chosen}`;
  };
  const gone = useGone(scope, rows);
  const jobs = keys.map((key) => {
    const record = gone.find((each) => recordKey(each) === key);
    return record ? { label: `${record.name} · ${day(record.ended)}`, phase: record.result } : { label: key.split("/")[1] || "", phase: rows.find((row) => row.key === key)?.phase };
  });
  const series = jobs.map(({ label }, index) => ({ label: jobs[0].label === jobs[1].label ? `${label} (${index + 1})` : label, colour: COLOURS[index] }));
  const names = rows.map((row) => row.key).sort();
  return html`<h1>${t("compare")}</h1>
    <div class="toolbar">
      ${["a", "b"].map((name, index) => html`<select key=${name} aria-label=${t(index ? "second" : "first")} value=${keys[index]}
          onChange=${(event) => choose(name, event.target.value)}>
        <option value="">${t("choose")}</option>${names.map((each) => html`<option key=${each}>${each}</option>`)}
        ${gone.length > 0 && html`<optgroup label=${t("history")}>${gone.map((each) => html`<option key=${each.record} value=${recordKey(each)}>
          ${each.namespace}/${each.name} · ${day(each.ended)}</option>`)}</optgroup>`}</select>`)}
      <select aria-label=${t("axis")} value=${byStep ? "step" : "time"} onChange=${(event) => choose("x", event.target.value)}>
        <option value="time">${t("byTime")}</option><option value="step">${t("byStep")}</option></select>
    </div>
    ${!keys[0] || !keys[1] ? html`<div class="quietbox">${t("compareHint")}</div>` : html`
      <${Table} jobs=${jobs} points=${points} />
      ${!points[0].length && !points[1].length ? html`<div class="quietbox">${t("noCurve")}</div>` : html`<div class="charts one">
        <${Chart} title=${t("loss")} series=${series} data=${loss} isTime=${!byStep} />
        ${[...speed[1], ...speed[2]].some((value) => value != null) && html`<${Chart} title=${t("throughput")} series=${series} data=${speed} isTime=${!byStep} />`}
      </div>`}`}`;
}

function Table({ jobs, points }) {
  const last = (index, field) => number(points[index].map((each) => each[field]).filter(Number.isFinite).at(-1));
  const least = (index) => {
    const found = points[index].map((each) => each.loss).filter(Number.isFinite);
    return found.length ? number(found.reduce((a, b) => Math.min(a, b))) : "";
  };
  return html`<table class="plain compared"><thead><tr><th scope="col">${t("name")}</th><th scope="col">${t("status")}</th>
      <th scope="col" class="num">${t("byStep")}</th><th scope="col" class="num">${t("loss")}</th><th scope="col" class="num">${t("least")}</th>
      <th scope="col" class="num">${t("throughput")}</th></tr></thead>
    <tbody>${jobs.map(({ label, phase }, index) => html`<tr key=${index}><td>${label}</td><td>${phase && html`<${Phase} phase=${phase} />`}</td>
      <td class="num">${last(index, "step")}</td><td class="num">${last(index, "loss")}</td><td class="num">${least(index)}</td>
      <td class="num">${last(index, "throughput")}</td></tr>`)}</tbody></table>`;
}
