// The page on which one guesses which of two texts is marked, and then hears what the detector says.
"use strict";

const TALLY = "dgmark-tally";
const TOKENS = 200;
const BEGINNINGS = [
  "Once upon a time, a little fox",
  "The old man lived in a small house by the sea, and every morning he",
  "There was once a girl who was afraid of the dark, until",
  "One day a bear found a red ball in the forest, and",
  "In the garden behind the school stood a tree that",
  "A boy and his dog went down to the river to",
  "The king had three daughters, and the youngest of them",
  "It had rained all night, and when the children woke up",
];
const REQUESTS = ["a little fox", "a lighthouse", "a lost letter", "a bear and a red ball", "the first snow", "a brave mouse"];

let service = null;
let stop = null; // ends the texts under way
let round = null; // {left, right, marked: the side that is}: the texts that are shown
let last = null; // how the round before began

const SIDES = { left: "A", right: "B" };
const part = (side, selector) => $(side).querySelector(selector);

async function meet() {
  service = await about();
  if (!service) return;
  const problem = unable();
  if (problem) throw problem;
  introduce(open());
}

function open() {
  return service.models.find((one) => one.policy !== "enforced");
}

/** Why there is nothing to guess here. */
function unable() {
  if (!open()) return new Error("This service marks every text that it writes, so there is nothing to guess.");
  if (service.may_generate) return null;
  $("token-field").hidden = false;
  return new Error("This service writes for those who have an access token with the scope generate.");
}

function beginning(model) {
  const texts = model.chat ? REQUESTS.map((one) => `Write a short story about ${one}.`) : BEGINNINGS;
  const others = texts.filter((one) => one !== last);
  last = others[Math.floor(Math.random() * others.length)];
  return last;
}

async function begin(event) {
  event.preventDefault();
  if (stop) return;
  $("problem").hidden = true;
  busy(true);
  try {
    if (!service?.may_generate) await meet();
    if (!service) throw new Error("This service writes for those who have an access token. Enter yours above.");
    show(await newRound(await loaded(open(), $("status"))));
  } catch (error) {
    $("result").hidden = true;
    if (error.status === 401) forgetToken();
    if (error.name !== "AbortError") showProblem("There are no texts", error);
  } finally {
    busy(false);
  }
}

async function newRound(model) {
  const text = beginning(model);
  const room = Math.min(TOKENS, Math.floor(model.context_length / 2));
  const fields = { ...asking(model, text), max_tokens: room };
  const filled = [0, 0];
  const lengths = [1, 1];
  $("status").textContent = "Two texts are being written …";
  $("progress").value = 0;
  $("progress").hidden = false;
  const both = [true, false].map((watermark, which) =>
    write(
      { ...fields, watermark },
      {
        start: (event) => {
          lengths[which] = event.length;
        },
        step: (event) => {
          filled[which] += event.positions.length;
          $("progress").value = (filled[0] + filled[1]) / (lengths[0] + lengths[1]);
        },
      },
      stop.signal,
    ),
  );
  let marked;
  let unmarked;
  try {
    [marked, unmarked] = await Promise.all(both);
  } catch (error) {
    stop.abort(); // the other one is not needed any more
    throw error;
  }
  const side = Math.random() < 0.5 ? "left" : "right";
  const other = side === "left" ? "right" : "left";
  return { [side]: marked.text, [other]: unmarked.text, marked: side, key: marked.watermark.key_id, text, chat: model.chat };
}

function show(one) {
  round = one;
  $("status").textContent = "Read both, and choose.";
  $("beginning").textContent = `${round.chat ? "Both answer" : "Both continue"}: “${round.text}”`;
  for (const side of Object.keys(SIDES)) {
    part(side, ".text").textContent = round[side].trim();
    part(side, ".pick-one").hidden = false;
    part(side, ".answer").hidden = true;
    $(side).classList.remove("chosen-one");
  }
  $("verdict").hidden = true;
  $("result").hidden = false;
  $("left").scrollIntoView({ block: "nearest" });
}

async function guess(side) {
  if (round.guessed) return;
  round.guessed = side;
  $("problem").hidden = true;
  $("status").textContent = "The detector looks …";
  try {
    const [left, right] = await Promise.all(["left", "right"].map((one) => detected(round[one])));
    reveal(side, { left, right });
  } catch (error) {
    round.guessed = null; // one may try again
    $("status").textContent = "";
    showProblem("The detector gave no answer", error);
  }
}

async function detected(text) {
  return (await ask("/v1/detect", JSON.stringify({ text, key: round.key }))).json();
}

function reveal(side, answers) {
  const right = side === round.marked;
  const other = round.marked === "left" ? "right" : "left";
  const found = answers[round.marked].verdict === "watermarked" && answers[other].verdict !== "watermarked";
  for (const one of Object.keys(SIDES)) {
    const marked = one === round.marked;
    part(one, ".pick-one").hidden = true;
    part(one, ".answer").replaceChildren(
      make("strong", marked ? "was-marked" : "", marked ? "With the watermark" : "Without the watermark"),
      make("span", "", `${one === side ? "Your guess. " : ""}The detector says: ${answers[one].heading.charAt(0).toLowerCase()}${answers[one].heading.slice(1)}.`),
    );
    part(one, ".answer").hidden = false;
    $(one).classList.toggle("chosen-one", one === side);
  }
  $("verdict").className = `verdict ${right ? "watermarked" : "not_detected"}`;
  $("symbol").textContent = right ? "✓" : "✗";
  $("heading").textContent = right ? `Right, it was ${SIDES[round.marked]}` : `No, it was ${SIDES[round.marked]}`;
  $("sentence").textContent = `Of the marked text the detector says: ${answers[round.marked].sentence}`;
  $("verdict").hidden = false;
  $("status").textContent = "";
  count(right, found);
  $("verdict").focus({ preventScroll: true });
  $("verdict").scrollIntoView({ block: "nearest" });
}

// --- the tally ---

function tally() {
  return JSON.parse(sessionStorage.getItem(TALLY) ?? '{"rounds": 0, "you": 0, "detector": 0}');
}

function count(right, found) {
  const so = tally();
  so.rounds += 1;
  so.you += Number(right);
  so.detector += Number(found);
  sessionStorage.setItem(TALLY, JSON.stringify(so));
  showTally();
}

function showTally() {
  const { rounds, you, detector } = tally();
  $("tally").hidden = rounds === 0;
  showFacts($("rows"), [["You", you], ["The detector", detector]].map(([who, times]) => [who, `${times} of ${rounds} right`]));
  if (rounds) $("submit").textContent = "Write two more";
}

function busy(on) {
  stop = on ? new AbortController() : null;
  $("submit").ariaDisabled = String(on);
  const hadFocus = document.activeElement === $("stop");
  $("stop").hidden = !on;
  if (!on && hadFocus) $("submit").focus();
  if (on) {
    $("result").hidden = true;
  } else {
    $("progress").hidden = true;
    if ($("result").hidden) $("status").textContent = "";
  }
}

$("form").addEventListener("submit", begin);
$("stop").addEventListener("click", () => stop?.abort());
for (const side of Object.keys(SIDES)) part(side, ".pick-one").addEventListener("click", () => guess(side));
showTally();
meet().catch((error) => showProblem("There are no texts", error));
