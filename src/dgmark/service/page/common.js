// What all pages share: finding and making elements, asking the service, the access token, the form's work.
"use strict";

const TOKEN = "dgmark-token";
const HANDED = "dgmark-text"; // a text that one page hands to the page that checks it

const $ = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");
const pValue = (p) => (p < 1e-3 ? p.toExponential(2) : p.toPrecision(3));

let stop = null; // ends the work that the form began

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function sentence(text) {
  const word = /^[a-z]+ /.test(text); // and not the name of a file
  return (word ? text.charAt(0).toUpperCase() + text.slice(1) : text) + (/[.!?]$/.test(text) ? "" : ".");
}

/** The error that a problem document tells of. */
function errorOf(problem, status) {
  const error = new Error(sentence(problem.detail ?? `The service answered with status ${status}.`));
  error.status = problem.status ?? status;
  error.request = problem.request_id;
  return error;
}

/** The answer to a request; a body makes it a POST. */
async function ask(path, body, signal) {
  const headers = {};
  const token = $("token").value.trim();
  if (token) headers.authorization = `Bearer ${token}`;
  if (typeof body === "string") headers["content-type"] = "application/json";
  let response;
  try {
    // relative, because a proxy may have the service under a path of its own
    response = await fetch(`.${path}`, body === undefined ? { headers, signal } : { method: "POST", headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The service cannot be reached. Is it running?");
  }
  if (response.ok) return response;
  const wait = Number(response.headers.get("retry-after"));
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // not an answer of the service, but of something before it
  }
  throw Object.assign(errorOf(problem, response.status), { wait });
}

/** What the service says of itself; null if it wants a token first, for which the page then has a place. */
async function about() {
  try {
    const service = await (await ask("/v1/about")).json();
    if ($("token").value.trim()) sessionStorage.setItem(TOKEN, $("token").value.trim());
    if (service.takes_tokens) $("token-field").hidden = false;
    return service;
  } catch (error) {
    if (error.status !== 401) throw error;
    forgetToken();
    return null;
  }
}

/** Fill the rows of a table of facts; each is a name and its values. */
function showFacts(body, rows) {
  body.replaceChildren(
    ...rows.map(([name, ...values]) => {
      const head = make("th", "", name);
      head.scope = "row";
      return make("tr", "", head, make("td", "", ...values));
    }),
  );
}

const code = (text) => make("code", "", text);

/** Give the files that somebody chooses or drops to `take`, and a dropped text to `takeText`. */
function takeFiles(take, takeText) {
  $("file").addEventListener("change", () => $("file").files.length && take([...$("file").files]));
  for (const name of ["dragenter", "dragover"]) {
    document.addEventListener(name, (event) => {
      event.preventDefault();
      $("drop").classList.add("over");
    });
  }
  document.addEventListener("dragleave", (event) => event.relatedTarget ?? $("drop").classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    const { files } = event.dataTransfer;
    const text = event.dataTransfer.getData("text");
    if (files.length) take([...files]);
    else if (text) takeText?.(text);
  });
}

// only a page that came over TLS or from this machine may write to the clipboard
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    // a text is copied to the letter
    const parts = button.dataset.copy.split(" ").map((id) => ($(id).matches(".text") ? $(id).textContent : $(id).innerText.trim()));
    try {
      await navigator.clipboard.writeText(parts.join("\n\n"));
      $("status").textContent = "Copied.";
    } catch {
      $("status").textContent = "The browser does not let this page copy: select the text instead.";
    }
  });
}

/** Let the page Check check this text. */
function handOver(text) {
  sessionStorage.setItem(HANDED, text);
  location.href = "./";
}

/** Let the form, or Ctrl+Enter in its `area`, do its work, once at a time and until it is stopped; `title` is said if it fails. */
function onSubmit(area, title, work) {
  $("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (stop) return;
    $("problem").hidden = true;
    busy(true);
    try {
      await work();
    } catch (error) {
      stop.abort(); // what else is under way
      if (error.status === 401 || error.status === 403) forgetToken();
      $("result").hidden = true; // an old answer beside a failure would be taken for the answer
      $("status").textContent = error.name === "AbortError" ? "Stopped." : "";
      if (error.name !== "AbortError") showProblem(title, error);
    } finally {
      busy(false);
    }
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
  });
  $("stop").addEventListener("click", () => stop?.abort());
}

function busy(on) {
  stop = on ? new AbortController() : null;
  $("submit").ariaDisabled = String(on);
  const hadFocus = document.activeElement === $("stop");
  for (const one of document.querySelectorAll(".under-way")) one.hidden = !on;
  if (!on && hadFocus) $("submit").focus();
}

/** What an area holds; throws `missing`, what is to be done, where it is blank. */
function filledIn(area, missing) {
  if (area.value.trim()) return area.value;
  area.focus();
  throw new Error(missing);
}

function forgetToken() {
  sessionStorage.removeItem(TOKEN);
  $("token-field").hidden = false;
}

function showProblem(title, error) {
  const where = error.request ? make("small", "hint", ` Request ${error.request}.`) : "";
  $("problem").replaceChildren(make("strong", "", title), error.message, where);
  $("problem").hidden = false;
}

$("token").value = sessionStorage.getItem(TOKEN) ?? "";
