// Asking the service: requests and what goes wrong with them, the access token, and what the service says of itself.
// Each page has two functions for what it says: `allowed`, whether the page does its work for whoever asks, and
// `showService`, which shows what there is to choose.
"use strict";

const TOKEN = "dgmark-token";

let token = sessionStorage.getItem(TOKEN) ?? "";
let service = null; // what the service says of itself to whoever has this token
let meeting = null; // the question for that

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
  const error = Object.assign(errorOf(problem, response.status), { wait });
  if (error.status === 401 && !token) error.message = `${needed()} Enter yours above.`; // in place of words for programs
  throw error;
}

/** Try again where the service wants one to wait; `waiting` is told for how many seconds. */
async function inTime(work, waiting) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (error.status !== 429 || !error.wait) throw error;
      waiting(error.wait);
      await new Promise((later) => {
        setTimeout(later, 1000 * error.wait);
        stop.signal.addEventListener("abort", later);
      });
      stop.signal.throwIfAborted();
    }
  }
}

/** Whether a text that was marked here will be found: the verdict of the page Check; without one, why there is none. */
async function verdictOf({ text, watermark }) {
  const unknown = (sentence) => ({ tone: "uncertain", symbol: "?", heading: "It is not known whether it will be found", sentence });
  if (!service.form) return unknown("Checking texts needs an access token with the scope detect or detect:full.");
  const fields = JSON.stringify({ text, key: watermark.key_id, spans: true });
  try {
    const answer = await (await inTime(() => ask("/v1/detect", fields, stop.signal), () => {})).json();
    const { symbol, rarity, sentence } = answer;
    const found = answer.is_watermarked || answer.in_part;
    const heading = found ? "It will be found" : "It will not be found";
    return { found, tone: answer.in_part ? "partly" : answer.verdict, heading, symbol, rarity, sentence };
  } catch (error) {
    return unknown(error.name === "AbortError" ? "The check was stopped." : error.message);
  }
}

/** A key for people: whose texts it marks, and the name by which requests call it. */
function nameOf(key) {
  const whose = service.keys.find(({ name }) => name === key)?.key_name;
  return whose ? `${whose} (${key})` : key;
}

// --- what the service says of itself ---

/** What the service says of itself to whoever has this token, asked once; throws why it does not say it. */
function meet() {
  if (!meeting) {
    const mine = learn();
    meeting = mine;
    mine.catch(() => {
      if (meeting === mine) meeting = null;
    });
  }
  return meeting;
}

async function learn() {
  const asked = token;
  let said;
  try {
    said = await (await ask("/v1/about")).json();
  } catch (error) {
    if (asked === token) throw error;
  }
  if (asked !== token) return meet(); // another one was entered meanwhile
  service = said;
  if (token) sessionStorage.setItem(TOKEN, token);
  showToken();
  showService();
  return service;
}

/** Ask it again. */
function meetAgain() {
  meeting = null;
  return meet();
}

/** What the service says of itself; throws what is missing where it does not do the page's work for whoever asks. */
async function admitted() {
  await meet();
  if (!allowed()) throw new Error(token ? lacking() : `${needed()} Enter yours above.`);
  return service;
}

/** Show what the service says before anything is asked of it; of a token only its field tells. */
async function greet(title) {
  try {
    await meet();
  } catch (error) {
    if (error.status === 401) refuseToken(token && error.message);
    else showProblem(title, error);
  }
}

// --- the access token ---

const needed = () => `${$("token-field").dataset.work} needs an access token with ${$("token-field").dataset.scopes}.`;
const lacking = () => `This access token is valid, but this page needs one with ${$("token-field").dataset.scopes}.`;

/** Use what the field holds from now on. */
function takeToken() {
  const entered = $("token").value.trim();
  if (entered === token) return;
  token = entered;
  meeting = null;
  sessionStorage.removeItem(TOKEN); // until the service takes the new one
}

/** Show the field where a token is held or needed; where it would only let somebody do more, behind its name. */
function showToken() {
  const { more } = $("token-field").dataset;
  $("token-field").hidden = allowed() && !token && !service.takes_tokens;
  $("token-field").open = !allowed() || Boolean(token);
  const with_token = allowed() ? "This token is in use." : lacking();
  sayOfToken(token ? with_token : allowed() && more ? more : needed(), Boolean(token) && !allowed());
}

/** Show that the service does not take this token, and why. */
function refuseToken(reason) {
  meeting = null;
  sessionStorage.removeItem(TOKEN);
  $("token-field").hidden = false;
  $("token-field").open = true;
  sayOfToken(reason || needed(), Boolean(token));
}

function sayOfToken(words, wrong) {
  $("token-note").textContent = words;
  $("token-note").classList.toggle("wrong", wrong);
  $("token").ariaInvalid = String(wrong);
  $("remove-token").hidden = !token;
}

for (const [target, event] of [["token", "change"], ["remove-token", "click"]]) {
  $(target).addEventListener(event, () => {
    if (event === "click") $("token").value = "";
    takeToken();
    $("problem").hidden = true;
    greet("The access token is not taken");
    if (event === "click") $("token").focus();
  });
}
$("token").value = token;
