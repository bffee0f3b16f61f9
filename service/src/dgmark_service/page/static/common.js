// What all pages share: finding and making elements, files and copies, the verdict, the form's work.
"use strict";

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

/** Give a choice these options. What was chosen stays chosen; throws if it is not among them any more. */
function offer(select, options) {
  const chosen = select.selectedOptions[0];
  select.replaceChildren(...options);
  if (!chosen) return;
  if (!options.some((one) => one.value === chosen.value)) {
    throw new Error(`“${chosen.text}”, which was chosen, is not offered any more: choose again.`);
  }
  select.value = chosen.value;
}

/** Show a verdict, whose tone is its style, and let those hear it who cannot see it. */
function showVerdict({ tone, symbol, heading, sentence }) {
  $("verdict").className = `verdict ${tone}`;
  for (const [part, words] of Object.entries({ symbol, heading, sentence })) $(part).textContent = words;
  $("result").hidden = false;
  $("form").classList.add("answered");
  $("verdict").focus({ preventScroll: true });
  $("verdict").scrollIntoView({ block: "start", behavior: "auto" });
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

/** Let the page Check check this text, under this key. */
function handOver(text, key) {
  sessionStorage.setItem(HANDED, JSON.stringify({ text, key }));
  window.removeEventListener("beforeunload", askBefore);
  location.href = "./";
}

/** Let the form, or Ctrl+Enter in its `area`, do its work; `title` is said if it fails. */
function onSubmit(area, title, work) {
  $("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (stop) return;
    // an old answer beside a failure would be taken for the answer
    if (!(await doing(title, work))) $("result").hidden = true;
  });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
  });
  $("stop").addEventListener("click", () => stop?.abort());
}

/** Do a work, one at a time and until it is stopped; whether it was done. `title` is said if it fails. */
async function doing(title, work) {
  if (stop) return false;
  $("problem").hidden = true;
  busy(true);
  try {
    takeToken();
    await work();
    return true;
  } catch (error) {
    stop.abort(); // what else is under way
    if (error.status === 401) refuseToken();
    $("status").textContent = error.name === "AbortError" ? "Stopped." : "";
    if (error.name !== "AbortError") showProblem(title, error);
    return false;
  } finally {
    busy(false);
  }
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

/** Ask before a reload loses a text that somebody entered or had written. */
function askBefore(event) {
  const entered = [...document.querySelectorAll("textarea")].some((area) => area.value.trim() && area.value !== area.defaultValue);
  if (entered || stop || document.querySelector(".canvas > .cell")) event.preventDefault();
}

function showProblem(title, error) {
  const where = error.request ? make("small", "hint", ` Request ${error.request}.`) : "";
  $("problem").replaceChildren(make("strong", "", title), error.message, where);
  $("problem").hidden = false;
}

window.addEventListener("beforeunload", askBefore);
$("form").addEventListener("focusin", ({ target }) => target.id === "text" && $("form").classList.remove("answered"));
$("controls").disabled = false; // without this script nothing on the page works
