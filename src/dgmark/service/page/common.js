// What all pages share: finding and making elements, asking the service, the access token.
"use strict";

const TOKEN = "dgmark-token";
const HANDED = "dgmark-text"; // a text that one page hands to the page that checks it

const $ = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en");

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
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // not an answer of the service, but of something before it
  }
  throw errorOf(problem, response.status);
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
