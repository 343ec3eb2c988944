// Submits a job from YAML, which is validated while the user types.
import { html, post, useEffect, useState } from "./lib.js";
import { t } from "./i18n.js";
import { jobHash, notify } from "./ui.js";

const QUIET_MILLISECONDS = 250;
const EXAMPLE = `apiVersion: batch.paddlepaddle.org/v1
kind: PaddleJob
metadata:
  name: my-job
spec:
  worker:
    replicas: 2
    template:
      spec:
        containers:
        - name: main
          image: registry.example/paddle:3.3
          command: ["python", "train.py"]
`;

export default function Submit({ about, rights, scope }) {
  const [text, setText] = useState(EXAMPLE);
  const [problems, setProblems] = useState(null);
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    setProblems(null);
    let isWanted = true;
    const timer = setTimeout(async () => {
      const found = await post("api/validate", { text }).then((answer) => answer.problems, (refused) => [refused.message]);
      if (isWanted) setProblems(found);
    }, QUIET_MILLISECONDS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [text]);

  const submit = async () => {
    setBusy(true);
    try {
      const { keys, notes } = await post(`api/jobs?namespace=${encodeURIComponent(scope)}`, { text });
      for (const note of notes) notify(note);
      location.hash = keys.length === 1 ? jobHash(keys[0]) : "#/";
    } catch (refused) {
      setProblems(refused.problems.length ? refused.problems : [refused.message]);
    } finally {
      setBusy(false);
    }
  };
  const onKey = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && problems?.length === 0) submit();
  };
  const may = rights.has("submit");
  return html`<div class="submit"><h1>${t("submitTitle")}</h1><p class="dim">${t("submitHint")}</p>
    <div class="columns">
      <textarea aria-label="YAML" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKey}
        aria-describedby="problems"></textarea>
      <div class="check" id="problems" role="status">
        ${problems === null ? html`<p class="dim">${t("checking")}</p>`
          : problems.length === 0 ? html`<p class="green">✓ ${t("valid")}</p>`
          : html`<h2>${t("problems")} <b>${problems.length}</b></h2><ul>${problems.map((each) => html`<li key=${each}>${each}</li>`)}</ul>`}
        ${may ? html`<button type="button" class="primary solid" disabled=${busy || problems === null || problems.length > 0} onClick=${submit}>
          ${t(about.isLocal ? "runIt" : "submit")}</button>` : html`<p class="red">${t("mayNotSubmit")}</p>`}
      </div></div></div>`;
}
