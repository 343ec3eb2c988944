// One job as a file or as the output of a notebook cell. The data is in the page, and there is no server.
import { fixTime, html, render } from "./lib.js";
import { preferred, selectLanguage } from "./i18n.js";
import { Record } from "./record.js";
import { Overview, Summary } from "./overview.js";

function Snapshot({ job, isLocal, place, ranks, points, trouble }) {
  const known = { ranks, points, events: [], activity: {}, explain: null, record: { attempts: [], curve: [], timeline: [] } };
  return html`<${Summary} job=${job} isLocal=${isLocal} place=${place} />${trouble && html`<div class="banner" role="alert">${trouble}</div>`}
    <${Overview} job=${job} known=${known} />`;
}

// Take the theme of the notebook, and make the frame as high as the page.
function adaptTo(frame) {
  const root = document.documentElement;
  const [red, green, blue] = getComputedStyle(frame).color.match(/[\d.]+/g).map(Number);
  root.dataset.theme = red + green + blue > 384 ? "dark" : "light";
  root.classList.add("cell");
  new ResizeObserver(() => { frame.style.height = `${root.offsetHeight}px`; }).observe(root);
}

const { record, snapshot } = JSON.parse(document.getElementById("data").textContent);
if (window.frameElement) adaptTo(window.frameElement);
if (snapshot) fixTime(snapshot.time);
selectLanguage(preferred());
render(record ? html`<${Record} record=${record} />` : html`<${Snapshot} ...${snapshot} />`, document.getElementById("main"));
