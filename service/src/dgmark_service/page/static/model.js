// What the pages that write share: the models, waiting until one is loaded, and a text event by event.
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

/** Ask for a text. `on` has a function for each event: start, step, done. Throws what the service says is wrong. */
async function write(path, fields, on, signal) {
  const response = await ask(path, JSON.stringify({ ...fields, stream: true }), signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The connection ended before the text did. Try again.");
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (!name) continue; // a sign of life
      const event = JSON.parse(data);
      if (name === "error") throw errorOf(event, 500);
      on[name]?.(event);
      if (name === "done") return event;
    }
  }
}

$("model").addEventListener("change", showModel);
