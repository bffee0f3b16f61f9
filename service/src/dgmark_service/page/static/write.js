// The page that shows a text being written, with and without the watermark.
"use strict";

const PLAY_SECONDS = 6;
const SLOWEST = 200; // milliseconds of a step

let playing = null;

class Sheet {
  constructor(id) {
    this.section = $(id);
    const parts = ["h2", ".canvas", ".problem", ".facts-line", ".verdict", ".check"];
    const [title, canvas, problem, facts, found, check] = parts.map((one) => this.section.querySelector(one));
    this.canvas = new Canvas(canvas);
    Object.assign(this, { title, problem, facts, found, check, untold: title.textContent });
    check.querySelector("button").addEventListener("click", () => handOver(this.text, this.key));
  }

  /** Write a text here; throws what went wrong before its first word, and tells of what went wrong after it. */
  async write(fields, signal) {
    const given = fields.prompt ?? "";
    this.text = null;
    this.title.textContent = this.untold;
    for (const one of [this.problem, this.found, this.check]) one.hidden = true;
    this.facts.textContent = "";
    this.canvas.clear();
    this.canvas.element.setAttribute("aria-busy", "true");
    const began = performance.now();
    try {
      const done = await write(
        "/v1/generate",
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
      this.key = done.watermark.key_id;
      this.facts.textContent = factsOf(done, (performance.now() - began) / 1000);
      if (done.watermark.enabled) {
        $("status").textContent = "The marked text is being checked …";
        this.tell(await verdictOf(done));
      }
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

  /** Say whether the text will be found; only then is it one with the watermark. */
  tell({ found, tone, symbol, heading, sentence }) {
    if (found) this.title.textContent = "With the watermark";
    const sign = make("span", "", symbol);
    sign.ariaHidden = "true";
    this.found.className = `verdict small ${tone}`;
    this.found.replaceChildren(make("b", "", sign, ` ${heading}.`), ` ${sentence}`);
    this.found.hidden = false;
  }
}

function factsOf(done, seconds) {
  const { watermark, usage, num_denoising_steps: steps } = done;
  const how = watermark.enabled ? `marked with the key ${nameOf(watermark.key_id)}` : "not marked";
  return `${number(usage.completion_tokens)} tokens in ${number(steps)} steps and ${seconds.toFixed(1)} seconds, ${how}`;
}

const sheets = { marked: new Sheet("marked"), unmarked: new Sheet("unmarked") };

const allowed = () => service.may_generate;

function chooseModel() {
  $("prompt-label").textContent = model().chat ? "What do you want to read?" : "How the text begins";
  if (model().chat && $("prompt").value === $("prompt").defaultValue) $("prompt").value = "Tell me a story about a little fox.";
  $("twin-field").hidden = model().policy === "enforced";
}

async function writeBoth() {
  const prompt = filledIn($("prompt"), "There is nothing to continue yet: write a few words.");
  stopPlaying();
  const chosen = await loadedModel();
  const twin = chosen.policy !== "enforced" && $("twin").checked;
  const fields = { ...asking(chosen, prompt), max_tokens: Number($("length").value) };
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

onSubmit($("prompt"), "No text was written", writeBoth);
$("play").addEventListener("click", play);
$("step").addEventListener("input", () => {
  stopPlaying();
  showStep();
});
$("tint").addEventListener("change", () => $("pair").classList.toggle("plain", !$("tint").checked));
greet("No text was written");
