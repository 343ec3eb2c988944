// Charts of training metrics, updated while the job runs.
import uPlot from "./vendor/uPlot.js";
import { duration, html, number, useEffect, useRef, useState } from "./lib.js";

const HEIGHT = 190;
const FEW_POINTS = 3;
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800];

// Return the current value of a style sheet variable. A canvas knows neither variables nor themes.
function colour(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// `series`: [{label, colour}], `data`: x, then the values of each series, `marks`: [{x, label}].
export function Chart({ title, series, data, marks = [], isTime = true }) {
  const [pointed, setPointed] = useState(null);
  const place = useRef();
  const plot = useRef();
  const marked = useRef(marks);
  marked.current = marks;
  const form = series.map((each) => each.label + each.colour).join();

  useEffect(() => {
    const theme = matchMedia("(prefers-color-scheme: dark)");
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(series, place.current.clientWidth, { marked, isTime, setPointed }), data, place.current);
    };
    make();
    const resize = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
    resize.observe(place.current);
    const themes = new MutationObserver(make);
    themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    theme.addEventListener("change", make);
    return () => {
      resize.disconnect();
      themes.disconnect();
      theme.removeEventListener("change", make);
      plot.current.destroy();
    };
  }, [form, isTime]);
  useEffect(() => {
    if (plot.current && plot.current.data !== data) plot.current.setData(data);
  }, [data]);

  const last = data[1].findLast((value) => value != null);
  return html`<figure class="chart"><figcaption><span>${title}</span>
      ${series.length > 1 ? series.map((each) => html`<span class="key" key=${each.label}><i style=${{ background: `var(${each.colour})` }}></i>${each.label}</span>`)
        : html`<b class="num">${number(data[1][pointed] ?? last)}</b>`}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}: ${number(last)}`}></div></figure>`;
}

function options(series, width, { marked, isTime, setPointed }) {
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const x = (_, values) => values.map((value) => (isTime ? duration(value * 1000) : number(value)));
  return {
    width, height: HEIGHT, legend: { show: false }, padding: [8, 12, 0, 0],
    cursor: { points: { size: 6 }, drag: { x: true, y: false } },
    scales: { x: { time: false } },
    axes: [{ ...axis, values: x, size: 28, grid: { show: false }, ...(isTime ? { incrs: SECONDS } : {}) }, { ...axis, size: 56, space: 34, values: (_, values) => values.map(number) }],
    series: [{}, ...series.map((each) => ({
      label: each.label, stroke: colour(each.colour), width: 1.75,
      points: { show: (self, index) => self.data[index].filter((value) => value != null).length < FEW_POINTS },
    }))],
    hooks: { draw: [(self) => drawMarks(self, marked.current)], setCursor: [(self) => setPointed(self.cursor.left >= 0 ? self.cursor.idx : null)] },
  };
}

// Draw a dashed line with a label at each mark.
function drawMarks(self, marks) {
  const { ctx, bbox } = self;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("--amber");
  ctx.setLineDash([4, 4]);
  ctx.textAlign = "left";
  ctx.font = `${11 * devicePixelRatio}px system-ui`;
  for (const { x, label } of marks) {
    const at = Math.round(self.valToPos(x, "x", true));
    if (at < bbox.left || at > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(label, at + 4 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
  }
  ctx.restore();
}

const isBack = (one, other) => (other.epoch || 0) < (one.epoch || 0) || ((other.epoch || 0) === (one.epoch || 0) && other.step < one.step);
const begins = (one, other) => other.attempt !== one.attempt || isBack(one, other);

// Join the points of all attempts into columns; x is the time since the first point, or the step. By time there is a
// gap between two attempts, taken from the points or else from `marks`.
export function columns(points, { byStep = false, marks = [] } = {}) {
  const begin = points.length ? Date.parse(points[0].time) : 0;
  const row = (each, index) => [byStep ? each.step ?? index : (Date.parse(each.time) - begin) / 1000, finite(each.loss), finite(each.throughput)];
  const rows = points.map(row);
  if (!byStep) {
    const gaps = points.flatMap((each, index) => (index && begins(points[index - 1], each) ? [(rows[index - 1][0] + rows[index][0]) / 2] : []));
    rows.push(...(gaps.length ? gaps : marks.map(({ x }) => x)).map((x) => [x, null, null]));
  }
  rows.sort((one, other) => one[0] - other[0]);
  const [x, loss, throughput] = [0, 1, 2].map((column) => rows.map((each) => each[column]));
  return { x, loss, throughput };
}

const finite = (value) => (Number.isFinite(value) ? value : null);

// Put the recorded points of earlier attempts before the points from the log.
export function overRestarts(kept, points) {
  if (!points.length) return kept;
  return [...kept.filter((each) => each.time < points[0].time), ...points];
}
