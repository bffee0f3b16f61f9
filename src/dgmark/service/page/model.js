// What the pages that write share: the models, who may have them write, and waiting until one is loaded.
// `chooseModel` of the page follows the choice of a model.
"use strict";

const NEEDS_TOKEN = "This service writes for those who have an access token. Enter yours above.";

let service = null; // what the service says of itself

async function meet() {
  service = await about();
  if (!service) return;
  $("model").replaceChildren(...service.models.map((model) => new Option(model.name, model.name)));
  $("model-field").hidden = service.models.length < 2;
  if (service.models.length) showModel(); // also before a token is given
  if (!service.may_generate) {
    $("token-field").hidden = false;
    throw new Error("This service writes for those who have an access token with the scope generate.");
  }
}

function model() {
  return service.models.find((one) => one.name === $("model").value);
}

function showModel() {
  $("small-model").hidden = model().name !== "storyteller"; // what to expect of the built-in model
  chooseModel();
}

/** The chosen model, once it is loaded; the status says so meanwhile. */
async function loadedModel() {
  if (!service?.may_generate) await meet();
  if (!service) throw new Error(NEEDS_TOKEN);
  if (!model().ready) $("status").textContent = "The model is being loaded …"; // once: a screen reader hears it
  while (!model().ready) {
    await new Promise((later) => setTimeout(later, 1500));
    stop.signal.throwIfAborted();
    const now = await about();
    if (!now) throw new Error(NEEDS_TOKEN);
    service = now;
  }
  return model();
}

$("model").addEventListener("change", showModel);
