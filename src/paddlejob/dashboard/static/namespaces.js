// Selects the namespace of all pages: from the list, by name, or all namespaces.
import { get, html, useEffect, useKept, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Dialog } from "./ui.js";

const MAX_RECENT = 5;
const MAX_SHOWN = 200;
const NAME = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

export const scopeHash = (scope) => (scope === null ? "#/" : scope ? `#/jobs/${encodeURIComponent(scope)}` : "#/jobs");

export function Namespaces({ about, scope, onClose }) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const [text, setText] = useState("");
  const [kept, keep] = useKept("namespaces", "");
  useEffect(() => {
    get("api/namespaces").then(setFound, (refused) => setError(refused.message));
  }, []);
  const recent = kept.split(" ").filter(Boolean);
  const choose = (name) => {
    if (name) keep([name, ...recent.filter((each) => each !== name)].slice(0, MAX_RECENT).join(" "));
    location.hash = scopeHash(name);
    onClose();
  };
  const known = found?.names.length ? found.names : [...new Set([about.namespace, ...recent])].filter(Boolean).sort();
  const wanted = text.trim().toLowerCase();
  const shown = known.filter((name) => name.includes(wanted)).slice(0, MAX_SHOWN);
  const isOther = NAME.test(wanted) && !known.includes(wanted);
  const submit = (event) => {
    event.preventDefault();
    if (isOther || shown.includes(wanted)) choose(wanted);
    else if (wanted && shown.length) choose(shown[0]);
  };
  const item = (name, label = name) => html`<li key=${name}><button type="button" aria-current=${name === scope ? "true" : undefined}
    onClick=${() => choose(name)}>${label}</button></li>`;
  return html`<${Dialog} title=${t("chooseNamespace")} onClose=${onClose}><form onSubmit=${submit}>
    <input type="search" autofocus placeholder=${t("namespaceName")} aria-label=${t("namespaceName")} value=${text}
      onInput=${(event) => setText(event.target.value)} /></form>
    ${error && html`<p class="red">${error}</p>`}
    ${!found && !error ? html`<p class="dim">${t("loading")}</p>` : html`<ul class="choices">
      ${!wanted && found?.all && item("", t("allNamespaces"))}
      ${isOther && item(wanted, html`${t("openNamespace")} <b>${wanted}</b>`)}
      ${shown.map((name) => item(name))}</ul>
      ${found && !found.all && html`<p class="dim note">${t("notAllNamespaces")}</p>`}
      ${found && !found.names.length && html`<p class="dim note">${t("cannotListNamespaces")}</p>`}`}<//>`;
}
