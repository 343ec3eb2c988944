// The overview of one job: its state and progress, the curves, the attempts and the ranks over time.
import { clock, duration, html, moment, ranFor, since, useMemo, useNow } from "./lib.js";
import { phaseName, t } from "./i18n.js";
import { Chart, columns, overRestarts } from "./charts.js";
import { Bar, Command, Facts, jobHash, Phase, restartsText, stepText, toneOf } from "./ui.js";

const MAX_LANES = 64;

export function Summary({ job, isLocal, place, actions }) {
  const now = useNow();
  const ready = Object.entries(job.ready).map(([role, value]) => `${role} ${value}`).join(" · ");
  const used = job.backoffLimit === undefined ? "" : t("restartsUsed", { used: job.restarts, limit: job.backoffLimit });
  return html`<div class="head">
    <div class="title"><h1>${job.name}</h1><${Phase} phase=${job.phase} />${place && html`<span class="dim">${place}</span>`}</div>
    <div class="actions">${actions}</div>
    <${Facts} facts=${[
      [t("namespace"), !isLocal && job.namespace],
      [t("ready"), !job.isOver && (ready || "–")],
      [t("attempt"), html`${job.attempt}${used && html`<span class="dim"> · ${used}</span>`}`],
      [t("duration"), job.started ? duration(ranFor(job, now)) : "–"],
      [t("age"), since(job.created, null, now), "age"],
      [t("progress"), html`<${Progress} job=${job} />`, "wide"],
    ]} /></div>`;
}

function Progress({ job }) {
  const told = job.progress;
  const percent = job.phase === "Completed" ? 100 : told?.percent;
  if (percent === undefined && !told) return html`<span class="dim">–</span>`;
  const numbers = told && [told.loss && `${t("loss")} ${told.loss}`, told.throughput].filter(Boolean).join(" · ");
  const left = !job.isOver && told?.eta ? `${told.eta} ${t("left")}` : "";
  return html`<span class="progress"><${Bar} percent=${percent} tone=${toneOf(job.phase)} label=${t("progress")} />
    <span class="num">${percent === undefined || percent === null ? "" : `${percent}%`}</span>
    <span class="dim">${[stepText(told), numbers, left].filter(Boolean).join(" · ")}</span></span>`;
}

export function Overview({ job, known }) {
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
  // One point is not a curve. The facts above show its number.
  if (points.length === 1) return null;
  if (!points.length) return html`<div class="quietbox">${t("noCurve")}</div>`;
  return html`<div class="charts">
    <${Chart} title=${t("loss")} series=${[{ label: "loss", colour: "--blue" }]} data=${loss} marks=${marks} />
    ${data.throughput.some((value) => value !== null) && html`<${Chart} title=${t("throughput")}
      series=${[{ label: "throughput", colour: "--green" }]} data=${speed} marks=${marks} />`}</div>`;
}

// Return the attempts of a job from its record and events: when each began, why, and when it ran.
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
    // The event has expired, but the status has the time.
    const time = Date.parse(job.attemptTime) || last.began;
    last.ended = time;
    attempts.push({ number: job.attempt, began: time, ran: null, cause: job.failure?.message || "" });
  }
  for (const found of [...kept.map((each) => each.recovery), job.recovery].filter(Boolean)) {
    const begun = attempts.find((each) => each.number === found.attempt);
    if (begun) begun.recovery = found.text;
  }
  if (job.ended) attempts[attempts.length - 1].ended = Date.parse(job.ended);
  return attempts;
}

const PHASES = ["Pending", "Starting", "Running", "Restarting", "Scaling", "Suspended", "Completed", "Failed", "Terminating"];

// Return the phases of a job in order, from its record, events and status.
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
  // The event of the current phase may have expired.
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
  const place = placeWithin(begin, end);
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
      <td>${each.cause || html`<span class="dim">${each.number ? "–" : t("submitted")}</span>`}${each.recovery && html`<br /><span class="dim">${t("recovery")}: ${each.recovery}</span>`}</td></tr>`)}</tbody></table>`;
}

// Return a function that places a span on the time axis, in percent. Short spans stay visible.
function placeWithin(begin, end) {
  const whole = end - begin || 1;
  return ({ from, to }) => {
    const left = Math.min(100, Math.max(0, (100 * (from - begin)) / whole));
    return { left: `${left}%`, width: `${Math.min(100 - left, Math.max(0.3, (100 * (to - from)) / whole))}%` };
  };
}

const SPANS = ["pending", "running", "training", "evaluating", "saving", "waiting", "stalled", "succeeded", "failed"];

// Return the spans of a rank: pending, running, reported activity, and its end.
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

const stateOf = (rank) => (rank.restarts ? `${rank.state} · ${restartsText(rank.restarts)}` : rank.state);

// Ranks over time. If there are too many, ranks with problems come first.
function Strip({ job, ranks, activity }) {
  const now = useNow();
  if (!ranks.length) return null;
  const begin = ranks.reduce((least, each) => Math.min(least, Date.parse(each.created) || least), Infinity);
  const end = Date.parse(job.ended) || now;
  const place = placeWithin(begin, end);
  const isOdd = (rank) => Boolean(rank.exitCode) || (activity[rank.rank] || []).some(([state]) => state === "stalled");
  const shown = ranks.length > MAX_LANES ? [...ranks.filter(isOdd), ...ranks.filter((rank) => !isOdd(rank))].slice(0, MAX_LANES) : ranks;
  const lanes = shown.map((rank) => [rank, spansOf(rank, activity[rank.rank] || [], end, (end - begin) / 100)]);
  const present = SPANS.filter((state) => lanes.some(([, spans]) => spans.some((each) => each.state === state && each.to - each.from > 0)));
  const told = (each) => (each.isEnd ? t(`span.${each.state}`) : `${t(`span.${each.state}`)} ${duration(each.to - each.from)}`);
  const more = `${ranks.length - MAX_LANES} ${t("more")}`;
  return html`<div class="striphead"><h2>${t("strip")}</h2>
      <span class="legend">${present.map((state) => html`<span key=${state}><i class="s-${state}"></i>${t(`span.${state}`)}</span>`)}</span></div>
    <div class="strip">${lanes.map(([rank, spans]) => {
      const last = rank.ended ? null : spans.findLast((each) => each.to === end);
      const isStopped = ["stalled", "waiting"].includes(last?.state);
      return html`<div key=${rank.rank}><span class="num">${rank.rank}</span><span class="lane" role="img" aria-label=${spans.map(told).join(", ")}>
        ${spans.map((each, index) => html`<i key=${index} class="s-${each.state}" style=${place(each)}
          title=${each.isEnd ? `${told(each)} ${clock(each.to)}` : `${t(`span.${each.state}`)} ${clock(each.from)} – ${clock(each.to)} (${duration(each.to - each.from)})`}></i>`)}
        </span><span class=${rank.exitCode || last?.state === "stalled" ? "red" : "dim"} title=${stateOf(rank)}>${isStopped
          ? `${t(`now.${last.state}`)} ${duration(end - last.from)}` : stateOf(rank)}</span></div>`;
    })}</div>
    <div class="axis inner num dim" aria-hidden="true"><span>${clock(begin)}</span><span>${clock(end)}</span></div>
    ${ranks.length > MAX_LANES && html`<p>${job.key ? html`<a href=${jobHash(job.key, "ranks")}>${more}</a>` : more}</p>`}`;
}
