// Buttons that change a job. An action that cannot be undone asks first; the others offer undo.
import { html, jobPath, post, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Dialog, jobHash, notify } from "./ui.js";

function actionsFor(job, about) {
  const live = !job.isOver;
  return [
    live && !job.isSuspended && "suspend",
    live && job.isSuspended && "resume",
    live && !job.isSuspended && "scale",
    live && about.isLocal && "stop",
    job.isOver && "retry",
    !(live && about.isLocal) && "delete",
  ].filter(Boolean);
}

export function Actions({ job, about, rights }) {
  const [asked, setAsked] = useState("");
  const [busy, setBusy] = useState("");
  const act = async (name, body, undo) => {
    setAsked("");
    setBusy(name);
    try {
      const answer = await post(`${jobPath(job.namespace, job.name)}/${name}`, body);
      notify(`${job.name}: ${answer.message}`, { undo });
      if (answer.key) location.hash = jobHash(answer.key);
      else if (name === "delete") location.hash = "#/";
    } catch (refused) {
      notify(refused.message, { tone: "red" });
    } finally {
      setBusy("");
    }
  };
  const start = (name) => {
    if (name === "suspend") act("suspend", {}, () => act("resume"));
    else if (name === "resume") act("resume", {}, () => act("suspend"));
    else if (name === "retry") act("retry");
    else setAsked(name);
  };
  const shown = actionsFor(job, about).filter((name) => rights.has(name));
  const close = () => setAsked("");
  return html`${shown.map((name) => html`<button type="button" key=${name} class=${name === "delete" ? "danger" : name === "retry" || name === "resume" ? "primary" : ""}
      disabled=${Boolean(busy)} onClick=${() => start(name)}>${t(name)}</button>`)}
    ${asked === "scale" && html`<${Scale} job=${job} onClose=${close}
      onScale=${(workers) => act("scale", { workers }, () => act("scale", { workers: job.workers }))} />`}
    ${asked === "delete" && html`<${Confirm} title=${`${t("delete")} ${job.name}?`} verb=${t("delete")} onClose=${close}
      text=${t(about.isLocal ? "confirmDeleteRun" : "confirmDelete")} onYes=${() => act("delete")} />`}
    ${asked === "stop" && html`<${Confirm} title=${`${t("stop")} ${job.name}?`} verb=${t("stop")} onClose=${close}
      text=${t("confirmStop")} onYes=${() => act("stop")} />`}`;
}

function Confirm({ title, text, verb, onYes, onClose }) {
  return html`<${Dialog} title=${title} onClose=${onClose}><p>${text}</p>
    <div class="buttons"><button type="button" onClick=${onClose}>${t("cancel")}</button>
      <button type="button" class="danger solid" onClick=${onYes}>${verb}</button></div><//>`;
}

function Scale({ job, onScale, onClose }) {
  const [workers, setWorkers] = useState(job.workers);
  const submit = (event) => {
    event.preventDefault();
    onScale(Number(workers));
  };
  return html`<${Dialog} title=${`${t("scale")} ${job.name}`} onClose=${onClose}><form onSubmit=${submit}>
    <label class="field">${t("workers")} <input type="number" min="1" max="5000" required value=${workers} autofocus
      onInput=${(event) => setWorkers(event.target.value)} /></label>
    <p class="dim">${t("scaleHint")}</p>
    <div class="buttons"><button type="button" onClick=${onClose}>${t("cancel")}</button>
      <button type="submit" class="primary solid" disabled=${Number(workers) === job.workers}>${t("scale")}</button></div></form><//>`;
}
