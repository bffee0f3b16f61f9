// What the pages that write share: the models, and waiting until one is loaded.
// `chooseModel` of the page follows the choice of a model.
"use strict";

function showService() {
  $("model-field").hidden = service.models.length < 2;
  offer($("model"), service.models.map((model) => new Option(model.name, model.name)));
  if (service.models.length) showModel(); // also before a token is given
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
  await admitted();
  if (!model().ready) $("status").textContent = "The model is being loaded …"; // once: a screen reader hears it
  while (!model().ready) {
    await new Promise((later) => setTimeout(later, 1500));
    stop.signal.throwIfAborted();
    await meetAgain();
  }
  return model();
}

$("model").addEventListener("change", showModel);
