// The record of a finished job: the failure, the attempts, the last log lines, the loss and the phases.
import { duration, html, useMemo, utc } from "./lib.js";
import { t } from "./i18n.js";
import { Chart, columns } from "./charts.js";
import { Facts, Phase, toneOf } from "./ui.js";

export function Record({ record, isLocal, actions }) {
  const { summary, attempts, timeline, environment } = record;
  const failure = summary.failure;
  return html`<div class="head"><div class="title"><h1>${summary.name}</h1><${Phase} phase=${summary.result} /></div>
      <div class="actions">${actions}</div>
      <${Facts} facts=${[
        [t("namespace"), !isLocal && summary.namespace], [t("reason"), summary.reason], [t("mode"), summary.mode],
        [t("created"), utc(summary.created)], [t("started"), utc(summary.started)], [t("ended"), utc(summary.ended)],
        [t("duration"), between(summary.started || summary.created, summary.ended)],
        [t("attempts"), (summary.attempt || 0) + 1], [t("restartsCounted"), summary.restarts || 0],
        [t("timeSpent"), record.goodput], ["UID", summary.uid],
      ]} /></div>
    <div class="why ${toneOf(summary.result)}"><h2 class="sentence">${summary.message || failure?.message || summary.result}</h2>
      ${failure && failure.message !== summary.message && html`<p>${t("firstFailure")}: ${t("attempt").toLowerCase()} ${failure.attempt || 0}: ${failure.message}</p>`}</div>
    <${LossCurve} points=${record.curve} />
    ${record.moreAttempts > 0 && html`<p class="dim after">${t("moreAttempts", { count: record.moreAttempts })}</p>`}
    ${attempts.map((each, index) => html`<${Attempt} key=${index} attempt=${each} isLast=${index === attempts.length - 1} />`)}
    ${timeline.length > 0 && html`<h2>${t("phases")}</h2><table class="plain phases"><tbody>${timeline.map((each, index) => html`<tr key=${index}>
      <td class="num">${utc(each.time)}</td><td><${Phase} phase=${each.phase} /></td><td>${each.reason}</td><td>${each.message}</td></tr>`)}</tbody></table>`}
    <${Environment} variables=${Object.entries(environment)} />`;
}

const between = (begin, end) => (begin && end ? duration(Date.parse(end) - Date.parse(begin)) : "");

function LossCurve({ points }) {
  const { x, loss } = useMemo(() => columns(points), [points]);
  // A loss such as nan has no place on the curve. It is marked at its time.
  const marks = useMemo(() => points.filter((each) => each.oddLoss)
    .map((each) => ({ x: (Date.parse(each.time) - Date.parse(points[0].time)) / 1000, label: each.oddLoss })), [points]);
  const data = useMemo(() => [x, loss], [x, loss]);
  // One point is not a curve.
  if (loss.filter((value) => value !== null).length < 2) return null;
  return html`<div class="charts one"><${Chart} title=${t("loss")} series=${[{ label: "loss", colour: "--blue" }]} data=${data} marks=${marks} /></div>`;
}

function Attempt({ attempt, isLast }) {
  const { result, message, failure, ranks = [], changes = [] } = attempt;
  const took = between(attempt.began, attempt.ended);
  return html`<h2>${t("attempt")} ${attempt.attempt || 0}: ${result} <span class="dim">${[took, message].filter(Boolean).join(" · ")}</span></h2>
    ${failure && html`<p class="dim">${t("firstFailure")}: ${[failure.pod, utc(failure.time)].filter(Boolean).join(" · ")}</p>`}
    ${attempt.recovery && html`<p class="dim">${t("recovery")}: ${attempt.recovery.text}</p>`}
    ${changes.length > 0 && html`<table class="plain"><caption class="dim">${t("changes")}</caption><tbody>${changes.map((each) => html`<tr key=${each.name}>
      <th scope="row">${each.name}</th><td><del>${each.before || "–"}</del></td><td>${each.after || "–"}</td></tr>`)}</tbody></table>`}
    ${ranks.map((rank, index) => html`<details key=${rank.rank} open=${isLast && index === 0}><summary><b class="num">${rank.rank}</b>
      <span class=${rank.exitCode ? "red" : "dim"}> ${endOf(rank)}</span></summary>
      ${rank.text && html`<p class="dim">${t(rank.fromLog ? "lastLogLines" : "terminationMessage")}</p><pre class="last" tabindex="0">${rank.text}</pre>`}</details>`)}
    ${attempt.moreRanks > 0 && html`<p class="dim">${t("moreRanks", { count: attempt.moreRanks })}</p>`}`;
}

function endOf({ state, exitCode = 0, reason = "", node }) {
  const hasExitCode = state !== "running" && (exitCode || !reason);
  const shownReason = ["Error", "Completed"].includes(reason) ? "" : reason;
  return [state, hasExitCode && t("exitCode", { code: exitCode }), shownReason, node].filter(Boolean).join(" · ");
}

function Environment({ variables }) {
  if (!variables.length) return null;
  return html`<h2>${t("environment")}</h2><details><summary>${t("values", { count: variables.length })}</summary><table class="plain env"><tbody>
    ${variables.map(([name, value]) => html`<tr key=${name}><th scope="row">${name}</th><td>${value}</td></tr>`)}</tbody></table></details>`;
}
