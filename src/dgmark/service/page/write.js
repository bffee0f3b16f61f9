// The page that shows a text being written, with and without the watermark.
"use strict";

const PLAY_SECONDS = 6;
const SLOWEST = 200; // milliseconds of a step

let service = null;
let stop = null; // ends the texts under way
let playing = null;

class Sheet {
  constructor(id) {
    this.section = $(id);
    const [canvas, problem, facts, check] = [".canvas", ".problem", ".facts-line", ".check"].map((one) =>
      this.section.querySelector(one),
    );
    this.canvas = new Canvas(canvas);
    Object.assign(this, { problem, facts, check });
    check.querySelector("button").addEventListener("click", () => {
      sessionStorage.setItem(HANDED, this.text);
      location.href = "./";
    });
  }

  /** Write a text here; throws what went wrong before its first word, and tells of what went wrong after it. */
  async write(fields, signal) {
    const given = fields.prompt ?? "";
    this.text = null;
    for (const one of [this.problem, this.check]) one.hidden = true;
    this.facts.textContent = "";
    this.canvas.clear();
    this.canvas.element.setAttribute("aria-busy", "true");
    const began = performance.now();
    try {
      const done = await write(
        fields,
        {
          start: (event) => this.canvas.begin(event.length, given),
          step: (event) => {
            this.canvas.commit(event);
            progress();
          },
        },
        signal,
      );
      this.canvas.finish(done.text, done.usage.completion_tokens);
      this.text = done.text;
      this.facts.textContent = factsOf(done, (performance.now() - began) / 1000);
      this.check.hidden = false;
    } catch (error) {
      if (error.name === "AbortError") {
        this.facts.textContent = "Stopped before the text was done.";
      } else if (!this.canvas.filled) {
        throw error;
      } else {
        this.problem.textContent = error.message;
        this.problem.hidden = false;
      }
    } finally {
      this.canvas.element.setAttribute("aria-busy", "false");
    }
    return this.text !== null;
  }
}

function factsOf(done, seconds) {
  const { watermark, usage, num_denoising_steps: steps } = done;
  const how = watermark.enabled ? `marked with the key ${watermark.key_id}` : "not marked";
  return `${number(usage.completion_tokens)} tokens in ${number(steps)} steps and ${seconds.toFixed(1)} seconds, ${how}`;
}

const sheets = { marked: new Sheet("marked"), unmarked: new Sheet("unmarked") };

async function meet() {
  service = await about();
  if (!service) return;
  $("model").replaceChildren(...service.models.map((model) => new Option(model.name, model.name)));
  $("model-field").hidden = service.models.length < 2;
  if (service.models.length) chooseModel(); // also before a token is given
  if (!service.may_generate) {
    $("token-field").hidden = false;
    throw new Error("This service writes for those who have an access token with the scope generate.");
  }
}

function model() {
  return service.models.find((one) => one.name === $("model").value);
}

function chooseModel() {
  $("prompt-label").textContent = model().chat ? "What do you want to read?" : "How the text begins";
  if (model().chat && $("prompt").value === $("prompt").defaultValue) $("prompt").value = "Tell me a story about a little fox.";
  $("twin-field").hidden = model().policy === "enforced";
  introduce(model());
}

async function writeBoth(event) {
  event.preventDefault();
  if (stop) return;
  $("problem").hidden = true;
  if (!$("prompt").value.trim()) {
    fail(new Error("There is nothing to continue yet: write a few words."));
    $("prompt").focus();
    return;
  }
  busy(true);
  try {
    if (!service?.may_generate) await meet();
    if (!service) throw new Error("This service writes for those who have an access token. Enter yours above.");
    const chosen = await loaded(model(), $("status"));
    service.models = service.models.map((one) => (one.name === chosen.name ? chosen : one));
    await writeWith(chosen);
  } catch (error) {
    stop.abort(); // the other text, if there is one
    if (error.status === 401) forgetToken();
    if (error.name !== "AbortError") fail(error);
  } finally {
    busy(false);
  }
}

async function writeWith(chosen) {
  const twin = chosen.policy !== "enforced" && $("twin").checked;
  const fields = { ...asking(chosen, $("prompt").value), max_tokens: Number($("length").value) };
  if ($("temperature").value) fields.temperature = Number($("temperature").value);
  // the same seed for both; where no choice of words is named, the service may have other settings for marked texts
  if (twin) fields.seed = Math.floor(Math.random() * 2 ** 31);
  $("unmarked").hidden = !twin;
  $("pair").classList.toggle("single", !twin);
  $("replay").hidden = true;
  $("result").hidden = false;
  $("status").textContent = twin ? "Two texts are being written …" : "The text is being written …";
  told = 0;
  const shown = twin ? ["marked", "unmarked"] : ["marked"];
  if (!twin) sheets.unmarked.text = null;
  $("result").scrollIntoView({ block: "nearest" });
  const done = await Promise.all(
    shown.map((one) => sheets[one].write({ ...fields, watermark: one === "marked" }, stop.signal)),
  );
  $("status").textContent = done.every(Boolean) ? "Written." : stop.signal.aborted ? "Stopped." : "";
  if (done.some(Boolean)) offerReplay();
}

// a screen reader hears the quarters, not each word
let told = 0;
function progress() {
  const canvas = sheets.marked.canvas;
  const quarter = Math.floor((4 * canvas.filled) / canvas.cells.length);
  if (quarter <= told || quarter > 3) return;
  told = quarter;
  $("status").textContent = ["", "A quarter is written …", "Half is written …", "Three quarters are written …"][quarter];
}

function busy(on) {
  if (on) stop = new AbortController();
  else stop = null;
  stopPlaying();
  $("submit").ariaDisabled = String(on);
  const hadFocus = document.activeElement === $("stop");
  $("stop").hidden = !on;
  if (!on && hadFocus) $("submit").focus();
}

function fail(error) {
  $("status").textContent = "";
  $("result").hidden = true;
  showProblem("There is no text", error);
}

// --- seeing it again ---

function canvases() {
  return Object.values(sheets).filter((sheet) => sheet.text !== null).map((sheet) => sheet.canvas);
}

function offerReplay() {
  const steps = Math.max(...canvases().map((canvas) => canvas.steps));
  $("step").max = steps; // before the value, which it limits
  $("step").value = steps;
  $("replay").hidden = false;
  showStep();
}

function showStep() {
  const step = Number($("step").value);
  for (const canvas of canvases()) canvas.at(Math.min(step, canvas.steps));
  $("step-words").textContent = `step ${step} of ${$("step").max}`;
  $("step").setAttribute("aria-valuetext", $("step-words").textContent);
}

function play() {
  if (playing) return stopPlaying();
  if ($("step").value === $("step").max) $("step").value = 0;
  $("play").textContent = "Pause";
  const pause = Math.min(SLOWEST, (1000 * PLAY_SECONDS) / Number($("step").max));
  playing = setInterval(() => {
    $("step").stepUp();
    showStep();
    if ($("step").value === $("step").max) stopPlaying();
  }, pause);
}

function stopPlaying() {
  clearInterval(playing);
  playing = null;
  $("play").textContent = "Play";
}

$("form").addEventListener("submit", writeBoth);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("stop").addEventListener("click", () => stop?.abort());
$("model").addEventListener("change", chooseModel);
$("play").addEventListener("click", play);
$("step").addEventListener("input", () => {
  stopPlaying();
  showStep();
});
$("tint").addEventListener("change", () => $("pair").classList.toggle("plain", !$("tint").checked));
meet().catch((error) => showProblem("There is no text", error));
