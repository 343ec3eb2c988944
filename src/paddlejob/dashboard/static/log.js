// The log of all ranks. Only visible lines are in the page.
import { clock, get, html, jobPath, useEffect, useMemo, useRef, useState } from "./lib.js";
import { t } from "./i18n.js";
import { notify, useFilterKey } from "./ui.js";

const LINE = 19;
const MARGIN = 30;
const ERROR = /\b(?:\w*Error|\w*Exception|Traceback|FATAL|CRITICAL|Segmentation fault|core dumped)\b/;
const COLOURS = /\x1b\[[0-9;]*m/g;

export function Log({ job, lines, waiting }) {
  const [text, setText] = useState("");
  const [rank, setRank] = useState("");
  const [only, setOnly] = useState(false);
  const [follows, setFollows] = useState(true);
  const [hit, setHit] = useState(-1);
  const [top, setTop] = useState(0);
  const box = useRef();
  const search = useFilterKey();
  const [height, setHeight] = useState(600);

  const ranks = useMemo(() => [...new Set(lines.map((line) => line[0]).filter(Boolean))].sort(byRank), [lines.length]);
  const needle = text.toLowerCase();
  const shown = useMemo(() => {
    const ofRank = rank ? lines.filter((line) => line[0] === rank || !line[0]) : lines;
    return needle && only ? ofRank.filter((line) => line[3].toLowerCase().includes(needle)) : ofRank;
  }, [lines, rank, needle, only]);
  const hits = useMemo(() => {
    if (!needle) return [];
    const found = [];
    shown.forEach((line, index) => line[3].toLowerCase().includes(needle) && found.push(index));
    return found;
  }, [shown, needle]);

  const go = (index) => {
    setFollows(false);
    box.current.scrollTop = Math.max(0, index * LINE - height / 3);
    setHit(index);
  };
  const turn = (by) => {
    if (!hits.length) return;
    const at = hits.findIndex((index) => index >= hit);
    const next = hit < 0 ? 0 : hits[at] === hit ? at + by : by > 0 ? at : at - 1;
    go(hits[(next + hits.length) % hits.length]);
  };
  const jump = async () => {
    const index = await firstError(job, shown);
    if (index < 0) notify(t("noError"));
    else go(index);
  };

  useEffect(() => {
    const resize = new ResizeObserver(() => setHeight(box.current.clientHeight));
    resize.observe(box.current);
    return () => resize.disconnect();
  }, []);
  useEffect(() => {
    if (follows) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, follows, height]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    setTop(scrollTop);
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - LINE;
    if (isAtEnd !== follows) setFollows(isAtEnd);
  };

  const first = Math.max(0, Math.floor(top / LINE) - MARGIN);
  const last = Math.min(shown.length, Math.ceil((top + height) / LINE) + MARGIN);
  const many = ranks.length > 1 || Boolean(rank);
  return html`<div class="logbar">
      <input ref=${search} type="search" placeholder=${t("search")} aria-label=${t("search")} value=${text}
        onInput=${(event) => { setText(event.target.value); setHit(-1); }} onKeyDown=${(event) => event.key === "Enter" && turn(event.shiftKey ? -1 : 1)} />
      ${text && html`<span class="num dim" role="status">${hits.length}</span>
        <button type="button" class="quiet" aria-label=${t("previous")} onClick=${() => turn(-1)}>↑</button>
        <button type="button" class="quiet" aria-label=${t("next")} onClick=${() => turn(1)}>↓</button>
        <label><input type="checkbox" checked=${only} onChange=${(event) => setOnly(event.target.checked)} /> ${t("matchesOnly")}</label>`}
      <select aria-label=${t("rank")} value=${rank} onChange=${(event) => setRank(event.target.value)}>
        <option value="">${t("allRanks")}</option>${ranks.map((each) => html`<option key=${each}>${each}</option>`)}</select>
      <button type="button" onClick=${jump}>${t("firstError")}</button>
      <span class="grow"></span>
      <span class="num dim">${shown.length} ${t("lines")}</span>
      <button type="button" aria-pressed=${follows} onClick=${() => setFollows(!follows)}>${t("follow")}</button>
    </div>
    <div class="log" ref=${box} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label=${t("logs")}>
      ${shown.length === 0 && html`<p class="dim pad">${waiting || t("noLines")}</p>`}
      <div class="lines" style=${{ height: `${shown.length * LINE}px` }}>
        <div style=${{ transform: `translateY(${first * LINE}px)` }}>
          ${shown.slice(first, last).map((line, index) => html`<${Line} key=${first + index} line=${line} many=${many} needle=${needle}
            isHit=${first + index === hit} tone=${ranks.indexOf(line[0]) % 6} />`)}
        </div></div></div>`;
}

function Line({ line: [rank, , time, text], many, needle, isHit, tone }) {
  if (!rank) return html`<div class="line marker"><span>${text}</span></div>`;
  const plain = text.replace(COLOURS, "");
  return html`<div class="line ${ERROR.test(plain) ? "error" : ""} ${isHit ? "hit" : ""}"><time>${clock(time)}</time>
    ${many && html`<b class="rank r${tone}">${rank}</b>`}<span>${needle ? markMatches(plain, needle) : plain}</span></div>`;
}

function markMatches(text, needle) {
  const parts = [];
  const lower = text.toLowerCase();
  for (let at = 0; ;) {
    const found = lower.indexOf(needle, at);
    if (found < 0) return [...parts, text.slice(at)];
    parts.push(text.slice(at, found), html`<mark>${text.slice(found, found + needle.length)}</mark>`);
    at = found + needle.length;
  }
}

const byRank = (a, b) => a.localeCompare(b, undefined, { numeric: true });

// Return the index of the first line of the known failure, or of the first line that looks like an error.
async function firstError(job, shown) {
  const known = await get(`${jobPath(job.namespace, job.name)}/error`).catch(() => null);
  if (known?.lines.length) {
    const index = shown.findLastIndex((line) => line[0] === known.rank && line[3] === known.lines[0]);
    if (index >= 0) return index;
  }
  return shown.findIndex((line) => line[0] && ERROR.test(line[3]));
}
