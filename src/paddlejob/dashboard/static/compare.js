// The curves of two jobs in one picture.
import { html, jobPath, number, stream, useEffect, useMemo, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Chart, columns } from "./charts.js";
import { Phase } from "./ui.js";

const COLOURS = ["--blue", "--orange"];

function usePoints(key) {
  const [points, setPoints] = useState([]);
  useEffect(() => {
    setPoints([]);
    if (!key) return undefined;
    return stream(`${jobPath(...key.split("/"))}/stream`, {
      open: () => setPoints([]),
      points: (more) => setPoints((before) => [...before, ...more]),
    });
  }, [key]);
  return points;
}

// Two tables of points with an x of their own become one with the x of both.
function joined(a, b, field) {
  const x = [...new Set([...a.x, ...b.x])].sort((one, other) => one - other);
  const align = (of) => {
    const values = new Map(of.x.map((at, index) => [at, of[field][index]]));
    return x.map((at) => values.get(at) ?? null);
  };
  return [x, align(a), align(b)];
}

export default function Compare({ rows, query }) {
  const chosen = new URLSearchParams(query);
  const keys = [chosen.get("a") || "", chosen.get("b") || ""];
  const byStep = chosen.get("x") === "step";
  const points = [usePoints(keys[0]), usePoints(keys[1])];
  const [a, b] = [useMemo(() => columns(points[0], { byStep }), [points[0], byStep]), useMemo(() => columns(points[1], { byStep }), [points[1], byStep])];
  const loss = useMemo(() => joined(a, b, "loss"), [a, b]);
  const speed = useMemo(() => joined(a, b, "throughput"), [a, b]);
  const choose = (name, value) => {
    chosen.set(name, value);
    location.hash = `#/compare?${chosen}`;
  };
  const series = keys.map((key, index) => ({ label: key.split("/")[1] || "", colour: COLOURS[index] }));
  const names = rows.map((row) => row.key).sort();
  return html`<h1>${t("compare")}</h1>
    <div class="toolbar">
      ${["a", "b"].map((name, index) => html`<select key=${name} aria-label=${t(index ? "second" : "first")} value=${keys[index]}
          onChange=${(event) => choose(name, event.target.value)}>
        <option value="">${t("choose")}</option>${names.map((each) => html`<option key=${each}>${each}</option>`)}</select>`)}
      <select aria-label=${t("axis")} value=${byStep ? "step" : "time"} onChange=${(event) => choose("x", event.target.value)}>
        <option value="time">${t("byTime")}</option><option value="step">${t("byStep")}</option></select>
    </div>
    ${!keys[0] || !keys[1] ? html`<div class="quietbox">${t("compareHint")}</div>` : html`
      <${Table} rows=${rows} keys=${keys} points=${points} />
      <div class="charts one">
        <${Chart} title=${t("loss")} series=${series} data=${loss} isTime=${!byStep} />
        ${[...speed[1], ...speed[2]].some((value) => value !== null) && html`<${Chart} title=${t("throughput")} series=${series} data=${speed} isTime=${!byStep} />`}
      </div>`}`;
}

function Table({ rows, keys, points }) {
  const last = (index, field) => number(points[index].map((each) => each[field]).filter(Number.isFinite).at(-1));
  const least = (index) => {
    const found = points[index].map((each) => each.loss).filter(Number.isFinite);
    return found.length ? number(Math.min(...found)) : "";
  };
  return html`<table class="plain"><thead><tr><th scope="col">${t("name")}</th><th scope="col">${t("status")}</th>
      <th scope="col" class="num">${t("step")}</th><th scope="col" class="num">${t("loss")}</th><th scope="col" class="num">min</th>
      <th scope="col" class="num">${t("throughput")}</th></tr></thead>
    <tbody>${keys.map((key, index) => {
      const row = rows.find((each) => each.key === key);
      return html`<tr key=${key}><td>${key}</td><td>${row && html`<${Phase} phase=${row.phase} />`}</td><td class="num">${last(index, "step")}</td>
        <td class="num">${last(index, "loss")}</td><td class="num">${least(index)}</td><td class="num">${last(index, "throughput")}</td></tr>`;
    })}</tbody></table>`;
}
