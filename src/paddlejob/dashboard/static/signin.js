// The sign-in form of a dashboard inside a cluster, for a token of the API server.
import { html, post, useState } from "./lib.js";
import { t } from "./i18n.js";
import { Command } from "./ui.js";

export default function SignIn({ wasSignedIn }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await post("api/sign-in", { token });
      location.reload();
    } catch (refused) {
      setError(refused.message);
      setBusy(false);
    }
  };
  return html`<main class="signin"><form onSubmit=${submit}>
    <span class="brand"><img src="static/icon.svg" alt="" width="24" height="24" />PaddleJob</span>
    <h1>${t("signIn")}</h1>
    <p class="dim">${t(wasSignedIn ? "signInAgain" : "signInHint")}</p>
    <label for="token">${t("token")}</label>
    <input id="token" type="password" autocomplete="off" spellcheck="false" required autofocus value=${token}
      aria-invalid=${Boolean(error)} aria-describedby="token-error" onInput=${(event) => { setToken(event.target.value); setError(""); }} />
    <p id="token-error" class="red" role="alert">${error}</p>
    <button type="submit" class="primary solid" disabled=${busy || !token.trim()}>${t("signIn")}</button>
    <details><summary>${t("whereToken")}</summary><p class="dim">${t("whereTokenHint")}</p>
      <${Command} text="kubectl create token my-account -n my-namespace" /></details>
  </form></main>`;
}
